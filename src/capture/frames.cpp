// Frames, arguments, generators and exceptions while recording.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/log.h"
#include "capture/callables.h"
#include "capture/names.h"
#include "capture/quiet_frames.h"
#include "capture/recorder.h"
#include "capture/type_names.h"
#include "host/cpython/decode.h"
#include "host/cpython/handlers.h"
#include "host/cpython/watch.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

Recorder::Recorder(const RecorderOptions& options, PyThreadState* thread)
    : options_(options), thread_(thread), trace_(std::make_unique<trace::Trace>()) {
  find_callable(Py_None);  // makes the table, which may import modules, before anything is recorded
  trace_->state_word = host::capture_state_word();
  if (host::stamps_have_tags()) {
    PyObject* fresh = PyDict_New();
    PyObject* key = Py_None;
    PyDict_SetItem(fresh, key, key);  // an empty dict has no tag of its own
    start_dict_version_ = host::get_dict_version(fresh);
    Py_DECREF(fresh);
  }
}

Recorder::~Recorder() {
  active_ = false;
  for (KnownException& known : known_exceptions_) Py_DECREF(known.object);
}

void Recorder::expect_root_call(PyObject* function) {
  pending_ = {};
  pending_.function = function;
  pending_.is_set = true;
  pending_.is_root = true;
}

void Recorder::expect_root_frame(host::Frame* frame) { pending_frame_ = frame; }

Recorder::FrameUse Recorder::classify_frame(host::Frame* frame, bool throwflag) {
  if (!active_) return FrameUse::PassThrough;
  if (pending_.is_set && host::get_function(frame) == pending_.function && c_depth_ == 0 && !throwflag) {
    return FrameUse::Record;
  }
  if (c_depth_ == 0 && host::is_generator_frame(frame) && generator_frames_.count(frame) != 0) {
    if (!throwflag) return FrameUse::Record;
  }
  // Deallocation, weak references, GC, signal handlers, C code that calls Python: not ours; what they may have written
  // is read late from now on.
  if (throwflag && PyErr_ExceptionMatches(PyExc_GeneratorExit) && host::closes_at_once(frame)) {
    generator_frames_.erase(frame);  // another one may be made there
    return FrameUse::PassThrough;
  }
  // One that the trace made is closed where the program drops it, and has handlers: no step does that.
  if (throwflag && generator_frames_.count(frame) != 0) {
    end_recording(UnsupportedCode::UnmodelledOperation, "a generator that runs code when it is closed", true);
    return FrameUse::PassThrough;
  }
  if (is_quiet_frame(frame)) return FrameUse::PassThrough;
  saw_callback_ = true;
  if (base::is_log_enabled(base::LogWord::Calls)) {
    base::write_log(base::LogWord::Calls, "unrecorded, depth " + std::to_string(c_depth_) + ": " +
                                              callable_name(host::get_function(frame)) +
                                              (throwflag ? " (closed)" : ""));
  }
  return FrameUse::Witness;
}

void Recorder::note_foreign_writes() {
  has_foreign_writes_ = true;
  if (c_depth_ == 0) forget_after_callback();
}

bool Recorder::at_back_edge(Act& act) {
  if (!active_) return true;
  if (++act.back_edges > options_.max_back_edges) {
    // The evaluator stands at the loop header: the trace is cut there and the loop body becomes an entry of its own.
    end_recording(UnsupportedCode::TraceTooLong,
                  "a loop of more than " + std::to_string(options_.max_back_edges) + " turns");
  }
  return true;
}

