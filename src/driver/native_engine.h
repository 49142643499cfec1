// The machine-code side of the process: compiles kernels, links them, and makes them better in the background.
//
// One for all contexts, since equal kernels of different models are one code. compile() gives functions at once (first
// tier, or what is loaded already); a background thread swaps the second tier in. The thread holds no Python objects
// and stops at the end of the interpreter; after a fork the child gets an engine of its own. Any thread may call.
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

  struct Compiled {
    std::shared_ptr<host::KernelTable> functions;  // one for each kernel
    uint32_t made = 0;                             // compiled now
    uint32_t found = 0;                            // loaded before
  };
  virtual base::Result<Compiled> compile(const std::vector<kernel::Kernel>& kernels) = 0;
  virtual std::shared_ptr<host::ArenaPool> arenas() = 0;
  /// Waits until the background thread has nothing to do.
  virtual void wait() = 0;
};

/// The engine of this process. Unsupported in a build without a code generator. Needs the GIL.
base::Result<NativeEngine*> find_native_engine();

}  // namespace reprise::driver
