#include "program_runner.h"

#include <algorithm>
#include <cstring>

#include "kernel/interpret.h"
#include "kernel/prepare.h"
#include "kernel/text.h"
#include "kernel/verify.h"

namespace reprise::test {

using program::SlotKind;
using program::Step;
using program::StepKind;

namespace {

constexpr std::uint8_t kFill = 0xa5;

}  // namespace

std::int64_t RunValue::count() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

std::vector<std::int64_t> RunValue::list_places() const {
  const auto width = static_cast<std::int64_t>(types::get_size_bytes(dtype));
  std::vector<std::int64_t> places = {offset * width};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t place : places) {
      for (std::int64_t i = 0; i < sizes[d]; ++i) longer.push_back(place + i * strides[d] * width);
    }
    places = std::move(longer);
  }
  return places;
}

void copy_elements(const RunValue& to, const RunValue& from) {
  const std::size_t width = types::get_size_bytes(to.dtype);
  const std::vector<std::int64_t> to_places = to.list_places();
  const std::vector<std::int64_t> from_places = from.list_places();
  std::vector<std::uint8_t> elements(from_places.size() * width);
  for (std::size_t i = 0; i < from_places.size(); ++i)
    std::memcpy(&elements[i * width], from.storage->data() + from_places[i], width);
  for (std::size_t i = 0; i < to_places.size(); ++i)
    std::memcpy(to.storage->data() + to_places[i], &elements[i * width], width);
}

RunValue ProgramRunner::make(program::SlotId id) const {
  const program::Slot& row = plan_.program.get(id);
  RunValue value;
  value.dtype = row.dtype;
  for (const program::Size& size : row.sizes) value.sizes.push_back(size.value);
  for (const program::Size& stride : row.strides) value.strides.push_back(stride.value);
  if (!row.is_tensor) return value;
  value.storage = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(row.size_bytes), kFill);
  return value;
}

std::string ProgramRunner::run(const std::vector<RunValue>& inputs) {
  const program::Program& program = plan_.program;
  if (std::string error = program::verify(program); !error.empty()) return error + "\n" + program::print(program);
  for (std::size_t i = 0; i < plan_.kernels.size(); ++i) {
    if (std::string error = kernel::verify(plan_.kernels[i]); !error.empty())
      return error + "\n" + kernel::print(plan_.kernels[i]);
  }
  if (inputs.size() != program.inputs) return "another number of inputs";
  for (std::size_t i = 0; i < inputs.size(); ++i) slots_[i] = inputs[i];
  arena_ = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(program.arena_bytes), kFill);
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    const program::Slot& row = program.slots[i];
    if (row.arena_offset < 0) continue;
    slots_[i] = make(program::SlotId(static_cast<std::uint32_t>(i)));
    slots_[i].storage = arena_;
    slots_[i].shares_arena = true;
    slots_[i].offset = row.arena_offset / static_cast<std::int64_t>(types::get_size_bytes(row.dtype));
  }
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    if (program.slots[i].kind != SlotKind::Flags) continue;
    slots_[i] = make(program::SlotId(static_cast<std::uint32_t>(i)));
    std::fill(slots_[i].storage->begin(), slots_[i].storage->end(), std::uint8_t{0});
  }
  for (const Step& step : program.steps) {
    switch (step.kind) {
      case StepKind::Allocate:
        slot(step.slot) = make(step.slot);
        break;
      case StepKind::Launch:
        if (std::string error = launch(step); !error.empty()) return error;
        break;
      case StepKind::Check:
        for (std::uint32_t i = step.first_check; i < step.first_check + step.check_count; ++i) {
          std::int32_t flag = 0;
          std::memcpy(&flag, slot(step.slot).storage->data() + std::size_t{i} * 4, 4);
          if (flag != 0)
            return (program.checks[i].is_index_error ? "IndexError: " : "RuntimeError: ") + program.checks[i].text;
        }
        break;
      case StepKind::Extern:
        if (!call_library) return "a library call: " + step.op;
        if (std::string error = call_library(*this, step); !error.empty()) return error;
        break;
      case StepKind::View: {
        const program::Slot& row = program.get(step.slot);
        RunValue value = slot(step.source);
        value.sizes.clear();
        value.strides.clear();
        for (const program::Size& size : row.sizes) value.sizes.push_back(size.value);
        for (const program::Size& stride : row.strides) value.strides.push_back(stride.value);
        // Offsets of slots are in the storage of the region; a source of ours may start elsewhere in its memory.
        value.offset += row.storage_offset.value - program.get(step.source).storage_offset.value;
        slot(step.slot) = std::move(value);
        break;
      }
      case StepKind::Copy:
        copy_elements(slot(step.slot), slot(step.source));
        break;
      case StepKind::Free:
        slot(step.slot) = RunValue();
        break;
      case StepKind::Return:
        for (const program::SlotId id : step.results) {
          results_.push_back(id.is_valid() ? slot(id) : RunValue());
          if (results_.back().shares_arena) return "a result lies in the arena";
        }
        break;
    }
  }
  return {};
}

std::string ProgramRunner::launch(const Step& step) {
  std::vector<void*> buffers;
  for (const program::BufferOperand& operand : step.buffers) {
    const RunValue& value = slot(operand.slot);
    if (!value.storage) return "a kernel gets a buffer without memory";
    buffers.push_back(value.data() + operand.offset * static_cast<std::int64_t>(types::get_size_bytes(value.dtype)));
  }
  std::vector<std::int64_t> words;
  for (const program::Word& word : step.words) words.push_back(word.slot.is_valid() ? slot(word.slot).bits : word.bits);
  const kernel::Kernel& kernel = plan_.kernels[step.code.index()];
  if (kernel::count_units(kernel, words.data()) != step.units.value) return "the kernel has another number of units";
  const std::int64_t middle = step.units.value / 2;
  if (run_kernel) {
    run_kernel(step.code.index(), buffers.data(), words.data(), middle, step.units.value);
    run_kernel(step.code.index(), buffers.data(), words.data(), 0, middle);
    return {};
  }
  kernel::interpret(kernel, buffers.data(), words.data(), middle, step.units.value);
  kernel::interpret(kernel, buffers.data(), words.data(), 0, middle);
  return {};
}

}  // namespace reprise::test