void Recorder::enter_frame(Act& act) {
  act.caller = top_;
  if (top_ != nullptr) top_->item_mark = boundary_mark_;
  act.handled_depth = handled_exceptions_.size();
  bool is_root = pending_.is_root || act.frame == pending_frame_;
  top_ = &act;
  if (!active_) return;
  if (is_root) {
    act.is_root = true;
    act.caller = nullptr;
    if (!branch_frames_.empty()) {
      enter_branch_frame(act);
      return;
    }
    trace_->function = Py_NewRef(act.function);
    trace_->code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(act.code)));
    trace_->globals = Py_NewRef(host::get_globals(act.frame));
    // A frame that stands at its start reads its closure from the function, as a call does.
    trace_->is_call_entry = act.frame != pending_frame_ || host::is_at_start(act.frame);
    trace_->unit = trace_->is_call_entry ? 0 : host::get_next_unit(act.frame);
    int depth = static_cast<int>(act.stack_pointer - act.locals);
    trace_->slot_count = depth;
    for (int i = 0; i < depth; i++) {
      if (act.locals[i] == nullptr) continue;
      ValueId id = trace_->add_node(NodeKind::Arg, {}, nullptr, i, true);
      facts_.emplace_back().is_present = true;
      act.ids[i] = id;
    }
    act.function_value = constant_id(act.function);
    pending_ = {};
    pending_frame_ = nullptr;
    return;
  }
  if (act.generator == nullptr && host::is_generator_frame(act.frame)) {
    auto found = generator_frames_.find(act.frame);
    if (found != generator_frames_.end()) {
      act.generator = found->second;
      const std::vector<ValueId>& ids = act.generator->generator->ids;
      int depth = static_cast<int>(act.stack_pointer - act.locals);
      for (int i = 0; i < depth && i < static_cast<int>(ids.size()); i++) act.ids[i] = ids[i];
      act.function_value = act.generator->function;
      // A resume pushes the value that was sent.
      const ValueId sent = std::exchange(sent_id_, kNoValue);
      if (depth > static_cast<int>(ids.size()) && depth > act.code->co_nlocalsplus)
        act.ids[depth - 1] = sent >= 0 ? sent : constant_id(Py_None);
    }
    return;
  }
  bind_arguments(act);
}

void Recorder::leave_frame(Act& act) {
  top_ = act.is_root ? nullptr : static_cast<Act*>(act.caller);
  if (top_ != nullptr) {
    boundary_mark_ = top_->item_mark;
    top_->call_state = -1;
  }
  if (handled_exceptions_.size() > act.handled_depth)
    handled_exceptions_.erase(handled_exceptions_.begin() + static_cast<ptrdiff_t>(act.handled_depth),
                              handled_exceptions_.end());
}

/// The value of a positional parameter that takes its default.
ValueId Recorder::default_id(Operand function, PyObject* defaults, int parameter, int parameter_count) {
  if (defaults == nullptr || function.id < 0) return kNoValue;
  Py_ssize_t index = parameter - (parameter_count - PyTuple_GET_SIZE(defaults));
  HeapObject* made = facts_[function.id].heap;
  ValueId tuple = kNoValue;
  if (made != nullptr && made->is_created) {
    tuple = made->elements[1];
  } else {
    // `f.__defaults__ = ...` makes another tuple; one fact about it covers all calls.
    tuple = facts_[function.id].defaults;
    if (tuple < 0) {
      tuple = emit(NodeKind::FunctionField, {function.id}, nullptr, static_cast<int>(trace::FunctionField::Defaults));
      if (tuple < 0) return kNoValue;
      facts_[function.id].defaults = tuple;
    }
    bool is_plain = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(defaults); i++)
      is_plain &= can_be_constant(PyTuple_GET_ITEM(defaults, i));
    if (is_plain) {
      if (!know_identity({defaults, tuple})) return kNoValue;
      return constant_id(PyTuple_GET_ITEM(defaults, index));
    }
  }
  std::vector<ValueId> ids;
  return tuple >= 0 && element_ids({defaults, tuple}, &ids) ? ids[index] : kNoValue;
}

ValueId Recorder::keyword_default_id(Operand function, PyObject* defaults, PyObject* name) {
  if (defaults == nullptr || function.id < 0) return kNoValue;
  HeapObject* made = facts_[function.id].heap;
  ValueId dict = kNoValue;
  if (made != nullptr && made->is_created) {
    dict = made->elements[2];
  } else {
    dict = facts_[function.id].keyword_defaults;
    if (dict < 0) {
      dict = emit(NodeKind::FunctionField, {function.id}, nullptr, static_cast<int>(trace::FunctionField::KwDefaults));
      if (dict < 0 || !know_type({defaults, dict})) return kNoValue;
      facts_[function.id].keyword_defaults = dict;
    }
  }
  if (dict < 0) return kNoValue;
  HeapObject* object = heap_of({defaults, dict});
  Operand read;
  if (object == nullptr || read_dict(defaults, object, {name, constant_id(name)}, &read) != Outcome::Done)
    return kNoValue;
  return read.id;
}

