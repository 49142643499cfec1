// Snapshots: the state of all frames in front of an instruction, and the end of a recording.
#include "base/check.h"
#include "capture/recorder.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

namespace {

trace::ValueType type_of_value(const PyTypeObject* type, bool is_meta_tainted) {
  if (type == nullptr) return trace::ValueType::Unknown;
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type) return trace::ValueType::Number;
  if (type == &PyTuple_Type) return trace::ValueType::Plain;
  // Metadata that depends on data is no fact.
  if (host::is_plain_tensor_type(type))
    return is_meta_tainted ? trace::ValueType::LateTensor : trace::ValueType::Tensor;
  return trace::ValueType::Other;
}

}  // namespace

int32_t Recorder::frame_state_of(Act& act, bool is_innermost) {
  if (!is_innermost && act.call_state >= 0) return act.call_state;
  int32_t caller = act.is_root ? root_caller_ : -1;
  if (!act.is_root && act.caller != nullptr) {
    caller = frame_state_of(static_cast<Act&>(*act.caller), false);
    if (caller < 0) return -1;
  }
  trace::FrameState state;
  int depth;
  if (is_innermost) {
    depth = static_cast<int>(act.stack_pointer - act.locals);
    state.unit = act.instruction->unit;
    state.op_unit = act.instruction->op_unit;
  } else {
    depth = act.resume_depth;
    state.unit = act.instruction->next_unit;
    state.op_unit = act.instruction->op_unit;
    state.mode = act.resume_mode;
    state.mode_value = act.resume_value.id;
  }
  state.slots.resize(depth, kNoValue);
  for (int i = 0; i < depth; i++) {
    if (act.locals[i] == nullptr) continue;
    ValueId id = act.ids[i];
    // The unit that a handler re-raises at lies on the stack as an int; it follows from the code.
    if (id < 0 && i >= act.code->co_nlocalsplus && PyLong_CheckExact(act.locals[i])) id = constant_id(act.locals[i]);
    if (id < 0) return -1;
    state.slots[i] = id;
  }
  // A function that is another one at each run is found by its value.
  if (act.function_value < 0 || is_constant(act.function_value)) state.function = Py_NewRef(act.function);
  state.function_value = act.function_value;
  state.code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(act.code)));
  state.caller = caller;
  trace_->frame_states.push_back(std::move(state));
  int32_t index = static_cast<int32_t>(trace_->frame_states.size()) - 1;
  if (!is_innermost) act.call_state = index;
  return index;
}

void Recorder::note_effect_node(NodeKind kind, ValueId id) {
  int32_t target_item = -1;
  if (trace::category_of(kind) == trace::Category::Mutate) {
    ValueId target = trace_->operands(id)[0];
    while (target >= 0 && trace_->values[target].kind == NodeKind::InstanceDict) target = trace_->operands(target)[0];
    if (target >= 0 && is_created(target)) target_item = trace_->values[target].item;
  }
  effects_.push_back({trace_->values[id].item, target_item});
}

bool Recorder::has_effects_since(size_t mark) const {
  for (size_t i = effects_.size(); i-- > 0 && effects_[i].item >= static_cast<int32_t>(mark);) {
    if (effects_[i].target_item < static_cast<int32_t>(mark)) return true;
  }
  return false;
}

