#include "guards/reads.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "guards/facts.h"
#include "host/cpython/operators.h"

namespace reprise::guards {

using trace::FunctionField;
using trace::NodeKind;
using trace::UnaryOp;

namespace {

PyObject* read_instance_dict(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (slot == nullptr) return nullptr;
  if (*slot == nullptr) {
    PyObject* dict = PyObject_GenericGetDict(object, nullptr);
    if (dict == nullptr) PyErr_Clear();
    Py_XDECREF(dict);
  }
  return *slot;
}

ReadResult read_slot(PyObject* descriptor, PyObject* object) {
  PyTypeObject* kind = Py_TYPE(descriptor);
  if (kind != &PyMemberDescr_Type && kind != &PyGetSetDescr_Type) return {nullptr, false, true};
  if (!PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyDescrObject*>(descriptor)->d_type))
    return {nullptr, false, true};
  PyObject* value = kind->tp_descr_get(descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (value != nullptr) return {value, true, false};
  const bool is_missing = PyErr_ExceptionMatches(PyExc_AttributeError);
  PyErr_Clear();
  return {nullptr, false, !is_missing};
}

ReadResult read_function_field(PyObject* object, int32_t n) {
  if (!PyFunction_Check(object)) return {nullptr, false, true};
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  switch (static_cast<FunctionField>(n)) {
    case FunctionField::Closure:
      return {function->func_closure};
    case FunctionField::Defaults:
      return {function->func_defaults};
    case FunctionField::KwDefaults:
      return {function->func_kwdefaults};
    case FunctionField::Code:
      return {function->func_code};
  }
  return {nullptr, false, true};
}

PyObject* run_unary(int32_t n, PyObject* operand) {
  switch (static_cast<UnaryOp>(n)) {
    case UnaryOp::Negative:
      return PyNumber_Negative(operand);
    case UnaryOp::Invert:
      return PyNumber_Invert(operand);
    case UnaryOp::Positive:
      return PyNumber_Positive(operand);
    case UnaryOp::Not: {
      const int truth = PyObject_IsTrue(operand);
      return truth < 0 ? nullptr : PyBool_FromLong(!truth);
    }
  }
  REPRISE_UNREACHABLE("unary operation " + std::to_string(n));
}

PyObject* get_item(PyObject* container, PyObject* key) {
  // Also without user code: a dict is asked by the identity of a tensor.
  if (PyDict_CheckExact(container)) {
    PyObject* found;
    if (find_dict_item(container, key, &found)) {
      if (found == nullptr) PyErr_SetObject(PyExc_KeyError, key);
      return Py_XNewRef(found);
    }
  }
  return PyObject_GetItem(container, key);
}

PyObject* contains(PyObject* container, PyObject* key) {
  PyObject* value;
  if (PyDict_CheckExact(container) && find_dict_item(container, key, &value)) return PyBool_FromLong(value != nullptr);
  const int found = PySequence_Contains(container, key);
  return found < 0 ? nullptr : PyBool_FromLong(found);
}

PyObject* format(int32_t n, PyObject* const* operands, size_t count) {
  constexpr int32_t kConversionMask = 3, kConvertOnly = 8;
  PyObject* value = Py_NewRef(operands[0]);
  if (const int32_t conversion = n & kConversionMask) {
    PyObject* text = conversion == 1   ? PyObject_Str(value)
                     : conversion == 2 ? PyObject_Repr(value)
                                       : PyObject_ASCII(value);
    Py_SETREF(value, text);
  }
  if (value == nullptr || (n & kConvertOnly)) return value;
  PyObject* result = PyObject_Format(value, count > 1 ? operands[1] : nullptr);
  Py_DECREF(value);
  return result;
}

PyObject* make_tuple(PyObject* type, PyObject* const* operands, size_t count) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(count));
  if (tuple == nullptr) return nullptr;
  for (size_t i = 0; i < count; i++) PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), Py_NewRef(operands[i]));
  if (type == nullptr) return tuple;
  PyObject* result = PyObject_CallOneArg(type, tuple);
  Py_DECREF(tuple);
  return result;
}

