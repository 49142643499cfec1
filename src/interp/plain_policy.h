// The policy that executes only: every operation through the C API, as CPython's evaluator does it unspecialised.
//
// `runtime` derives from it to look for entries at watched boundaries. The frequent operations are inline here, the
// others in plain_policy.cpp. Lists of operands are read from the value stack where they are (scratch_impl.h).
//
// Threads: belongs to one thread. May be used for one frame or for many, nested ones included.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/cpython/frame_view.h"
#include "host/cpython/operators.h"
#include "host/cpython/private_api.h"
#include "interp/policy.h"

namespace reprise::interp {

class PlainPolicy {
 public:
  using Act = Activation;
  static constexpr bool kShadow = false;

  /// Asked at a boundary or a back edge; false: leave the frame.
  using Ask = bool (*)(void* context, Activation& act);
  struct Hooks {
    Ask at_boundary = nullptr;  // nullptr: always true
    void* context = nullptr;
    int64_t budget = INT64_MAX;  // frames and back edges; when they are used up the frame is left
  };

  PlainPolicy() = default;
  explicit PlainPolicy(const Hooks& hooks) : hooks_(hooks) {}

  int64_t budget_left() const { return hooks_.budget; }

  // --- control
  bool is_active() const { return hooks_.budget >= 0; }
  bool at_boundary(Act& act) { return hooks_.at_boundary == nullptr || hooks_.at_boundary(hooks_.context, act); }
  bool at_back_edge(Act&) { return --hooks_.budget >= 0; }
  void enter_frame(Act& act) {
    act.caller = innermost_;
    innermost_ = &act;
    --hooks_.budget;
  }
  void leave_frame(Act& act) { innermost_ = act.caller; }
  bool on_raised(Act&) { return true; }
  void on_unwound(Act&) {}
  bool on_return(Act&, Operand) { return true; }
  bool on_yield(Act&, Operand) { return true; }
  bool on_return_generator(Act&) { return true; }
  void on_generator_made(Act&, PyObject*) {}
  void on_push_exc_info(Act&) {}
  void on_pop_except(Act&) {}
  Outcome rare(Act&, const host::Instruction&) { return Outcome::Done; }

  // --- operators
  Outcome unary(Act&, int op, Operand v, Operand* out);
  Outcome truth(Act&, Operand v, bool* out) {
    if (v.object == Py_True || v.object == Py_False || v.object == Py_None) {
      *out = v.object == Py_True;
      return Outcome::Done;
    }
    return answer(PyObject_IsTrue(v.object), out);
  }
  Outcome binary(Act&, int op, Operand l, Operand r, Operand* out) {
    return set(out, host::kBinaryOperators[op](l.object, r.object));
  }
  Outcome compare(Act&, int op, Operand l, Operand r, Operand* out) {
    return set(out, PyObject_RichCompare(l.object, r.object, op));
  }
  Outcome is_identical(Act&, Operand l, Operand r, bool* out) {
    *out = l.object == r.object;
    return Outcome::Done;
  }
  Outcome is_none(Act&, Operand v, bool* out) {
    *out = v.object == Py_None;
    return Outcome::Done;
  }
  Outcome contains(Act&, Operand container, Operand item, bool* out) {
    return answer(PySequence_Contains(container.object, item.object), out);
  }

  // --- items and attributes
  Outcome get_item(Act&, Operand c, Operand k, Operand* out) { return set(out, PyObject_GetItem(c.object, k.object)); }
  Outcome set_item(Act&, Operand c, Operand k, Operand v) {
    return check(PyObject_SetItem(c.object, k.object, v.object));
  }
  Outcome delete_item(Act&, Operand c, Operand k) { return check(PyObject_DelItem(c.object, k.object)); }
  Outcome load_attribute(Act&, Operand o, PyObject* name, Operand* out) {
    return set(out, PyObject_GetAttr(o.object, name));
  }
  Outcome load_method(Act&, Operand o, PyObject* name, Operand* callable, Operand* self) {
    callable->object = nullptr;
    if (host::find_method(o.object, name, &callable->object)) self->object = Py_NewRef(o.object);
    return callable->object != nullptr ? Outcome::Done : Outcome::Raised;
  }
  Outcome store_attribute(Act&, Operand o, PyObject* name, Operand v) {
    return check(PyObject_SetAttr(o.object, name, v.object));
  }
  Outcome delete_attribute(Act&, Operand o, PyObject* name) { return check(PyObject_SetAttr(o.object, name, nullptr)); }
  Outcome load_super_attribute(Act&, Operand super, Operand cls, Operand self, PyObject* name, bool two_arguments,
                               Operand* out);

