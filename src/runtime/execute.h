// Running an entry: guards, steps in order, and the exit that ends them if there is one.
//
//   RunState state;
//   if (check_guards(entry, args, state)) result = run_entry(thread, entry, state, frame, continue_frame, context,
//   &info);
//
// Values die at the step behind which nobody needs them, as early as they would in CPython. Runs are re-entrant: a step
// may call the same entry again. Threads: the GIL is held; steps release it where torch does.
#pragma once

#include <Python.h>

#include <cstdint>
#include <span>

#include "entry/entry.h"
#include "host/cpython/frame.h"
#include "host/cpython/rebuild.h"

namespace reprise::runtime {

enum class RunStatus : uint8_t { GuardFailed, Returned, Exited };

enum class ExitKind : uint8_t {
  None,    // the entry returned
  Guard,   // a late guard failed
  End,     // the trace ends in an exit
  Error,   // a step raised: the exception is raised again in the frames
  Region,  // the code of a region could not go on: the frames in front of it do
};

/// What ended a run, and whom to tell.
struct ExitInfo {
  // Set by the caller. Called before frames are resumed; must neither run Python code nor change the exception state.
  void (*on_exit)(void* context, entry::Entry& entry, const ExitInfo& info) = nullptr;
  // Set by the caller or nullptr: asked at a late guard that failed, before on_exit; `args` are borrowed, in the layout
  // of a branch (Trace::branch_frames). True: the caller goes on with them, and run_entry comes back at once
  // (is_branch_taken, result nullptr); the root frame is untouched.
  bool (*find_branch)(void* context, entry::Entry& entry, const ExitInfo& info,
                      std::span<PyObject* const> args) = nullptr;

  // Set by run_entry.
  RunStatus status = RunStatus::Returned;
  ExitKind kind = ExitKind::None;
  int32_t guard = -1;  // ExitKind::Guard: in Trace::guards; Region: the one that failed, or the fact about sizes, or -1
  int32_t item = -1;   // in Trace::items; -1 for End
  int32_t snapshot = -1;       // in Trace::snapshots; -1: an error that no frame of the trace saw
  bool is_taken_back = false;  // Region: a step of the group failed (`guard`, if it is one), not the code of a region
  bool is_branch_taken = false;
};

/// The slots of one run, from check_guards to the end of run_entry. Drops what it holds.
class RunState {
 public:
  RunState() = default;
  ~RunState() { clear(); }
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  void clear();
  /// The same when all slots but constants are NULL already.
  void give_back();

  entry::Entry* entry = nullptr;
  PyObject** slots = nullptr;
};

/// `args`: borrowed, layout of the root frame's localsplus (Trace::slot_count of them), NULL where empty.
/// true: `state` holds the pre values that the run needs and `args` are not looked at again.
bool check_guards(entry::Entry& entry, PyObject* const* args, RunState& state);

/// Runs what check_guards accepted. Returns a new reference, or nullptr with an exception set.
/// `root_frame`: the frame the entry was entered in, not linked to the thread; it is gone afterwards (finished with the
/// result, or resumed). nullptr: the entry was called, and an exit makes the root frame too.
/// `continue_frame(context, ...)` continues the frames that an exit rebuilds. `exit_info` is written before that.
PyObject* run_entry(PyThreadState* thread, entry::Entry& entry, RunState& state, host::Frame* root_frame,
                    host::ContinueFrame continue_frame, void* context, ExitInfo* exit_info);

}  // namespace reprise::runtime