void Recorder::bind_arguments(Act& act) {
  PendingCall call = std::move(pending_);
  pending_ = {};
  PyCodeObject* code = act.code;
  PyObject** locals = act.locals;
  int argument_count = code->co_argcount;
  int total = argument_count + code->co_kwonlyargcount;
  act.function_value = call.function_id;
  std::vector<ValueId> extra;
  std::vector<ValueId> extra_pairs;
  std::vector<PyObject*> extra_names;
  for (int i = 0; i < call.positional; i++) {
    if (i < argument_count)
      act.ids[i] = call.ids[i];
    else
      extra.push_back(call.ids[i]);
  }
  Py_ssize_t keyword_count = call.kwnames != nullptr ? PyTuple_GET_SIZE(call.kwnames) : 0;
  for (Py_ssize_t k = 0; k < keyword_count; k++) {
    PyObject* name = PyTuple_GET_ITEM(call.kwnames, k);
    ValueId id = call.ids[call.positional + k];
    bool is_bound = false;
    for (int i = code->co_posonlyargcount; i < total && !is_bound; i++) {
      PyObject* parameter = PyTuple_GET_ITEM(code->co_localsplusnames, i);
      if (parameter == name || PyUnicode_Compare(parameter, name) == 0) {
        act.ids[i] = id;
        is_bound = true;
      }
    }
    if (!is_bound) {
      extra_pairs.push_back(constant_id(name));
      extra_pairs.push_back(id);
      extra_names.push_back(name);
    }
  }
  PyObject* defaults = PyFunction_GetDefaults(act.function);
  PyObject* kwdefaults = PyFunction_GetKwDefaults(act.function);
  // What is asked of the function's defaults is asked in front of the call: this frame can't be rebuilt yet.
  top_ = static_cast<Act*>(act.caller);
  for (int i = 0; i < total; i++) {
    if (act.ids[i] >= 0 || locals[i] == nullptr) continue;
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    act.ids[i] = i < argument_count ? default_id({act.function, call.function_id}, defaults, i, argument_count)
                                    : keyword_default_id({act.function, call.function_id}, kwdefaults, name);
  }
  top_ = &act;
  int slot = total;
  if (code->co_flags & CO_VARARGS) {
    Operand tuple = new_tuple(locals[slot], extra);
    act.ids[slot++] = tuple.id;
  }
  if (code->co_flags & CO_VARKEYWORDS) {
    Operand dict = new_dict(locals[slot], extra_pairs, extra_names.data());
    act.ids[slot++] = dict.id;
  }
}

// ---- generators

bool Recorder::on_return_generator(Act& act) {
  if (!active_) return true;
  if (act.is_root) {
    end_recording(UnsupportedCode::UnsupportedBytecode, "the compiled function is a generator or coroutine");
    return false;
  }
  if ((act.code->co_flags & CO_GENERATOR) == 0) {
    end_recording(UnsupportedCode::UnsupportedBytecode, "a coroutine or async generator");
    return false;
  }
  return true;
}