PyObject* join_strings(PyObject* const* operands, size_t count) {
  PyObject* parts = make_tuple(nullptr, operands, count);
  PyObject* empty = parts == nullptr ? nullptr : PyUnicode_New(0, 0);
  PyObject* result = empty == nullptr ? nullptr : PyUnicode_Join(empty, parts);
  Py_XDECREF(empty);
  Py_XDECREF(parts);
  return result;
}

}  // namespace

ReadResult read_value(NodeKind kind, int32_t n, PyObject* object, PyObject* operand) {
  if (operand == nullptr) return {};
  switch (kind) {
    case NodeKind::InstanceDict:
      return {read_instance_dict(operand)};
    case NodeKind::DictItem: {
      if (!PyDict_Check(operand)) return {nullptr, false, true};
      if (PyUnicode_CheckExact(object)) {
        PyObject* value = PyDict_GetItemWithError(operand, object);
        return {value};
      }
      PyObject* found;
      const bool ok = find_dict_item(operand, object, &found);
      return {found, false, !ok};
    }
    case NodeKind::SequenceItem:
      if (PyTuple_Check(operand)) return {n < PyTuple_GET_SIZE(operand) ? PyTuple_GET_ITEM(operand, n) : nullptr};
      if (PyList_Check(operand)) return {n < PyList_GET_SIZE(operand) ? PyList_GET_ITEM(operand, n) : nullptr};
      return {nullptr, false, true};
    case NodeKind::Length: {
      const Py_ssize_t length = find_length(operand);
      if (length < 0) return {nullptr, false, true};
      return {PyLong_FromSsize_t(length), true};
    }
    case NodeKind::CellContents:
      if (!PyCell_Check(operand)) return {nullptr, false, true};
      return {PyCell_GET(operand)};
    case NodeKind::Referent:
      if (!PyWeakref_CheckRefExact(operand)) return {nullptr, false, true};
      return {PyWeakref_GET_OBJECT(operand)};
    case NodeKind::Slot:
      return read_slot(object, operand);
    case NodeKind::FunctionField:
      return read_function_field(operand, n);
    case NodeKind::MethodField:
      if (!PyMethod_Check(operand)) return {nullptr, false, true};
      return {n == 0 ? PyMethod_GET_FUNCTION(operand) : PyMethod_GET_SELF(operand)};
    default:
      break;
  }
  REPRISE_UNREACHABLE(std::string("no read: ") + trace::text_of(kind));
}

ReadResult read_item_by_identity(PyObject* dict, PyObject* key) {
  if (dict == nullptr || key == nullptr) return {};
  PyObject* found = nullptr;
  const bool ok = PyDict_Check(dict) && find_dict_item(dict, key, &found);
  return {found, false, !ok};
}

namespace {

bool are_distinct(PyObject* const* objects, size_t count) {
  std::vector<PyObject*> sorted(objects, objects + count);
  std::sort(sorted.begin(), sorted.end(), std::less<>());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

}  // namespace

PyObject* run_operation(NodeKind kind, int32_t n, PyObject* object, PyObject* const* operands, size_t count) {
  switch (kind) {
    case NodeKind::Unary:
      return run_unary(n, operands[0]);
    case NodeKind::Binary:
      REPRISE_CHECK(n >= 0 && n < host::kBinaryOperatorCount, "binary operation " + std::to_string(n));
      return host::kBinaryOperators[n](operands[0], operands[1]);
    case NodeKind::Compare:
      return PyObject_RichCompare(operands[0], operands[1], n);
    case NodeKind::Identical:
      return PyBool_FromLong(operands[0] == operands[1]);
    case NodeKind::Distinct:
      return PyBool_FromLong(are_distinct(operands, count));
    case NodeKind::Contains:
      return contains(operands[0], operands[1]);
    case NodeKind::GetItem:
      return get_item(operands[0], operands[1]);
    case NodeKind::Truth: {
      const int truth = PyObject_IsTrue(operands[0]);
      return truth < 0 ? nullptr : PyBool_FromLong(truth);
    }
    case NodeKind::Call: {
      const auto keyword_count = static_cast<size_t>(object == nullptr ? 0 : PyTuple_GET_SIZE(object));
      return PyObject_Vectorcall(operands[0], operands + 1,
                                 (count - 1 - keyword_count) | PY_VECTORCALL_ARGUMENTS_OFFSET, object);
    }
    case NodeKind::Format:
      return format(n, operands, count);
    case NodeKind::TensorSize:
      return host::read_tensor_size(operands[0], n);
    case NodeKind::JoinStrings:
      return join_strings(operands, count);
    case NodeKind::Tuple:
      return make_tuple(object, operands, count);
    case NodeKind::Slice:
      return PySlice_New(operands[0], operands[1], operands[2]);
    default:
      break;
  }
  REPRISE_UNREACHABLE(std::string("no operation: ") + trace::text_of(kind));
}

bool is_plain_callable(PyObject* callable) {
  if (PyCFunction_CheckExact(callable) || Py_IS_TYPE(callable, &PyMethodDescr_Type) ||
      Py_IS_TYPE(callable, &PyWrapperDescr_Type) || Py_IS_TYPE(callable, &PyClassMethodDescr_Type)) {
    return true;
  }
  return PyType_CheckExact(callable) &&
         !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(callable), Py_TPFLAGS_HEAPTYPE);
}

