// What must happen once before anything of the run time is used: called when the module is imported.
#pragma once

#include <Python.h>

namespace reprise::runtime {

/// Prepares host/cpython and adds our types and exceptions to the module. Returns -1 with an exception set on failure.
int prepare(PyObject* module);

}  // namespace reprise::runtime
