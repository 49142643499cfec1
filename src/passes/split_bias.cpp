#include "passes/split_bias.h"

#include "passes/rewriter.h"

namespace reprise::passes {

using graph::Arg;
using graph::ArgKind;
using graph::Graph;
using graph::Node;
using graph::OpId;
using graph::TensorMeta;

namespace {

bool is_one(const Arg& arg) {
  return (arg.kind() == ArgKind::Int && arg.get_int().is_constant(1)) ||
         (arg.kind() == ArgKind::Float && arg.get_float() == 1);
}

class BiasSplitter {
 public:
  BiasSplitter(Graph& graph, const ProductTest& is_split) : graph_(graph), is_split_(is_split), rewriter_(graph) {}

  void run() {
    for (const Node& old : rewriter_.old_nodes()) {
      const Node node = rewriter_.map(old);
      if (!rewrite(node)) rewriter_.keep(node);
    }
    rewriter_.finish();
  }

 private:
  bool rewrite(const Node& node) {
    if ((node.op != OpId::addmm && node.op != OpId::baddbmm) || node.mut != 0) return false;
    for (std::size_t i = 3; i < node.args.size(); ++i) {
      if (!is_one(node.args[i])) return false;
    }
    for (std::size_t i = 0; i < 3; ++i) {
      if (node.args[i].kind() != ArgKind::Value) return false;
    }
    const TensorMeta &a = graph_.get_meta(node.args[1].get_value()), &b = graph_.get_meta(node.args[2].get_value());
    const TensorMeta result = graph_.get_meta(node.outs[0]);
    if (result.dtype != types::DType::Float32 || !is_large(a, b)) return false;
    const auto product = rewriter_.emit(node, node.op == OpId::addmm ? OpId::mm : OpId::bmm, node.args.subspan(1, 2));
    if (!product) return false;
    const Arg args[] = {Arg::make_value(*product), node.args[0], Arg::make_int(1)};
    const auto sum = rewriter_.emit(node, OpId::add_Tensor, args);
    if (!sum) return false;
    rewriter_.replace(node.outs[0], *sum);
    return true;
  }

  bool is_large(const TensorMeta& a, const TensorMeta& b) const {
    for (const TensorMeta* meta : {&a, &b}) {
      for (const sym::Int& size : meta->sizes()) {
        if (!size.is_constant()) return false;
      }
    }
    const std::size_t rank = a.sizes().size();
    const auto size = [](const TensorMeta& meta, std::size_t d) { return meta.sizes()[d].get_constant(); };
    return is_split_(rank == 3 ? size(a, 0) : 1, size(a, rank - 2), size(a, rank - 1), size(b, rank - 1));
  }

  Graph& graph_;
  const ProductTest& is_split_;
  Rewriter rewriter_;
};

}  // namespace

std::optional<base::Unsupported> split_bias(Graph& graph, const ProductTest& is_split) {
  BiasSplitter(graph, is_split).run();
  return std::nullopt;
}

}  // namespace reprise::passes
