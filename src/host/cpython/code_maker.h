// Code objects of a few raw instructions, without RESUME: their frames are invisible to tracebacks, sys._getframe and
// our hook. Private to host/cpython.
#pragma once

#include <Python.h>

#include <cstdint>
#include <initializer_list>

namespace reprise::host {

struct RawInstruction {
  int opcode;
  int arg;
};

/// A function made from an expression. New reference, or nullptr with an exception set.
PyObject* make_lambda(const char* source);

/// The code of such a function with other instructions. New reference, or nullptr with an exception set.
PyCodeObject* make_code(const char* source, std::initializer_list<RawInstruction> instructions);

}  // namespace reprise::host
