// The exception types of the public API that C++ raises, and what happens when a check of ours fails.
//
// A failed check (base::InternalError) must not leave C++: wherever CPython calls us, it is caught. What can go on
// without the entry at hand does so, after one message a process; REPRISE_STRICT=1 raises instead.
#pragma once

#include <Python.h>

#include <string>

#include "base/check.h"

namespace reprise::runtime {

/// Adds GraphBreak to the module. Returns -1 with an exception set on failure.
int add_exception_types(PyObject* module);

/// Sets reprise.GraphBreak: fullgraph=True and a side exit is needed. `text` names the user's line.
void raise_graph_break(const std::string& text);

/// REPRISE_STRICT=1.
bool is_strict();

/// A check failed and the program goes on without what failed: one message a process. Rethrows when strict: call it in
/// the handler.
void report_bug(const base::InternalError& error);

/// A check failed and the call cannot go on: sets SystemError. Returns nullptr.
PyObject* raise_bug(const base::InternalError& error);

}  // namespace reprise::runtime
