#include <bit>
#include <charconv>

#include "lower/lowered.h"

namespace reprise::lower {

namespace {

class Printer {
 public:
  explicit Printer(const Lowered& lowered) : lowered_(lowered) {}

  std::string print() {
    for (const Op& op : lowered_.ops) print_op(op);
    return std::move(out_);
  }

 private:
  static std::string name(TensorId id) { return "%" + std::to_string(id.index()); }

  void print_op(const Op& op) {
    switch (op.kind) {
      case OpKind::Extern:
        out_ += "extern " + std::to_string(op.node.index()) + "\n";
        return;
      case OpKind::View:
        out_ += "view " + std::to_string(op.node.index()) + "\n";
        return;
      case OpKind::Loop:
        break;
    }
    out_ += op.is_reduction ? std::string(kernel::get_text(op.combine)) + " " : "loop ";
    if (op.result.is_valid()) out_ += name(op.result) + " ";
    if (op.index_result.is_valid()) out_ += "index " + name(op.index_result) + " ";
    out_ += std::string(types::get_dtype_name(lowered_.get(op.value).dtype)) + "[";
    for (std::size_t d = 0; d < op.sizes.rank; ++d) {
      if (d > 0) out_ += ", ";
      if (op.is_reduced(d)) out_ += "over ";
      out_ += std::to_string(op.sizes[d]);
    }
    out_ += "] = ";
    print_expr(op, op.value);
    if (op.index_value.is_valid()) {
      out_ += " at ";
      print_expr(op, op.index_value);
    }
    out_ += "\n";
    for (std::uint32_t i = op.first_check; i < op.last_check; ++i) {
      const Check& check = lowered_.checks[i];
      out_ += "  fails if ";
      print_expr(op, check.fails);
      out_ += std::string(check.is_index_error ? ": IndexError: " : ": RuntimeError: ") + check.text + "\n";
    }
  }

  static std::string show(double number) {
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, number);
    return std::string(buffer, end.ptr);
  }

  static std::string show_constant(const ExprNode& node) {
    switch (node.dtype) {
      case DType::Float32: {
        char buffer[32];
        const auto end = std::to_chars(buffer, buffer + sizeof buffer,
                                       std::bit_cast<float>(static_cast<std::uint32_t>(node.payload)));
        return std::string(buffer, end.ptr) + "f";
      }
      case DType::Float64:
        return show(std::bit_cast<double>(node.payload));
      default:
        return std::to_string(static_cast<std::int64_t>(node.payload));
    }
  }

  void print_expr(const Op& op, ExprId id) {
    const ExprNode& node = lowered_.get(id);
    switch (node.op) {
      case ScalarOp::Const:
        out_ += show_constant(node);
        return;
      case ScalarOp::Param:
        out_ += "%" + std::to_string(node.payload);
        return;
      case ScalarOp::LoopVar:
        out_ += "i" + std::to_string(node.payload);
        return;
      case ScalarOp::Load:
        print_load(op, node);
        return;
      case ScalarOp::Cast:
      case ScalarOp::Bitcast:
        out_ += std::string(types::get_dtype_name(node.dtype));
        break;
      case ScalarOp::Math:
        out_ += std::string(kernel::get_row(static_cast<MathFunction>(node.payload & 0xff)).text) + "." +
                std::string(kernel::get_text(static_cast<Numerics>(node.payload >> 8)));
        break;
      default:
        out_ += kernel::get_row(node.op).text;
        break;
    }
    out_ += "(";
    for (std::size_t i = 0; i < node.operand_count; ++i) {
      if (i > 0) out_ += ", ";
      print_expr(op, node.operands[i]);
    }
    out_ += ")";
  }

  void print_load(const Op& op, const ExprNode& node) {
    const Access& access = lowered_.accesses[node.payload];
    out_ += name(access.tensor) + "[";
    bool is_first = true;
    const auto add = [&](const std::string& text) {
      out_ += (is_first ? "" : " + ") + text;
      is_first = false;
    };
    for (std::size_t d = 0; d < op.sizes.rank; ++d) {
      if (access.by_dim[d] == 0) continue;
      add((access.by_dim[d] == 1 ? "" : std::to_string(access.by_dim[d]) + "*") + "i" + std::to_string(d));
    }
    for (const Indirect& term : access.indirect) {
      add(term.coefficient == 1 ? "" : std::to_string(term.coefficient) + "*");
      print_expr(op, term.value);
    }
    if (access.constant != 0 || is_first) add(std::to_string(access.constant));
    out_ += "]";
    if (node.operand_count > 0) {
      out_ += " if ";
      print_expr(op, node.operands[0]);
    }
  }

  const Lowered& lowered_;
  std::string out_;
};

}  // namespace

std::string print(const Lowered& lowered) { return Printer(lowered).print(); }

}  // namespace reprise::lower