void Recorder::on_generator_made(Act& act, PyObject* generator) {
  if (!active_ || generator == nullptr) return;
  ValueId operands[] = {act.function_value};
  ValueId id = emit_typed(NodeKind::Generator, operands, generator);
  if (id < 0) return;
  HeapObject* object = new_object(id);
  object->function = act.function_value;
  object->generator = std::make_unique<GeneratorState>();
  int depth = act.code->co_nlocalsplus;
  object->generator->ids.assign(act.ids, act.ids + depth);
  object->generator->function = act.function;
  host::Frame* frame = host::find_generator_frame(generator);
  generator_frames_[frame] = object;
  // State from which a rebuilt generator starts: behind RETURN_GENERATOR.
  trace::FrameState state;
  if (act.function_value < 0 || !is_created(act.function_value)) state.function = Py_NewRef(act.function);
  state.function_value = act.function_value;
  state.code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(act.code)));
  state.unit = act.instruction->next_unit;
  state.op_unit = act.instruction->op_unit;
  std::vector<ValueId> suspend{id};
  bool is_known = true;
  for (int i = 0; i < depth; i++) {
    PyObject* live = host::get_locals(frame)[i];
    ValueId slot = live != nullptr ? act.ids[i] : kNoValue;
    if (live != nullptr && slot < 0) is_known = false;
    state.slots.push_back(slot);
    if (slot >= 0) suspend.push_back(slot);
  }
  if (!is_known) {
    lose("a generator with locals of unknown origin");
    return;
  }
  trace_->frame_states.push_back(std::move(state));
  emit(NodeKind::Suspend, suspend, nullptr, static_cast<int32_t>(trace_->frame_states.size()) - 1);
  return_id_ = id;
}

bool Recorder::on_yield(Act& act, Operand v) {
  if (!active_) return true;
  if (act.is_root || act.generator == nullptr) {
    end_recording(UnsupportedCode::UnsupportedBytecode, "a yield of the compiled function itself");
    return false;
  }
  if (v.id < 0) {
    end_recording(UnsupportedCode::UnmodelledOperation, "a yield of a value of unknown origin");
    return false;
  }
  int depth = static_cast<int>(act.stack_pointer - act.locals) - 1;
  trace::FrameState state;
  if (act.function_value < 0 || !is_created(act.function_value)) state.function = Py_NewRef(act.function);
  state.function_value = act.function_value;
  state.code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(act.code)));
  state.unit = act.instruction->next_unit;
  state.op_unit = act.instruction->op_unit;
  std::vector<ValueId> suspend{act.generator->id};
  for (int i = 0; i < depth; i++) {
    ValueId slot = act.locals[i] != nullptr ? act.ids[i] : kNoValue;
    if (act.locals[i] != nullptr && slot < 0) {
      end_recording(UnsupportedCode::UnmodelledOperation, "a generator with locals of unknown origin");
      return false;
    }
    state.slots.push_back(slot);
    if (slot >= 0) suspend.push_back(slot);
  }
  act.generator->generator->ids.assign(act.ids, act.ids + depth);
  trace_->frame_states.push_back(std::move(state));
  emit(NodeKind::Suspend, suspend, nullptr, static_cast<int32_t>(trace_->frame_states.size()) - 1);
  return_id_ = v.id;
  return true;
}

bool Recorder::on_return(Act& act, Operand v) {
  if (!active_) return true;
  if (v.id < 0) {
    end_recording(UnsupportedCode::UnmodelledOperation, "a result of unknown origin");
    return false;
  }
  if (act.is_root && end_if_exception_escapes(v.id)) return false;
  if (act.generator != nullptr) {
    act.generator->generator->is_finished = true;
    generator_frames_.erase(act.frame);
    emit(NodeKind::Suspend, {act.generator->id}, nullptr, -1);
  }
  return_id_ = v.id;
  if (return_witness_ != nullptr && !act.is_root && act.caller == return_witness_->caller)
    return_witness_->note(v.object);
  if (act.is_root && !branch_frames_.empty()) {
    branch_result_ = v.id;
  } else if (act.is_root) {
    trace_->end = trace::EndKind::Return;
    trace_->result = v.id;
    active_ = false;
    has_ended_ = true;
  }
  return true;
}

// ---- exceptions

