// run_frame: evaluates one real CPython frame under a policy.
//
// A template: whoever has a policy includes this header in one .cpp and gets an evaluator with the policy's operations
// inlined. The parts: evaluator_impl.h (the loop, exits, exceptions), moves_impl.h, values_impl.h, control_impl.h (one
// handler for each opcode of host/cpython/opcodes.def), rare_ops.h (opcodes that only the plain policy executes).
//
// Threads: the GIL is held. A frame belongs to the calling thread while it runs.
#pragma once

#include <Python.h>

#include "host/cpython/frame.h"
#include "interp/policy.h"

namespace reprise::interp {

struct RunResult {
  enum Status : uint8_t {
    Returned,    // the frame is gone; `value` is its result, or nullptr with an exception set
    AtBoundary,  // at_boundary said no
    Stopped,     // an operation, is_active, at_back_edge or on_... said no, or only CPython can execute the instruction
  };
  Status status = Returned;
  PyObject* value = nullptr;
};

/// Evaluates `frame` (as the hook got it, not linked to the thread) from the boundary where it stands.
/// `throwflag`: an exception is set and is raised where the frame stands, as CPython does it for generators.
/// Ask host::can_drive first. Unless Returned, the frame stands intact at an instruction boundary and is not linked: go
/// on with host::run_default or with run_frame under another policy, both with throwflag 0.
template <class Policy>
RunResult run_frame(Policy& policy, PyThreadState* thread, host::Frame* frame, bool throwflag);

}  // namespace reprise::interp

#include "interp/evaluator_impl.h"
