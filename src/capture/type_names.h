// Names of types and callables for messages and for the table of C callables.
#pragma once

#include <Python.h>

#include <string>

namespace reprise::capture {

/// `module.Name` of a type.
std::string type_name(PyTypeObject* type);
/// Qualified name of any callable: `math.sqrt`, `list.append`, `pkg.mod.function`.
std::string callable_name(PyObject* callable);

}  // namespace reprise::capture
