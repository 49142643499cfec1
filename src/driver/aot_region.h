// Regions as graphs, traced at the first run from the tensors of that run: native code (backend "native") or PyTorch's
// own kernels (backend "aot_eager").
//
// Numbers are constants of the graph until they take another value; then they are inputs of a new one. What the entry
// does not guard (which inputs share a storage, are leaves or views) is compared at each run. When a region gives up,
// or a number that varies cannot be an input (a size), the entry is made again without it. Threads: the
// GIL is held.
#pragma once

#include <memory>

#include "entry/entry.h"
#include "runtime/compile_context.h"

namespace reprise::driver {

/// Gives every region of the entry a runner. `context` outlives the entry.
void add_aot_runners(runtime::CompileContext& context, entry::Entry& entry);

}  // namespace reprise::driver