Outcome Recorder::raise(Act&, Operand exception, Operand cause) {
  if (!active_) return Outcome::Stop;  // the evaluator leaves the frame and CPython raises
  if (exception.id < 0) return stop("raise of an exception of unknown origin");
  if (cause.object != nullptr && cause.id < 0) return stop("raise from an exception of unknown origin");
  if (trace_->unit != 0 && handled_exceptions_.empty()) {
    PyObject* handled = PyErr_GetHandledException();
    const bool is_foreign = handled != nullptr && handled != cause.object;
    Py_XDECREF(handled);
    if (is_foreign) return stop("a raise while an exception from before the recording is handled");
  }
  raise_snapshot_ = take_snapshot(true);
  Operand value = exception;
  PyObject* made = nullptr;
  if (PyExceptionClass_Check(exception.object)) {
    if (!make_constant(exception)) return stop("raise of a class that is known late");
    Operand instance;
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = call_type(exception, nullptr, 0, nullptr, &instance);
    if (outcome != Outcome::Done) return outcome;
    value = instance;
    made = instance.object;
  }
  if (!PyExceptionInstance_Check(value.object)) {
    Py_XDECREF(made);
    return stop("raise of something that is no exception");
  }
  if (cause.object != nullptr) {
    if (cause.object == Py_None) {
      PyException_SetCause(value.object, nullptr);
    } else if (PyExceptionInstance_Check(cause.object)) {
      PyException_SetCause(value.object, Py_NewRef(cause.object));
    } else {
      Py_XDECREF(made);
      lose("raise from a class");
      return Outcome::Stop;
    }
    if (HeapObject* object = facts_[value.id].heap; object == nullptr || !object->is_created) {
      Py_XDECREF(made);
      return stop("a cause set on an exception that existed before");
    }
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.object)), value.object);
  known_exceptions_.push_back({Py_NewRef(value.object), value.id});
  if (cause.object != nullptr && PyExceptionInstance_Check(cause.object))
    known_exceptions_.back().given_cause = cause.id;
  exception_is_recorded_ = true;
  Py_XDECREF(made);
  return Outcome::Raised;
}

bool Recorder::on_raised(Act&) {
  if (!active_) return true;
  if (exception_is_recorded_) {
    if (raise_snapshot_ < 0) raise_snapshot_ = take_snapshot(true);  // a modelled miss, at the instruction itself
    return true;
  }
  // A re-raised exception that the trace knows is control flow as well.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  exception_is_recorded_ = find_exception(value) >= 0;
  PyErr_Restore(type, value, traceback);
  if (!exception_is_recorded_) lose("an operation that raised");
  return true;
}

ValueId Recorder::find_exception(PyObject* exception) const {
  for (const KnownException& known : known_exceptions_) {
    if (known.object == exception && exception != nullptr) return known.id;
  }
  return kNoValue;
}

void Recorder::on_left(Act&) {
  // Unbound locals, instructions that only CPython executes, tracing that came on.
  end_recording(UnsupportedCode::UnsupportedBytecode, "an instruction that is left to CPython");
}

void Recorder::on_unwound(Act& act) {
  if (!active_) return;
  if (act.generator != nullptr) {
    lose("an exception leaves a generator");
    return;
  }
  if (!act.is_root) return;
  // The exception leaves the compiled function: the trace ends in front of the raise, and CPython raises.
  active_ = false;
  has_ended_ = true;
  trace_->end = trace::EndKind::Exit;
  trace_->end_text = "an exception that leaves the function";
  end_text_ = trace_->end_text;
  end_code_ = UnsupportedCode::UnmodelledOperation;
  trace_->end_reason = static_cast<int>(end_code_);
  trace_->end_snapshot = raise_snapshot_;
  if (raise_snapshot_ >= 0) trace_->truncate(trace_->snapshots[raise_snapshot_].item);
}

