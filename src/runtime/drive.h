// Driving: running frames in plain mode while looking for entries at their boundaries.
//
// After a side exit, and after a recording that ended inside a frame, the program goes on in real frames. `drive`
// evaluates such a frame with the plain policy and stops at every boundary that has a place of the context: an entry
// that matches the frame runs on it, and a place that wants a recording gets one. A frame in whose code nothing can be
// entered any more is handed to CPython's evaluator for good.
//
// A loop, not a recursion: an entry that exits into the frame it was entered from continues the loop, so 100,000 exits
// in one loop of the program need no C stack. Only frames that an exit rebuilds *inside* this one recurse, once each.
#pragma once

#include <Python.h>

#include "host/cpython/frame.h"
#include "runtime/compile_context.h"
#include "runtime/hook.h"

namespace reprise::runtime {

/// Runs `frame` to its end for `context` and returns its result (or null with an exception set); for a generator, to
/// its next suspension. `frame` is unlinked and stands at a boundary: its start, a resume, or a place inside.
/// Needs a DriveScope of the context.
PyObject* drive(CompileContext& context, PyThreadState* thread, host::Frame* frame, int throwflag);

/// Calls a Python function (vectorcall convention) with its frames driven for `context`. `start`: the place of its
/// start, which was looked at and is not looked at again.
PyObject* call_driven(CompileContext& context, Place& start, PyObject* function, PyObject* const* args, size_t nargsf,
                      PyObject* kwnames);

/// Whether a frame that reached the hook is worth driving: its code has places of the context that are of use. Counts
/// calls of functions without places; one that is called often gets a place at its start.
bool should_drive(CompileContext& context, PyThreadState* thread, host::Frame* frame);

}  // namespace reprise::runtime
