// The PEP 523 frame evaluation hook: how a Python frame reaches us, and how it leaves to CPython's evaluator.
//
// One hook a process, in the main interpreter. It is installed only while something is recorded or driven: with any
// hook CPython no longer inlines Python calls. A hook that was there before (torch.compile's) stays reachable: frames
// that we do not want go to it through `run_previous`. If somebody installs another hook over ours, `remove_frame_hook`
// leaves that in place and ours only passes frames on.
//
// Threads: all functions need the GIL.
#pragma once

#include <Python.h>

#include "host/cpython/frame.h"

namespace reprise::host {

/// Makes what this folder needs once a process: names, code objects, watchers. Call it at import, before anything else
/// of host/cpython. false with an exception set if it fails, or outside the main interpreter.
bool prepare();

/// Evaluates `frame`, which is complete but not yet linked to the thread, and returns its result: a new reference, or
/// nullptr with an exception set. `throwflag`: an exception is set and is to be raised where the frame stands.
using FrameHook = PyObject* (*)(PyThreadState* thread, Frame* frame, int throwflag);

/// The hook sees every Python frame but those of our own micro operations, and none while a deep recursion runs short
/// of C stack: CPython then goes on without any hook, so that it inlines calls again. Installs `hook`, or replaces the
/// one that was installed by this function.
void install_frame_hook(FrameHook hook);
void remove_frame_hook();
bool is_frame_hook_installed();

/// CPython's evaluator: takes the frame for good.
PyObject* run_default(PyThreadState* thread, Frame* frame, int throwflag);
/// The hook that was installed before ours (CPython's evaluator if there was none). Only for frames as they arrived.
PyObject* run_previous(PyThreadState* thread, Frame* frame, int throwflag);

/// Our evaluator may drive the frame: no tracing, profiling or monitoring is on, recursion is left, the code has a
/// RESUME (it is no micro operation and no trampoline), and the thread belongs to the main interpreter.
bool can_drive(PyThreadState* thread, Frame* frame);

}  // namespace reprise::host
