// How a frame that we evaluate is left, by a return, a yield or an exception, and how an exception finds its handler.
//
// A frame exit is executed natively where no more than exported functions and fields are needed, and by CPython's
// evaluator otherwise: 3.12 exports nothing that clears a frame, and only 3.13 can not express "failed at this
// instruction" to its evaluator. Not for other folders than interp: includes internals.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/cpython/decode.h"
#include "host/cpython/frame_view.h"
#include "host/cpython/handlers.h"

namespace reprise::host {

/// Adds the frame, which must be the thread's current one, to the traceback of the exception that is set. As CPython
/// does, not for frames in front of their RESUME.
void add_traceback(Frame* frame);

/// Takes the frame to its handler: drops the value stack down to its depth and pushes what it expects, the exception
/// that is set (and no longer is). Returns the new stack pointer.
PyObject** unwind_to_handler(Frame* frame, PyObject** stack_pointer, const Handler& handler);

/// Returns can be executed natively. (Yields always can.)
inline constexpr bool kReturnsNatively = kPythonMinor != 12;

/// The frame, which is linked by `link` and stands at its return or yield instruction, returns `value` (stolen, no
/// longer on its stack). A frame that returns is gone afterwards, or its caller's to clear; a generator is suspended.
PyObject* exit_returning(PyThreadState* thread, Frame* frame, view::FrameLink& link, PyObject* value);
PyObject* exit_yielding(PyThreadState* thread, Frame* frame, view::FrameLink& link, const Instruction& yield,
                        PyObject** stack_pointer, PyObject* value);

/// The exception that is set leaves the frame, which is linked by `link` and stands at the failing instruction (or
/// where CPython wanted it raised). Adds the traceback entry. The frame is gone afterwards, and not linked.
void exit_raising(PyThreadState* thread, Frame* frame, view::FrameLink& link, PyObject** stack_pointer);

/// The same where somebody observes the frame: CPython reports, finds the handler and goes on with the frame for good.
/// `unit`: the failing instruction. Returns the frame's result.
PyObject* raise_observed(PyThreadState* thread, Frame* frame, view::FrameLink& link, PyObject** stack_pointer,
                         int32_t unit);

}  // namespace reprise::host
