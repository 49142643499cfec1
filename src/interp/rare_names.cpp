// Opcodes of class bodies, modules and exec'd code: names in a namespace.
#include "host/cpython/frame.h"
#include "host/cpython/names.h"
#include "interp/rare_ops.h"

namespace reprise::interp {
namespace {

enum class Found : uint8_t { Yes, No, Error };

// mapping[key], new reference. A missing key leaves no exception.
Found find_item(PyObject* mapping, PyObject* key, PyObject** value) {
  if (PyDict_CheckExact(mapping)) {
    *value = Py_XNewRef(PyDict_GetItemWithError(mapping, key));
    if (*value != nullptr) return Found::Yes;
    return PyErr_Occurred() ? Found::Error : Found::No;
  }
  *value = PyObject_GetItem(mapping, key);
  if (*value != nullptr) return Found::Yes;
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return Found::Error;
  PyErr_Clear();
  return Found::No;
}

// The first mapping that has the key.
Found find_item(std::initializer_list<PyObject*> mappings, PyObject* key, PyObject** value) {
  for (PyObject* mapping : mappings) {
    const Found found = find_item(mapping, key, value);
    if (found != Found::No) return found;
  }
  return Found::No;
}

int set_item(PyObject* mapping, PyObject* key, PyObject* value) {
  return PyDict_CheckExact(mapping) ? PyDict_SetItem(mapping, key, value) : PyObject_SetItem(mapping, key, value);
}

// Replaces `pops` operands by what was found.
RareResult push_found(RareOp& op, Found found, int pops, PyObject* value) {
  switch (found) {
    case Found::Yes:
      op.drop(pops);
      op.push(value);
      return RareResult::Done;
    case Found::No:
      return RareResult::Leave;  // CPython raises NameError
    case Found::Error:
      break;
  }
  return RareResult::Raised;
}

// -- value
RareResult load_name(RareOp& op, PyObject* space) {
  PyObject* value = nullptr;
  const Found found = find_item({space, host::get_globals(op.frame), host::get_builtins(op.frame)}, op.name(), &value);
  return push_found(op, found, 0, value);
}

// mapping -- value
RareResult load_from_dict_or_globals(RareOp& op) {
  PyObject* value = nullptr;
  const Found found =
      find_item({op.peek(1), host::get_globals(op.frame), host::get_builtins(op.frame)}, op.name(), &value);
  return push_found(op, found, 1, value);
}

// -- value  or  mapping -- value
RareResult load_from_mapping_or_cell(RareOp& op, PyObject* mapping, int pops) {
  PyObject* value = nullptr;
  Found found = find_item(mapping, op.name(), &value);
  if (found == Found::No) {
    value = Py_XNewRef(PyCell_GET(op.locals[op.instruction->arg]));
    if (value != nullptr) found = Found::Yes;
  }
  return push_found(op, found, pops, value);
}

// value --
RareResult store_name(RareOp& op, PyObject* space) {
  if (set_item(space, op.name(), op.peek(1)) < 0) return RareResult::Raised;
  op.drop(1);
  return RareResult::Done;
}

// --
RareResult delete_name(RareOp& op, PyObject* space) {
  if (PyDict_CheckExact(space) && PyDict_Contains(space, op.name()) == 0) return RareResult::Leave;
  if (PyObject_DelItem(space, op.name()) == 0) return RareResult::Done;
  // Whatever went wrong becomes a NameError, as in CPython.
  const char* text = PyUnicode_AsUTF8(op.name());
  if (text != nullptr) PyErr_Format(PyExc_NameError, "name '%.200s' is not defined", text);
  return RareResult::Raised;
}

// -- __build_class__
RareResult load_build_class(RareOp& op) {
  PyObject* value = nullptr;
  const Found found = find_item(host::get_builtins(op.frame), host::get_names().build_class, &value);
  return push_found(op, found, 0, value);
}

// --
RareResult setup_annotations(PyObject* space) {
  PyObject* const name = host::get_names().annotations;
  PyObject* annotations = nullptr;
  Found found = find_item(space, name, &annotations);
  if (found == Found::No) {
    annotations = PyDict_New();
    found = annotations != nullptr && set_item(space, name, annotations) == 0 ? Found::Yes : Found::Error;
  }
  Py_XDECREF(annotations);
  return found == Found::Yes ? RareResult::Done : RareResult::Raised;
}

}  // namespace

RareResult run_name_op(RareOp& op) {
  using host::Op;
  if (op.instruction->op == Op::LoadBuildClass) return load_build_class(op);
  if (op.instruction->op == Op::LoadFromDictOrGlobals) return load_from_dict_or_globals(op);
  if (op.instruction->op == Op::LoadFromDictOrDeref) return load_from_mapping_or_cell(op, op.peek(1), 1);
  PyObject* const space = host::find_namespace(op.frame);
  if (space == nullptr) return RareResult::Leave;
  switch (op.instruction->op) {
    case Op::LoadName:
      return load_name(op, space);
    case Op::StoreName:
      return store_name(op, space);
    case Op::DeleteName:
      return delete_name(op, space);
    case Op::LoadLocals:  // -- namespace
      op.push_new(space);
      return RareResult::Done;
    case Op::LoadClassDeref:
      return load_from_mapping_or_cell(op, space, 0);
    case Op::SetupAnnotations:
      return setup_annotations(space);
    default:
      return RareResult::Leave;
  }
}

}  // namespace reprise::interp
