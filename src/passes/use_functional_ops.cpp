#include "passes/use_functional_ops.h"

#include "passes/rewriter.h"

namespace reprise::passes {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::OpId;
using graph::ResultKind;
using graph::TensorMeta;
using graph::ValueId;

namespace {

class FunctionalOps {
 public:
  explicit FunctionalOps(Graph& graph) : graph_(graph), context_(*graph.context), rewriter_(graph) {}

  void run() {
    for (const Node& old : rewriter_.old_nodes()) {
      const Node node = rewriter_.map(old);
      const bool is_rewritten =
          node.mut == 1 && (rewrite_overwriting(node) || rewrite_foreach_zero(node) || rewrite_to_twin(node));
      if (!is_rewritten) rewriter_.keep(node);
    }
    rewriter_.finish();
  }

 private:
  // op_(self, ...) => new -> new = op(self, ...)
  bool rewrite_to_twin(const Node& node) {
    const std::optional<OpId> twin = graph::find_functional_op(node.op);
    if (!twin || !rewriter_.infer(*twin, node.args)) return false;
    const auto results = rewriter_.rules().results();
    if (results.size() != node.new_values.size()) return false;
    for (std::size_t i = 0; i < results.size(); ++i) {
      TensorMeta meta = results[i].meta;
      if (results[i].kind != ResultKind::Fresh || !is_same_layout(meta, graph_.get_meta(node.new_values[i])))
        return false;
    }
    // Other results than the written argument itself: not seen here.
    for (const ValueId out : node.outs) {
      if (out.is_valid()) return false;
    }
    Node functional = node;
    functional.op = *twin;
    functional.mut = 0;
    functional.returns = context_.arena().copy(rewriter_.rules().returns());
    functional.outs = node.new_values;
    functional.new_values = {};
    rewriter_.keep(functional);
    return true;
  }

  // What does not read the old contents.
  bool rewrite_overwriting(const Node& node) {
    const bool is_overwriting = graph::has_flag(node.op, graph::kOverwrites) && node.new_values.size() == 1;
    if (!is_overwriting || (node.op != OpId::zero_ && node.args.size() < 2)) return false;
    const TensorMeta meta = graph_.get_meta(node.new_values[0]);
    switch (node.op) {
      case OpId::zero_:
        return emit_full(node, meta, make_zero(meta));
      case OpId::fill__Scalar:
        return emit_full(node, meta, node.args[1]);
      case OpId::copy_:
        return emit_copy(node, meta);
      default:
        return false;
    }
  }

  // _foreach_zero_([x, y]) => [a, b] -> a = full(sizes of x, 0), b = full(sizes of y, 0), if all are contiguous
  bool rewrite_foreach_zero(const Node& node) {
    if (node.op != OpId::_foreach_zero_) return false;
    for (const ValueId id : node.new_values) {
      if (!can_fill(graph_.get_meta(id))) return false;
    }
    const graph::Return single = graph::Return::make_single();
    for (std::size_t i = 0; i < node.new_values.size(); ++i) {
      const TensorMeta meta = graph_.get_meta(node.new_values[i]);
      Node one = node;
      one.returns = context_.arena().copy(std::span<const graph::Return>(&single, 1));
      one.new_values = node.new_values.subspan(i, 1);
      emit_full(one, meta, make_zero(meta));
    }
    return true;
  }

  static Arg make_zero(const TensorMeta& meta) {
    return types::is_integral(meta.dtype) ? Arg::make_int(0) : Arg::make_float(0);
  }

  // zero_(x), fill_(x, c) => new -> new = full(sizes, c), or fill(x, c) if new is not contiguous
  bool emit_full(const Node& node, const TensorMeta& meta, const Arg& number) {
    const Arg args[] = {context_.make_int_list(meta.sizes()), number,
                        Arg::make_dtype(meta.dtype),          Arg::make_none(),
                        Arg::make_device(meta.device),        Arg::make_none()};
    if (try_keep(node, OpId::full, args, meta)) return true;
    const Arg fill[] = {node.args[0], number};
    return try_keep(node, OpId::fill_Scalar, fill, meta);
  }

  // copy_(x, y) => new -> new = clone(y) or _to_copy(y), of y expanded to x's sizes
  bool emit_copy(const Node& node, const TensorMeta& meta) {
    if (node.args.size() < 3 || !node.args[1].is_value() ||
        graph_.get_value(node.args[1].get_value()).kind != graph::ValueKind::Tensor)
      return false;
    ValueId from = node.args[1].get_value();
    const TensorMeta source = graph_.get_meta(from);
    if (source.flags != graph::kNoTensorFlags || meta.flags != graph::kNoTensorFlags) return false;
    if (!has_same_sizes(source, meta)) {
      const Arg expand[] = {Arg::make_value(from), context_.make_int_list(meta.sizes()), Arg::make_bool(false)};
      if (!can_fill(meta)) return false;
      const std::optional<ValueId> expanded = rewriter_.emit(node, OpId::expand, expand);
      if (!expanded) return false;
      from = *expanded;
    }
    const bool is_converted = source.dtype != meta.dtype || source.device != meta.device;
    for (const Arg& format : {Arg::make_none(), Arg::make_memory_format(graph::MemoryFormat::Contiguous)}) {
      const Arg clone[] = {Arg::make_value(from), format};
      const Arg convert[] = {Arg::make_value(from),
                             Arg::make_dtype(meta.dtype),
                             Arg::make_none(),
                             Arg::make_device(meta.device),
                             Arg::make_none(),
                             node.args[2],
                             format};
      if (is_converted ? try_keep(node, OpId::_to_copy, convert, meta) : try_keep(node, OpId::clone, clone, meta))
        return true;
    }
    return false;
  }

  // Whether a new contiguous tensor has the wanted layout.
  bool can_fill(const TensorMeta& meta) {
    const Arg full[] = {context_.make_int_list(meta.sizes()), Arg::make_int(0),
                        Arg::make_dtype(meta.dtype),          Arg::make_none(),
                        Arg::make_device(meta.device),        Arg::make_none()};
    return rewriter_.infer(OpId::full, full) && is_same_layout(rewriter_.rules().results()[0].meta, meta);
  }

  // Keeps op(args) as the producer of the node's new value, if its result has that layout.
  bool try_keep(const Node& node, OpId op, std::span<const Arg> args, const TensorMeta& meta) {
    if (!rewriter_.infer(op, args)) return false;
    const auto results = rewriter_.rules().results();
    if (results.size() != 1 || results[0].kind != ResultKind::Fresh || !is_same_layout(results[0].meta, meta))
      return false;
    Node functional = node;
    functional.op = op;
    functional.mut = 0;
    functional.args = context_.arena().copy(args);
    functional.returns = context_.arena().copy(rewriter_.rules().returns());
    functional.outs = node.new_values;
    functional.new_values = {};
    rewriter_.keep(functional);
    return true;
  }

  Graph& graph_;
  graph::Context& context_;
  Rewriter rewriter_;
};

}  // namespace

std::optional<base::Unsupported> use_functional_ops(Graph& graph) {
  FunctionalOps(graph).run();
  return std::nullopt;
}

}  // namespace reprise::passes
