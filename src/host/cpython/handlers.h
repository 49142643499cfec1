// The exception table of a code object.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/cpython/frame.h"

namespace reprise::host {

/// A row of the exception table.
struct Handler {
  int32_t unit = 0;         // where it starts
  int32_t depth = 0;        // slots of the value stack that stay
  bool push_lasti = false;  // the unit that failed is pushed below the exception
};

/// The handler that covers `unit`.
bool find_handler(PyCodeObject* code, int32_t unit, Handler* handler);

/// A suspended generator's frame does nothing when it is closed: the handlers that cover it, if any, pass GeneratorExit
/// on.
bool closes_at_once(Frame* frame);

}  // namespace reprise::host
