// Kernels over torch's own OpenMP pool, and the functions that they call.
//
// The pool is entered as code that the compiler makes of "#pragma omp parallel" enters it: GOMP_parallel, from the copy
// of the run-time library that torch has loaded. We link none of our own.
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "host/torch/native_program_impl.h"

extern "C" {
void GOMP_parallel(void (*function)(void*), void* data, unsigned thread_count, unsigned flags) __attribute__((weak));
int omp_get_thread_num() __attribute__((weak));
int omp_get_num_threads() __attribute__((weak));
}

namespace reprise::host {

namespace {

// Elements below which one thread does the work: what torch's own pointwise kernels use (at::internal::GRAIN_SIZE).
constexpr int64_t kMinParallelWork = 32768;

struct Parallel {
  KernelFunction function;
  void* const* buffers;
  const int64_t* words;
  int64_t units;
  int64_t grain;

  static void run(void* data) {
    const Parallel& task = *static_cast<const Parallel*>(data);
    const int64_t count = omp_get_num_threads(), index = omp_get_thread_num();
    const int64_t blocks = (task.units + task.grain - 1) / task.grain;
    const int64_t begin = blocks * index / count * task.grain;
    const int64_t end = std::min(task.units, blocks * (index + 1) / count * task.grain);
    if (begin < end) task.function(task.buffers, task.words, begin, end);
  }
};

}  // namespace

void run_kernel(KernelFunction function, void* const* buffers, const int64_t* words, const NativeStep& step) {
  const int64_t work = step.units * step.unit_work;
  if (work < kMinParallelWork || step.units <= step.grain || GOMP_parallel == nullptr || at::in_parallel_region()) {
    function(buffers, words, 0, step.units);
    return;
  }
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), work / (kMinParallelWork / 2));
  if (threads <= 1) {
    function(buffers, words, 0, step.units);
    return;
  }
  Parallel task{function, buffers, words, step.units, step.grain};
  GOMP_parallel(&Parallel::run, &task, static_cast<unsigned>(threads), 0);
}

void* find_torch_symbol(std::string_view name) {
  // libtorch_cpu is the library of any function of ATen; its own search order is what its kernels see.
  static void* const torch = [] {
    Dl_info info;
    void* address = reinterpret_cast<void*>(&at::get_num_threads);
    return dladdr(address, &info) != 0 ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  }();
  const std::string text(name);
  if (torch != nullptr) {
    if (void* found = dlsym(torch, text.c_str())) return found;
  }
  return dlsym(RTLD_DEFAULT, text.c_str());
}

}  // namespace reprise::host