int32_t Recorder::take_snapshot(bool must_be_exact) {
  if (top_ == nullptr || top_->instruction == nullptr) return -1;
  // Frames inside a C call, and a caller that has more to do, can't be resumed: the state in front of the outermost
  // such instruction is all that can be said.
  Act* front = nullptr;
  for (Act* act = top_; act != nullptr; act = act->is_root ? nullptr : static_cast<Act*>(act->caller)) {
    bool is_generator = act->generator != nullptr && !act->is_root;
    if (act != top_ && act->resume_mode == ResumeMode::Never) front = act;
    if (is_generator && act->caller != nullptr) front = static_cast<Act*>(act->caller);
  }
  Act& innermost = front != nullptr ? *front : *top_;
  size_t mark = front != nullptr ? front->item_mark : boundary_mark_;
  // A handled exception that the trace raised has no traceback: frames inside an except block are never rebuilt.
  bool is_exact = !has_effects_since(mark) && handled_exceptions_.empty();
  if (must_be_exact && !is_exact) return -1;
  if (!trace_->snapshots.empty()) {
    trace::Snapshot& last = trace_->snapshots.back();
    if (last.item == static_cast<int32_t>(mark) && last.is_exact == is_exact && last.frame >= 0 &&
        trace_->frame_states[last.frame].code == innermost.code &&
        trace_->frame_states[last.frame].unit == innermost.instruction->unit) {
      return static_cast<int32_t>(trace_->snapshots.size()) - 1;
    }
  }
  int32_t frame = frame_state_of(innermost, true);
  if (frame < 0) return -1;
  trace::Snapshot snapshot;
  snapshot.frame = frame;
  snapshot.item = static_cast<int32_t>(mark);
  snapshot.is_exact = is_exact;
  if (!handled_exceptions_.empty()) snapshot.handled_exception = handled_exceptions_.back().id;
  trace_->snapshots.push_back(snapshot);
  return static_cast<int32_t>(trace_->snapshots.size()) - 1;
}

void Recorder::end_recording(UnsupportedCode code, std::string text, bool is_between) {
  if (!active_) return;
  active_ = false;
  has_ended_ = true;
  put_off();
  end_code_ = code;
  end_text_ = text;
  trace_->end = trace::EndKind::Exit;
  trace_->end_reason = static_cast<int>(code);
  trace_->end_text = std::move(text);
  if (!handled_exceptions_.empty() && handled_exceptions_.front().raise_snapshot >= 0) {
    // Inside an except block: CPython raises for real, with tracebacks and contexts.
    trace_->end_snapshot = handled_exceptions_.front().raise_snapshot;
    trace_->truncate(trace_->snapshots[trace_->end_snapshot].item);
    return;
  }
  Act* front = top_;
  for (Act* act = top_; act != nullptr; act = act->is_root ? nullptr : static_cast<Act*>(act->caller)) {
    if (act != top_ && act->resume_mode == ResumeMode::Never) front = act;
    if (act->generator != nullptr && !act->is_root && act->caller != nullptr) front = static_cast<Act*>(act->caller);
  }
  if (front == nullptr || front->instruction == nullptr) {
    trace_->end_snapshot = -1;
    return;
  }
  size_t mark = front == top_ ? boundary_mark_ : front->item_mark;
  int32_t frame = is_between && front == top_ ? -1 : frame_state_of(*front, true);
  if (frame < 0) {
    // Also for a live slot without a known value: back to the last place where the state was known.
    for (size_t i = trace_->snapshots.size(); i-- > 0;) {
      trace::Snapshot& snapshot = trace_->snapshots[i];
      if (snapshot.is_exact && snapshot.item <= static_cast<int32_t>(mark)) {
        trace_->truncate(snapshot.item);
        trace_->end_snapshot = static_cast<int32_t>(i);
        return;
      }
    }
    trace_->end_snapshot = -1;
    return;
  }
  trace_->truncate(mark);
  trace::Snapshot snapshot;
  snapshot.frame = frame;
  snapshot.item = static_cast<int32_t>(mark);
  if (!handled_exceptions_.empty()) snapshot.handled_exception = handled_exceptions_.back().id;
  trace_->snapshots.push_back(snapshot);
  trace_->end_snapshot = static_cast<int32_t>(trace_->snapshots.size()) - 1;
}

Outcome Recorder::stop(UnsupportedCode code, std::string text) {
  end_recording(code, std::move(text));
  return Outcome::Stop;
}

void Recorder::lose(std::string text) { end_recording(UnsupportedCode::UnmodelledOperation, std::move(text)); }

std::unique_ptr<trace::Trace> Recorder::take_trace() {
  if (trace_ == nullptr) return nullptr;
  if (active_) lose("the recording was given up");
  if (trace_->end == trace::EndKind::Exit && trace_->end_snapshot < 0) return nullptr;
  if (trace_->end == trace::EndKind::Return && trace_->result < 0) return nullptr;
  state_identities();
  for (size_t id = 0; id < facts_.size(); id++) {
    trace_->values[id].type = type_of_value(facts_[id].type, facts_[id].is_meta_tainted);
  }
  return std::move(trace_);
}

}  // namespace reprise::capture
