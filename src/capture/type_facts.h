// What the type of an object says about it, for all models.
#pragma once

#include <Python.h>

#include <cstring>

namespace reprise::capture {

inline bool is_number(PyObject* o) {
  return PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyComplex_CheckExact(o);
}

/// A class of the module enum or derived from one.
inline bool is_enum(PyTypeObject* type) { return std::strstr(Py_TYPE(type)->tp_name, "Enum") != nullptr; }

/// A member of an enum whose members are strings or numbers: IntEnum, StrEnum, `class X(str, Enum)`.
inline bool is_value_member(PyObject* o) {
  const bool is_value = PyUnicode_Check(o) || PyLong_Check(o) || PyFloat_Check(o);
  return is_value && is_enum(Py_TYPE(o));
}

/// `int | str`, `list[int]`: immutable, and as good as a class.
inline bool is_type_alias(PyObject* o) {
  if (Py_TYPE(o) == &Py_GenericAliasType) return true;
  const char* name = Py_TYPE(o)->tp_name;
  return (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 && std::strcmp(name, "types.UnionType") == 0;
}

/// An array, a scalar or another object of numpy's own classes in C.
inline bool is_of_numpy(PyObject* o) { return std::strncmp(Py_TYPE(o)->tp_name, "numpy.", 6) == 0; }

inline bool has_instance_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) return true;
#endif
  return type->tp_dictoffset != 0;
}

/// Made by C code, not by a class statement. From 3.12 on many such types are heap types that nobody can change.
inline bool is_made_in_c(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 || (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0;
}

}  // namespace reprise::capture
