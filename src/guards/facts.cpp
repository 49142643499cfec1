#include "guards/facts.h"

#include <cstring>
#include <string_view>

#include "base/check.h"

extern "C" PyObject* _PyType_Lookup(PyTypeObject*, PyObject*);

namespace reprise::guards {

using trace::FactKind;

namespace {

constexpr int kMaxPlainDepth = 8;

bool has_heap_type(PyObject* object) { return PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE); }

// torch.dtype, torch.device, torch.layout, torch.memory_format: immutable, compared and hashed by C code.
bool is_torch_constant(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return !has_heap_type(object) && type->tp_itemsize == 0 && std::string_view(type->tp_name).starts_with("torch.") &&
         !host::is_tensor(object);
}

bool ints_are_equal(PyObject* a, PyObject* b) {
  int overflow_a = 0, overflow_b = 0;
  const long long left = PyLong_AsLongLongAndOverflow(a, &overflow_a);
  const long long right = PyLong_AsLongLongAndOverflow(b, &overflow_b);
  if (overflow_a != overflow_b) return false;
  if (overflow_a == 0) return left == right;
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;  // two exact ints
}

bool doubles_are_equal(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool strings_are_equal(PyObject* a, PyObject* b) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(a);
  return length == PyUnicode_GET_LENGTH(b) && PyUnicode_KIND(a) == PyUnicode_KIND(b) &&
         std::memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b), static_cast<size_t>(length) * PyUnicode_KIND(a)) == 0;
}

// The dict's own keys in order, whatever its class does to iteration; an OrderedDict keeps its order elsewhere.
bool check_keys(PyObject* dict, PyObject* keys) {
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  PyObject *key, *value;
  if (PyODict_Check(dict)) {
    PyObject* iterator = PyODict_Type.tp_iter(dict);
    bool ok = iterator != nullptr;
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(keys); i++) {
      key = PyIter_Next(iterator);
      ok = key != nullptr && equals_exactly(key, PyTuple_GET_ITEM(keys, i));
      Py_XDECREF(key);
    }
    Py_XDECREF(iterator);
    PyErr_Clear();
    return ok;
  }
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, &value); i++) {
    if (!equals_exactly(key, PyTuple_GET_ITEM(keys, i))) return false;
  }
  return true;
}

}  // namespace

bool is_scalar(PyObject* object) {
  return object == Py_None || PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyUnicode_CheckExact(object) ||
         PyBool_Check(object) || PyBytes_CheckExact(object) || PyComplex_CheckExact(object);
}

namespace {

// A class that is compared and hashed by identity, whatever its metaclass.
bool is_plain_class(PyObject* object) {
  const PyTypeObject* meta = Py_TYPE(object);
  return PyType_Check(object) && meta->tp_hash == PyBaseObject_Type.tp_hash &&
         meta->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

bool is_plain_below(PyObject* object, bool* may_change, int depth) {
  if (is_scalar(object) || object == Py_Ellipsis || object == Py_NotImplemented) return true;
  if (depth > kMaxPlainDepth) return false;
  if (PyTuple_Check(object) && !has_heap_type(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
      if (!is_plain_below(PyTuple_GET_ITEM(object, i), may_change, depth + 1)) return false;
    }
    return true;
  }
  if (PyList_CheckExact(object)) {
    if (may_change != nullptr) *may_change = true;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); i++) {
      if (!is_plain_below(PyList_GET_ITEM(object, i), may_change, depth + 1)) return false;
    }
    return true;
  }
  if (PyDict_CheckExact(object)) {
    if (may_change != nullptr) *may_change = true;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value)) {
      if (!is_plain_below(key, may_change, depth + 1) || !is_plain_below(value, may_change, depth + 1)) return false;
    }
    return true;
  }
  if (PyAnySet_CheckExact(object)) {
    if (may_change != nullptr && !PyFrozenSet_CheckExact(object)) *may_change = true;
    PyObject* iterator = PyObject_GetIter(object);
    bool all_plain = iterator != nullptr;
    while (all_plain) {
      PyObject* element = PyIter_Next(iterator);
      if (element == nullptr) break;
      all_plain = is_plain_below(element, may_change, depth + 1);
      Py_DECREF(element);
    }
    Py_XDECREF(iterator);
    PyErr_Clear();
    return all_plain;
  }
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return is_plain_below(slice->start, may_change, depth + 1) && is_plain_below(slice->stop, may_change, depth + 1) &&
           is_plain_below(slice->step, may_change, depth + 1);
  }
  return PyRange_Check(object) || PyFunction_Check(object) || PyCFunction_CheckExact(object) ||
         is_plain_class(object) || PyModule_CheckExact(object) || PyCode_Check(object) || is_torch_constant(object);
}

}  // namespace

