#include "codegen/cpp/print_cpp.h"

#include <charconv>
#include <cmath>
#include <set>

#include "codegen/cpp/cpp_imports_impl.h"
#include "kernel/analysis.h"
#include "kernel/interpret_op.h"
#include "kernel/numbering.h"
#include "kernel/numbers.h"

namespace reprise::codegen {
namespace {

using namespace kernel;

bool is_vml(const Node& node) {
  return node.op == ScalarOp::Math && Kernel::get_numerics(node) == Numerics::Mkl &&
         !get_row(Kernel::get_math_function(node)).mkl.empty();
}

class CppPrinter {
 public:
  CppPrinter(const Kernel& kernel, CppMath math) : kernel_(kernel), math_(math), analysis_(kernel), numbering_(kernel) {
    slot_counts_.resize(kernel.nodes.size(), 1);
    for (std::uint32_t i = 0; i < kernel.nodes.size(); ++i) {
      const Node& node = kernel.nodes[i];
      if (node.op != ScalarOp::Reduce || !is_outside(NodeId(i), node)) continue;
      const Loop& loop = kernel.get(analysis_.get_vector_loop(NodeId(i)));
      int& count = slot_counts_[node.operands[0].index()];
      count = std::max(count, std::max(1, int{loop.lanes}) * std::max(1, int{loop.unroll}));
    }
  }

  std::string print(const std::string& symbol) {
    if (math_ == CppMath::Libm) {
      for (const CppImport& import : find_cpp_imports(kernel_)) {
        if (!import.is_vml) continue;
        const std::string type = get_type(import.dtype);
        text_ += "extern \"C\" void " + get_import_name(import) + "(int, const " + type + "*, " + type +
                 "*, std::int64_t);\n";
      }
    }
    text_ += "extern \"C\" void " + symbol +
             "(void* const* buffers, const std::int64_t* scalars, std::int64_t begin, std::int64_t end) {\n";
    int argument = 0;
    for (std::size_t i = 0; i < kernel_.buffers.size(); ++i) {
      const Buffer& buffer = kernel_.buffers[i];
      const std::string type = get_memory_type(buffer.dtype);
      const std::string name = "b" + std::to_string(i);
      if (buffer.kind == BufferKind::Local) {
        line(1, "alignas(64) " + type + " " + name + "[" + std::to_string(buffer.count) + "];");
      } else {
        const std::string constness = buffer.is_written ? "" : "const ";
        line(1, "auto* " + name + " = static_cast<" + constness + type + "*>(buffers[" + std::to_string(argument++) +
                    "]);");
      }
    }
    for (std::size_t i = 0; i < kernel_.params.size(); ++i) {
      const std::string word = "scalars[" + std::to_string(i) + "]";
      const DType dtype = kernel_.params[i];
      line(1, "const " + get_type(dtype) + " " + name(kernel_.param_values[i]) + " = " +
                  (dtype == DType::Float64 ? "std::bit_cast<double>(" + word + ")"
                   : dtype == DType::Bool  ? word + " != 0"
                                           : word) +
                  ";");
    }
    line(1, "(void)buffers, (void)scalars;");
    print_nodes(kernel_.prologue, 1);
    std::string first = "0";
    for (const LoopId id : kernel_.bodies) {
      const Loop& loop = kernel_.get(id);
      const bool is_alone = kernel_.bodies.size() == 1;
      const std::string count = affine(loop.upper);
      const std::string from = is_alone ? "begin" : "std::max<std::int64_t>(begin - (" + first + "), 0)";
      const std::string to = is_alone ? "end" : "std::min<std::int64_t>(end - (" + first + "), " + count + ")";
      const std::string var = name(loop.var);
      line(1, "for (std::int64_t " + var + " = " + from + "; " + var + " < " + to + "; ++" + var + ") {");
      print_nodes(kernel_.get(loop.body), 2);
      line(1, "}");
      first += " + " + count;
    }
    text_ += "}\n";
    return std::move(text_);
  }

 private:
  void line(int depth, const std::string& text) {
    text_.append(static_cast<std::size_t>(depth) * 2, ' ');
    text_ += text + "\n";
  }

  bool is_outside(NodeId id, const Node& node) const {
    return analysis_.get_vector_loop(id) != analysis_.get_vector_loop(node.operands[0]);
  }

