// The driver behind runtime/compile_requests.h: starts recordings, and turns finished traces into published entries.
#pragma once

#include "runtime/compile_requests.h"

namespace reprise::driver {

/// One object a process. Threads: each thread records on its own.
runtime::CompileRequests& requests();

}  // namespace reprise::driver
