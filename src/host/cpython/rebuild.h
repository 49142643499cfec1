// Side exits: from computed values back into real frames.
//
// No frame is ever allocated, cleared or popped here: CPython's own call path makes each frame (its function is called
// with placeholder arguments and our hook takes the frame over before it has executed anything), and CPython's own
// return path takes it away. Works without an installed hook: it is installed for the duration of such a call.
//
// Ownership: slots of a FrameSpec are owned references that are moved into the frame, on failure too.
// Threads: the GIL is held; the thread is the one that goes on executing.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/cpython/decode.h"
#include "host/cpython/frame.h"

namespace reprise::host {

/// One frame of a chain. All but the innermost wait for a callee: their operands are popped, `next_unit` is behind the
/// instruction that made the call, and `mode` says what the callee's result becomes.
struct FrameSpec {
  PyObject* function = nullptr;  // borrowed
  int32_t next_unit = 0;         // the boundary at which the frame goes on
  PyObject** slots = nullptr;    // locals, cells, free variables, value stack; each owned or NULL
  int32_t slot_count = 0;
  ResumeMode mode = ResumeMode::Push;
  PyObject* mode_value = nullptr;  // owned; for ResumeMode::PushValue
  // Borrowed. Not nullptr: the frame belongs to this generator or coroutine, which the next outer frame (at ForIter,
  // Send or a Call of next) iterates; that frame's slots hold the same object. It is suspended, or was made by
  // make_generator without slots; what its frame held is replaced.
  PyObject* generator = nullptr;
};

/// How a rebuilt frame goes on: evaluates it and returns its result, like a FrameHook.
using ContinueFrame = PyObject* (*)(void* context, PyThreadState* thread, Frame* frame, int throwflag);

/// A ContinueFrame that hands every frame to CPython's evaluator.
PyObject* continue_default(void* context, PyThreadState* thread, Frame* frame, int throwflag);

/// Fills `frame`, which is not linked to the thread, with the state of `spec` (mode and generator are not looked at).
/// What it held is dropped.
void fill_frame(Frame* frame, FrameSpec& spec);

/// Rebuilds `count` frames, outermost first, runs them innermost first and returns the result of the outermost one.
/// `outermost`: the existing frame, not linked to the thread, that `specs[0]` describes; it is gone afterwards.
///              nullptr: it is made like the others.
/// `handled_exception`: what sys.exception() is in the innermost frame; nullptr: as it is now.
/// `raise_innermost`: an exception is set, and the innermost frame raises it at the instruction that ends at its
///                    `next_unit` (its operands need not be popped).
/// Every frame is continued by `continue_frame(context, ...)` with throwflag 0: exceptions find their handler before.
PyObject* resume_chain(PyThreadState* thread, Frame* outermost, FrameSpec* specs, int32_t count,
                       PyObject* handled_exception, bool raise_innermost, ContinueFrame continue_frame, void* context);

enum class GeneratorState : uint8_t { Created, Suspended };

/// A new generator, coroutine or async generator of `spec.function` that stands at `spec.next_unit`; Created and
/// without slots, one that has just been made, for FrameSpec::generator. `handled_exception`: what it handles, or
/// nullptr. A new reference, or nullptr with an exception set.
PyObject* make_generator(FrameSpec& spec, GeneratorState state, PyObject* handled_exception);

/// Leaves an existing frame, which is not linked to the thread, with a computed result (stolen) or, for nullptr, with
/// the exception that is set. Executes nothing of it and adds no traceback entry. Returns what the hook must return.
PyObject* finish_frame(PyThreadState* thread, Frame* frame, PyObject* value);

/// The exception that is set is raised in `frame` (not linked) at `op_unit`: adds the traceback entry and looks for a
/// handler. true: the frame stands at the handler, go on with throwflag 0. false: the frame is gone, return nullptr.
bool raise_in_frame(PyThreadState* thread, Frame* frame, int32_t op_unit);

}  // namespace reprise::host
