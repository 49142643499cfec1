#include <bit>
#include <charconv>
#include <string>

#include "base/hash.h"
#include "program/program.h"

namespace reprise::program {
namespace {

#define X(name, text, doc) text,
constexpr std::string_view kSlotKinds[] = {
#include "program/slot_kinds.def"
};
constexpr std::string_view kCodeKinds[] = {
#include "program/code_kinds.def"
};
constexpr std::string_view kArgumentKinds[] = {
#include "program/argument_kinds.def"
};
constexpr std::string_view kStepKinds[] = {
#include "program/step_kinds.def"
};
#undef X

template <std::size_t count, class Kind>
std::string get_text(const std::string_view (&texts)[count], Kind kind) {
  const auto i = static_cast<std::size_t>(kind);
  return i < count ? std::string(texts[i]) : "?" + std::to_string(i);
}

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string print() {
    text_ = "program, " + std::to_string(program_.inputs) + " inputs, arena of " +
            std::to_string(program_.arena_bytes) + " bytes\n";
    for (std::size_t i = 0; i < program_.slots.size(); ++i) print_slot(i, program_.slots[i]);
    for (const Constant& constant : program_.constants) {
      text_ += "constant " + get_name(constant.slot) + ": " + get_bytes_text(constant.bytes) + "\n";
    }
    for (std::size_t i = 0; i < program_.codes.size(); ++i) {
      const Code& code = program_.codes[i];
      text_ += "code @" + std::to_string(i) + " " + get_text(kCodeKinds, code.kind) + " key " + code.key.get_text() +
               ", " + get_bytes_text(code.bytes) + ":";
      for (const std::string& symbol : code.symbols) text_ += " " + symbol;
      text_ += "\n";
    }
    for (std::size_t i = 0; i < program_.checks.size(); ++i) {
      const Check& check = program_.checks[i];
      text_ += "check " + std::to_string(i) + ": " + (check.is_index_error ? "IndexError: " : "RuntimeError: ") +
               check.text + "\n";
    }
    for (std::size_t i = 0; i < program_.steps.size(); ++i) print_step(i, program_.steps[i]);
    return std::move(text_);
  }

 private:
  static std::string get_name(SlotId slot) { return slot.is_valid() ? "%" + std::to_string(slot.index()) : "none"; }

  static std::string get_bytes_text(const std::vector<std::uint8_t>& bytes) {
    return std::to_string(bytes.size()) + " bytes (" + std::to_string(base::hash_bytes(bytes.data(), bytes.size())) +
           ")";
  }

  static std::string get_text_of(const Size& size) {
    return size.expression < 0 ? std::to_string(size.value)
                               : "s" + std::to_string(size.expression) + "=" + std::to_string(size.value);
  }

  static std::string get_text_of(const std::vector<Size>& sizes) {
    std::string text = "[";
    for (const Size& size : sizes) text += (text.size() == 1 ? "" : ", ") + get_text_of(size);
    return text + "]";
  }

  static std::string get_text_of(double number) {
    char buffer[64];
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
  }

  void print_slot(std::size_t number, const Slot& slot) {
    text_ += "%" + std::to_string(number) + " " + get_text(kSlotKinds, slot.kind);
    if (!slot.is_tensor) {
      text_ += " scalar or list\n";
      return;
    }
    text_ += " " + std::string(types::get_dtype_name(slot.dtype)) + get_text_of(slot.sizes) + " strides " +
             get_text_of(slot.strides) + " on " + types::get_device_name(slot.device);
    if (slot.storage_offset != Size(0)) text_ += " offset " + get_text_of(slot.storage_offset);
    text_ += ", " + std::to_string(slot.size_bytes) + " bytes";
    if (slot.arena_offset >= 0) text_ += " at " + std::to_string(slot.arena_offset);
    text_ += "\n";
  }

  static std::string get_text_of(const Argument& argument) {
    switch (argument.kind) {
      case ArgumentKind::None:
        return "none";
      case ArgumentKind::Slot:
        return "%" + std::to_string(argument.number);
      case ArgumentKind::Int:
        return std::to_string(argument.number);
      case ArgumentKind::Float:
        return get_text_of(argument.real);
      case ArgumentKind::Bool:
        return argument.number != 0 ? "true" : "false";
      case ArgumentKind::String:
        return "\"" + argument.text + "\"";
      case ArgumentKind::List: {
        std::string text = "[";
        for (const Argument& element : argument.elements) text += (text.size() == 1 ? "" : ", ") + get_text_of(element);
        return text + "]";
      }
      case ArgumentKind::Complex:
        return "complex(" + get_text_of(argument.real) + ", " + get_text_of(std::bit_cast<double>(argument.number)) +
               ")";
      case ArgumentKind::DType:
        return std::string(types::get_dtype_name(static_cast<types::DType>(argument.number)));
      case ArgumentKind::Device:
      case ArgumentKind::Layout:
      case ArgumentKind::MemoryFormat:
        return get_text(kArgumentKinds, argument.kind) + " " + std::to_string(argument.number);
    }
    return "?";
  }

  static std::string get_text_of(const Word& word) {
    if (word.slot.is_valid()) return get_name(word.slot);
    return word.expression < 0 ? std::to_string(word.bits) : "s" + std::to_string(word.expression);
  }

  template <class T, class GetText>
  static std::string join(const std::vector<T>& elements, GetText get_text_of_element) {
    std::string text;
    for (const T& element : elements) text += (text.empty() ? "" : ", ") + get_text_of_element(element);
    return text;
  }

  void print_step(std::size_t number, const Step& step) {
    text_ += std::to_string(number) + ": ";
    const std::string kind = get_text(kStepKinds, step.kind);
    switch (step.kind) {
      case StepKind::Allocate:
      case StepKind::Free:
        text_ += kind + " " + get_name(step.slot);
        break;
      case StepKind::View:
        text_ += get_name(step.slot) + " = view of " + get_name(step.source);
        break;
      case StepKind::Copy:
        text_ += "copy " + get_name(step.slot) + " <- " + get_name(step.source);
        break;
      case StepKind::Launch:
        text_ += "launch @" + (step.code.is_valid() ? std::to_string(step.code.index()) : "?") + "." +
                 std::to_string(step.symbol) + "(" +
                 join(step.buffers,
                      [](const BufferOperand& buffer) {
                        return get_name(buffer.slot) + (buffer.offset == 0 ? "" : "+" + std::to_string(buffer.offset));
                      }) +
                 "; " + join(step.words, [](const Word& word) { return get_text_of(word); }) + ") over " +
                 get_text_of(step.units) + " units of " + std::to_string(step.unit_work) + ", grain " +
                 std::to_string(step.grain);
        break;
      case StepKind::Check:
        text_ += "check " + get_name(step.slot) + "[" + std::to_string(step.first_check) + " .. " +
                 std::to_string(std::uint64_t{step.first_check} + step.check_count) + "]";
        break;
      case StepKind::Extern:
        if (!step.results.empty()) text_ += join(step.results, get_name) + " = ";
        text_ += step.op + "(" + join(step.arguments, [](const Argument& a) { return get_text_of(a); }) + ")";
        if (!step.outs.empty()) text_ += " out " + join(step.outs, get_name);
        break;
      case StepKind::Return:
        text_ += "return " + join(step.results, get_name);
        break;
    }
    text_ += "\n";
  }

  const Program& program_;
  std::string text_;
};

}  // namespace

std::string print(const Program& program) { return Printer(program).print(); }

}  // namespace reprise::program
