// What native code costs to make: thread CPU time of every phase, over the sample kernels. Medians; milliseconds.
//
//   ninja -C build/core reprise_compile_time && build/core/bench/reprise_compile_time [rounds] [library with Sleef, VML]
//
// With a library (torch's libtorch_cpu.so) kernels also run, and a microseconds column is printed (one thread, minimum).
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "codegen/cpu.h"
#include "kernel/interpret.h"
#include "kernel_fuzz.h"
#include "kernel_samples.h"
#include "toolchain/link.h"

using namespace reprise;

namespace {

double get_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double get_median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

struct Row {
  double prepare, emit, optimise, codegen, link, total;
};

double run(const test::KernelSample& sample, toolchain::KernelFunction function) {
  std::mt19937 random(1);
  test::KernelData data;
  for (const kernel::Buffer& buffer : sample.kernel.buffers) {
    const std::int64_t limit = sample.index_limits[data.buffers.size()];
    data.buffers.push_back(test::make_random_elements(random, buffer.dtype, buffer.count, limit));
    if (types::is_float(buffer.dtype)) {  // plain values: denormals and NaN are slow, and none of our business here
      for (std::int64_t i = 0; buffer.dtype == kernel::DType::Float32 && i < buffer.count; ++i) {
        reinterpret_cast<float*>(data.buffers.back().data())[i] = static_cast<float>(random() % 1000) * 0.01f - 5.0f;
      }
    }
  }
  const std::int64_t units = kernel::count_units(sample.kernel, nullptr);
  const auto pointers = data.get_pointers();
  double best = 1e30;
  for (int i = 0; i < 100; ++i) {
    const double start = get_cpu_ms();
    function(pointers.data(), nullptr, 0, units);
    best = std::min(best, get_cpu_ms() - start);
  }
  return best * 1e3;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  void* library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : nullptr;
  if (argc > 2 && library == nullptr) {
    std::printf("cannot open %s: %s\n", argv[2], dlerror());
    return 1;
  }
  const double start = get_cpu_ms();
  auto compiler = codegen::make_cpu_compiler(codegen::get_host_target());
  auto linker = toolchain::make_linker([library](std::string_view name) -> void* {
    void* found = library != nullptr ? dlsym(library, std::string(name).c_str()) : nullptr;
    return found != nullptr ? found : test::find_reference_symbol(name);
  });
  if (!compiler.is_ok() || !linker.is_ok()) {
    std::printf("no code generator\n");
    return 1;
  }
  std::printf("compiler and linker made in %.2f ms, for %s\n", get_cpu_ms() - start, codegen::get_host_target().name.c_str());
  const auto samples = test::make_kernel_samples(256, 1024);
  for (const codegen::Tier tier : {codegen::Tier::Quick, codegen::Tier::Full}) {
    std::printf("\n%-22s %8s %8s %8s %8s %8s %8s %8s %9s\n", tier == codegen::Tier::Quick ? "quick" : "full", "prepare",
                "emit", "passes", "codegen", "link", "total", "bytes", "run us");
    std::vector<double> totals;
    double sum = 0;
    for (const test::KernelSample& sample : samples) {
      std::vector<double> columns[6];
      std::size_t size_bytes = 0;
      double run_us = 0;
      for (int round = 0; round < rounds + 1; ++round) {
        const auto code = compiler.value()->compile(sample.kernel, tier);
        if (!code.is_ok()) {
          std::printf("%s: %s\n", sample.name.c_str(), code.unsupported().text.c_str());
          return 1;
        }
        const codegen::CompileTimes& times = compiler.value()->get_times();
        const double before = get_cpu_ms();
        const auto loaded = linker.value()->load(code.value());
        const double link = get_cpu_ms() - before;
        if (!loaded.is_ok()) {
          std::printf("%s: %s\n", sample.name.c_str(), loaded.unsupported().text.c_str());
          return 1;
        }
        size_bytes = code.value().bytes.size();
        if (round == 0) {  // warm
          if (library != nullptr) run_us = run(sample, loaded.value()->get_functions()[0]);
          continue;
        }
        const double parts[] = {times.prepare_ns * 1e-6, times.emit_ns * 1e-6, times.optimise_ns * 1e-6,
                                times.codegen_ns * 1e-6, link};
        double total = 0;
        for (int i = 0; i < 5; ++i) {
          columns[i].push_back(parts[i]);
          total += parts[i];
        }
        columns[5].push_back(total);
      }
      std::printf("%-22s", sample.name.c_str());
      for (const auto& column : columns) std::printf(" %8.3f", get_median(column));
      std::printf(" %8zu %9.1f\n", size_bytes, run_us);
      totals.push_back(get_median(columns[5]));
      sum += totals.back();
    }
    std::printf("median %.2f ms, largest %.2f ms, sum of %zu kernels %.1f ms\n", get_median(totals),
                *std::max_element(totals.begin(), totals.end()), totals.size(), sum);
  }
  return 0;
}
