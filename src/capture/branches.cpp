// Branches: a trace that begins at an exit of another one, with all frames of that exit.
#include "capture/recorder.h"

namespace reprise::capture {

bool Recorder::begin_branch(const trace::Trace& parent, int32_t snapshot) {
  const trace::Snapshot& from = parent.snapshots[snapshot];
  if (!from.is_exact || from.handled_exception >= 0) return false;
  std::vector<const trace::FrameState*> states;  // outermost first
  for (int32_t i = from.frame; i >= 0; i = parent.frame_states[i].caller) {
    if (parent.frame_states[i].generator_value >= 0) return false;
    states.insert(states.begin(), &parent.frame_states[i]);
  }
  const trace::FrameState& root = *states.front();
  trace_->function = Py_NewRef(root.function != nullptr ? root.function : parent.function);
  trace_->code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(root.code)));
  trace_->globals = Py_NewRef(parent.globals);
  trace_->unit = root.unit;
  trace_->is_call_entry = false;
  int32_t slot = 0;
  auto add_argument = [&] {
    ValueId id = trace_->add_node(NodeKind::Arg, {}, nullptr, slot++, true);
    facts_.emplace_back().is_present = true;
    return id;
  };
  int32_t slot_count = 0;
  for (const trace::FrameState* state : states) {
    slot_count += static_cast<int32_t>(state->slots.size()) + (state->function == nullptr) +
                  (state->mode == host::ResumeMode::PushValue);
  }
  trace_->slot_count = slot_count;
  for (const trace::FrameState* state : states) {
    trace_->branch_frames.push_back({state->code, slot});
    BranchFrame& frame = branch_frames_.emplace_back();
    for (ValueId id : state->slots) {
      frame.ids.push_back(id >= 0 ? add_argument() : kNoValue);
      if (id < 0) slot++;
    }
  }
  for (size_t i = 0; i < states.size(); i++) {
    branch_frames_[i].function = states[i]->function == nullptr ? add_argument() : constant_id(states[i]->function);
    branch_frames_[i].mode = states[i]->mode;
    if (states[i]->mode == host::ResumeMode::PushValue) branch_frames_[i].mode_value = add_argument();
  }
  int32_t caller = -1;
  for (size_t i = 0; i < states.size(); i++) {
    branch_frames_[i].caller = caller;
    trace::FrameState state;
    if (states[i]->function != nullptr) state.function = Py_NewRef(states[i]->function);
    state.function_value = branch_frames_[i].function;
    state.code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(states[i]->code)));
    state.unit = states[i]->unit;
    state.op_unit = states[i]->op_unit;
    state.mode = states[i]->mode;
    state.mode_value = branch_frames_[i].mode_value;
    state.slots = branch_frames_[i].ids;
    state.caller = caller;
    trace_->frame_states.push_back(std::move(state));
    caller = static_cast<int32_t>(trace_->frame_states.size()) - 1;
  }
  return true;
}

void Recorder::expect_branch_frame(host::Frame* frame) {
  pending_ = {};
  pending_frame_ = frame;
}

// The frame stands behind its call, with the callee's result taken as its mode says.
void Recorder::enter_branch_frame(Act& act) {
  BranchFrame frame = std::move(branch_frames_.back());
  branch_frames_.pop_back();
  pending_frame_ = nullptr;
  root_caller_ = frame.caller;
  act.function_value = frame.function;
  const int depth = static_cast<int>(act.stack_pointer - act.locals);
  for (int i = 0; i < depth; i++) {
    if (act.locals[i] == nullptr) continue;
    if (i < static_cast<int>(frame.ids.size())) {
      act.ids[i] = frame.ids[i];
    } else {
      act.ids[i] = frame.mode == host::ResumeMode::PushValue ? frame.mode_value : branch_result_;
    }
  }
}

}  // namespace reprise::capture
