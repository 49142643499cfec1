#include "passes/fold_views.h"

#include "passes/rewriter.h"

namespace reprise::passes {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::OpId;
using graph::TensorMeta;
using graph::ValueId;

namespace {

constexpr int kMostLevels = 8;

bool is_reshape(OpId op) {
  return op == OpId::view || op == OpId::_unsafe_view || op == OpId::unsqueeze || op == OpId::squeeze ||
         op == OpId::squeeze_dim || op == OpId::squeeze_dims || op == OpId::_reshape_alias;
}

bool is_permutation(OpId op) { return op == OpId::permute || op == OpId::transpose_int || op == OpId::t; }

class ViewFolder {
 public:
  explicit ViewFolder(Graph& graph) : graph_(graph), context_(*graph.context), rewriter_(graph) {}

  void run() {
    for (const Node& old : rewriter_.old_nodes()) {
      Node node = rewriter_.map(old);
      const bool is_candidate = graph::is_view(node.op) && node.outs.size() == 1 && node.args[0].is_value();
      if (is_candidate) {
        if (const ValueId same = find_same_above(node); same.is_valid()) {
          rewriter_.replace(node.outs[0], same);
          continue;
        }
        node = shorten(node);
      }
      rewriter_.keep(node);
    }
    rewriter_.finish();
  }

 private:
  const Node* find_view_producer(ValueId id) const {
    const Node* producer = rewriter_.find_producer(id);
    return producer != nullptr && graph::is_view(producer->op) && producer->args[0].is_value() ? producer : nullptr;
  }

  // view(...view(x)) -> x, if it has x's metadata
  ValueId find_same_above(const Node& node) const {
    const TensorMeta& meta = graph_.get_meta(node.outs[0]);
    ValueId at = node.args[0].get_value();
    for (int level = 0; level < kMostLevels; ++level) {
      if (is_same_layout(graph_.get_meta(at), meta)) return at;
      const Node* producer = find_view_producer(at);
      if (producer == nullptr) break;
      at = producer->args[0].get_value();
    }
    return {};
  }

  Node shorten(const Node& node) {
    Node shorter = node;
    const Node* inner = find_view_producer(node.args[0].get_value());
    if (is_reshape(node.op)) {
      // reshape(reshape(x)) -> view(x, sizes)
      ValueId from = node.args[0].get_value();
      while (inner != nullptr && is_reshape(inner->op)) {
        if (!has_result(OpId::view, make_view_args(inner->args[0].get_value(), node), node)) break;
        from = inner->args[0].get_value();
        inner = find_view_producer(from);
      }
      const std::vector<Arg> args = make_view_args(from, node);
      if (has_result(OpId::view, args, node)) set(shorter, OpId::view, args);
    } else if (is_permutation(node.op) && inner != nullptr && is_permutation(inner->op)) {
      // permute(permute(x, p), q) -> permute(x, p[q])
      const std::vector<std::int64_t> outer_order = get_order(node);
      const std::vector<std::int64_t> inner_order = get_order(*inner);
      std::vector<sym::Int> order;
      for (const std::int64_t d : outer_order) order.push_back(inner_order[static_cast<std::size_t>(d)]);
      const Arg args[] = {inner->args[0], context_.make_int_list(order)};
      if (has_result(OpId::permute, args, node)) set(shorter, OpId::permute, args);
    }
    return shorter;
  }

  std::vector<Arg> make_view_args(ValueId from, const Node& node) {
    return {Arg::make_value(from), context_.make_int_list(graph_.get_meta(node.outs[0]).sizes())};
  }

  bool has_result(OpId op, std::span<const Arg> args, const Node& node) {
    return rewriter_.infer(op, args) && rewriter_.rules().results().size() == 1 &&
           is_same_layout(rewriter_.rules().results()[0].meta, graph_.get_meta(node.outs[0]));
  }

  void set(Node& node, OpId op, std::span<const Arg> args) {
    node.op = op;
    node.args = context_.arena().copy(args);
  }

  // Dimension i of the result is dimension order[i] of the argument.
  std::vector<std::int64_t> get_order(const Node& node) const {
    const std::int64_t rank = graph_.get_meta(node.outs[0]).rank;
    std::vector<std::int64_t> order;
    const auto wrap = [&](const Arg& arg) {
      const std::int64_t d = arg.get_int().get_constant();
      return d < 0 ? d + rank : d;
    };
    if (node.op == OpId::permute) {
      for (const Arg& dim : node.args[1].get_list()) order.push_back(wrap(dim));
      return order;
    }
    for (std::int64_t i = 0; i < rank; ++i) order.push_back(i);
    if (rank < 2) return order;
    const std::int64_t a = node.op == OpId::t ? 0 : wrap(node.args[1]);
    const std::int64_t b = node.op == OpId::t ? 1 : wrap(node.args[2]);
    std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
    return order;
  }

  Graph& graph_;
  graph::Context& context_;
  Rewriter rewriter_;
};

}  // namespace

std::optional<base::Unsupported> fold_views(Graph& graph) {
  ViewFolder(graph).run();
  return std::nullopt;
}

}  // namespace reprise::passes
