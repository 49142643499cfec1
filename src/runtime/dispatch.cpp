#include "runtime/dispatch.h"

#include <memory>
#include <utility>

#include "base/log.h"
#include "base/result.h"
#include "guards/dispatcher.h"
#include "host/cpython/rebuild.h"
#include "runtime/compile_requests.h"
#include "runtime/drive.h"
#include "runtime/errors.h"
#include "runtime/hook.h"
#include "runtime/plan_places.h"

namespace reprise::runtime {
namespace {

// A call entry read its function's closure and globals as constants; the others found the closure in the frame.
bool is_for_function(const trace::Trace& trace, PyObject* function, PyObject* globals) {
  return trace.function == function || (!trace.is_call_entry && trace.globals == globals);
}

// Travels through run_entry to the callbacks below.
struct Continuation {
  CompileContext& context;
  PublishedEntry& entry;
  host::Frame* root_frame;
  bool is_root_ready = false;
  PyObject* handled_exception = nullptr;  // owned: what the root frame handles where it stands ready
  std::string graph_break = {};           // not empty: raise GraphBreak instead of going on
  // Another recorded path behind the late guard that failed, ready to run.
  EntryRef branch = {};
  RunState* branch_state = nullptr;
  // The path is to be recorded from the frames of this exit.
  Place* branch_place = nullptr;
  int32_t branch_snapshot = -1;
  std::unique_ptr<BranchRecording> recording = nullptr;
};

// `place` is that of the branch behind the guard; it lives as long as the entry.
bool find_branch(void* data, entry::Entry& entry, const ExitInfo& info, std::span<PyObject* const> args) {
  Continuation& continuation = *static_cast<Continuation*>(data);
  Place* place = continuation.entry.find_branch(info.guard, info.snapshot);
  if (place == nullptr) return false;
  continuation.branch = find_entry(*place, nullptr, entry.trace().globals, args.data(), *continuation.branch_state);
  if (!continuation.branch) {
    if (place->should_record()) {
      continuation.branch_place = place;
      continuation.branch_snapshot = info.snapshot;
    }
    return false;
  }
  ++continuation.context.statistics.branch_runs;
  return true;
}

std::string describe_exit(const trace::Trace& trace, const ExitInfo& info) {
  std::string text;
  if (info.snapshot >= 0) text = trace::describe_place(trace.frame_states[trace.snapshots[info.snapshot].frame]) + ": ";
  switch (info.kind) {
    case ExitKind::None:
      return "returned";
    case ExitKind::Guard:
      return text + "guard failed: " + trace::describe_guard(trace, trace.guards[info.guard]);
    case ExitKind::End:
      return text + trace.end_text;
    case ExitKind::Error:
      return text + "an operation raised";
    case ExitKind::Region:
      if (info.guard >= 0 && info.is_taken_back) {
        return text + "a guard failed behind its regions, which are taken back: " +
               trace::describe_guard(trace, trace.guards[info.guard]);
      }
      if (info.guard >= 0)
        return text + "other sizes: " + trace::describe_guard(trace, trace.guards[info.guard]) + " does not hold";
      return text + "a region could not go on";
  }
  return text;
}

// An exit taken often becomes a path of its own, from all of its frames; where that fails, entries at its boundary.
void plan_after_late_guard(Continuation& continuation, const trace::Trace& trace, const ExitInfo& info) {
  CompileContext& context = continuation.context;
  Place* branch = continuation.entry.find_branch(info.guard, info.snapshot);
  if (branch == nullptr && continuation.entry.entry().statistics.guard_exits[info.guard] >= kLateGuardPatience) {
    branch = continuation.entry.make_branch(info.guard, info.snapshot);
    if (branch != nullptr) {
      branch->want_recording("behind the guard " + trace::describe_guard(trace, trace.guards[info.guard]) + " at " +
                             trace::describe_place(trace.frame_states[trace.snapshots[info.snapshot].frame]));
      continuation.branch_place = branch;
      continuation.branch_snapshot = info.snapshot;
    }
  }
  if (branch != nullptr && !branch->is_blacklisted) return;
  std::vector<ResumePoint> frames = list_resume_points(trace, info.snapshot);
  if (frames.empty()) return;
  Place& place = context.get_place(frames.back().code, frames.back().unit);
  if (++place.exits == kLateGuardPatience) {
    plan_places(context, frames, PlanFrom::Here,
                "exits at the guard " + trace::describe_guard(trace, trace.guards[info.guard]));
  }
}

void on_exit(void* data, entry::Entry& entry, const ExitInfo& info) {
  Continuation& continuation = *static_cast<Continuation*>(data);
  CompileContext& context = continuation.context;
  const trace::Trace& trace = entry.trace();
  ++context.statistics.side_exits;
  if (info.snapshot >= 0) {
    size_t frames = list_resume_points(trace, info.snapshot).size();
    context.statistics.rebuilt_frames += frames - (continuation.root_frame != nullptr);
  }
  if (base::is_log_enabled(base::LogWord::Exits)) {
    base::write_log(base::LogWord::Exits, context.name + ": entry " + std::to_string(continuation.entry.serial) +
                                              " exits at " + describe_exit(trace, info));
  }
  switch (info.kind) {
    case ExitKind::None:
    case ExitKind::Error:
      return;
    case ExitKind::Region:
      if (info.guard < 0) return;
      [[fallthrough]];
    case ExitKind::Guard:
      ++context.statistics.late_guard_exits;
      if (info.is_taken_back) break;
      plan_after_late_guard(continuation, trace, info);
      break;
    case ExitKind::End:
      ++context.statistics.opaque_calls;
      if (!continuation.entry.is_end_planned) {
        continuation.entry.is_end_planned = true;
        plan_places_behind(context, trace);
      }
      break;
  }
  if (context.options.fullgraph) {
    continuation.graph_break = describe_exit(trace, info);
    continuation.branch_place = nullptr;
  }
}

PyObject* continue_frame(void* data, PyThreadState* thread, host::Frame* frame, int throwflag) {
  Continuation& continuation = *static_cast<Continuation*>(data);
  if (!continuation.graph_break.empty()) {
    raise_graph_break(std::exchange(continuation.graph_break, {}));
    if (!raise_at_boundary(thread, frame)) return nullptr;
  }
  if (continuation.branch_place != nullptr && throwflag == 0) {
    Place* place = std::exchange(continuation.branch_place, nullptr);
    continuation.recording = continuation.context.requests.record_branch(
        continuation.context, thread, *place, continuation.entry.entry().trace(), continuation.branch_snapshot);
    if (continuation.recording == nullptr) place->note_recording_failed("its frames can not be recorded together");
  }
  if (continuation.recording != nullptr && continuation.recording->is_recording()) {
    RecordResult result = continuation.recording->run_frame(thread, frame);
    if (result.frame == RecordResult::Frame::Gone) return result.value;
  }
  // The root frame is not driven from here: its driver goes on with it, so that the C stack does not grow.
  if (frame == continuation.root_frame && throwflag == 0) {
    continuation.is_root_ready = true;
    continuation.handled_exception = PyErr_GetHandledException();
    return nullptr;
  }
  DriveScope scope(continuation.context);
  return drive(continuation.context, thread, frame, throwflag);
}

void renew(CompileContext& context, PublishedEntry& entry) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  context.requests.renew_entry(context, entry);
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
}

ServeResult finish_serving(Continuation& continuation, const ExitInfo& info, host::Frame* root_frame, PyObject* value) {
  ServeResult result{continuation.is_root_ready, true, value};
  if (result.is_frame_ready) {
    // Rebuilding has put back what was handled outside of the frame.
    PyErr_SetHandledException(continuation.handled_exception);
    Py_XDECREF(continuation.handled_exception);
    // Only a trace that was cut goes once round its loop and ends where it began.
    const trace::Trace& trace = continuation.entry.entry().trace();
    result.made_progress =
        host::get_next_unit(root_frame) != trace.unit || (info.kind == ExitKind::End && is_cut(trace));
  }
  return result;
}

}  // namespace

