#include "capture/witness.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "capture/callables.h"
#include "host/cpython/class_lookup.h"
#include "host/cpython/hook.h"
#include "interp/evaluator.h"
#include "interp/plain_policy.h"

namespace reprise::capture {

namespace {

using Act = interp::Activation;

/// Models of callables that write nothing.
constexpr Recorder::Model kReadingModels[] = {&Recorder::model_len,
                                              &Recorder::model_isinstance,
                                              &Recorder::model_getattr,
                                              &Recorder::model_hasattr,
                                              &Recorder::model_type_fact,
                                              &Recorder::model_identity_fact,
                                              &Recorder::model_dict_get,
                                              &Recorder::model_dict_getitem,
                                              &Recorder::model_dict_contains,
                                              &Recorder::model_dict_view,
                                              &Recorder::model_object_getattribute,
                                              &Recorder::model_sequence_search,
                                              &Recorder::model_str_join,
                                              &Recorder::model_getitem,
                                              &Recorder::model_contains,
                                              &Recorder::model_list_copy,
                                              &Recorder::model_vars};

bool is_reading_model(Recorder::Model model) {
  return std::find(std::begin(kReadingModels), std::end(kReadingModels), model) != std::end(kReadingModels);
}

/// What stands behind a slot wrapper bound to an object (`super().__getattribute__`).
PyObject* find_unbound(PyObject* wrapper) {
  PyObject* owner = PyObject_GetAttrString(wrapper, "__objclass__");
  PyObject* name = PyObject_GetAttrString(wrapper, "__name__");
  PyObject* found = nullptr;
  if (owner != nullptr && name != nullptr && PyType_Check(owner)) {
    found = host::find_in_class(reinterpret_cast<PyTypeObject*>(owner), name);
  }
  Py_XDECREF(owner);
  Py_XDECREF(name);
  PyErr_Clear();
  return found;
}

bool is_immutable(PyObject* o) {
  return o == Py_None || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyUnicode_CheckExact(o) ||
         PyTuple_CheckExact(o) || PyBool_Check(o) || PyBytes_CheckExact(o);
}

/// A call of it writes nothing. Pure functions do where their arguments can be changed (operator.iadd).
bool only_reads(PyObject* callable, std::span<PyObject* const> args) {
  if (PyFunction_Check(callable)) return true;
  if (PyMethod_Check(callable)) return PyFunction_Check(PyMethod_GET_FUNCTION(callable));
  if (callable == reinterpret_cast<PyObject*>(&PySuper_Type)) return true;
  if (std::string_view(Py_TYPE(callable)->tp_name) == "method-wrapper") callable = find_unbound(callable);
  if (callable == nullptr) return false;
  const CallableRow& row = find_callable(callable);
  switch (row.policy) {
    case CallPolicy::Pure:
      return std::all_of(args.begin(), args.end(), is_immutable);
    case CallPolicy::Fold:
    case CallPolicy::FoldNew:
    case CallPolicy::FoldBound:
    case CallPolicy::StateRead:
      return true;
    case CallPolicy::Model:
      return is_reading_model(row.model);
    case CallPolicy::Fresh:
    case CallPolicy::Repeated:
    case CallPolicy::Unknown:
      return false;
  }
  return false;
}

/// Executes what reads, and stops in front of anything else.
class WitnessPolicy : public interp::PlainPolicy {
 public:
  using Operand = interp::Operand;
  using Outcome = interp::Outcome;

  Outcome rare(Act&, const host::Instruction&) { return Outcome::Stop; }
  Outcome binary(Act& act, int op, Operand l, Operand r, Operand* out) {
    constexpr int kFirstInPlace = 13;
    if (op >= kFirstInPlace && !is_immutable(l.object)) return Outcome::Stop;
    return PlainPolicy::binary(act, op, l, r, out);
  }
  Outcome set_item(Act&, Operand, Operand, Operand) { return Outcome::Stop; }
  Outcome delete_item(Act&, Operand, Operand) { return Outcome::Stop; }
  Outcome store_attribute(Act&, Operand, PyObject*, Operand) { return Outcome::Stop; }
  Outcome delete_attribute(Act&, Operand, PyObject*) { return Outcome::Stop; }
  Outcome store_global(Act&, PyObject*, Operand) { return Outcome::Stop; }
  Outcome delete_global(Act&, PyObject*) { return Outcome::Stop; }
  Outcome store_cell(Act&, int, Operand) { return Outcome::Stop; }
  Outcome delete_cell(Act&, int) { return Outcome::Stop; }
  Outcome get_iter(Act& act, Operand o, Operand* out) {
    return PyIter_Check(o.object) ? Outcome::Stop : PlainPolicy::get_iter(act, o, out);
  }
  Outcome list_extend(Act& act, Operand list, Operand iterable) {
    return PyIter_Check(iterable.object) ? Outcome::Stop : PlainPolicy::list_extend(act, list, iterable);
  }
  Outcome set_update(Act& act, Operand set, Operand iterable) {
    return PyIter_Check(iterable.object) ? Outcome::Stop : PlainPolicy::set_update(act, set, iterable);
  }
  Outcome unpack_sequence(Act& act, Operand s, int n, PyObject** out) {
    return PyIter_Check(s.object) ? Outcome::Stop : PlainPolicy::unpack_sequence(act, s, n, out);
  }
  Outcome unpack_ex(Act&, Operand, int, int, PyObject**) { return Outcome::Stop; }
  Outcome call(Act& act, Operand callable, PyObject* const* args, int n, PyObject* kwnames, Operand* out) {
    const bool is_read = only_reads(callable.object, {args, static_cast<size_t>(n)});
    return is_read ? PlainPolicy::call(act, callable, args, n, kwnames, out) : Outcome::Stop;
  }
  Outcome call_ex(Act& act, Operand callable, Operand args, Operand kwargs, Operand* out) {
    if (!PyTuple_CheckExact(args.object)) return Outcome::Stop;
    const std::span<PyObject* const> positional(PySequence_Fast_ITEMS(args.object),
                                                static_cast<size_t>(PyTuple_GET_SIZE(args.object)));
    return only_reads(callable.object, positional) ? PlainPolicy::call_ex(act, callable, args, kwargs, out)
                                                   : Outcome::Stop;
  }
  Outcome import_name(Act&, PyObject*, Operand, Operand, Operand*) { return Outcome::Stop; }
  Outcome before_with(Act&, Operand, Operand*, Operand*) { return Outcome::Stop; }
  Outcome with_except_start(Act&, Operand, Operand, Operand*) { return Outcome::Stop; }
};

}  // namespace

PyObject* run_witnessed(PyThreadState* thread, host::Frame* frame, bool throwflag, bool* only_reads) {
  *only_reads = false;
  if (throwflag || host::is_generator_frame(frame) || !host::can_drive(thread, frame)) {
    return host::run_previous(thread, frame, throwflag);
  }
  WitnessPolicy policy;
  const interp::RunResult run = interp::run_frame(policy, thread, frame, false);
  *only_reads = run.status == interp::RunResult::Returned;
  return *only_reads ? run.value : host::run_default(thread, frame, 0);
}

}  // namespace reprise::capture
