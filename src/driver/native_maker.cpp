#include "driver/native_maker.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise::driver {

namespace {

std::vector<uint32_t> list_constants(const graph::Graph& graph) {
  std::vector<uint32_t> indices;
  for (const graph::Constant& constant : graph.constants) indices.push_back(constant.host_index);
  return indices;
}

}  // namespace

/// What stands for a program until it has been compiled.
class NativeMaker::DeferredProgram final : public host::RegionProgram {
 public:
  void run(host::ValueList&& inputs, host::ValueList& outputs) const override {
    REPRISE_CHECK(program != nullptr, "a program is run before it was compiled");
    program->run(std::move(inputs), outputs);
  }
  size_t instruction_count() const override { return program == nullptr ? 0 : program->instruction_count(); }

  std::unique_ptr<host::RegionProgram> program;
};

base::Result<std::unique_ptr<host::RegionProgram>> NativeMaker::make(const graph::Graph& graph,
                                                                     const host::TraceConstants& constants) {
  auto tools = find_tools();
  if (!tools) return tools.unsupported();
  if (!is_deferring_) {
    return make_program(compile_graph(graph, tools.value()), tools.value().engine->arenas(), constants,
                        list_constants(graph));
  }
  auto deferred = std::make_unique<DeferredProgram>();
  process_ = getpid();
  pending_.push_back({std::make_shared<NativeJob>(graph, std::move(tools).value()), deferred.get(), &constants,
                      list_constants(graph)});
  return std::unique_ptr<host::RegionProgram>(std::move(deferred));
}

base::Result<CompileTools> NativeMaker::find_tools() const {
  auto tools = find_compile_tools(options_);
  if (tools && !options_.without.has(base::Part::SharedKernels)) {
    tools.value().family = family_;
    tools.value().sizes = sizes_;
    tools.value().has_varying_sizes = has_varying_sizes_;
  }
  return tools;
}

void NativeMaker::start() {
  is_deferring_ = false;
  for (const Pending& pending : pending_) {
    run_in_background([weak = std::weak_ptr<NativeJob>(pending.job)] {
      if (const std::shared_ptr<NativeJob> job = weak.lock()) job->run();
    });
  }
  is_started_ = true;
}

bool NativeMaker::is_ready() const {
  if (process_ != getpid()) return true;  // nobody else does it in the child of a fork
  return std::all_of(pending_.begin(), pending_.end(), [](const Pending& pending) { return pending.job->is_done(); });
}

base::Result<bool> NativeMaker::finish() {
  is_deferring_ = false;
  if (pending_.empty()) return true;
  auto tools = find_tools();
  if (!tools) return tools.unsupported();
  for (Pending& pending : std::exchange(pending_, {})) {
    if (!pending.job->is_done()) {
      REPRISE_CHECK(!is_started_ || process_ != getpid(), "a job of the background thread is not done");
      pending.job->set_tools(tools.value());
      pending.job->run();
    }
    auto program = make_program(pending.job->take_result(), tools.value().engine->arenas(), *pending.constants,
                                pending.constant_indices);
    if (!program) return program.unsupported();
    pending.program->program = std::move(program).value();
  }
  return true;
}

base::Result<std::unique_ptr<host::RegionProgram>> NativeMaker::make_program(
    CompiledGraph compiled, std::shared_ptr<host::ArenaPool> arenas, const host::TraceConstants& constants,
    const std::vector<uint32_t>& constant_indices) {
  counts_.failed_kernels += compiled.failed_kernels;
  if (compiled.failed_kernels > 0) counts_.failure = compiled.failure;
  counts_.schedule_ns += compiled.schedule_ns;
  counts_.codegen_ns += compiled.codegen_ns;
  counts_.code.add(compiled.code);
  if (!compiled.plan) return compiled.plan.unsupported();
  const schedule::Plan& plan = compiled.plan.value();
  auto program = host::NativeProgram::make(plan.program, std::move(compiled.functions), std::move(arenas), constants,
                                           constant_indices, compiled.uses_onednn);
  if (!program) return program.unsupported();
  ++counts_.programs;
  counts_.native_ops += plan.statistics.native_ops;
  counts_.extern_ops += plan.statistics.extern_ops;
  counts_.products += static_cast<uint32_t>(program.value()->product_count());
  counts_.kernels += plan.statistics.launches;
  counts_.arena_bytes += plan.program.arena_bytes;
  return std::unique_ptr<host::RegionProgram>(std::move(program).value());
}

}  // namespace reprise::driver
