// CPython's pending work between instructions: signals, pending calls, a request for the GIL, scheduled garbage
// collection, asynchronous exceptions.
#pragma once

#include <Python.h>

namespace reprise::host {

/// Does what is pending; the current frame must be linked and stand at its instruction. false: an exception is set.
bool handle_pending(PyThreadState* thread);

}  // namespace reprise::host
