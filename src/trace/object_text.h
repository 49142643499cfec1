// Short texts of Python objects for dumps and explanations: names of functions, types and modules; the repr of scalars,
// strings and tuples of them. No addresses, so texts are the same in every run; no user code, so they may be made at
// any moment. A pending exception stays.
#pragma once

#include <Python.h>

#include <string>

namespace reprise::trace {

/// `torch.nn.Parameter`, `<function forward>`, `'weight'`, `<dict>`; `NULL` for nullptr.
std::string describe_object(PyObject* object);
/// `torch.nn.modules.linear.Linear`; `builtins.` is left out.
std::string describe_type(PyTypeObject* type);
/// `forward` for functions and code objects, else an empty text.
std::string name_of_callable(PyObject* object);
/// `model.py:12` for a code unit of a code object.
std::string describe_code_place(PyCodeObject* code, int32_t unit);

}  // namespace reprise::trace
