// The whole way of native code: kernels compiled, put into a program, saved, read back, linked, and run step by step.
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "codegen/cpu.h"
#include "kernel/builder.h"
#include "program/program.h"
#include "test.h"
#include "toolchain/link.h"

using namespace reprise;
using namespace reprise::kernel;
using program::SlotId;

namespace {

constexpr std::int64_t kCount = 10000;
constexpr std::int64_t kUnit = 4096;
constexpr std::int64_t kUnits = (kCount + kUnit - 1) / kUnit;

// y = x * factor, and a partial sum of y a unit.
Kernel make_scale() {
  KernelBuilder b;
  const BufferId x = b.add_buffer(DType::Float32, kRead, kCount), y = b.add_buffer(DType::Float32, kWrite, kCount);
  const BufferId partial = b.add_buffer(DType::Float32, kWrite, kUnits);
  const ValueId factor = b.cast(b.add_param(DType::Float64), DType::Float32);
  const ValueId unit = b.begin_parallel(kUnits);
  const ValueId sum = b.accumulator(Combine::Sum, DType::Float32);
  const ValueId j =
      b.begin_loop_with_limit(LoopKind::Vector, Affine(unit) * kUnit, Affine(unit) * kUnit + kUnit, kCount);
  const ValueId scaled = b.op(ScalarOp::Mul, b.load(x, j), factor);
  b.store(y, j, scaled);
  b.reduce(sum, scaled);
  b.end_loop();
  b.store(partial, unit, b.result(sum));
  b.end_loop();
  return std::move(b).finish();
}

Kernel make_total() {
  KernelBuilder b;
  const BufferId partial = b.add_buffer(DType::Float32, kRead, kUnits), total = b.add_buffer(DType::Float32, kWrite, 1);
  b.begin_parallel(1);
  const ValueId sum = b.accumulator(Combine::Sum, DType::Float32);
  const ValueId i = b.begin_loop(LoopKind::Serial, 0, kUnits);
  b.reduce(sum, b.load(partial, i));
  b.end_loop();
  b.store(total, 0, b.result(sum));
  b.end_loop();
  return std::move(b).finish();
}

program::Slot make_slot(program::SlotKind kind, std::int64_t count) {
  program::Slot slot;
  slot.kind = kind;
  if (count > 0) {
    slot.sizes = {count};
    slot.strides = {1};
    slot.size_bytes = count * 4;
  }
  return slot;
}

program::Step make_launch(std::uint32_t code, std::vector<std::uint32_t> slots, std::int64_t units) {
  program::Step step;
  step.kind = program::StepKind::Launch;
  step.code = program::CodeId(code);
  for (const std::uint32_t slot : slots) step.buffers.push_back({SlotId(slot), 0});
  step.units = units;
  return step;
}

program::Program make_program(codegen::CpuCompiler& compiler) {
  using program::SlotKind;
  program::Program result;
  result.inputs = 2;
  result.slots = {make_slot(SlotKind::Input, kCount), make_slot(SlotKind::Input, 0),  // a tensor, a number
                  make_slot(SlotKind::Output, kCount), make_slot(SlotKind::Output, 1),
                  make_slot(SlotKind::Temporary, kUnits)};
  result.slots[1].is_tensor = false;
  result.slots[1].dtype = types::DType::Float64;
  result.slots[4].arena_offset = 64;
  result.arena_bytes = 128;
  for (const Kernel& kernel : {make_scale(), make_total()}) {
    auto code = compiler.compile(kernel, codegen::Tier::Full);
    REQUIRE(code.is_ok());
    result.codes.push_back(std::move(code).value());
  }
  program::Step allocate;
  allocate.kind = program::StepKind::Allocate;
  allocate.slot = SlotId(2);
  result.steps.push_back(allocate);
  result.steps.push_back(make_launch(0, {0, 2, 4}, kUnits));
  result.steps.back().words.push_back({0, SlotId(1), -1});
  result.steps.back().unit_work = kUnit;
  allocate.slot = SlotId(3);
  result.steps.push_back(allocate);
  result.steps.push_back(make_launch(1, {4, 3}, 1));
  program::Step back;
  back.kind = program::StepKind::Return;
  back.results = {SlotId(2), SlotId(3)};
  result.steps.push_back(back);
  return result;
}

// What the host half does, without torch.
std::vector<std::vector<float>> run(const program::Program& program, toolchain::Linker& linker, std::vector<float>& x,
                                    double factor) {
  std::vector<std::shared_ptr<toolchain::LoadedCode>> codes;
  for (const program::Code& code : program.codes) {
    auto loaded = linker.load(code);
    REQUIRE(loaded.is_ok());
    codes.push_back(loaded.value());
  }
  std::vector<std::uint8_t> arena(static_cast<std::size_t>(program.arena_bytes));
  std::vector<std::vector<float>> owned(program.slots.size());
  std::vector<void*> memory(program.slots.size());
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    if (program.slots[i].arena_offset >= 0) memory[i] = arena.data() + program.slots[i].arena_offset;
  }
  memory[0] = x.data();
  std::vector<std::vector<float>> results;
  for (const program::Step& step : program.steps) {
    if (step.kind == program::StepKind::Allocate) {
      std::vector<float>& made = owned[step.slot.index()];
      made.resize(static_cast<std::size_t>(program.get(step.slot).size_bytes) / 4);
      memory[step.slot.index()] = made.data();
    } else if (step.kind == program::StepKind::Launch) {
      std::vector<void*> buffers;
      for (const auto& buffer : step.buffers) buffers.push_back(memory[buffer.slot.index()]);
      std::vector<std::int64_t> words;
      for (const auto& word : step.words)
        words.push_back(word.slot.is_valid() ? std::bit_cast<std::int64_t>(factor) : word.bits);
      codes[step.code.index()]->get_functions()[step.symbol](buffers.data(), words.data(), 0, step.units.value);
    } else {
      for (const SlotId result : step.results) results.push_back(owned[result.index()]);
    }
  }
  return results;
}

}  // namespace

TEST("a program of two kernels is saved, read back, linked and run") {
  if (!codegen::has_code_generator()) return;
  auto compiler = codegen::make_cpu_compiler(codegen::get_host_target());
  auto linker = toolchain::make_linker(toolchain::find_process_symbol);
  REQUIRE(compiler.is_ok() && linker.is_ok());
  const program::Program made = make_program(*compiler.value());
  EXPECT_EQ(program::verify(made), "");
  const auto bytes = program::serialise(made);
  const auto program = program::deserialise(bytes.data(), bytes.size());
  REQUIRE(program.is_ok());
  std::mt19937 random(1);
  std::vector<float> x(kCount);
  double sum = 0;
  for (float& number : x) sum += number = static_cast<float>(random() % 1000) / 16;
  const auto results = run(program.value(), *linker.value(), x, 0.5);
  REQUIRE(results.size() == 2);
  for (std::int64_t i = 0; i < kCount; ++i) EXPECT_EQ(results[0][i], x[i] * 0.5f);
  EXPECT(std::fabs(results[1][0] - sum * 0.5) < 1e-6 * sum);
}
