#include <string>
#include <vector>

#include "program/program.h"

namespace reprise::program {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program), states_(program.slots.size(), State::Empty) {}

  std::string verify() {
    check_slots();
    for (const Constant& constant : program_.constants) {
      where_ = "constant";
      if (!check_slot(constant.slot)) return error_;
      const Slot& slot = program_.get(constant.slot);
      require(slot.kind == SlotKind::Constant, "its slot is no constant");
      require(static_cast<std::int64_t>(constant.bytes.size()) == slot.size_bytes,
              std::to_string(constant.bytes.size()) + " bytes for a slot of " + std::to_string(slot.size_bytes));
      states_[constant.slot.index()] = State::Filled;
    }
    for (std::size_t i = 0; i < program_.steps.size() && error_.empty(); ++i) {
      where_ = "step " + std::to_string(i);
      const bool is_last = i + 1 == program_.steps.size();
      require((program_.steps[i].kind == StepKind::Return) == is_last, "a program ends with its only return");
      check_step(program_.steps[i]);
      check_flags(i);
    }
    where_.clear();
    require(!program_.steps.empty(), "a program without steps");
    return error_;
  }

 private:
  enum class State : std::uint8_t { Empty, Filled, Freed };

  void require(bool holds, const std::string& text) {
    if (!holds && error_.empty()) error_ = where_.empty() ? text : where_ + ": " + text;
  }

  bool check_slot(SlotId slot) {
    const bool exists = slot.is_valid() && slot.index() < program_.slots.size();
    require(exists, "no such slot");
    return exists;
  }

  void check_slots() {
    for (std::size_t i = 0; i < program_.slots.size(); ++i) {
      const Slot& slot = program_.slots[i];
      where_ = "slot " + std::to_string(i);
      require((i < program_.inputs) == (slot.kind == SlotKind::Input), "inputs are the first slots");
      require(slot.sizes.size() == slot.strides.size(), "sizes and strides of different lengths");
      require(slot.size_bytes >= 0, "a negative size");
      if (slot.arena_offset >= 0) {
        require(slot.kind == SlotKind::Temporary, "only temporaries lie in the arena");
        require(slot.arena_offset % kArenaAlignment == 0, "unaligned in the arena");
        require(
            slot.arena_offset <= program_.arena_bytes && slot.size_bytes <= program_.arena_bytes - slot.arena_offset,
            "sticks out of the arena of " + std::to_string(program_.arena_bytes) + " bytes");
        states_[i] = State::Filled;
      }
      if (slot.kind == SlotKind::Input) states_[i] = State::Filled;
      if (slot.kind != SlotKind::Flags) continue;
      states_[i] = State::Filled;
      require(!flags_.is_valid(), "a second slot of flags");
      flags_ = SlotId(static_cast<std::uint32_t>(i));
      require(slot.is_tensor && slot.dtype == types::DType::Int32 &&
                  slot.size_bytes == 4 * static_cast<std::int64_t>(program_.checks.size()) &&
                  slot.sizes == std::vector<Size>{static_cast<std::int64_t>(program_.checks.size())} &&
                  slot.strides == std::vector<Size>{1} && slot.storage_offset == Size(0),
              "flags that are no int32 words, one for each check");
    }
    where_.clear();
    require(flags_.is_valid() || program_.checks.empty(), "checks without flags");
    require(program_.inputs <= program_.slots.size(), "more inputs than slots");
  }

  void read(SlotId slot) {
    if (!check_slot(slot)) return;
    const State state = states_[slot.index()];
    require(state != State::Empty, "slot " + std::to_string(slot.index()) + " is read before it is filled");
    require(state != State::Freed, "slot " + std::to_string(slot.index()) + " is read after it was freed");
  }

  void fill(SlotId slot) {
    if (!check_slot(slot)) return;
    require(states_[slot.index()] == State::Empty, "slot " + std::to_string(slot.index()) + " is filled twice");
    states_[slot.index()] = State::Filled;
  }

  // A launch gets flags as one whole range, and its check step is the next.
  void check_flags(std::size_t number) {
    const Step& step = program_.steps[number];
    if (!error_.empty()) return;
    std::vector<SlotId> others = step.results;
    others.insert(others.end(), step.outs.begin(), step.outs.end());
    if (step.kind != StepKind::Check) others.push_back(step.slot);
    others.push_back(step.source);
    for (const Word& word : step.words) others.push_back(word.slot);
    for (const SlotId slot : others) require(!flags_.is_valid() || slot != flags_, "flags are for launches and checks");
    if (step.kind != StepKind::Launch) return;
    const Step* next = number + 1 < program_.steps.size() ? &program_.steps[number + 1] : nullptr;
    const bool has_check = next != nullptr && next->kind == StepKind::Check;
    int count = 0;
    for (const BufferOperand& buffer : step.buffers) {
      if (!flags_.is_valid() || buffer.slot != flags_) continue;
      ++count;
      require(has_check, "no check behind a launch that may set flags");
      if (has_check) require(buffer.offset == next->first_check, "the check behind it is of other flags");
    }
    require(count == (has_check ? 1 : 0), "a check behind a launch that has no flags, or has them twice");
  }

  void check_argument(const Argument& argument) {
    if (argument.kind == ArgumentKind::Slot) {
      require(argument.number >= 0 && argument.number < static_cast<std::int64_t>(program_.slots.size()),
              "no such slot");
      require(!flags_.is_valid() || argument.number != flags_.index(), "flags are for launches and checks");
      if (error_.empty()) read(SlotId(static_cast<std::uint32_t>(argument.number)));
    }
    require(argument.kind == ArgumentKind::List || argument.elements.empty(), "elements of what is no list");
    for (const Argument& element : argument.elements) check_argument(element);
  }

  void check_step(const Step& step) {
    switch (step.kind) {
      case StepKind::Allocate:
        fill(step.slot);
        if (!error_.empty()) return;
        require(program_.get(step.slot).kind == SlotKind::Output || program_.get(step.slot).kind == SlotKind::Temporary,
                "allocates a slot of another kind");
        return;
      case StepKind::Launch:
        require(step.code.is_valid() && step.code.index() < program_.codes.size(), "no such code");
        if (!error_.empty()) return;
        require(step.symbol < program_.get(step.code).symbols.size(), "no such function in the code");
        for (const BufferOperand& buffer : step.buffers) {
          read(buffer.slot);
          if (error_.empty()) require(program_.get(buffer.slot).is_tensor, "a buffer that is no tensor");
        }
        for (const Word& word : step.words) {
          if (word.slot.is_valid()) read(word.slot);
        }
        require(step.grain >= 1 && step.units.value >= 0, "a range that makes no sense");
        return;
      case StepKind::Check: {
        const std::size_t step_index = static_cast<std::size_t>(&step - program_.steps.data());
        require(step_index > 0 && program_.steps[step_index - 1].kind == StepKind::Launch, "a check behind no launch");
        require(flags_.is_valid() && step.slot == flags_, "checks what are no flags");
        require(step.check_count > 0 && std::uint64_t{step.first_check} + step.check_count <= program_.checks.size(),
                "no such checks");
        return;
      }
      case StepKind::Extern:
        require(step.op.find("::") != std::string::npos, "'" + step.op + "' is no name of an op");
        for (const Argument& argument : step.arguments) check_argument(argument);
        for (const SlotId out : step.outs) read(out);
        for (const SlotId result : step.results) {
          if (result.is_valid()) fill(result);
        }
        return;
      case StepKind::View:
        read(step.source);
        fill(step.slot);
        if (error_.empty()) require(program_.get(step.slot).kind == SlotKind::View, "the result is no view");
        return;
      case StepKind::Copy:
        read(step.slot);
        read(step.source);
        return;
      case StepKind::Free:
        read(step.slot);
        if (error_.empty()) states_[step.slot.index()] = State::Freed;
        return;
      case StepKind::Return:
        for (const SlotId result : step.results) {
          if (!result.is_valid()) continue;
          read(result);
          if (error_.empty()) {
            require(program_.get(result).arena_offset < 0,
                    "slot " + std::to_string(result.index()) + " lies in the arena and is returned");
          }
        }
        return;
    }
    require(false, "a step of an unknown kind");
  }

  const Program& program_;
  std::vector<State> states_;
  SlotId flags_;
  std::string where_;
  std::string error_;
};

}  // namespace

std::string verify(const Program& program) { return Verifier(program).verify(); }

}  // namespace reprise::program
