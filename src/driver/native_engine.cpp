#include "driver/native_engine.h"

#include <Python.h>
#include <pthread.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "driver/background_worker.h"
#include "driver/cpp_engine.h"
#include "driver/llvm_engine.h"

namespace reprise::driver {

namespace {

// Of one process: a child of a fork makes others.
struct Engines {
  pid_t process = 0;
  BackgroundWorker worker;
  std::unique_ptr<NativeEngine> llvm;
  std::unique_ptr<NativeEngine> cpp;
  std::map<std::string, std::shared_ptr<toolchain::CodeCache>> caches;  // by folder
};

// Never destroyed: kernels may run until the very end. See base/globals.def.
Engines* g_engines = nullptr;

Engines& get_engines() {
  if (g_engines != nullptr && g_engines->process == getpid()) return *g_engines;
  const bool is_first = g_engines == nullptr;
  g_engines = new Engines;
  g_engines->process = getpid();
  if (is_first) {
    pthread_atfork([] { g_engines->worker.pause(); }, [] { g_engines->worker.resume(); },
                   [] { g_engines->worker.resume(); });
    Py_AtExit([] {
      if (g_engines->process == getpid()) g_engines->worker.stop();
    });
  }
  return *g_engines;
}

}  // namespace

base::Result<NativeEngine*> find_native_engine(const base::Options& options) {
  Engines& engines = get_engines();
  switch (options.cpu_codegen) {
    case base::CpuCodegen::Cpp:
      if (engines.cpp == nullptr) engines.cpp = make_cpp_engine();
      return engines.cpp.get();
    case base::CpuCodegen::Llvm:
      if (engines.llvm == nullptr) {
        auto made = make_llvm_engine(engines.worker);
        if (!made) return made.unsupported();
        engines.llvm = std::move(made).value();
      }
      return engines.llvm.get();
  }
  return base::Unsupported{base::UnsupportedCode::NoCodeGenerator, "no such code generator"};
}

std::shared_ptr<toolchain::CodeCache> find_code_cache(const base::Options& options) {
  if (options.cache.is_off()) return nullptr;
  std::shared_ptr<toolchain::CodeCache>& cache = get_engines().caches[options.cache.path];
  if (cache == nullptr) cache = std::make_shared<toolchain::CodeCache>(options.cache.path);
  return cache->is_usable() ? cache : nullptr;
}

void run_in_background(std::function<void()> job) { get_engines().worker.add(std::move(job), true); }

std::shared_ptr<toolchain::LoadedCode> load_cached(toolchain::CodeCache* cache, toolchain::Linker& linker,
                                                   const base::Hash128& key, uint32_t kernels, CodeCounts& counts) {
  if (cache == nullptr) return nullptr;
  bool is_damaged = false;
  if (const auto code = cache->find(key, is_damaged)) {
    if (auto loaded = linker.load(*code)) {
      counts.cached += kernels;
      return std::move(loaded).value();
    }
  }
  counts.cache_misses += kernels;
  counts.damaged_files += is_damaged ? 1 : 0;
  return nullptr;
}

}  // namespace reprise::driver
