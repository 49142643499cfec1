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

}  // namespace

base::Result<std::unique_ptr<host::RegionProgram>> NativeMaker::make(const graph::Graph& graph,
                                                                     const host::TraceConstants& constants) {
  schedule::Options options;
  options.only_extern = engine_ == nullptr;
  options.keep_rounding = options_.numerics == base::Numerics::Eager;
  const uint64_t start = now_ns();
  auto made = schedule::make_plan(graph, options);
  if (!made) return made.unsupported();
  schedule::Plan plan = std::move(made).value();
  if (fails_behind_write(plan)) {
    options.write_inputs = false;
    auto again = schedule::make_plan(graph, options);
    if (!again) return again.unsupported();
    plan = std::move(again).value();
  }
  inject_fault(plan);
  uint64_t planned = now_ns();
  std::shared_ptr<host::KernelTable> functions;
  if (!plan.kernels.empty()) {
    auto compiled = engine_->compile(plan.kernels);
    if (compiled) {
      functions = compiled.value().functions;
      counts_.compiled += compiled.value().made;
      counts_.found += compiled.value().found;
    } else {
      // One kernel that cannot be made: torch's kernels run the graph.
      ++counts_.failed_kernels;
      counts_.failure = compiled.unsupported().text;
      base::write_log(base::LogWord::Codegen, "a kernel was not compiled: " + counts_.failure);
      options.only_extern = true;
      options.write_inputs = false;
      auto again = schedule::make_plan(graph, options);
      if (!again) return again.unsupported();
      plan = std::move(again).value();
    }
  }
  if (functions == nullptr) functions = std::make_shared<host::KernelTable>(0);
  counts_.schedule_ns += planned - start;
  counts_.codegen_ns += now_ns() - planned;
  if (base::is_log_enabled(base::LogWord::Kernel)) {
    for (const kernel::Kernel& kernel : plan.kernels) base::write_log(base::LogWord::Kernel, kernel::print(kernel));
  }
  if (base::is_log_enabled(base::LogWord::Schedule)) {
    base::write_log(base::LogWord::Schedule, program::print(plan.program));
  }
  std::vector<uint32_t> constant_indices;
  for (const graph::Constant& constant : graph.constants) constant_indices.push_back(constant.host_index);
  std::shared_ptr<host::ArenaPool> arenas =
      engine_ != nullptr ? engine_->arenas() : std::make_shared<host::ArenaPool>();
  auto program =
      host::NativeProgram::make(plan.program, std::move(functions), std::move(arenas), constants, constant_indices);
  if (!program) return program.unsupported();
  ++counts_.programs;
  counts_.native_ops += plan.statistics.native_ops;
  counts_.extern_ops += plan.statistics.extern_ops;
  counts_.kernels += plan.statistics.launches;
  return std::unique_ptr<host::RegionProgram>(std::move(program).value());
}

}  // namespace reprise::driver
