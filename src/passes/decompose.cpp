#include "passes/decompose.h"

#include "passes/rewriter.h"

namespace reprise::passes {

using graph::Arg;
using graph::Context;
using graph::Graph;
using graph::Node;
using graph::OpId;
using graph::TensorMeta;
using graph::ValueId;

namespace {

struct Call {
  Graph& graph;
  Context& context;
  Rewriter& rewriter;
  const Node& node;

  const TensorMeta& meta() const { return graph.get_meta(node.outs[0]); }
  std::span<const Arg> args() const { return node.args; }
  std::optional<ValueId> emit(OpId op, std::initializer_list<Arg> arguments) const {
    return rewriter.emit(node, op, std::span(arguments.begin(), arguments.size()));
  }
  // The only result is `by`, if that has the same layout.
  bool finish(std::optional<ValueId> by) const {
    if (!by || !is_same_layout(graph.get_meta(*by), meta())) return false;
    rewriter.replace(node.outs[0], *by);
    return true;
  }
  std::optional<ValueId> emit_full(std::span<const sym::Int> sizes, const Arg& number, const TensorMeta& like) const {
    return emit(OpId::full, {context.make_int_list(sizes), number, Arg::make_dtype(like.dtype), Arg::make_none(),
                             Arg::make_device(like.device), Arg::make_none()});
  }
};

Arg make_number(const TensorMeta& meta, int number) {
  if (types::is_integral(meta.dtype)) return Arg::make_int(number);
  return Arg::make_float(number);
}

bool decompose_rsub(const Call& call) {
  const Arg& other = call.args()[1];
  const Arg first = other.is_number() ? other.as_wrapped() : other;
  return call.finish(call.emit(OpId::sub_Tensor, {first, call.args()[0], call.args()[2]}));
}

bool decompose_hardtanh(const Call& call) {
  return call.finish(call.emit(OpId::clamp, {call.args()[0], call.args()[1], call.args()[2]}));
}

bool decompose_std(const Call& call) {
  const auto variance = call.rewriter.emit(call.node, OpId::var_correction, call.args());
  return variance && call.finish(call.emit(OpId::sqrt, {Arg::make_value(*variance)}));
}

bool decompose_filled(const Call& call) {
  Arg number = make_number(call.meta(), 0);
  switch (call.node.op) {
    case OpId::ones:
    case OpId::ones_like:
    case OpId::new_ones:
      number = make_number(call.meta(), 1);
      break;
    case OpId::full_like:
      number = call.args()[1];
      break;
    case OpId::new_full:
      number = call.args()[2];
      break;
    default:
      break;
  }
  if (types::is_complex(call.meta().dtype)) return false;
  return call.finish(call.emit_full(call.meta().sizes(), number, call.meta()));
}

// (grad, sizes, dim, index)
bool decompose_select_backward(const Call& call) {
  const auto zeros = call.emit_full(call.meta().sizes(), make_number(call.meta(), 0), call.meta());
  return zeros && call.finish(call.emit(OpId::select_scatter,
                                        {Arg::make_value(*zeros), call.args()[0], call.args()[2], call.args()[3]}));
}

// (grad, sizes, dim, start, end, step)
bool decompose_slice_backward(const Call& call) {
  const auto zeros = call.emit_full(call.meta().sizes(), make_number(call.meta(), 0), call.meta());
  return zeros && call.finish(call.emit(OpId::slice_scatter, {Arg::make_value(*zeros), call.args()[0], call.args()[2],
                                                              call.args()[3], call.args()[4], call.args()[5]}));
}

// (tensors, dim)
bool decompose_stack(const Call& call) {
  const std::int64_t rank = call.meta().rank;
  std::int64_t dim = call.args()[1].get_int().get_constant();
  if (dim < 0) dim += rank;
  std::vector<Arg> parts;
  for (const Arg& tensor : call.args()[0].get_list()) {
    const auto part = call.emit(OpId::unsqueeze, {tensor, Arg::make_int(dim)});
    if (!part) return false;
    parts.push_back(Arg::make_value(*part));
  }
  return call.finish(call.emit(OpId::cat, {call.context.make_list(parts), Arg::make_int(dim)}));
}

bool decompose_view_copy(const Call& call) {
  const auto view = call.emit(OpId::view, {call.args()[0], call.args()[1]});
  return view && call.finish(call.emit(
                     OpId::clone, {Arg::make_value(*view), Arg::make_memory_format(graph::MemoryFormat::Contiguous)}));
}

// (self, size or sizes, dim)
bool decompose_split(const Call& call) {
  const std::int64_t rank = call.meta().rank;
  std::int64_t dim = call.args()[2].get_int().get_constant();
  if (dim < 0) dim += rank;
  sym::Context& symbols = call.context.symbols();
  sym::Int start = 0;
  for (const ValueId out : call.node.outs) {
    const TensorMeta meta = call.graph.get_meta(out);
    const sym::Int end = symbols.add(start, meta.sizes()[static_cast<std::size_t>(dim)]);
    const auto part = call.emit(OpId::slice_Tensor, {call.args()[0], Arg::make_int(dim), Arg::make_int(start),
                                                     Arg::make_int(end), Arg::make_int(1)});
    if (!part || !is_same_layout(call.graph.get_meta(*part), meta)) return false;
    call.rewriter.replace(out, *part);
    start = end;
  }
  return true;
}

// (self, dim)
bool decompose_unbind(const Call& call) {
  std::int64_t index = 0;
  for (const ValueId out : call.node.outs) {
    const TensorMeta meta = call.graph.get_meta(out);
    const auto part = call.emit(OpId::select_int, {call.args()[0], call.args()[1], Arg::make_int(index++)});
    if (!part || !is_same_layout(call.graph.get_meta(*part), meta)) return false;
    call.rewriter.replace(out, *part);
  }
  return true;
}

// Element i of every list.
bool decompose_foreach(const Call& call, OpId op, bool adds_alpha) {
  std::vector<std::optional<ValueId>> parts;
  for (std::size_t i = 0; i < call.node.outs.size(); ++i) {
    std::vector<Arg> args;
    for (const Arg& arg : call.args()) args.push_back(arg.is_list() ? arg.get_list()[i] : arg);
    if (adds_alpha) args.push_back(Arg::make_int(1));
    // A number of Python in the place of a tensor is a wrapped one.
    parts.push_back(call.rewriter.emit(call.node, op, args));
    if (!parts.back() || !is_same_layout(call.graph.get_meta(*parts.back()), call.graph.get_meta(call.node.outs[i])))
      return false;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) call.rewriter.replace(call.node.outs[i], *parts[i]);
  return true;
}

bool decompose_node(const Call& call) {
  switch (call.node.op) {
#define X(op, function, doc) \
  case OpId::op:             \
    return function(call);
#include "passes/decompositions.def"
#undef X
#define X(list_op, op, added) \
  case OpId::list_op:         \
    return decompose_foreach(call, OpId::op, added);
#include "passes/foreach_ops.def"
#undef X
    default:
      return false;
  }
}

}  // namespace

std::optional<base::Unsupported> decompose(Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& old : rewriter.old_nodes()) {
    const Node node = rewriter.map(old);
    bool is_plain = node.mut == 0 && !node.outs.empty();
    for (const ValueId out : node.outs) is_plain = is_plain && out.is_valid();
    if (!is_plain || !decompose_node({graph, *graph.context, rewriter, node})) rewriter.keep(node);
  }
  rewriter.finish();
  return std::nullopt;
}

}  // namespace reprise::passes
