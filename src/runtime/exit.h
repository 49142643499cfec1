// Taking an exit: from the slots of a run to the real frames of a snapshot.
//
// Objects that only the exit needs are built here, by the exit program (entry/exit_program.h), in trace order, each
// once.
#pragma once

#include <Python.h>

#include "host/cpython/frame.h"
#include "host/cpython/rebuild.h"
#include "runtime/execute.h"

namespace reprise::runtime {

/// Rebuilds the frames of `info.snapshot` from `state`, drops what the run still holds, and continues the frames.
/// ExitKind::Error: the exception that is set is raised in the innermost frame (in the outermost one, if the snapshot
/// is not exact). Returns what run_entry returns.
PyObject* take_exit(PyThreadState* thread, entry::Entry& entry, RunState& state, host::Frame* root_frame,
                    host::ContinueFrame continue_frame, void* context, ExitInfo& info);

}  // namespace reprise::runtime