  std::string name(ValueId id) const { return "v" + std::to_string(numbering_.get(id)); }

  static std::string get_type(DType dtype) {
    switch (dtype) {
      case DType::Bool:
        return "bool";
      case DType::Float32:
        return "float";
      case DType::Float64:
        return "double";
      case DType::Float16:
      case DType::BFloat16:
        return "std::uint16_t";
      default:
        return std::string(is_signed(dtype) ? "std::int" : "std::uint") + std::to_string(count_bits(dtype)) + "_t";
    }
  }
  static std::string get_memory_type(DType dtype) { return dtype == DType::Bool ? "std::uint8_t" : get_type(dtype); }

  static std::string get_vml_name(MathFunction function, DType dtype) {
    return get_import_name({function, dtype, true});
  }

  std::string affine(IndexId id) const {
    const Affine& expression = kernel_.get(id);
    std::string text;
    for (const Term& term : numbering_.get_sorted_terms(expression)) {
      text += text.empty() ? "" : " + ";
      text += term.coefficient == 1 ? name(term.value) : name(term.value) + " * " + std::to_string(term.coefficient);
    }
    if (text.empty()) return "INT64_C(" + std::to_string(expression.constant()) + ")";
    return expression.constant() == 0 ? text : text + " + " + std::to_string(expression.constant());
  }

  static std::string constant(DType dtype, std::uint64_t bits) {
    const auto exact = [&](auto number, const std::string& type, const std::string& suffix) -> std::string {
      if (number != number) {
        return "std::bit_cast<" + type + ">(" + (type == "float" ? "std::uint32_t(" : "std::uint64_t(") +
               std::to_string(bits) + "u))";
      }
      if (std::isinf(number)) {
        return std::string(number < 0 ? "-" : "") + "std::numeric_limits<" + type + ">::infinity()";
      }
      char buffer[64];
      std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
      if (text.find_first_of(".e") == std::string::npos) text += ".0";
      return text + suffix;
    };
    switch (dtype) {
      case DType::Bool:
        return bits != 0 ? "true" : "false";
      case DType::Float32:
        return exact(as_float(bits), "float", "f");
      case DType::Float64:
        return exact(as_double(bits), "double", "");
      case DType::Int64:
        if (bits == std::uint64_t{1} << 63) return "INT64_MIN";
        return "INT64_C(" + std::to_string(static_cast<std::int64_t>(bits)) + ")";
      case DType::UInt64:
        return "UINT64_C(" + std::to_string(bits) + ")";
      default:
        return get_type(dtype) + "(" + std::to_string(static_cast<std::int64_t>(bits)) + ")";
    }
  }

  void print_loop(LoopId id, int depth) {
    const Loop& loop = kernel_.get(id);
    const std::string var = name(loop.var);
    const std::string lower = affine(loop.lower);
    std::string upper = affine(loop.upper);
    if (loop.limit.is_valid()) upper = "std::min<std::int64_t>(" + upper + ", " + affine(loop.limit) + ")";
    const std::string step = loop.step == 1 ? "++" + var : var + " += " + std::to_string(loop.step);
    if (loop.kind != LoopKind::Vector || !reduces_outside(loop.body)) {
      if (loop.kind == LoopKind::Vector && !sets_flag(loop.body)) text_ += "#pragma omp simd\n";
      line(depth, "for (std::int64_t " + var + " = " + lower + "; " + var + " < " + upper + "; " + step + ") {");
      print_nodes(kernel_.get(loop.body), depth + 1);
      line(depth, "}");
      return;
    }
    // The partial value of an iteration: requirement 4 of kernel.h.
    const int lanes = std::max(1, int{loop.lanes});
    const int whole = lanes * std::max(1, int{loop.unroll});
    line(depth, "{");
    line(depth + 1, "const std::int64_t lower = " + lower + ", count = " + upper + " - lower;");
    line(depth + 1, "const auto step = [&](std::int64_t k, std::int64_t part) {");
    line(depth + 2, "const std::int64_t " + var + " = lower + k;");
    print_nodes(kernel_.get(loop.body), depth + 2);
    line(depth + 1, "};");
    line(depth + 1, "std::int64_t k = 0;");
    const std::string size = std::to_string(whole);
    line(depth + 1, "for (; k + " + size + " <= count; k += " + size + ") {");
    if (!sets_flag(loop.body)) text_ += "#pragma omp simd\n";
    line(depth + 2, "for (std::int64_t part = 0; part < " + size + "; ++part) step(k + part, part);");
    line(depth + 1, "}");
    line(depth + 1, "for (; k < count; ++k) step(k, k % " + std::to_string(lanes) + ");");
    line(depth, "}");
  }

