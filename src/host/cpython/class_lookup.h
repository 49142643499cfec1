// What classes say about names: look-ups along the MRO, and the special names of one class.
//
// Never runs Python code and keeps a pending exception. References are borrowed from the class.
#pragma once

#include <Python.h>

#include <array>
#include <utility>
#include <vector>

namespace reprise::host {

/// The class's own; nullptr: it has none.
PyObject* get_class_dict(PyTypeObject* type);
/// What `name` means in `type`: the first class of its MRO that has it, or of those behind `after`. nullptr: no class.
PyObject* find_in_class(PyTypeObject* type, PyObject* name, PyTypeObject* after = nullptr);

using NamedValues = std::vector<std::pair<PyObject*, PyObject*>>;
/// Names such as `__len__` that this very class defines, with their values: what CPython, or C code, looks up in a
/// class without being asked for it by name. Texts (`__doc__`) are left out.
NamedValues list_special_names(PyTypeObject* type);
/// Whether `list_special_names` would give the same names and the same objects.
bool has_special_names(PyTypeObject* type, const NamedValues& expected);
/// __name__ and __qualname__; nullptr for a static type, whose names never change.
std::array<PyObject*, 2> get_class_names(PyTypeObject* type);
/// Nobody can change the class: a static type, or one that C code made unchangeable.
bool is_immutable_class(PyTypeObject* type);

}  // namespace reprise::host