// variable.get(default): looked up by identity; what is found is given as it is.
bool is_context_read(PyObject* const* operands, size_t count) {
  static PyObject* const kGet = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyContextVar_Type), "get");
  return count >= 2 && operands[0] == kGet && PyContextVar_CheckExact(operands[1]);
}

bool is_plain_operation(NodeKind kind, PyObject* const* operands, size_t count) {
  switch (kind) {
    case NodeKind::Identical:
    case NodeKind::Distinct:
    case NodeKind::Tuple:
    case NodeKind::Slice:
      return true;
    case NodeKind::TensorSize:
      return host::is_plain_tensor(operands[0]);
    case NodeKind::Truth:
      return find_truth(operands[0]) >= 0;
    case NodeKind::Contains:
      if (PyDict_CheckExact(operands[0])) return host::is_tensor(operands[1]) || is_plain_to_compare(operands[1]);
      if (PyAnySet_CheckExact(operands[0])) {  // classes, functions: hashed by identity; equal hashes are one object
        return is_plain_to_compare(operands[1]) || Py_TYPE(operands[1])->tp_hash == PyBaseObject_Type.tp_hash;
      }
      return is_plain(operands[0]) && is_plain_to_compare(operands[1]);
    case NodeKind::GetItem:
      if (PyDict_CheckExact(operands[0])) return host::is_tensor(operands[1]) || is_plain_to_compare(operands[1]);
      if (PyTuple_Check(operands[0]) || PyList_CheckExact(operands[0])) {
        const bool is_own = Py_TYPE(operands[0])->tp_as_mapping->mp_subscript ==
                            (PyTuple_Check(operands[0]) ? PyTuple_Type : PyList_Type).tp_as_mapping->mp_subscript;
        return is_own && is_plain(operands[1]);
      }
      return is_plain(operands[0]) && is_plain(operands[1]);
    case NodeKind::Compare:
      return is_plain_to_compare(operands[0]) && is_plain_to_compare(operands[1]);
    case NodeKind::Call:
      if (is_context_read(operands, count)) return true;
      if (!is_plain_callable(operands[0])) return false;
      break;
    default:
      if (!is_plain(operands[0])) return false;
      break;
  }
  for (size_t i = 1; i < count; i++) {
    if (!is_plain(operands[i])) return false;
  }
  return true;
}

bool is_constant_operation(NodeKind kind, PyObject* const* operands, size_t count) {
  if (kind == NodeKind::Identical || kind == NodeKind::Distinct || kind == NodeKind::Tuple || kind == NodeKind::Slice)
    return true;
  if (kind == NodeKind::TensorSize) return false;
  if (kind == NodeKind::Call && count == 1) return false;  // asks the process or the thread: getpid()
  bool may_change = false;
  for (size_t i = 0; i < count; i++) {
    if (kind == NodeKind::Call && i == 0) continue;
    if (!is_plain(operands[i], &may_change) || may_change) return false;
  }
  return true;
}

}  // namespace reprise::guards