ValueId Recorder::caught_exception_id(Act&, PyObject* exception) {
  if (!active_) return kNoValue;
  bool is_recorded = exception_is_recorded_;
  exception_is_recorded_ = false;
  caught_snapshot_ = raise_snapshot_;
  raise_snapshot_ = -1;
  ValueId known = find_exception(exception);
  if (known >= 0) link_exception(exception);
  if (known >= 0 || !is_recorded) return known;
  // A modelled miss (KeyError, AttributeError, StopIteration ...) made it: the same class with the same arguments.
  PyObject* arguments = reinterpret_cast<PyBaseExceptionObject*>(exception)->args;
  std::vector<ValueId> operands{constant_id(reinterpret_cast<PyObject*>(Py_TYPE(exception)))};
  for (Py_ssize_t i = 0; arguments != nullptr && i < PyTuple_GET_SIZE(arguments); i++) {
    if (!can_be_constant(PyTuple_GET_ITEM(arguments, i))) return kNoValue;
    operands.push_back(constant_id(PyTuple_GET_ITEM(arguments, i)));
  }
  // Attributes that C code gave it (the code of a device error).
  PyObject* attributes = reinterpret_cast<PyBaseExceptionObject*>(exception)->dict;
  PyObject *name, *value;
  for (Py_ssize_t at = 0; attributes != nullptr && PyDict_Next(attributes, &at, &name, &value);) {
    if (!PyUnicode_CheckExact(name) || !can_be_constant(value)) return kNoValue;
  }
  ValueId id = emit_typed(NodeKind::Object, operands, exception, nullptr, 1);
  if (id < 0) return id;
  new_object(id);
  for (Py_ssize_t at = 0; attributes != nullptr && PyDict_Next(attributes, &at, &name, &value);) {
    if (set_attribute({exception, id}, name, {value, constant_id(value)}) != Outcome::Done) return kNoValue;
  }
  known_exceptions_.push_back({Py_NewRef(exception), id});
  link_exception(exception);
  return id;
}

// `raise` sets what an exception came from; in the trace these are stores into it, which live as long as it does.
void Recorder::link_exception(PyObject* exception) {
  const auto found = std::find_if(known_exceptions_.begin(), known_exceptions_.end(),
                                  [&](const KnownException& known) { return known.object == exception; });
  const HeapObject* heap = found == known_exceptions_.end() ? nullptr : facts_[found->id].heap;
  if (heap == nullptr || !heap->is_created) return;
  if (found->raise_snapshot < 0) {  // inside an except block: in front of what that handles
    const bool is_nested = !handled_exceptions_.empty() && handled_exceptions_.front().raise_snapshot >= 0;
    found->raise_snapshot = is_nested ? handled_exceptions_.front().raise_snapshot : caught_snapshot_;
  }
  PyObject* context = PyException_GetContext(exception);
  PyObject* cause = PyException_GetCause(exception);
  const ValueId cause_id = cause == nullptr          ? kNoValue
                           : found->given_cause >= 0 ? found->given_cause
                                                     : find_exception(cause);
  const ValueId context_id = context != nullptr && context == cause ? cause_id : find_exception(context);
  const bool suppresses = reinterpret_cast<PyBaseExceptionObject*>(exception)->suppress_context != 0;
  is_unwinding_ = true;
  if (context_id >= 0 && context_id != found->context) {
    emit(NodeKind::SetAttribute, {found->id, context_id}, names().exception_context);
    found->context = context_id;
  }
  if (cause_id >= 0 && cause_id != found->cause) {  // this suppresses the context as well
    emit(NodeKind::SetAttribute, {found->id, cause_id}, names().exception_cause);
    found->cause = cause_id;
  } else if (suppresses && !found->suppresses) {
    emit(NodeKind::SetAttribute, {found->id, constant_id(Py_True)}, names().suppress_context);
  }
  is_unwinding_ = false;
  found->suppresses = suppresses;
  Py_XDECREF(context);
  Py_XDECREF(cause);
}

// The trace ends in front of the raise: CPython raises for real, with a traceback.
bool Recorder::end_at_raise(const KnownException& exception, std::string text) {
  const int32_t snapshot = exception.raise_snapshot;
  if (snapshot < 0 || !trace_->snapshots[snapshot].is_exact) return false;
  lose(std::move(text));
  trace_->end_snapshot = snapshot;
  trace_->truncate(trace_->snapshots[snapshot].item);
  return true;
}

