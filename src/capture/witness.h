// Runs Python that passes unrecorded, and watches whether it only reads.
//
// Most Python that C code calls during a recording is an attribute hook, a property or a comparison that only reads.
// Seen to have written nothing, it costs the trace nothing; anything else makes the recorder forget what it knows of
// the heap (Recorder::forget_after_callback). Python that such a frame calls is a frame of its own, watched in turn.
#pragma once

#include <Python.h>

#include "host/cpython/frame.h"

namespace reprise::capture {

/// Runs the frame to its end, as CPython would. `*only_reads`: no instruction of this frame can have written anything
/// that was there before, and no C callable was called that could. New reference, or nullptr with an exception set.
PyObject* run_witnessed(PyThreadState* thread, host::Frame* frame, bool throwflag, bool* only_reads);

}  // namespace reprise::capture