  // OpenMP has no word for lanes that store one value to one element.
  bool sets_flag(RegionId region) const {
    for (const NodeId id : kernel_.get(region)) {
      const Node& node = kernel_.get(id);
      if (node.op == ScalarOp::Store && !analysis_.is_varying(kernel_.get(kernel_.get_access(node).index))) return true;
      if (node.op == ScalarOp::Loop && sets_flag(kernel_.get_loop(node).body)) return true;
    }
    return false;
  }

  bool reduces_outside(RegionId region) const {
    for (const NodeId id : kernel_.get(region)) {
      const Node& node = kernel_.get(id);
      if (node.op == ScalarOp::Reduce && is_outside(id, node)) return true;
      if (node.op == ScalarOp::Loop && reduces_outside(kernel_.get_loop(node).body)) return true;
    }
    return false;
  }

  void print_nodes(const std::vector<NodeId>& nodes, int depth) {
    for (const NodeId id : nodes) {
      const Node& node = kernel_.get(id);
      if (node.op == ScalarOp::Loop) {
        print_loop(LoopId(static_cast<std::uint32_t>(node.payload)), depth);
      } else {
        print_node(id, node, depth);
      }
    }
  }

  std::string operand(const Node& node, int i) const { return name(node.operands[i]); }

  std::string place(const Node& node) const {
    const Access& access = kernel_.get_access(node);
    return "b" + std::to_string(access.buffer.index()) + "[" + affine(access.index) + "]";
  }

  // Widest first: the two arguments of a combine operation as an expression.
  std::string combine(const Node& accumulator, const std::string& a, const std::string& b) const {
    switch (Kernel::get_combine(accumulator)) {
      case Combine::Sum:
        return "add(" + a + ", " + b + ")";
      case Combine::Prod:
        return "mul(" + a + ", " + b + ")";
      case Combine::Max:
        return "max_of(" + a + ", " + b + ")";
      case Combine::Min:
        return "min_of(" + a + ", " + b + ")";
      case Combine::ArgMax:
        return "arg_max(" + a + ", " + b + ")";
      case Combine::ArgMin:
        return "arg_min(" + a + ", " + b + ")";
      case Combine::Any:
        return a + " || " + b;
      case Combine::All:
        return a + " && " + b;
    }
    return "?";
  }

  static bool has_index(const Node& accumulator) {
    const Combine combine = Kernel::get_combine(accumulator);
    return combine == Combine::ArgMax || combine == Combine::ArgMin;
  }

  std::string get_carry_type(const Node& accumulator) const {
    const std::string type = get_type(accumulator.dtype);
    return has_index(accumulator) ? "Best<" + type + ">" : type;
  }

