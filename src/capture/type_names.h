// Names of types and callables for messages and for the table of C callables.
#pragma once

#include <Python.h>

#include <string>
#include <string_view>

namespace reprise::capture {

/// `module.Name` of a type.
std::string type_name(PyTypeObject* type);
/// Qualified name of any callable: `math.sqrt`, `list.append`, `pkg.mod.function`.
std::string callable_name(PyObject* callable);
/// `mod.function` -> `function`.
constexpr std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace reprise::capture
