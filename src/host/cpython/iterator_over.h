// zip, map, enumerate and filter over iterators that exist already: iter() has been asked for, so the `__iter__` of an
// iterator written in Python must not run again.
#pragma once

#include <Python.h>

#include <cstddef>

namespace reprise::host {

/// type(*operands); new reference. Operands from `first` on that are iterators are taken as they are.
PyObject* make_iterator_over(PyObject* type, PyObject* const* operands, size_t count, size_t first);
/// The position of the first iterable among the arguments of such a type.
size_t first_source(PyObject* type);

/// The dict that `d.keys()`, `d.values()` or `d.items()` shows; borrowed.
PyObject* find_dict_of_view(PyObject* view);

}  // namespace reprise::host
