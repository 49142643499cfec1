#include "modes.h"

#include <utility>
#include <vector>

#include "host/cpython/frame_view.h"
#include "host/cpython/hook.h"
#include "host/cpython/rebuild.h"
#include "interp/evaluator.h"
#include "interp/plain_policy.h"
#include "shadow_policy.h"

namespace reprise::testing {
namespace {

uint32_t draw() {
  uint64_t& state = get_settings().random;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<uint32_t>(state >> 32);
}

// Counts boundaries and says where to act.
bool is_time_to_act(const interp::Activation& act) {
  Settings& settings = get_settings();
  if (settings.code != nullptr && reinterpret_cast<PyObject*>(act.code) != settings.code) return false;
  ++get_counters().boundaries;
  if (settings.countdown > 0 && --settings.countdown == 0) return true;
  return settings.probability > 0 && draw() < settings.probability;
}

class TestPolicy : public interp::PlainPolicy {
 public:
  static constexpr bool kWatchesEverything = true;
  bool at_boundary(Act& act) {
    // A frame that was entered again must make progress.
    if (is_first_) {
      is_first_ = false;
      if (is_reentered) return true;
    }
    return !is_time_to_act(act);
  }
  bool is_reentered = false;

 private:
  bool is_first_ = true;
};

class SnapshotPolicy : public interp::PlainPolicy {
 public:
  void enter_frame(Act& act) {
    PlainPolicy::enter_frame(act);
    innermost = &act;
  }
  void leave_frame(Act& act) {
    PlainPolicy::leave_frame(act);
    innermost = act.caller;
  }
  interp::Activation* innermost = nullptr;
};

SnapshotPolicy& get_snapshot_policy() {
  static SnapshotPolicy policy;
  return policy;
}

template <class Policy>
PyObject* run_whole(Policy& policy, PyThreadState* thread, host::Frame* frame, int throwflag) {
  const interp::RunResult result = interp::run_frame(policy, thread, frame, throwflag != 0);
  if (result.status == interp::RunResult::Returned) return result.value;
  return host::run_default(thread, frame, 0);
}

bool can_rebuild(PyThreadState* thread, host::Frame* frame) {
  PyObject* function = host::get_function(frame);
  PyCodeObject* code = host::get_code(frame);
  constexpr int kSuspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  return !host::has_frame_object(frame) && host::find_namespace(frame) == nullptr && (code->co_flags & CO_OPTIMIZED) &&
         !(code->co_flags & kSuspends) && PyFunction_Check(function) &&
         PyFunction_GET_CODE(function) == reinterpret_cast<PyObject*>(code) &&
         host::get_next_unit(frame) > code->_co_firsttraceable && host::can_drive(thread, frame) &&
         host::view::has_recursion_left(thread, 10);
}

PyObject* run_acting(PyThreadState* thread, host::Frame* frame, int throwflag, bool is_reentered);

// Fresh frames of one frame nest on the C stack.
constexpr int kMostNestedFrames = 20;
thread_local int nested_frames = 0;

PyObject* continue_acting(void*, PyThreadState* thread, host::Frame* frame, int) {
  ++nested_frames;
  PyObject* result = run_acting(thread, frame, 0, true);
  --nested_frames;
  return result;
}

// Moves the contents of the frame to a fresh one, runs that, and finishes the old one with the result.
PyObject* run_in_fresh_frame(PyThreadState* thread, host::Frame* frame, host::ContinueFrame continue_frame) {
  ++get_counters().rebuilt;
  std::vector<PyObject*> slots(host::get_slot_count(frame));
  PyObject** locals = host::get_locals(frame);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = std::exchange(locals[i], nullptr);
  host::FrameSpec spec;
  spec.function = host::get_function(frame);
  spec.next_unit = host::get_next_unit(frame);
  spec.slots = slots.data();
  spec.slot_count = static_cast<int32_t>(slots.size());
  PyObject* result = host::resume_chain(thread, nullptr, &spec, 1, nullptr, false, continue_frame, nullptr);
  return host::finish_frame(thread, frame, result);
}

PyObject* act_at_boundary(PyThreadState* thread, host::Frame* frame) {
  const Settings& settings = get_settings();
  ++get_counters().acted;
  switch (settings.mode) {
    case Mode::Rebuild:
      if (can_rebuild(thread, frame)) return run_in_fresh_frame(thread, frame, host::continue_default);
      break;
    case Mode::Reenter:
      return run_in_fresh_frame(thread, frame, continue_acting);
    case Mode::Finish:
      if (PyExceptionInstance_Check(settings.value)) {
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(settings.value)), settings.value);
        return host::finish_frame(thread, frame, nullptr);
      }
      return host::finish_frame(thread, frame, Py_NewRef(settings.value));
    case Mode::Raise: {
      const host::CodeInfo* info = host::get_code_info(host::get_code(frame));
      const host::Instruction& here = info->instructions[info->find_index(host::get_next_unit(frame))];
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(settings.value)), settings.value);
      if (!host::raise_in_frame(thread, frame, here.op_unit)) return nullptr;
      break;
    }
    default:
      break;
  }
  return host::run_default(thread, frame, 0);
}

PyObject* run_acting(PyThreadState* thread, host::Frame* frame, int throwflag, bool is_reentered) {
  while (true) {
    TestPolicy policy;
    policy.is_reentered = is_reentered;
    const interp::RunResult result = interp::run_frame(policy, thread, frame, throwflag != 0);
    switch (result.status) {
      case interp::RunResult::Returned:
        return result.value;
      case interp::RunResult::Stopped:
        return host::run_default(thread, frame, 0);
      case interp::RunResult::AtBoundary:
        break;
    }
    const bool stays = get_settings().mode == Mode::Reenter &&
                       (draw() % 2 == 0 || nested_frames >= kMostNestedFrames || !can_rebuild(thread, frame));
    if (!stays) return act_at_boundary(thread, frame);
    ++get_counters().acted;
    throwflag = 0;
    is_reentered = true;
  }
}

}  // namespace

Settings& get_settings() {
  static Settings settings;
  return settings;
}

Counters& get_counters() {
  static Counters counters;
  return counters;
}

interp::Activation* find_innermost_activation() { return get_snapshot_policy().innermost; }

PyObject* on_frame(PyThreadState* thread, host::Frame* frame, int throwflag) {
  const Mode mode = get_settings().mode;
  if (mode == Mode::HookOnly || !host::can_drive(thread, frame)) {
    ++get_counters().skipped;
    return host::run_previous(thread, frame, throwflag);
  }
  ++get_counters().frames;
  if (mode == Mode::Plain) {
    interp::PlainPolicy policy;
    return run_whole(policy, thread, frame, throwflag);
  }
  if (mode == Mode::Snapshot) return run_whole(get_snapshot_policy(), thread, frame, throwflag);
  if (mode == Mode::Shadow) {
    ShadowPolicy policy;
    return run_whole(policy, thread, frame, throwflag);
  }
  return run_acting(thread, frame, throwflag, false);
}

}  // namespace reprise::testing
