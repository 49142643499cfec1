#include "runtime/drive.h"
#include "runtime/foreign_modes.h"

#include <utility>
#include <vector>

#include "host/cpython/decode.h"
#include "host/cpython/hook.h"
#include "host/cpython/rebuild.h"
#include "interp/evaluator.h"
#include "interp/plain_policy.h"
#include "runtime/compile_requests.h"
#include "runtime/dispatch.h"
#include "runtime/errors.h"
#include "runtime/finalisers.h"

namespace reprise::runtime {
namespace {

// A driven frame that met no place for this many instructions is CPython's for good. Counted are those that may run
// Python code.
constexpr int64_t kPatienceInstructions = 100'000;
// Backward jumps to one place, taken in plain mode, after which it is recorded.
constexpr uint32_t kHotBackEdges = 8;
// Calls in plain mode after which the start of a function is recorded.
constexpr uint32_t kHotCalls = 8;
// Runs of entries on one frame between two looks at pending signals.
constexpr uint32_t kRoundsBetweenSignals = 64;

// What to do at a boundary.
struct Finding {
  Place* place = nullptr;
  EntryRef entry;  // run it; `state` is filled
  RunState state;
  bool is_recording_wanted = false;

  bool is_empty() const { return !entry && !is_recording_wanted; }

  /// `count`: of the locals, and the value stack behind them.
  void look(Place& here, PyObject* function, PyObject* globals, PyObject* const* locals, int count,
            std::span<const EntryRef> excluded, bool may_record) {
    if (here.unit() != 0 && own_finaliser(locals, count)) return;
    entry = find_entry(here, function, globals, locals, state, excluded);
    if (!entry && may_record && here.should_record()) {
      is_recording_wanted = true;
      if (std::string miss = describe_miss(here, function, globals, locals); !miss.empty()) here.why = std::move(miss);
    }
    if (!is_empty()) place = &here;
  }
};

// Runs a frame plainly up to a boundary where there is something to do.
class DrivePolicy : public interp::PlainPolicy {
 public:
  using Act = interp::PlainPolicy::Act;

  DrivePolicy(CodePlaces& places, host::Frame* frame)
      : places_(places), frame_(frame), function_(host::get_function(frame)), globals_(host::get_globals(frame)) {}

  PyObject* function() const { return function_; }
  PyObject* globals() const { return globals_; }

  /// Before each run: `finding` is filled at the boundary where the run ends.
  void start(Finding* finding) {
    finding_ = finding;
    instructions_left_ = kPatienceInstructions;
    is_first_ = true;
  }
  int64_t instruction_count() const { return kPatienceInstructions - instructions_left_; }

  bool is_active() { return --instructions_left_ >= 0; }

  bool at_boundary(Act& act) {
    // The driver has looked at the boundary where the run starts.
    if (std::exchange(is_first_, false) && instruction_count() <= 1) return true;
    Place* place = places_.find(act.instruction->unit);
    if (place == nullptr || place->is_idle() || is_disabled()) return true;
    finding_->look(*place, function_, globals_, act.locals, static_cast<int>(act.stack_pointer - act.locals), {}, true);
    return finding_->is_empty();
  }

  bool at_back_edge(Act& act) {
    if (act.instruction->target < 0) return true;
    const int32_t unit = places_.info()->instructions[act.instruction->target].unit;
    if (places_.count_back_edge(unit) == kHotBackEdges && !host::is_generator_frame(frame_)) {
      places_.get(unit).want_recording("the header of a loop that ran in plain mode");
    }
    return true;
  }

 private:
  CodePlaces& places_;
  host::Frame* frame_;
  PyObject* function_;  // borrowed from the frame
  PyObject* globals_;
  Finding* finding_ = nullptr;
  int64_t instructions_left_ = 0;
  bool is_first_ = false;
};

PyObject* release_frame(CompileContext& context, PyThreadState* thread, host::Frame* frame) {
  ++context.statistics.released_frames;
  return host::run_default(thread, frame, 0);
}

PyObject* drive_frame(CompileContext& context, PyThreadState* thread, host::Frame* frame, int throwflag) {
  CodePlaces* places = context.find_code_places(host::get_code(frame));
  if (places == nullptr || !places->is_active() || throwflag != 0 || !host::can_drive(thread, frame)) {
    return host::run_default(thread, frame, throwflag);
  }
  ++context.statistics.driven_frames;
  DrivePolicy policy(*places, frame);
  std::vector<EntryRef> tried;  // entries that exited where they began, since the frame last moved
  bool may_record = true;
  const Place* seen = take_seen_place();
  for (uint32_t round = 1;; ++round) {
    // A loop of the program may go round in entries alone, which look at nothing.
    if (round % kRoundsBetweenSignals == 0 && PyErr_CheckSignals() < 0) {
      if (!raise_at_boundary(thread, frame)) return nullptr;
      tried.clear();
      may_record = true;
    }
    Finding finding;
    const int32_t unit = host::get_next_unit(frame);
    Place* here = places->find(unit);
    if (here != nullptr && here != std::exchange(seen, nullptr) && !here->is_idle() && !is_disabled()) {
      finding.look(*here, policy.function(), policy.globals(), host::get_locals(frame), host::get_slot_count(frame),
                   tried, may_record);
    }
    if (finding.is_empty()) {
      if (!places->is_active()) return release_frame(context, thread, frame);
      policy.start(&finding);
      interp::RunResult run = interp::run_frame(policy, thread, frame, false);
      context.statistics.plain_instructions += policy.instruction_count();
      switch (run.status) {
        case interp::RunResult::Returned:
          return run.value;
        case interp::RunResult::Stopped:
          return release_frame(context, thread, frame);
        case interp::RunResult::AtBoundary:
          break;
      }
      tried.clear();
      may_record = true;
    }
    if (finding.entry) {
      ServeResult result = serve(context, thread, finding.entry, finding.state, frame);
      if (!result.is_frame_ready) return result.value;
      if (!result.made_progress) {
        tried.push_back(finding.entry);
        continue;
      }
    } else {
      RecordResult result = context.requests.record_from(context, thread, frame, *finding.place);
      if (result.frame == RecordResult::Frame::Gone) return result.value;
      if (host::get_next_unit(frame) == finding.place->unit()) {
        may_record = false;
        continue;
      }
    }
    tried.clear();
    may_record = true;
  }
}

}  // namespace

PyObject* drive(CompileContext& context, PyThreadState* thread, host::Frame* frame, int throwflag) {
  try {
    return drive_frame(context, thread, frame, throwflag);
  } catch (const base::InternalError& error) {
    return raise_bug(error);
  }
}

PyObject* call_driven(CompileContext& context, Place& start, PyObject* function, PyObject* const* args, size_t nargsf,
                      PyObject* kwnames) {
  DriveScope scope(context, &start);
  return PyObject_Vectorcall(function, args, nargsf, kwnames);
}

bool should_drive(CompileContext& context, PyThreadState* thread, host::Frame* frame) {
  PyCodeObject* code = host::get_code(frame);
  CodePlaces* places = context.find_code_places(code);
  if (places == nullptr) {
    constexpr int kNever = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    if ((code->co_flags & (kNever | CO_NEWLOCALS)) != CO_NEWLOCALS || !host::is_at_start(frame)) return false;
    if (context.count_plain_call(code) != kHotCalls || has_foreign_modes()) return false;
    context.get_place(code, 0).want_recording("a function that is often called in plain mode");
    return host::can_drive(thread, frame);
  }
  return places->is_active() && !has_foreign_modes() && host::can_drive(thread, frame);
}

}  // namespace reprise::runtime
