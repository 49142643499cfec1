// A functional graph to a plan and the functions of its kernels: what of native code needs neither Python nor torch.
//
// compile_graph() works on any thread; one at a time for the graphs of one graph::Context. NativeJob is the same for a
// background thread: it holds a copy of the graph, and takes what a run has left.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "base/options.h"
#include "base/result.h"
#include "driver/native_engine.h"
#include "graph/graph.h"
#include "kernel/family.h"
#include "kernel/faults.h"
#include "schedule/plan.h"

namespace reprise::driver {

struct CompiledGraph {
  base::Result<schedule::Plan> plan;
  std::shared_ptr<host::KernelTable> functions;
  CodeCounts code;
  uint32_t failed_kernels = 0;  // 1: a kernel could not be compiled, so the plan has none
  std::string failure;          // why
  bool uses_onednn = false;     // CompileTools::uses_onednn
  uint64_t schedule_ns = 0;
  uint64_t codegen_ns = 0;
};

/// What compiling needs beside the graph. Made with the GIL.
struct CompileTools {
  NativeEngine* engine = nullptr;
  std::shared_ptr<toolchain::CodeCache> cache;
  bool keep_rounding = true;
  bool uses_onednn = false;  // for large matrix products (host/torch/matrix_product.h)
  base::PartSet without;
  std::shared_ptr<kernel::KernelFamily> family;  // kernels for other sizes; nullptr: each is compiled as it is
  uint64_t sizes = 0;                            // the choice of sizes that the graph is for
  bool has_varying_sizes = false;                // kernels may become ones with parameters
  std::optional<kernel::Fault> fault;  // REPRISE_TEST_FAULT: a mistake in every kernel that has a place for it
};

/// Unsupported in a build without the code generator that is asked for. Needs the GIL.
base::Result<CompileTools> find_compile_tools(const base::Options& options);

CompiledGraph compile_graph(const graph::Graph& graph, const CompileTools& tools);

class NativeJob {
 public:
  NativeJob(const graph::Graph& graph, CompileTools tools) : graph_(graph), tools_(std::move(tools)) {}

  /// On one thread, once. Catches what is thrown.
  void run();
  /// What run() wrote may be read.
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  /// In the child of a fork, whose parent has the thread that was to run it.
  void set_tools(CompileTools tools) { tools_ = std::move(tools); }
  /// Once, after run(). Throws what run() caught.
  CompiledGraph take_result();

 private:
  graph::Graph graph_;
  CompileTools tools_;
  std::optional<CompiledGraph> result_;
  std::exception_ptr error_;
  std::atomic<bool> is_done_ = false;
};

}  // namespace reprise::driver
