// Graphs to native programs: passes, schedule, kernels, executor (backend "native").
#pragma once

#include <memory>
#include <string>

#include "aot/traced_code.h"
#include "base/options.h"
#include "driver/native_engine.h"

namespace reprise::driver {

/// Of all programs that one maker made.
struct NativeCounts {
  uint32_t programs = 0;
  uint32_t native_ops = 0;  // graph nodes inside kernels
  uint32_t extern_ops = 0;  // graph nodes that are library calls
  uint32_t kernels = 0;     // launches
  CodeCounts code;
  uint32_t failed_kernels = 0;  // programs without kernels because one of them could not be compiled
  uint64_t schedule_ns = 0;
  uint64_t codegen_ns = 0;
  std::string failure;  // why the last one failed
};

class NativeMaker final : public aot::ProgramMaker {
 public:
  explicit NativeMaker(const base::Options& options) : options_(options) {}

  base::Result<std::unique_ptr<host::RegionProgram>> make(const graph::Graph& graph,
                                                          const host::TraceConstants& constants) override;
  const NativeCounts& counts() const { return counts_; }

 private:
  base::Options options_;
  NativeCounts counts_;
};

}  // namespace reprise::driver