bool is_plain(PyObject* object, bool* may_change) { return is_plain_below(object, may_change, 0); }

bool is_plain_to_compare(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return (type->tp_richcompare == PyBaseObject_Type.tp_richcompare && type->tp_hash == PyBaseObject_Type.tp_hash) ||
         is_plain(object);
}

bool equals_exactly(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(b);
  if (Py_TYPE(a) != type) return false;
  if (type == &PyLong_Type) return ints_are_equal(a, b);
  if (type == &PyFloat_Type) return doubles_are_equal(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (type == &PyUnicode_Type) return strings_are_equal(a, b);
  if (type == &PyBytes_Type) {
    return PyBytes_GET_SIZE(a) == PyBytes_GET_SIZE(b) &&
           std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), static_cast<size_t>(PyBytes_GET_SIZE(a))) == 0;
  }
  if (type == &PyComplex_Type) {
    const Py_complex left = PyComplex_AsCComplex(a), right = PyComplex_AsCComplex(b);
    return doubles_are_equal(left.real, right.real) && doubles_are_equal(left.imag, right.imag);
  }
  if (PyTuple_Check(b)) {  // also namedtuples and torch.Size: the types are the same, so the elements decide
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++) {
      if (!equals_exactly(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    }
    return true;
  }
  if (type == &PySlice_Type) {
    auto *left = reinterpret_cast<PySliceObject*>(a), *right = reinterpret_cast<PySliceObject*>(b);
    return equals_exactly(left->start, right->start) && equals_exactly(left->stop, right->stop) &&
           equals_exactly(left->step, right->step);
  }
  if (type == &PyRange_Type || type == &PyFrozenSet_Type || is_torch_constant(b)) {
    if (!is_plain(a) || !is_plain(b)) return false;
    const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) PyErr_Clear();
    return equal == 1;
  }
  return false;
}

Py_ssize_t find_length(PyObject* object) {
  if (PyTuple_Check(object) || PyList_Check(object)) {
    const lenfunc length = Py_TYPE(object)->tp_as_sequence->sq_length;
    const lenfunc own =
        PyTuple_Check(object) ? PyTuple_Type.tp_as_sequence->sq_length : PyList_Type.tp_as_sequence->sq_length;
    return length == own ? Py_SIZE(object) : -1;
  }
  if (PyDict_Check(object)) {
    return Py_TYPE(object)->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length ? PyDict_GET_SIZE(object)
                                                                                             : -1;
  }
  if (PyUnicode_CheckExact(object)) return PyUnicode_GET_LENGTH(object);
  if (PyBytes_CheckExact(object)) return PyBytes_GET_SIZE(object);
  if (PyAnySet_CheckExact(object)) return PySet_GET_SIZE(object);
  if (PyRange_Check(object)) {
    const Py_ssize_t length = PyObject_Size(object);
    if (length < 0) PyErr_Clear();
    return length;
  }
  if (host::is_plain_tensor(object)) {
    const std::span<const int64_t> sizes = host::tensor_sizes(object);
    return sizes.empty() ? -1 : sizes[0];
  }
  return -1;
}

