// Graphs to native programs: passes, schedule, kernels, executor (backend "native").
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aot/traced_code.h"
#include "base/options.h"
#include "driver/compile_graph.h"

namespace reprise::driver {

/// Of all programs that one maker made.
struct NativeCounts {
  uint32_t programs = 0;
  uint32_t native_ops = 0;  // graph nodes inside kernels
  uint32_t extern_ops = 0;  // graph nodes that are library calls
  uint32_t products = 0;    // library calls that are matrix products by oneDNN
  uint32_t kernels = 0;     // launches
  int64_t arena_bytes = 0;  // sum over the programs
  CodeCounts code;
  uint32_t failed_kernels = 0;  // programs without kernels because one of them could not be compiled
  uint64_t schedule_ns = 0;
  uint64_t codegen_ns = 0;
  std::string failure;  // why the last one failed
};

/// Makes programs at once, or, between defer() and start() or finish(), ones that are compiled later and cannot run
/// before that.
class NativeMaker final : public aot::ProgramMaker {
 public:
  /// `family`: of the kernels for other sizes; `sizes` names the choice at hand (kernel/family.h).
  NativeMaker(const base::Options& options, std::shared_ptr<kernel::KernelFamily> family, uint64_t sizes,
              bool has_varying_sizes)
      : options_(options), family_(std::move(family)), sizes_(sizes), has_varying_sizes_(has_varying_sizes) {}

  base::Result<std::unique_ptr<host::RegionProgram>> make(const graph::Graph& graph,
                                                          const host::TraceConstants& constants) override;

  /// From now on programs are compiled later. The code that owns them, with its constants, is alive at finish().
  void defer() { is_deferring_ = true; }
  /// The background thread compiles what was put off.
  void start();
  /// finish() need not wait: everything has been compiled, or will not be.
  bool is_ready() const;
  /// Makes the programs that were put off, compiling those that start() gave to nobody. What fails is an Unsupported, a
  /// check that failed on the other thread an InternalError. Needs the GIL.
  base::Result<bool> finish();

  const NativeCounts& counts() const { return counts_; }

 private:
  class DeferredProgram;
  struct Pending {
    std::shared_ptr<NativeJob> job;
    DeferredProgram* program;  // of the code
    const host::TraceConstants* constants;
    std::vector<uint32_t> constant_indices;
  };

  base::Result<std::unique_ptr<host::RegionProgram>> make_program(CompiledGraph compiled,
                                                                  std::shared_ptr<host::ArenaPool> arenas,
                                                                  const host::TraceConstants& constants,
                                                                  const std::vector<uint32_t>& constant_indices);

  base::Result<CompileTools> find_tools() const;

  base::Options options_;
  std::shared_ptr<kernel::KernelFamily> family_;
  uint64_t sizes_ = 0;
  bool has_varying_sizes_ = false;
  NativeCounts counts_;
  bool is_deferring_ = false;
  bool is_started_ = false;
  int64_t process_ = 0;  // that deferred
  std::vector<Pending> pending_;
};

}  // namespace reprise::driver
