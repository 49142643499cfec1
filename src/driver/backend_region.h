// Regions of an entry handed to a backend that the user gave: a torch.fx.GraphModule and example inputs at the first
// run, a callable back (python/reprise/_fx.py). A backend that raises is reported once, and the region gives up.
// Threads: the GIL is held.
#pragma once

#include "entry/entry.h"
#include "runtime/compile_context.h"

namespace reprise::driver {

/// Gives every region of the entry a runner. `context` outlives the entry.
void add_backend_runners(runtime::CompileContext& context, entry::Entry& entry);

}  // namespace reprise::driver