// An exception that was raised and caught in the trace has no traceback at replay: nobody outside may get it.
bool Recorder::end_if_exception_escapes(ValueId result) {
  if (known_exceptions_.empty()) return false;
  std::unordered_map<ValueId, const KnownException*> raised;
  for (const KnownException& known : known_exceptions_) {
    if (known.raise_snapshot >= 0) raised.emplace(known.id, &known);
  }
  std::vector<ValueId> escaping{result};
  for (const trace::Item& item : trace_->items) {
    if (item.guard >= 0 || category_of(trace_->values[item.value].kind) != trace::Category::Mutate) continue;
    const std::span<const ValueId> operands = trace_->operands(item.value);
    if (!raised.contains(operands[0])) escaping.insert(escaping.end(), operands.begin() + 1, operands.end());
  }
  const KnownException* first = nullptr;
  std::unordered_set<ValueId> seen;
  while (!escaping.empty()) {
    const ValueId id = escaping.back();
    escaping.pop_back();
    if (id < 0 || !seen.insert(id).second) continue;
    if (const auto found = raised.find(id); found != raised.end()) {
      if (first == nullptr || found->second->raise_snapshot < first->raise_snapshot) first = found->second;
    }
    const NodeKind kind = trace_->values[id].kind;
    if (kind != NodeKind::Tuple && kind != NodeKind::List && kind != NodeKind::Dict) continue;
    const std::span<const ValueId> operands = trace_->operands(id);
    escaping.insert(escaping.end(), operands.begin(), operands.end());
  }
  return first != nullptr && end_at_raise(*first, "an exception that was caught leaves the call");
}

void Recorder::on_push_exc_info(Act& act) {
  if (!active_) return;
  // The evaluator pushed the exception that was handled before; its id lies below the new one.
  ValueId previous = handled_exceptions_.empty() ? kNoValue : handled_exceptions_.back().id;
  PyObject** stack = act.stack_pointer;
  int top = static_cast<int>(stack - act.locals) - 1;
  ValueId current = act.ids[top];
  act.ids[top - 1] = stack[-2] == Py_None ? constant_id(Py_None) : previous;
  handled_exceptions_.push_back({current, caught_snapshot_});
  caught_snapshot_ = -1;
}

void Recorder::on_pop_except(Act& act) {
  if (!active_) return;
  if (handled_exceptions_.size() <= act.handled_depth) {
    // The evaluator has popped already; the state in front of the instruction still has the slot.
    act.stack_pointer++;
    end_recording(UnsupportedCode::UnmodelledOperation,
                  "the end of an except block that was entered before the recording");
    act.stack_pointer--;
    return;
  }
  handled_exceptions_.pop_back();
}

Outcome Recorder::exception_matches(Act&, Operand exception, Operand type, bool* out) {
  if (active_) {
    if (exception.id < 0) return stop("an exception of unknown origin");
    if (!know_type(exception)) return Outcome::Stop;
    if (!make_constant(type)) return stop("an except clause whose class is known late");
  }
  *out = PyErr_GivenExceptionMatches(exception.object, type.object) != 0;
  return Outcome::Done;
}

Outcome Recorder::with_except_start(Act&, Operand, Operand, Operand*) {
  return stop("an exception inside a with block");
}

Outcome Recorder::rare(Act& act, const host::Instruction& instruction) {
  // yield from a generator of the trace: its frames come back to us with ids, the opcodes only pass them on.
  if (active_ && instruction.op == host::Op::GetYieldFromIter && PyGen_CheckExact(act.stack_pointer[-1])) {
    rare_id_ = act.ids[act.stack_pointer - act.locals - 1];
    return rare_id_ >= 0 ? Outcome::Done : stop("yield from a value of unknown origin");
  }
  if (active_ && instruction.op == host::Op::Send && act.stack_pointer[-1] == Py_None) {
    ValueId receiver = act.ids[act.stack_pointer - act.locals - 2];
    HeapObject* object = receiver >= 0 ? facts_[receiver].heap : nullptr;
    if (object != nullptr && object->generator != nullptr) {
      act.resume_mode = ResumeMode::Never;
      return_id_ = kNoValue;
      return Outcome::Done;
    }
  }
  return stop(UnsupportedCode::UnsupportedBytecode,
              std::string("the instruction ") + host::get_op_name(instruction.op));
}

void Recorder::on_rare_done(Act& act, PyObject** stack_pointer) {
  if (!active_) return;
  ValueId id = act.instruction->op == host::Op::GetYieldFromIter ? rare_id_ : return_id_;
  if (id < 0) {
    lose("a value of unknown origin behind yield from");
    return;
  }
  act.ids[stack_pointer - act.locals - 1] = id;
}

}  // namespace reprise::capture
