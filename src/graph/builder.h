// Builder: appends nodes to a graph with metadata from the rules; for passes, tests and the parser.
//
// call() is an internal error if the op has no rule for these arguments: whoever may meet that uses try_call() or gives
// the metadata (Graph::add_node). New nodes get the builder's phase and source. One thread, one graph.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>

#include "base/export.h"
#include "graph/graph.h"
#include "graph/rules.h"

namespace reprise::graph {

class REPRISE_EXPORT Builder {
 public:
  explicit Builder(Graph& graph);

  Graph& graph() { return graph_; }
  Context& context() { return *graph_.context; }

  Phase phase = Phase::Forward;
  SourceId source;

  // Appends the node. In the recorded form, what the op writes (its row in ops.def) goes to `mut`; in the functional
  // form the op must not write. The id is the node's.
  NodeId call(OpId op, std::span<const Arg> args);
  NodeId call(OpId op, std::initializer_list<Arg> args) { return call(op, std::span(args.begin(), args.size())); }
  std::optional<NodeId> try_call(OpId op, std::span<const Arg> args);
  // The only result of the appended node.
  ValueId call_single(OpId op, std::initializer_list<Arg> args);

  // Contiguous tensors on the CPU.
  ValueId add_input(std::span<const sym::Int> sizes, types::DType dtype, InputKind kind = InputKind::Plain);
  ValueId add_input(std::initializer_list<sym::Int> sizes, types::DType dtype, InputKind kind = InputKind::Plain) {
    return add_input(std::span(sizes.begin(), sizes.size()), dtype, kind);
  }
  void add_output(ValueId value) { graph_.outputs.push_back({OutputKind::Value, value, 0, graph_.get_meta(value)}); }

 private:
  ValueId add_result(const ResultMeta& result);

  Graph& graph_;
  RuleCall rule_call_;
  std::vector<ValueId> outs_;
};

}  // namespace reprise::graph