  void print_node(NodeId id, const Node& node, int depth) {
    if (node.op == ScalarOp::Accumulator) {
      const Partial start = get_start(Kernel::get_combine(node), node.dtype);
      std::string value = constant(node.dtype, start.bits);
      if (has_index(node)) value = "{" + value + ", INT64_MAX}";
      const int count = slot_counts_[id.index()];
      const std::string type = get_carry_type(node);
      line(depth, type + " " + name(id) + "[" + std::to_string(count) + "];");
      line(depth, "std::fill(" + name(id) + ", " + name(id) + " + " + std::to_string(count) + ", " + type +
                      (has_index(node) ? value : "(" + value + ")") + ");");
      return;
    }
    if (node.op == ScalarOp::Reduce || node.op == ScalarOp::Scan) {
      const Node& accumulator = kernel_.get(node.operands[0]);
      const std::string slot = operand(node, 0) + (is_outside(id, node) ? "[part]" : "[0]");
      std::string value = operand(node, 1);
      if (has_index(accumulator)) value = get_carry_type(accumulator) + "{" + value + ", " + operand(node, 2) + "}";
      line(depth, slot + " = " + combine(accumulator, slot, value) + ";");
      if (node.op == ScalarOp::Scan) {
        line(depth, "const " + get_type(node.dtype) + " " + name(id) + " = " + slot +
                        (has_index(accumulator) ? ".value;" : ";"));
      }
      return;
    }
    if (node.op == ScalarOp::Store) return print_store(node, depth);
    if (node.op == ScalarOp::VectorCall) {
      const VectorCall& call = kernel_.calls[node.payload];
      line(depth, get_vml_name(call.function, kernel_.get(call.operand).dtype) + "(static_cast<int>(" +
                      affine(call.count) + "), b" + std::to_string(call.operand.index()) + ", b" +
                      std::to_string(call.result.index()) + ", 0x140102);");
      return;
    }
    if (is_vml(node)) {
      const std::string type = get_type(node.dtype);
      line(depth, type + " " + name(id) + ";");
      line(depth, get_vml_name(Kernel::get_math_function(node), node.dtype) + "(1, &" + operand(node, 0) + ", &" +
                      name(id) + ", 0x140102);");
      return;
    }
    line(depth, "const " + get_type(node.dtype) + " " + name(id) + " = " + expression(node) + ";");
  }

  void print_store(const Node& node, int depth) {
    const Access& access = kernel_.get_access(node);
    const std::string condition = Kernel::has_mask(node) ? "if (" + operand(node, 1) + ") " : "";
    const std::string value = operand(node, 0);
    switch (access.mode) {
      case StoreMode::Set:
        line(depth, condition + place(node) + " = " + value + ";");
        return;
      case StoreMode::AddOrdered:
        line(depth, condition + place(node) + " = add(" + place(node) + ", " + value + ");");
        return;
      case StoreMode::AddAtomic:
        line(depth, condition + "add_atomic(&" + place(node) + ", " + value + ");");
        return;
    }
  }

  std::string cast(const std::string& a, DType from, DType to) const {
    if (from == to) return a;
    if (from == DType::Float16) return cast("from_float16(" + a + ")", DType::Float32, to);
    if (from == DType::BFloat16) return cast("from_bfloat16(" + a + ")", DType::Float32, to);
    if (to == DType::Float16) return "to_float16(" + cast(a, from, DType::Float32) + ")";
    if (to == DType::BFloat16) return "to_bfloat16(" + cast(a, from, DType::Float32) + ")";
    if (to == DType::Bool) return a + " != 0";
    if (types::is_float(from) && types::is_integral(to)) return "to_integer<" + get_type(to) + ">(" + a + ")";
    return "static_cast<" + get_type(to) + ">(" + a + ")";
  }

