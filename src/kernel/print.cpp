#include <charconv>
#include <cmath>
#include <string>

#include "kernel/numbering.h"
#include "kernel/numbers.h"
#include "kernel/text.h"

namespace reprise::kernel {
namespace {

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel), numbering_(kernel) {}

  std::string print() {
    text_ = "kernel\n";
    for (std::size_t i = 0; i < kernel_.buffers.size(); ++i) print_buffer(i, kernel_.buffers[i]);
    for (const ValueId id : kernel_.param_values) {
      text_ += "  param " + get_name(id) + " " + std::string(types::get_dtype_name(kernel_.get(id).dtype)) + "\n";
    }
    print_nodes(kernel_.prologue, 1);
    for (const LoopId body : kernel_.bodies) print_loop(kernel_.get(body), 0);
    return std::move(text_);
  }

 private:
  void print_buffer(std::size_t number, const Buffer& buffer) {
    text_ += buffer.kind == BufferKind::Local ? "  local b" : "  buffer b";
    text_ += std::to_string(number) + " " + std::string(types::get_dtype_name(buffer.dtype));
    if (buffer.kind == BufferKind::Argument) {
      text_ += buffer.is_read ? " read" : "";
      text_ += buffer.is_written ? " write" : "";
    }
    text_ += buffer.count < 0 ? " ?\n" : " " + std::to_string(buffer.count) + "\n";
  }

  std::string get_name(ValueId id) const {
    const std::uint32_t number = numbering_.get(id);
    return number == Numbering::kNone ? "%?" : "%" + std::to_string(number);
  }

  std::string get_text_of(IndexId id) const {
    const Affine& affine = kernel_.get(id);
    std::string text;
    for (const Term& term : numbering_.get_sorted_terms(affine)) {
      const bool is_negative = term.coefficient < 0;
      const std::uint64_t size =
          is_negative ? 0 - static_cast<std::uint64_t>(term.coefficient) : static_cast<std::uint64_t>(term.coefficient);
      text += text.empty() ? (is_negative ? "-" : "") : (is_negative ? " - " : " + ");
      if (size != 1) text += std::to_string(size) + "*";
      text += get_name(term.value);
    }
    if (text.empty()) return std::to_string(affine.constant());
    if (affine.constant() > 0) text += " + " + std::to_string(affine.constant());
    if (affine.constant() < 0) {
      text += " - " + std::to_string(0 - static_cast<std::uint64_t>(affine.constant()));
    }
    return text;
  }

  template <class T>
  static std::string get_float_text(T number, std::uint64_t bits, std::uint64_t quiet_nan) {
    if (number != number) {
      if (bits == quiet_nan) return "nan";
      char buffer[32];
      const auto end = std::to_chars(buffer, buffer + sizeof buffer, bits, 16).ptr;
      return "bits:" + std::string(buffer, end);
    }
    if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
    return std::string(buffer, end);
  }

  std::string get_constant_text(const Node& node) const {
    switch (node.dtype) {
      case DType::Bool:
        return node.payload != 0 ? "true" : "false";
      case DType::Float32:
        return get_float_text(as_float(node.payload), node.payload, 0x7fc00000);
      case DType::Float64:
        return get_float_text(as_double(node.payload), node.payload, 0x7ff8000000000000);
      case DType::Float16:
      case DType::BFloat16:
        return get_float_text(static_cast<float>(to_double(node.dtype, node.payload)), node.payload,
                              node.dtype == DType::Float16 ? 0x7e00 : 0x7fc0);
      case DType::UInt64:
        return std::to_string(node.payload);
      default:
        return std::to_string(static_cast<std::int64_t>(node.payload));
    }
  }

  void print_loop(const Loop& loop, int depth) {
    text_.append(static_cast<std::size_t>(depth) * 2, ' ');
    text_ += std::string(get_text(loop.kind)) + " " + get_name(loop.var) + " in " + get_text_of(loop.lower) + " .. " +
             get_text_of(loop.upper);
    if (loop.limit.is_valid()) text_ += " limit " + get_text_of(loop.limit);
    if (loop.step != 1) text_ += " step " + std::to_string(loop.step);
    if (loop.lanes != 0) {
      text_ += " lanes " + std::to_string(loop.lanes) + " unroll " + std::to_string(loop.unroll);
    }
    text_ += " {\n";
    print_nodes(kernel_.get(loop.body), depth + 1);
    text_.append(static_cast<std::size_t>(depth) * 2, ' ');
    text_ += "}\n";
  }

  void print_nodes(const std::vector<NodeId>& nodes, int depth) {
    for (const NodeId id : nodes) {
      const Node& node = kernel_.get(id);
      if (node.op == ScalarOp::Loop) {
        print_loop(kernel_.get_loop(node), depth);
        continue;
      }
      text_.append(static_cast<std::size_t>(depth) * 2, ' ');
      if (has_result(node.op)) text_ += get_name(id) + " = ";
      print_node(node);
      text_ += "\n";
    }
  }

  void print_operands(const Node& node) {
    for (int i = 0; i < node.operand_count; ++i) text_ += (i == 0 ? " " : ", ") + get_name(node.operands[i]);
  }

  void print_node(const Node& node) {
    const std::string dtype(types::get_dtype_name(node.dtype));
    const auto place = [&](const Access& access) {
      return "b" + std::to_string(access.buffer.index()) + "[" + get_text_of(access.index) + "]";
    };
    switch (node.op) {
      case ScalarOp::Const:
        text_ += "const " + dtype + " " + get_constant_text(node);
        return;
      case ScalarOp::Index:
        text_ += "index " + get_text_of(IndexId(static_cast<std::uint32_t>(node.payload)));
        return;
      case ScalarOp::Load:
        text_ += "load " + place(kernel_.get_access(node));
        if (Kernel::has_mask(node)) text_ += " if " + get_name(node.operands[0]);
        return;
      case ScalarOp::Store: {
        const Access& access = kernel_.get_access(node);
        text_ += "store ";
        if (access.mode != StoreMode::Set) text_ += std::string(get_text(access.mode)) + " ";
        text_ += place(access) + ", " + get_name(node.operands[0]);
        if (Kernel::has_mask(node)) text_ += " if " + get_name(node.operands[1]);
        return;
      }
      case ScalarOp::Cast:
      case ScalarOp::Bitcast:
        text_ += get_row(node.op).text;
        print_operands(node);
        text_ += " to " + dtype;
        return;
      case ScalarOp::Math:
        text_ += get_row(Kernel::get_math_function(node)).text;
        text_ += "." + std::string(get_text(Kernel::get_numerics(node)));
        print_operands(node);
        return;
      case ScalarOp::Accumulator:
        text_ += "acc " + std::string(get_text(Kernel::get_combine(node))) + " " + dtype;
        return;
      case ScalarOp::VectorCall: {
        const VectorCall& call = kernel_.calls[node.payload];
        text_ += "vector_call b" + std::to_string(call.result.index()) + ", " +
                 std::string(get_row(call.function).text) + "." + std::string(get_text(call.numerics)) + " b" +
                 std::to_string(call.operand.index()) + ", " + get_text_of(call.count);
        return;
      }
      default:
        text_ += get_row(node.op).text;
        print_operands(node);
    }
  }

  const Kernel& kernel_;
  Numbering numbering_;
  std::string text_;
};

}  // namespace

std::string print(const Kernel& kernel) { return Printer(kernel).print(); }

}  // namespace reprise::kernel
