// Opcodes that no policy models: class bodies, match, delegation and async, exception groups, intrinsics. The evaluator
// executes them if the policy agrees (PlainPolicy does).
#pragma once

#include <Python.h>

#include "host/cpython/decode.h"
#include "host/cpython/frame.h"

namespace reprise::interp {

/// The frame in which a rare opcode runs. It is linked and stands at the instruction.
struct RareOp {
  PyThreadState* thread;
  host::Frame* frame;
  PyCodeObject* code;
  PyObject** locals;
  PyObject** stack_pointer;  // moved by the opcode, unless it leaves or exits
  const host::Instruction* instruction;
  PyObject** bottom = stack_pointer;  // the slots from here on are new

  // The n-th value from the top, counted from 1.
  PyObject*& peek(int n) { return stack_pointer[-n]; }
  void push(PyObject* stolen) { *stack_pointer++ = stolen; }
  void push_new(PyObject* borrowed) { push(Py_NewRef(borrowed)); }
  PyObject* pop() {
    --stack_pointer;
    if (stack_pointer < bottom) bottom = stack_pointer;
    return *stack_pointer;
  }
  void drop(int count) {
    for (int i = 0; i < count; ++i) Py_DECREF(pop());
  }
  PyObject* name() const { return instruction->object; }
};

enum class RareResult : uint8_t {
  Done,
  Jump,      // go on at the jump target
  Raised,    // an exception is set
  Reraised,  // the same, without a traceback entry; the code has a handler for it
  Leave,     // only CPython can execute it; nothing has been done
  Exit,      // CPython executes it and the frame ends by an exception; nothing has been done
};

/// Executes an instruction whose kind is OpKind::Rare.
RareResult run_rare_op(RareOp& op);

// The families, each in its own file. All stack pictures are above the functions.
RareResult run_name_op(RareOp& op);       // rare_names.cpp
RareResult run_match_op(RareOp& op);      // rare_match.cpp
RareResult run_await_op(RareOp& op);      // rare_await.cpp
RareResult run_exception_op(RareOp& op);  // rare_exceptions.cpp

}  // namespace reprise::interp
