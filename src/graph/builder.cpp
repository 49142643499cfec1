#include "graph/builder.h"

#include "base/check.h"
#include "graph/printer.h"

namespace reprise::graph {

Builder::Builder(Graph& graph) : graph_(graph), rule_call_(*graph.context, graph.values) {}

std::optional<NodeId> Builder::try_call(OpId op, std::span<const Arg> args) {
  if (!infer(op, args, rule_call_)) return std::nullopt;
  const std::uint64_t writes = get_writes(op, args);
  REPRISE_CHECK(writes == 0 || graph_.form == Form::Recorded,
                std::string(context().get_op_name(op)) + " writes, the graph is functional");
  outs_.clear();
  for (const ResultMeta& result : rule_call_.results()) outs_.push_back(add_result(result));
  Node node;
  node.op = op;
  node.phase = phase;
  node.mut = writes;
  node.args = args;
  node.returns = rule_call_.returns();
  node.outs = outs_;
  node.source = source;
  return graph_.add_node(node);
}

ValueId Builder::add_result(const ResultMeta& result) {
  switch (result.kind) {
    case ResultKind::None:
      return {};
    case ResultKind::Argument:
      return result.of;
    case ResultKind::View:
      return graph_.add_tensor(result.meta);
    case ResultKind::Number:
      return graph_.add_value(result.number);
    case ResultKind::Fresh: {
      TensorMeta meta = result.meta;
      meta.storage = context().make_storage();
      return graph_.add_tensor(meta);
    }
  }
  REPRISE_UNREACHABLE("result kind " + std::to_string(static_cast<int>(result.kind)));
}

NodeId Builder::call(OpId op, std::span<const Arg> args) {
  const std::optional<NodeId> node = try_call(op, args);
  if (!node) {
    std::string text(context().get_op_name(op));
    for (const Arg& arg : args) text += ' ' + print_arg(context(), arg);
    REPRISE_CHECK(node, "no rule for " + text);
  }
  return *node;
}

ValueId Builder::call_single(OpId op, std::initializer_list<Arg> args) {
  const NodeId node = call(op, args);
  const std::span<const ValueId> outs = graph_.get_node(node).outs;
  REPRISE_CHECK(outs.size() == 1, std::to_string(outs.size()) + " results");
  return outs[0];
}

ValueId Builder::add_input(std::span<const sym::Int> sizes, types::DType dtype, InputKind kind) {
  return graph_.add_input(kind, context().make_meta(sizes, dtype));
}

}  // namespace reprise::graph
