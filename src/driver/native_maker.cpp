#include "driver/native_maker.h"

#include <chrono>
#include <cstdlib>
#include <vector>

#include "base/log.h"
#include "kernel/faults.h"
#include "kernel/text.h"
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

// REPRISE_TEST_FAULT: a mistake in every kernel that has a place for it.
void inject_fault(schedule::Plan& plan) {
  const char* text = std::getenv("REPRISE_TEST_FAULT");
  if (text == nullptr || *text == 0) return;
  const auto fault = kernel::find_fault(text);
  for (kernel::Kernel& kernel : plan.kernels) {
    if (fault) kernel::inject(kernel, *fault);
  }
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

void log_plan(const schedule::Plan& plan) {
  if (base::is_log_enabled(base::LogWord::Kernel)) {
    for (const kernel::Kernel& kernel : plan.kernels) base::write_log(base::LogWord::Kernel, kernel::print(kernel));
  }
  if (base::is_log_enabled(base::LogWord::Schedule)) {
    base::write_log(base::LogWord::Schedule, program::print(plan.program));
  }
}

}  // namespace

base::Result<std::unique_ptr<host::RegionProgram>> NativeMaker::make(const graph::Graph& graph,
                                                                     const host::TraceConstants& constants) {
  auto engine = find_native_engine(options_);
  if (!engine) return engine.unsupported();
  schedule::Options options;
  options.keep_rounding = options_.numerics == base::Numerics::Eager;
  const uint64_t start = now_ns();
  auto plan = plan_writes_last(graph, options);
  if (!plan) return plan.unsupported();
  inject_fault(plan.value());
  const uint64_t planned = now_ns();
  auto functions = engine.value()->compile(plan.value().kernels, find_code_cache(options_), counts_.code);
  if (!functions) {
    // One kernel that cannot be made: torch's kernels run the graph.
    ++counts_.failed_kernels;
    counts_.failure = functions.unsupported().text;
    options.only_extern = true;
    plan = plan_writes_last(graph, options);
    if (!plan) return plan.unsupported();
    functions = std::make_shared<host::KernelTable>(0);
  }
  counts_.schedule_ns += planned - start;
  counts_.codegen_ns += now_ns() - planned;
  log_plan(plan.value());
  std::vector<uint32_t> constant_indices;
  for (const graph::Constant& constant : graph.constants) constant_indices.push_back(constant.host_index);
  auto program = host::NativeProgram::make(plan.value().program, std::move(functions).value(), engine.value()->arenas(),
                                           constants, constant_indices);
  if (!program) return program.unsupported();
  ++counts_.programs;
  counts_.native_ops += plan.value().statistics.native_ops;
  counts_.extern_ops += plan.value().statistics.extern_ops;
  counts_.kernels += plan.value().statistics.launches;
  return std::unique_ptr<host::RegionProgram>(std::move(program).value());
}

}  // namespace reprise::driver
