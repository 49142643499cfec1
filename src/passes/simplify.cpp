#include "passes/simplify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "graph/evaluate.h"
#include "passes/kept_copies.h"
#include "passes/rewriter.h"

namespace reprise::passes {

using graph::Arg;
using graph::ArgKind;
using graph::Graph;
using graph::Node;
using graph::OpId;
using graph::TensorMeta;
using graph::ValueId;
using graph::ValueKind;

namespace {

bool is_number(const Arg& arg, double number) {
  switch (arg.kind()) {
    case ArgKind::Int:
      return arg.get_int() == sym::Int(static_cast<std::int64_t>(number)) && !(number == 0 && std::signbit(number));
    case ArgKind::Float:
      return std::bit_cast<std::uint64_t>(arg.get_float()) == std::bit_cast<std::uint64_t>(number);
    default:
      return false;
  }
}

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph), rewriter_(graph), kept_copies_(graph, rewriter_.old_nodes()) {}

  void run() {
    for (const Node& old : rewriter_.old_nodes()) {
      const Node node = rewriter_.map(old);
      if (node.outs.size() == 1 && node.outs[0].is_valid() && node.mut == 0) {
        if (const std::optional<Arg> constant = find_constant(node)) {
          rewriter_.replace(node.outs[0], *constant);
          continue;
        }
        if (const ValueId same = find_same(node); same.is_valid()) {
          rewriter_.replace(node.outs[0], same);
          continue;
        }
      }
      rewriter_.keep(node);
    }
    rewriter_.finish();
  }

 private:
  const TensorMeta& meta_of(const Node& node) const { return graph_.get_meta(node.outs[0]); }

  bool is_tensor(const Arg& arg) const {
    return arg.is_value() && graph_.get_value(arg.get_value()).kind == ValueKind::Tensor;
  }

  // The argument, if the result may be taken for it: the same layout, and a fresh tensor is not asked for.
  ValueId take(const Node& node, const Arg& arg) const {
    if (!is_tensor(arg) || rewriter_.is_root_memory(node.outs[0])) return {};
    const TensorMeta& from = graph_.get_meta(arg.get_value());
    const TensorMeta& to = meta_of(node);
    if (node.phase == graph::Phase::Forward && kept_copies_.are_apart(from, to)) return {};
    return is_same_layout(from, to) ? arg.get_value() : ValueId();
  }

  const Node* find_producer(const Arg& arg, OpId op) const {
    if (!is_tensor(arg)) return nullptr;
    const Node* producer = rewriter_.find_producer(arg.get_value());
    return producer != nullptr && producer->op == op ? producer : nullptr;
  }

  ValueId find_same(const Node& node) const {
    const bool is_float =
        graph_.get_value(node.outs[0]).kind == ValueKind::Tensor && types::is_float(meta_of(node).dtype);
    std::array<Arg, 3> args;  // none for those that are not there
    std::copy_n(node.args.begin(), std::min<std::size_t>(node.args.size(), 3), args.begin());
    switch (node.op) {
      // x*1 -> x
      case OpId::mul_Tensor:
      case OpId::mul_Scalar:
        if (is_number(args[1], 1)) return take(node, args[0]);
        if (is_number(args[0], 1)) return take(node, args[1]);
        return {};
      // x/1 -> x
      case OpId::div_Tensor:
      case OpId::div_Scalar:
        return is_number(args[1], 1) ? take(node, args[0]) : ValueId();
      // x + -0.0 -> x; of integers x + 0 -> x. (-0.0 + 0.0 is 0.0.)
      case OpId::add_Tensor:
      case OpId::add_Scalar:
        if (!is_number(args[2], 1)) return {};
        return is_number(args[1], -0.0) || (!is_float && is_number(args[1], 0)) ? take(node, args[0]) : ValueId();
      // x - 0 -> x
      case OpId::sub_Tensor:
      case OpId::sub_Scalar:
        return is_number(args[1], 0) && is_number(args[2], 1) ? take(node, args[0]) : ValueId();
      // x**1 -> x
      case OpId::pow_Tensor_Scalar:
        return is_number(args[1], 1) ? take(node, args[0]) : ValueId();
      // -(-x) -> x
      case OpId::neg:
        if (const Node* inner = find_producer(args[0], OpId::neg)) return take(node, inner->args[0]);
        return {};
      // !!x -> x, for bool
      case OpId::logical_not:
        if (const Node* inner = find_producer(args[0], OpId::logical_not)) return take(node, inner->args[0]);
        return {};
      // relu(relu(x)) -> relu(x)
      case OpId::relu:
        return find_producer(args[0], OpId::relu) != nullptr ? take(node, args[0]) : ValueId();
      // where(c, x, x) -> x
      case OpId::where_self:
        return graph::is_same_arg(args[1], args[2]) ? take(node, args[1]) : ValueId();
      // A copy that is like the original.
      case OpId::clone:
        return take(node, args[0]);
      // ... or the way back from a wider type.
      case OpId::_to_copy:
        if (const ValueId same = take(node, args[0]); same.is_valid()) return same;
        if (const Node* inner = find_producer(args[0], OpId::_to_copy)) {
          const bool is_exact = is_tensor(inner->args[0]) &&
                                is_widened(graph_.get_meta(inner->args[0].get_value()).dtype, meta_of(*inner).dtype);
          if (is_exact) return take(node, inner->args[0]);
        }
        return {};
      default:
        return {};
    }
  }

  // Every value of `from` is one of `to`.
  static bool is_widened(types::DType from, types::DType to) {
    using types::DType;
    if (from == to) return true;
    if (from == DType::Float16 || from == DType::BFloat16) return to == DType::Float32 || to == DType::Float64;
    if (from == DType::Float32) return to == DType::Float64;
    if (from == DType::Int32) return to == DType::Int64 || to == DType::Float64;
    if (from == DType::Bool) return true;
    return false;
  }

  // A number that is known now.
  std::optional<Arg> find_constant(const Node& node) const {
    if (graph_.get_value(node.outs[0]).kind == ValueKind::Tensor || rewriter_.is_root_memory(node.outs[0]))
      return std::nullopt;
    // item(scalar_tensor(c)) -> c, item(full(sizes, c)) -> c, for a c of the tensor's kind
    if (node.op == OpId::scalar_item || node.op == OpId::_local_scalar_dense) {
      const Node* filled = find_producer(node.args[0], OpId::scalar_tensor);
      const Arg* number = filled != nullptr ? &filled->args[0] : nullptr;
      if (filled == nullptr) {
        filled = find_producer(node.args[0], OpId::full);
        if (filled != nullptr) number = &filled->args[1];
      }
      if (number == nullptr) return std::nullopt;
      const types::DType dtype = graph_.get_meta(node.args[0].get_value()).dtype;
      const bool is_kept = (number->kind() == ArgKind::Float && dtype == types::DType::Float64) ||
                           (number->kind() == ArgKind::Int && dtype == types::DType::Int64) ||
                           (number->kind() == ArgKind::Bool && dtype == types::DType::Bool);
      return is_kept ? std::optional(*number) : std::nullopt;
    }
    return graph::fold_scalar(node.op, node.args);
  }

  Graph& graph_;
  Rewriter rewriter_;
  KeptCopies kept_copies_;
};

}  // namespace

std::optional<base::Unsupported> simplify(Graph& graph) {
  Simplifier(graph).run();
  return std::nullopt;
}

}  // namespace reprise::passes
