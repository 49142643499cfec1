#include "driver/compile_graph.h"

#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/log.h"
#include "host/torch/matrix_product.h"
#include "kernel/text.h"
#include "passes/split_bias.h"
#include "schedule/schedule.h"

namespace reprise::driver {

namespace {

uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

bool has_result(const program::Step& step) {
  for (const program::SlotId id : step.results) {
    if (id.is_valid()) return true;
  }
  return false;
}

bool uses_input(const std::vector<program::Argument>& arguments, uint32_t inputs) {
  for (const program::Argument& argument : arguments) {
    if (argument.kind == program::ArgumentKind::Slot && argument.number < static_cast<int64_t>(inputs)) return true;
    if (uses_input(argument.elements, inputs)) return true;
  }
  return false;
}

// Whether something that can fail stands behind a step that writes to an input: what has been written cannot be taken
// back, and the region could not be run again.
bool fails_behind_write(const schedule::Plan& plan) {
  const program::Program& program = plan.program;
  const auto is_input = [&](program::SlotId slot) { return slot.index() < program.inputs; };
  bool has_written = false;
  for (const program::Step& step : program.steps) {
    switch (step.kind) {
      case program::StepKind::Launch: {
        const kernel::Kernel& kernel = plan.kernels[step.code.index()];
        size_t argument = 0;
        for (const kernel::Buffer& buffer : kernel.buffers) {
          if (buffer.kind != kernel::BufferKind::Argument) continue;
          if (buffer.is_written && is_input(step.buffers[argument].slot)) has_written = true;
          ++argument;
        }
        break;
      }
      case program::StepKind::Check:
        if (has_written) return true;
        break;
      case program::StepKind::Extern:
        if (has_written) return true;
        // In place on an input: such an op fails before it writes.
        if (step.outs.empty() && !has_result(step) && uses_input(step.arguments, program.inputs)) has_written = true;
        break;
      case program::StepKind::Copy:
        if (is_input(step.slot)) has_written = true;
        break;
      default:
        break;
    }
  }
  return false;
}

// A plan that does not write to inputs where something could still fail.
base::Result<schedule::Plan> plan_writes_last(const graph::Graph& graph, schedule::Options options) {
  auto plan = schedule::make_plan(graph, options);
  if (!plan || !fails_behind_write(plan.value())) return plan;
  options.write_inputs = false;
  return schedule::make_plan(graph, options);
}

// Kernels that earlier sizes have, but for numbers, take these as words.
void share_kernels(schedule::Plan& plan, const CompileTools& tools) {
  std::vector<std::vector<program::Word>> words(plan.kernels.size());
  for (size_t i = 0; i < plan.kernels.size(); i++) {
    kernel::KernelFamily::Member member = tools.family->adapt(plan.kernels[i], tools.sizes, tools.has_varying_sizes);
    if (member.words.empty()) continue;
    plan.kernels[i] = std::move(member.kernel);
    plan.program.codes[i].key = kernel::get_hash(plan.kernels[i]);
    for (const int64_t word : member.words) words[i].emplace_back().bits = word;
  }
  for (program::Step& step : plan.program.steps) {
    if (step.kind != program::StepKind::Launch) continue;
    const std::vector<program::Word>& more = words[step.code.index()];
    step.words.insert(step.words.end(), more.begin(), more.end());
  }
}

void log_plan(const schedule::Plan& plan) {
  if (base::is_log_enabled(base::LogWord::Kernel)) {
    for (const kernel::Kernel& kernel : plan.kernels) base::write_log(base::LogWord::Kernel, kernel::print(kernel));
  }
  if (base::is_log_enabled(base::LogWord::Schedule)) {
    base::write_log(base::LogWord::Schedule, program::print(plan.program));
  }
}

}  // namespace

base::Result<CompileTools> find_compile_tools(const base::Options& options) {
  auto engine = find_native_engine(options);
  if (!engine) return engine.unsupported();
  CompileTools tools;
  tools.engine = engine.value();
  tools.cache = find_code_cache(options);
  tools.uses_onednn = host::uses_onednn_products(options.gemm);
  tools.keep_rounding = options.numerics == base::Numerics::Eager;
  tools.without = options.without;
  const char* fault = std::getenv("REPRISE_TEST_FAULT");
  if (fault != nullptr && *fault != 0) tools.fault = kernel::find_fault(fault);
  return tools;
}

CompiledGraph compile_graph(const graph::Graph& given, const CompileTools& tools) {
  schedule::Options options;
  options.keep_rounding = tools.keep_rounding;
  options.fuse = !tools.without.has(base::Part::Fusion);
  options.reuse_memory = !tools.without.has(base::Part::ReuseMemory);
  options.write_inputs = !tools.without.has(base::Part::WriteInputs);
  const uint64_t start = now_ns();
  graph::Graph graph = given;
  if (tools.uses_onednn) {
    if (auto failure = passes::split_bias(graph, host::is_onednn_product)) return CompiledGraph{*failure};
  }
  CompiledGraph made{plan_writes_last(graph, options)};
  made.uses_onednn = tools.uses_onednn;
  if (!made.plan) return made;
  if (tools.fault) {
    for (kernel::Kernel& kernel : made.plan.value().kernels) kernel::inject(kernel, *tools.fault);
  }
  if (tools.family != nullptr) share_kernels(made.plan.value(), tools);
  const uint64_t planned = now_ns();
  auto functions = tools.engine->compile(made.plan.value().kernels, tools.cache, made.code);
  if (functions) {
    made.functions = std::move(functions).value();
  } else {
    // One kernel that cannot be made: torch's kernels run the graph.
    made.failed_kernels = 1;
    made.failure = functions.unsupported().text;
    options.only_extern = true;
    made.plan = plan_writes_last(graph, options);
    if (!made.plan) return made;
    made.functions = std::make_shared<host::KernelTable>(0);
  }
  made.schedule_ns = planned - start;
  made.codegen_ns = now_ns() - planned;
  log_plan(made.plan.value());
  return made;
}

void NativeJob::run() {
  try {
    result_.emplace(compile_graph(graph_, tools_));
  } catch (...) {
    error_ = std::current_exception();
  }
  is_done_.store(true, std::memory_order_release);
}

CompiledGraph NativeJob::take_result() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::move(*result_);
}

}  // namespace reprise::driver
