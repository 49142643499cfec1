// Native code of the regions of an entry: compiled at the first run, from the tensors of that run.
//
// Numbers are constants of the code. What the entry does not guard (which inputs share a
// storage, are leaves or views) it compares at each run. When it gives up, or a number varies, the entry is made again
// without the region. Threads: the GIL is held.
#pragma once

#include <memory>

#include "entry/entry.h"
#include "runtime/compile_context.h"

namespace reprise::driver {

/// Gives every region of the entry a runner. `context` outlives the entry.
void add_native_runners(runtime::CompileContext& context, entry::Entry& entry);

}  // namespace reprise::driver
