// The machine-code side of the process: compiles kernels, loads them, and makes them better in the background.
//
// One engine a code generator for all contexts, since equal kernels of different models are one code. With LLVM
// compile() gives functions at once (first tier, or what is loaded already) and a background thread swaps the second
// tier in; with the system's compiler it waits for it, one run for all kernels of a program. The thread holds no Python
// objects and stops at the end of the interpreter. A fork waits for the end of what it is compiling, so that no lock is
// taken in the child, which gets engines of its own. Any thread may call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "host/torch/native_program.h"
#include "kernel/kernel.h"
#include "toolchain/code_cache.h"
#include "toolchain/link.h"

namespace reprise::driver {

/// Of kernels that were asked for.
struct CodeCounts {
  uint32_t compiled = 0;       // made now
  uint32_t found = 0;          // loaded already
  uint32_t cached = 0;         // in the cache
  uint32_t cache_misses = 0;   // not in the cache
  uint32_t damaged_files = 0;  // of the cache

  void add(const CodeCounts& other) {
    compiled += other.compiled;
    found += other.found;
    cached += other.cached;
    cache_misses += other.cache_misses;
    damaged_files += other.damaged_files;
  }
};

class NativeEngine {
 public:
  virtual ~NativeEngine() = default;

  /// One function for each kernel. `cache`: where code is looked for and kept, or nullptr.
  virtual base::Result<std::shared_ptr<host::KernelTable>> compile(const std::vector<kernel::Kernel>& kernels,
                                                                   std::shared_ptr<toolchain::CodeCache> cache,
                                                                   CodeCounts& counts) = 0;
  virtual std::shared_ptr<host::ArenaPool> arenas() = 0;
};

/// The engine of this process that options ask for; ask each time: after a fork it is another one. Unsupported for LLVM
/// in a build without it. Needs the GIL.
base::Result<NativeEngine*> find_native_engine(const base::Options& options);
/// The cache that options ask for; nullptr: none, or one that cannot be used. Needs the GIL.
std::shared_ptr<toolchain::CodeCache> find_code_cache(const base::Options& options);
/// A job without Python objects for the thread of this process, in front of the second tiers. Needs the GIL.
void run_in_background(std::function<void()> job);

/// Code of a kind from the cache, loaded; nullptr: it must be made. Counts `kernels`.
std::shared_ptr<toolchain::LoadedCode> load_cached(toolchain::CodeCache* cache, toolchain::Linker& linker,
                                                   const base::Hash128& key, uint32_t kernels, CodeCounts& counts);

}  // namespace reprise::driver
