#include "runtime/run_node.h"

#include <string>

#include "base/check.h"
#include "guards/reads.h"
#include "host/cpython/iterator_over.h"

namespace reprise::runtime {

using trace::Category;
using trace::NodeKind;

namespace {

PyObject* none_if(bool ok) { return ok ? Py_NewRef(Py_None) : nullptr; }

// callable, arguments; the last ones are named by `keywords`.
PyObject* call(PyObject** operands, size_t count, PyObject* keywords) {
  const auto keyword_count = static_cast<size_t>(keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords));
  return PyObject_Vectorcall(operands[0], operands + 1, (count - 1 - keyword_count) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                             keywords);
}

PyObject* run_read(NodeKind kind, int32_t n, PyObject* object, PyObject** operands) {
  PyObject* operand = operands[0];
  const guards::ReadResult result = kind == NodeKind::DictItemByIdentity
                                        ? guards::read_item_by_identity(operand, operands[1])
                                        : guards::read_value(kind, n, object, operand);
  if (!result.has_failed) return result.is_new ? result.object : Py_XNewRef(result.object);
  // Results of torch calls: sequences of other types.
  if (kind == NodeKind::SequenceItem) return PySequence_GetItem(operand, n);
  if (kind == NodeKind::Length) {
    const Py_ssize_t length = PyObject_Size(operand);
    return length < 0 ? nullptr : PyLong_FromSsize_t(length);
  }
  if (kind == NodeKind::DictItem) {
    PyObject* value = PyObject_GetItem(operand, object);
    if (value == nullptr && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
    return value;
  }
  PyErr_Format(PyExc_SystemError, "reprise: cannot read '%s' of '%.100s'", trace::text_of(kind),
               Py_TYPE(operand)->tp_name);
  return nullptr;
}

PyObject* make_list(PyObject** operands, size_t count) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(count));
  if (list == nullptr) return nullptr;
  for (size_t i = 0; i < count; i++) PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(operands[i]));
  return list;
}

PyObject* make_dict(PyObject** operands, size_t count) {
  PyObject* dict = PyDict_New();
  for (size_t i = 0; dict != nullptr && i + 1 < count; i += 2) {
    if (PyDict_SetItem(dict, operands[i], operands[i + 1]) < 0) Py_CLEAR(dict);
  }
  return dict;
}

PyObject* make_set(PyObject** operands, size_t count) {
  PyObject* set = PySet_New(nullptr);
  for (size_t i = 0; set != nullptr && i < count; i++) {
    if (PySet_Add(set, operands[i]) < 0) Py_CLEAR(set);
  }
  return set;
}

PyObject* make_object(int32_t n, PyObject* keywords, PyObject** operands, size_t count) {
  if (n != 0) return call(operands, count, keywords);
  auto* type = reinterpret_cast<PyTypeObject*>(operands[0]);
  // The C type's, past a __new__ of the program: the trace has its body.
  PyTypeObject* base = &PyBaseObject_Type;
  if (PyType_IsSubtype(type, &PyDict_Type)) base = &PyDict_Type;
  if (PyType_IsSubtype(type, &PyList_Type)) base = &PyList_Type;
  PyObject* no_arguments = PyTuple_New(0);
  if (no_arguments == nullptr) return nullptr;
  PyObject* result = base->tp_new(type, no_arguments, nullptr);
  Py_DECREF(no_arguments);
  return result;
}

// globals, defaults, keyword defaults, annotations, closure
PyObject* make_function(PyObject* code, PyObject** operands) {
  PyObject* object = PyFunction_New(code, operands[0]);
  if (object == nullptr) return nullptr;
  // As MAKE_FUNCTION stores them: annotations may still be a tuple.
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  function->func_defaults = Py_XNewRef(operands[1]);
  function->func_kwdefaults = Py_XNewRef(operands[2]);
  function->func_annotations = Py_XNewRef(operands[3]);
  function->func_closure = Py_XNewRef(operands[4]);
  return object;
}

PyObject* make_method(int32_t n, PyObject* function, PyObject* self) {
  if (n == 0) return PyMethod_New(function, self);
  const descrgetfunc get = Py_TYPE(function)->tp_descr_get;
  return get == nullptr ? Py_NewRef(function) : get(function, self, reinterpret_cast<PyObject*>(Py_TYPE(self)));
}

PyObject* make_iterator(PyObject* type, PyObject** operands, size_t count) {
  if (type == nullptr) return PyObject_GetIter(operands[0]);
  return host::make_iterator_over(type, operands, count, host::first_source(type));
}

// Stores and deletions must not run an override of the user's: the trace has its body. The C type below has the real
// slot.
objobjargproc find_store(PyObject* container) {
  PyTypeObject* type = Py_TYPE(container);
  while (type != nullptr && PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) type = type->tp_base;
  return type == nullptr || type->tp_as_mapping == nullptr ? nullptr : type->tp_as_mapping->mp_ass_subscript;
}

bool set_item(PyObject* container, PyObject* key, PyObject* value) {
  if (const objobjargproc store = find_store(container)) return store(container, key, value) == 0;
  return value == nullptr ? PyObject_DelItem(container, key) == 0 : PyObject_SetItem(container, key, value) == 0;
}

bool set_attribute(PyObject* object, PyObject* name, PyObject* value) {
  if (PyType_Check(object)) return PyType_Type.tp_setattro(object, name, value) == 0;
  return PyObject_GenericSetAttr(object, name, value) == 0;
}

