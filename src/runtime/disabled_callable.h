// What reprise.disable returns for a function: calls it with Reprise switched off on the calling thread.
//
// A C callable that the recorder does not know, so a trace ends in front of it and what it calls runs in CPython.
// It behaves as the original otherwise (wrapped_callable.h). Threads: all functions need the GIL.
#pragma once

#include <Python.h>

namespace reprise::runtime {

/// Adds the type DisabledFunction to the module. Returns -1 with an exception set on failure.
int add_disabled_type(PyObject* module);

/// A new DisabledFunction, or null with an exception set.
PyObject* make_disabled(PyObject* callable);

bool is_disabled_callable(PyObject* object);

}  // namespace reprise::runtime
