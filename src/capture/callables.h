// The table of C callables: which policy and model a callable has. Rows in callables.def.
#pragma once

#include <Python.h>

#include <cstdint>

#include "capture/recorder.h"

namespace reprise::capture {

enum class CallPolicy : uint8_t { Unknown, Pure, Fold, FoldNew, FoldBound, Fresh, StateRead, Repeated, Model };

struct CallableRow {
  CallPolicy policy = CallPolicy::Unknown;
  Recorder::Model model = nullptr;
};

/// The row of a callable (a C function, a method descriptor, a type's slot wrapper, or a listed Python function). The
/// table is built at first use, imports modules of the standard library and torch, and holds its
/// keys.
const CallableRow& find_callable(PyObject* callable);

}  // namespace reprise::capture