  std::string expression(const Node& node) const {
    const auto call = [&](const std::string& function) {
      std::string text = function + "(";
      for (int i = 0; i < node.operand_count; ++i) text += (i == 0 ? "" : ", ") + operand(node, i);
      return text + ")";
    };
    const auto infix = [&](const std::string& sign) { return operand(node, 0) + " " + sign + " " + operand(node, 1); };
    const bool is_float = types::is_float(node.dtype);
    switch (node.op) {
      case ScalarOp::Const:
        return constant(node.dtype, node.payload);
      case ScalarOp::Index:
        return affine(IndexId(static_cast<std::uint32_t>(node.payload)));
      case ScalarOp::Load: {
        std::string text = place(node);
        if (node.dtype == DType::Bool) text += " != 0";
        if (!Kernel::has_mask(node)) return text;
        return operand(node, 0) + " ? " + text + " : " + get_type(node.dtype) + "(0)";
      }
      case ScalarOp::Add:
        return is_float ? infix("+") : call("add");
      case ScalarOp::Sub:
        return is_float ? infix("-") : call("sub");
      case ScalarOp::Mul:
        return is_float ? infix("*") : call("mul");
      case ScalarOp::Div:
        return infix("/");
      case ScalarOp::Fma:
        return call("std::fma");
      case ScalarOp::DivTrunc:
      case ScalarOp::DivFloor:
      case ScalarOp::RemTrunc:
      case ScalarOp::RemFloor:
      case ScalarOp::Neg:
      case ScalarOp::Shl:
      case ScalarOp::Shr:
        return call(std::string(get_row(node.op).text));
      case ScalarOp::Abs:
        return call("abs_of");
      case ScalarOp::Max:
        return call("max_of");
      case ScalarOp::Min:
        return call("min_of");
      case ScalarOp::Sqrt:
      case ScalarOp::Floor:
      case ScalarOp::Ceil:
      case ScalarOp::Trunc:
      case ScalarOp::CopySign:
        return call("std::" + std::string(get_row(node.op).text));
      case ScalarOp::RoundEven:
        return call("std::nearbyint");
      case ScalarOp::And:
      case ScalarOp::Or:
      case ScalarOp::Xor: {
        const std::string text = infix(node.op == ScalarOp::And ? "&" : node.op == ScalarOp::Or ? "|" : "^");
        return get_type(node.dtype) + "(" + text + ")";
      }
      case ScalarOp::Not:
        return node.dtype == DType::Bool ? "!" + operand(node, 0)
                                         : get_type(node.dtype) + "(~" + operand(node, 0) + ")";
      case ScalarOp::Eq:
        return infix("==");
      case ScalarOp::Ne:
        return infix("!=");
      case ScalarOp::Lt:
        return infix("<");
      case ScalarOp::Le:
        return infix("<=");
      case ScalarOp::Gt:
        return infix(">");
      case ScalarOp::Ge:
        return infix(">=");
      case ScalarOp::Select:
        return operand(node, 0) + " ? " + operand(node, 1) + " : " + operand(node, 2);
      case ScalarOp::Cast:
        return cast(operand(node, 0), kernel_.get(node.operands[0]).dtype, node.dtype);
      case ScalarOp::Bitcast:
        return "std::bit_cast<" + get_type(node.dtype) + ">(" + operand(node, 0) + ")";
      case ScalarOp::RoundBF16:
        return "from_bfloat16(to_bfloat16(" + operand(node, 0) + "))";
      case ScalarOp::RoundF16:
        return "from_float16(to_float16(" + operand(node, 0) + "))";
      case ScalarOp::Math:
        if (math_ == CppMath::Torch && Kernel::get_numerics(node) != Numerics::Libm) {
          return call(get_sleef_wrapper({Kernel::get_math_function(node), node.dtype, false}));
        }
        return call("std::" + std::string(get_row(Kernel::get_math_function(node)).libm));
      case ScalarOp::Result:
      case ScalarOp::ResultIndex: {
        const Node& accumulator = kernel_.get(node.operands[0]);
        const std::string type = get_carry_type(accumulator);
        std::string text = slot_counts_[node.operands[0].index()] == 1
                               ? operand(node, 0) + "[0]"
                               : "fold(" + operand(node, 0) + ", [](" + type + " a, " + type + " b) -> " + type +
                                     " { return " + combine(accumulator, "a", "b") + "; })";
        if (has_index(accumulator)) text += node.op == ScalarOp::Result ? ".value" : ".index";
        return text;
      }
      case ScalarOp::Param:
      case ScalarOp::LoopVar:
      case ScalarOp::Store:
      case ScalarOp::Accumulator:
      case ScalarOp::Reduce:
      case ScalarOp::Scan:
      case ScalarOp::Loop:
      case ScalarOp::VectorCall:
        break;  // no expressions
    }
    REPRISE_UNREACHABLE(std::string(get_row(node.op).text) + " is no expression");
  }

  const Kernel& kernel_;
  CppMath math_;
  Analysis analysis_;
  Numbering numbering_;
  std::vector<int> slot_counts_;  // partial values of an accumulator; by node
  std::string text_;
};

}  // namespace

std::set<CppImport> find_cpp_imports(const kernel::Kernel& kernel) {
  std::set<CppImport> imports;
  for (const VectorCall& call : kernel.calls) imports.insert({call.function, kernel.get(call.operand).dtype, true});
  for (const Node& node : kernel.nodes) {
    if (node.op != ScalarOp::Math || Kernel::get_numerics(node) == Numerics::Libm) continue;
    imports.insert({Kernel::get_math_function(node), node.dtype, is_vml(node)});
  }
  return imports;
}

std::string print_cpp(const kernel::Kernel& kernel, const std::string& symbol, CppMath math) {
  return CppPrinter(kernel, math).print(symbol);
}

}  // namespace reprise::codegen