bool raise_at_boundary(PyThreadState* thread, host::Frame* frame) {
  const host::CodeInfo* info = host::get_code_info(host::get_code(frame));
  const int32_t unit = host::get_next_unit(frame);
  const int32_t index = info == nullptr ? -1 : info->find_index(unit);
  return host::raise_in_frame(thread, frame, index < 0 ? unit : info->instructions[index].op_unit);
}

EntryRef find_entry(Place& place, PyObject* function, PyObject* globals, PyObject* const* args, RunState& state,
                    std::span<const EntryRef> excluded) {
  const std::vector<EntryRef>& entries = place.entries();
  if (entries.empty()) return {};
  EntryRef candidate;
  auto accepts = [&](int32_t index) {
    candidate = entries[index];
    for (const EntryRef& other : excluded) {
      if (other.get() == candidate.get()) return false;
    }
    return is_for_function(candidate->entry().trace(), function, globals) &&
           check_guards(candidate->entry(), args, state);
  };
  try {
    if (guards::Dispatcher* dispatcher = place.find_dispatcher()) {
      for (int32_t index : dispatcher->find_candidates(args)) {
        if (!accepts(index)) continue;
        dispatcher->note_hit(index);
        place.note_run(*candidate);
        return candidate;
      }
    } else if (accepts(0)) {
      place.note_run(*candidate);
      return candidate;
    }
  } catch (const base::InternalError& error) {
    report_bug(error);
    state.clear();
    place.drop(*candidate);
  }
  if (place.context().has_varying_sizes()) place.learn_varying(args);
  ++place.misses;
  ++place.context().statistics.guard_misses;
  return {};
}

std::string describe_miss(Place& place, PyObject* function, PyObject* globals, PyObject* const* args) {
  const EntryRef* latest = nullptr;
  for (const EntryRef& entry : place.entries()) {
    if (latest == nullptr || entry->last_used > (*latest)->last_used) latest = &entry;
  }
  if (latest == nullptr) return {};
  std::string prefix = "entry " + std::to_string((*latest)->serial) + ": ";
  if (!is_for_function((*latest)->entry().trace(), function, globals))
    return prefix + "another function of the same code";
  return prefix + (*latest)->entry().guards().explain(args);
}

ServeResult serve(CompileContext& context, PyThreadState* thread, EntryRef entry, RunState& state,
                  host::Frame* root_frame) {
  ++context.statistics.entry_runs;
  PauseScope pause;
  RunState states[2];
  RunState* current = &state;
  for (int turn = 0;; turn ^= 1) {
    Continuation continuation{context, *entry, root_frame};
    continuation.branch_state = &states[turn];
    ExitInfo info;
    info.on_exit = on_exit;
    info.find_branch = find_branch;
    ++entry->depth;
    PyObject* value = run_entry(thread, entry->entry(), *current, root_frame, continue_frame, &continuation, &info);
    if (--entry->depth == 0 && info.kind == ExitKind::Region && entry->entry().needs_renewal()) {
      renew(context, *entry);
    }
    if (!info.is_branch_taken) return finish_serving(continuation, info, root_frame, value);
    entry = continuation.branch;
    current = &states[turn];
  }
}

}  // namespace reprise::runtime