int find_truth(PyObject* object) {
  if (object == Py_True) return 1;
  if (object == Py_False || object == Py_None) return 0;
  if (PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyComplex_CheckExact(object)) {
    return PyObject_IsTrue(object);
  }
  if (host::is_tensor(object)) return -1;
  PyTypeObject* type = Py_TYPE(object);
  const bool has_bool = type->tp_as_number != nullptr && type->tp_as_number->nb_bool != nullptr;
  if (has_bool) {
    if (!is_torch_constant(object)) return -1;
    const int truth = PyObject_IsTrue(object);
    if (truth < 0) PyErr_Clear();
    return truth;
  }
  if (const Py_ssize_t length = find_length(object); length >= 0) return length > 0;
  const bool has_length = (type->tp_as_mapping != nullptr && type->tp_as_mapping->mp_length != nullptr) ||
                          (type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_length != nullptr);
  return has_length ? -1 : 1;
}

namespace {

// Of a class of strings or numbers that hashes and compares as they do, in C: an enum's members are.
bool is_value_in_c(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  for (const PyTypeObject* base : {&PyUnicode_Type, &PyLong_Type, &PyFloat_Type}) {
    if (PyType_IsSubtype(Py_TYPE(object), const_cast<PyTypeObject*>(base)))
      return type->tp_hash == base->tp_hash && type->tp_richcompare == base->tp_richcompare;
  }
  return false;
}

// The hash of an enum's member, which Python code of the module enum computes: that of its name. -1: it is none.
Py_hash_t find_member_hash(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (strstr(Py_TYPE(type)->tp_name, "Enum") == nullptr) return -1;
  static PyObject* const kHash = PyUnicode_InternFromString("__hash__");
  static PyObject* const kName = PyUnicode_InternFromString("_name_");
  PyObject* function = _PyType_Lookup(type, kHash);
  if (function == nullptr || !PyFunction_Check(function)) return -1;
  PyObject* module = PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "__name__");
  const bool is_of_enum = module != nullptr && PyUnicode_Check(module) &&
                          PyUnicode_CompareWithASCIIString(module, "enum") == 0 &&
                          type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
  PyObject* name = is_of_enum ? PyObject_GenericGetAttr(object, kName) : nullptr;
  const Py_hash_t hash = name != nullptr && PyUnicode_CheckExact(name) ? PyObject_Hash(name) : -1;
  Py_XDECREF(name);
  PyErr_Clear();
  return hash;
}

}  // namespace

bool find_dict_item(PyObject* dict, PyObject* key, PyObject** found) {
  *found = nullptr;
  if (host::is_tensor(key)) {
    // Tensor.__hash__ is Python code, but known to be id(); the dict finds the very object by identity.
    *found = _PyDict_GetItem_KnownHash(dict, key, static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(key)));
  } else if (is_plain_to_compare(key) || is_value_in_c(key)) {
    *found = PyDict_GetItemWithError(dict, key);
  } else if (const Py_hash_t hash = find_member_hash(key); hash != -1) {
    *found = _PyDict_GetItem_KnownHash(dict, key, hash);
  } else {
    return false;
  }
  if (*found == nullptr && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return true;
}

bool check_fact(FactKind fact, PyObject* value, PyObject* object, int64_t n, const host::TensorMeta* meta,
                PyObject* other) {
  switch (fact) {
    case FactKind::Absent:
      return value == nullptr;
    case FactKind::Identity:
      return value == object;
    case FactKind::Same:
      return value == other;
    case FactKind::Different:
      return value != other;
    case FactKind::Type:
      return value != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(value)) == object;
    case FactKind::Present:
      return value != nullptr;
    case FactKind::Truth:
      return value != nullptr && find_truth(value) == static_cast<int>(n != 0);
    case FactKind::Equal:
      return value != nullptr && equals_exactly(value, object);
    case FactKind::Length:
      return value != nullptr && find_length(value) == n;
    case FactKind::Keys:
      return value != nullptr && check_keys(value, object);
    case FactKind::TensorMeta:
      return value != nullptr && meta != nullptr && host::check_tensor_meta(*meta, value);
    case FactKind::TensorLike:
      return value != nullptr && meta != nullptr && host::check_tensor_header(*meta, value);
    case FactKind::Code:
      return value != nullptr && PyFunction_Check(value) && PyFunction_GET_CODE(value) == object;
  }
  REPRISE_UNREACHABLE("fact kind " + std::to_string(static_cast<int>(fact)));
}

}  // namespace reprise::guards
