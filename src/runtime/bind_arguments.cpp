#include "runtime/bind_arguments.h"

#include <algorithm>

namespace reprise::runtime {
namespace {

bool is_same_name(PyObject* a, PyObject* b) {
  return a == b || (PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && PyUnicode_Compare(a, b) == 0);
}

}  // namespace

Signature::Signature(PyCodeObject* code)
    : code(code),
      positional_count(code->co_argcount),
      positional_only_count(code->co_posonlyargcount),
      keyword_only_count(code->co_kwonlyargcount),
      has_varargs((code->co_flags & CO_VARARGS) != 0),
      has_varkeywords((code->co_flags & CO_VARKEYWORDS) != 0),
      slot_count(positional_count + keyword_only_count + has_varargs + has_varkeywords),
      is_simple(keyword_only_count == 0 && !has_varargs && !has_varkeywords) {}

void BoundArguments::release() {
  for (int32_t i = 0; i < held_count_; ++i) Py_DECREF(held_[i]);
  if (heap_slots_ != nullptr) PyMem_Free(heap_slots_);
}

bool BoundArguments::bind_general(const Signature& signature, PyFunctionObject* function, PyObject* const* args,
                                  Py_ssize_t nargs, PyObject* kwnames) {
  PyObject** slots = inline_slots_;
  if (signature.slot_count > kInlineSlots) {
    heap_slots_ = slots = PyMem_New(PyObject*, signature.slot_count);
    if (slots == nullptr) return false;
  }
  const int32_t positional_count = signature.positional_count;
  const int32_t named_count = positional_count + signature.keyword_only_count;
  if (nargs > positional_count && !signature.has_varargs) return false;

  const Py_ssize_t taken = std::min<Py_ssize_t>(nargs, positional_count);
  std::copy_n(args, taken, slots);
  std::fill(slots + taken, slots + signature.slot_count, nullptr);
  if (signature.has_varargs) {
    PyObject* rest = PyTuple_New(nargs - taken);
    if (rest == nullptr) return PyErr_Clear(), false;
    for (Py_ssize_t i = taken; i < nargs; ++i) PyTuple_SET_ITEM(rest, i - taken, Py_NewRef(args[i]));
    slots[named_count] = rest;
    hold(rest);
  }
  if (signature.has_varkeywords) {
    PyObject* rest = PyDict_New();
    if (rest == nullptr) return PyErr_Clear(), false;
    slots[signature.slot_count - 1] = rest;
    hold(rest);
  }
  if (kwnames != nullptr && !bind_keywords(signature, args + nargs, kwnames, slots)) return false;
  if (!fill_defaults(signature, function, slots)) return false;
  slots_ = slots;
  return true;
}

bool BoundArguments::bind_keywords(const Signature& signature, PyObject* const* values, PyObject* kwnames,
                                   PyObject** slots) {
  const int32_t named_count = signature.positional_count + signature.keyword_only_count;
  PyObject* names = signature.code->co_localsplusnames;
  const Py_ssize_t count = PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, k);
    if (!PyUnicode_CheckExact(keyword)) return false;
    int32_t index = signature.positional_only_count;
    while (index < named_count && PyTuple_GET_ITEM(names, index) != keyword) ++index;
    if (index == named_count) {  // names are nearly always interned: compare texts only now
      index = signature.positional_only_count;
      while (index < named_count && !is_same_name(PyTuple_GET_ITEM(names, index), keyword)) ++index;
    }
    if (index < named_count) {
      if (slots[index] != nullptr) return false;
      slots[index] = values[k];
      continue;
    }
    // A positional-only name goes to **kwargs as well; without **kwargs it is an error.
    if (!signature.has_varkeywords) return false;
    PyObject* rest = slots[signature.slot_count - 1];
    if (PyDict_SetItem(rest, keyword, values[k]) < 0) return PyErr_Clear(), false;
  }
  return true;
}

bool BoundArguments::fill_defaults(const Signature& signature, PyFunctionObject* function, PyObject** slots) {
  const int32_t positional_count = signature.positional_count;
  PyObject* defaults = function->func_defaults;
  const int32_t default_count = defaults == nullptr ? 0 : static_cast<int32_t>(PyTuple_GET_SIZE(defaults));
  const int32_t first_default = positional_count - default_count;
  bool uses_defaults = false;
  for (int32_t i = 0; i < positional_count; ++i) {
    if (slots[i] != nullptr) continue;
    if (i < first_default) return false;
    slots[i] = PyTuple_GET_ITEM(defaults, i - first_default);
    uses_defaults = true;
  }
  // The program may replace its function's defaults while the call runs.
  if (uses_defaults) hold(Py_NewRef(defaults));

  PyObject* keyword_defaults = function->func_kwdefaults;
  PyObject* held_values = nullptr;
  for (int32_t i = 0; i < signature.keyword_only_count; ++i) {
    PyObject*& slot = slots[positional_count + i];
    if (slot != nullptr) continue;
    if (keyword_defaults == nullptr) return false;
    PyObject* name = PyTuple_GET_ITEM(signature.code->co_localsplusnames, positional_count + i);
    slot = PyDict_GetItemWithError(keyword_defaults, name);
    if (slot == nullptr) return PyErr_Clear(), false;
    if (held_values == nullptr) {
      held_values = PyTuple_New(signature.keyword_only_count);
      if (held_values == nullptr) return PyErr_Clear(), false;
      hold(held_values);
    }
    PyTuple_SET_ITEM(held_values, i, Py_NewRef(slot));
  }
  return true;
}

}  // namespace reprise::runtime