  // --- names and cells
  Outcome load_global(Act& act, PyObject* name, Operand* out) {
    PyObject* const globals = act.frame->f_globals;
    PyObject* const builtins = act.frame->f_builtins;
    if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) [[unlikely]] {
      return load_global_of_mapping(globals, builtins, name, out);
    }
    PyObject* value = PyDict_GetItemWithError(globals, name);
    if (value == nullptr) {
      if (PyErr_Occurred()) [[unlikely]]
        return Outcome::Raised;
      value = PyDict_GetItemWithError(builtins, name);
      if (value == nullptr) [[unlikely]]
        return PyErr_Occurred() ? Outcome::Raised : Outcome::Stop;
    }
    out->object = Py_NewRef(value);
    return Outcome::Done;
  }
  Outcome store_global(Act& act, PyObject* name, Operand v) {
    return check(PyDict_SetItem(act.frame->f_globals, name, v.object));
  }
  Outcome delete_global(Act& act, PyObject* name);
  Outcome load_cell(Act& act, int index, Operand* out) {
    PyObject* value = PyCell_GET(act.locals[index]);
    if (value == nullptr) [[unlikely]]
      return Outcome::Stop;
    out->object = Py_NewRef(value);
    return Outcome::Done;
  }
  Outcome store_cell(Act& act, int index, Operand v) {
    PyObject* cell = act.locals[index];
    PyObject* old = PyCell_GET(cell);
    PyCell_SET(cell, Py_NewRef(v.object));
    Py_XDECREF(old);
    return Outcome::Done;
  }
  Outcome delete_cell(Act& act, int index);
  Outcome make_cell(Act& act, int index);
  Outcome copy_free_vars(Act& act, int count);

  // --- containers and strings
  Outcome build_tuple(Act&, PyObject* const* items, int n, Operand* out);
  Outcome build_list(Act&, PyObject* const* items, int n, Operand* out);
  Outcome build_set(Act&, PyObject* const* items, int n, Operand* out);
  Outcome build_map(Act&, PyObject* const* pairs, int n, Operand* out);
  Outcome build_const_key_map(Act&, Operand keys, PyObject* const* values, int n, Operand* out);
  Outcome build_slice(Act&, Operand start, Operand stop, Operand step, Operand* out) {
    return set(out, PySlice_New(start.object, stop.object, step.object));
  }
  Outcome build_string(Act&, PyObject* const* items, int n, Operand* out);
  Outcome format_value(Act&, Operand v, Operand spec, int conversion, bool do_format, Operand* out);
  Outcome list_append(Act&, Operand list, Operand v) { return check(PyList_Append(list.object, v.object)); }
  Outcome set_add(Act&, Operand set, Operand v) { return check(PySet_Add(set.object, v.object)); }
  Outcome map_add(Act&, Operand d, Operand k, Operand v) { return check(PyDict_SetItem(d.object, k.object, v.object)); }
  Outcome list_extend(Act&, Operand list, Operand iterable);
  Outcome set_update(Act&, Operand set, Operand iterable);
  Outcome list_to_tuple(Act&, Operand list, Operand* out) { return set(out, PyList_AsTuple(list.object)); }
  Outcome dict_update(Act&, Operand d, Operand u);
  Outcome dict_merge(Act&, Operand d, Operand u, Operand callee);
  Outcome unpack_sequence(Act&, Operand s, int n, PyObject** out);
  Outcome unpack_ex(Act&, Operand s, int before, int after, PyObject** out);
  Outcome get_iter(Act&, Operand o, Operand* out) { return set(out, PyObject_GetIter(o.object)); }
  Outcome get_len(Act&, Operand o, Operand* out);
  Outcome for_iter(Act&, Operand it, Operand* out) {
    out->object = Py_TYPE(it.object)->tp_iternext(it.object);
    return out->object != nullptr ? Outcome::Done : end_iteration();
  }

  // --- calls, functions, imports
  Outcome call(Act&, Operand callable, PyObject* const* args, int n, PyObject* kwnames, Operand* out) {
    // In front of the arguments is a slot of the value stack that the callee may borrow.
    const size_t positional = n - (kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
    return set(out, PyObject_Vectorcall(callable.object, args, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames));
  }
  Outcome call_ex(Act&, Operand callable, Operand args, Operand kwargs, Operand* out);
  Outcome make_function(Act& act, Operand code, Operand defaults, Operand kwdefaults, Operand annotations,
                        Operand closure, Operand* out);
  Outcome set_function_attribute(Act&, Operand function, int which, Operand v);
  Outcome import_name(Act& act, PyObject* name, Operand fromlist, Operand level, Operand* out);
  Outcome import_from(Act&, Operand module, PyObject* name, Operand* out);

  // --- with, exceptions
  Outcome before_with(Act&, Operand manager, Operand* exit, Operand* result);
  Outcome with_except_start(Act&, Operand exit, Operand exception, Operand* out);
  Outcome raise(Act&, Operand exception, Operand cause);
  Outcome exception_matches(Act&, Operand exception, Operand type, bool* out);

 private:
  static Outcome set(Operand* out, PyObject* object) {
    out->object = object;
    return object != nullptr ? Outcome::Done : Outcome::Raised;
  }
  static Outcome check(int status) { return status == 0 ? Outcome::Done : Outcome::Raised; }
  static Outcome answer(int status, bool* out) {
    *out = status > 0;
    return status >= 0 ? Outcome::Done : Outcome::Raised;
  }
  static Outcome end_iteration();
  static Outcome load_global_of_mapping(PyObject* globals, PyObject* builtins, PyObject* name, Operand* out);

  Hooks hooks_;
  Activation* innermost_ = nullptr;
};

}  // namespace reprise::interp