PyObject* take_next(PyObject* iterator) {
  PyObject* element = Py_TYPE(iterator)->tp_iternext(iterator);
  if (element == nullptr && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
  return element;
}

PyObject* run_mutation(NodeKind kind, PyObject* object, PyObject** operands, size_t count) {
  PyObject* target = operands[0];
  switch (kind) {
    case NodeKind::ListAppend:
      return none_if(PyList_Append(target, operands[1]) == 0);
    case NodeKind::SetItem:
      return none_if(set_item(target, operands[1], operands[2]));
    case NodeKind::DeleteItem:
      return none_if(set_item(target, operands[1], nullptr));
    case NodeKind::SetAttribute:
      return none_if(set_attribute(target, object, operands[1]));
    case NodeKind::DeleteAttribute:
      return none_if(set_attribute(target, object, nullptr));
    case NodeKind::SetCell:
      return none_if(PyCell_Set(target, operands[1]) == 0);
    case NodeKind::MutatorCall:
      return call(operands + 1, count - 1, object);
    case NodeKind::Advance: {
      PyObject* element = take_next(target);
      if (element == nullptr && PyErr_Occurred()) return nullptr;
      Py_XDECREF(element);
      return Py_NewRef(Py_None);
    }
    case NodeKind::Next:
      return take_next(target);
    default:
      REPRISE_UNREACHABLE(std::string("no mutation: ") + trace::text_of(kind));
  }
}

PyObject* run_allocation(NodeKind kind, int32_t n, PyObject* object, PyObject** operands, size_t count) {
  switch (kind) {
    case NodeKind::Tuple:
    case NodeKind::Slice:
      return guards::run_operation(kind, n, object, operands, count);
    case NodeKind::List:
      return make_list(operands, count);
    case NodeKind::Dict:
      return make_dict(operands, count);
    case NodeKind::Set:
      return make_set(operands, count);
    case NodeKind::Object:
      return make_object(n, object, operands, count);
    case NodeKind::Function:
      return make_function(object, operands);
    case NodeKind::Method:
      return make_method(n, operands[0], operands[1]);
    case NodeKind::Super:
      return PyObject_Vectorcall(reinterpret_cast<PyObject*>(&PySuper_Type), operands, 2, nullptr);
    case NodeKind::Cell:
      return PyCell_New(nullptr);
    case NodeKind::Iterator:
      return make_iterator(object, operands, count);
    default:
      REPRISE_UNREACHABLE(std::string("no allocation: ") + trace::text_of(kind));
  }
}

PyObject* run_torch(NodeKind kind, int32_t n, PyObject* object, PyObject** operands, size_t count) {
  switch (kind) {
    case NodeKind::TensorCall:
    case NodeKind::StateCall:
    case NodeKind::SyncCall:
      return call(operands, count, object);
    case NodeKind::TensorUnary:
      return guards::run_operation(NodeKind::Unary, n, nullptr, operands, count);
    case NodeKind::TensorBinary:
      return guards::run_operation(NodeKind::Binary, n, nullptr, operands, count);
    case NodeKind::TensorCompare:
      return PyObject_RichCompare(operands[0], operands[1], n);
    case NodeKind::TensorGetItem:
      return PyObject_GetItem(operands[0], operands[1]);
    case NodeKind::TensorSetItem:
      return none_if(PyObject_SetItem(operands[0], operands[1], operands[2]) == 0);
    case NodeKind::TensorGetAttribute:
      return PyObject_GetAttr(operands[0], object);
    case NodeKind::TensorSetAttribute:
      return none_if(PyObject_SetAttr(operands[0], object, operands[1]) == 0);
    case NodeKind::SyncTruth: {
      const int truth = PyObject_IsTrue(operands[0]);
      return truth < 0 ? nullptr : PyBool_FromLong(truth);
    }
    default:
      REPRISE_UNREACHABLE(std::string("no torch operation: ") + trace::text_of(kind));
  }
}

}  // namespace

PyObject* run_node(NodeKind kind, int32_t n, PyObject* object, PyObject** operands, size_t count) {
  switch (trace::category_of(kind)) {
    case Category::Tensor:
    case Category::State:
    case Category::Sync:
      return run_torch(kind, n, object, operands, count);
    case Category::Py:
      return guards::run_operation(kind, n, object, operands, count);
    case Category::Read:
      return run_read(kind, n, object, operands);
    case Category::Mutate:
      return run_mutation(kind, object, operands, count);
    case Category::Alloc:
      return run_allocation(kind, n, object, operands, count);
    case Category::Root:
      break;
  }
  REPRISE_UNREACHABLE(std::string("cannot execute ") + trace::text_of(kind));
}

bool advance_iterator(PyObject* iterator, Py_ssize_t count) {
  // Those that can be set to a position; all others are asked.
  PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyListIter_Type || type == &PyTupleIter_Type || type == &PyRangeIter_Type ||
      type == &PyUnicodeIter_Type) {
    PyObject* result = PyObject_CallMethod(iterator, "__setstate__", "n", count);
    Py_XDECREF(result);
    return result != nullptr;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* element = take_next(iterator);
    if (element == nullptr) {
      if (!PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "reprise: an iterator ended before its recorded position");
      return false;
    }
    Py_DECREF(element);
  }
  return true;
}

}  // namespace reprise::runtime
