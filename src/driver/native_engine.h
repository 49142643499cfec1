// The machine-code side of the process: compiles kernels, links them, and makes them better in the background.
//
// One for all contexts, since equal kernels of different models are one code. compile() gives functions at once (first
// tier, or what is loaded already); a background thread swaps the second tier in. The thread holds no Python objects
// and stops at the end of the interpreter. A fork waits for the end of the kernel that it is compiling, so that no lock
// is taken in the child, which gets an engine of its own. Any thread may call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/torch/native_program.h"
#include "kernel/kernel.h"

namespace reprise::driver {

class NativeEngine {
 public:
  virtual ~NativeEngine() = default;

  /// One function for each kernel.
  virtual base::Result<std::shared_ptr<host::KernelTable>> compile(const std::vector<kernel::Kernel>& kernels) = 0;
  virtual std::shared_ptr<host::ArenaPool> arenas() = 0;
};

/// The engine of this process; ask each time: after a fork it is another one. Unsupported in a build without a code
/// generator. Needs the GIL.
base::Result<NativeEngine*> find_native_engine();

}  // namespace reprise::driver
