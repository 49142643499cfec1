// Exceptions in a frame: where its handler is, how it gets there, and how the frame is left when there is none.
//
// An exception leaves a frame through CPython's evaluator where that can express "failed at this instruction" (3.11, 3.12)
// and natively where it cannot (3.13). Private to host/cpython and the evaluator; includes internals.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/cpython/frame_view.h"

namespace reprise::host {

/// A row of the exception table.
struct Handler {
  int32_t unit = 0;         // where it starts
  int32_t depth = 0;        // slots of the value stack that stay
  bool push_lasti = false;  // the unit that failed is pushed below the exception
};

/// The handler that covers `unit`.
bool find_handler(PyCodeObject* code, int32_t unit, Handler* handler);

/// Adds the frame, which must be the thread's current one, to the traceback of the exception that is set. As CPython does,
/// not for frames in front of their RESUME.
void add_traceback(Frame* frame);

/// Takes the frame to its handler: drops the value stack down to its depth and pushes what it expects, the exception that
/// is set (and no longer is). Returns the new stack pointer.
PyObject** unwind_to_handler(Frame* frame, PyObject** stack_pointer, const Handler& handler);

/// The exception that is set leaves the frame, which is linked by `link` and stands at the failing instruction (or where
/// CPython wanted it raised). Adds the traceback entry. The frame is gone afterwards, and not linked.
void exit_raising(PyThreadState* thread, Frame* frame, view::FrameLink& link, PyObject** stack_pointer);

/// The same where somebody observes the frame: CPython reports, finds the handler and goes on with the frame for good.
/// `unit`: the failing instruction. Returns the frame's result.
PyObject* raise_observed(PyThreadState* thread, Frame* frame, view::FrameLink& link, PyObject** stack_pointer,
                         int32_t unit);

}  // namespace reprise::host
