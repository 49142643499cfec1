// Single instructions executed by CPython's own evaluator, for those whose work no exported function does.
#pragma once

#include <Python.h>

#include "host/cpython/decode.h"

namespace reprise::host {

/// Executes the instruction's opcode and argument on one or two operands (`b` may be nullptr; both borrowed) and
/// returns what it leaves on top of the stack: a new reference, or nullptr with an exception set. The opcode must pop
/// its operands and push one result, and must not look at its frame.
PyObject* run_micro_op(const Instruction& instruction, PyObject* a, PyObject* b);

}  // namespace reprise::host
