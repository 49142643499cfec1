// Rewriter: one walk over the nodes of a functional graph that keeps, replaces or drops each.
//
//   Rewriter rewriter(graph);
//   for (node of rewriter.take_nodes()) { rewriter.map(node); ...; rewriter.keep(node) or rewriter.replace(old, by); }
//   rewriter.finish();
//
// A value may be replaced by another one that was computed before, or by a constant argument; later nodes and the roots
// see the replacement (of roots only values can be replaced by values). Producers are right for kept nodes during the
// walk. One graph, one thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "graph/graph.h"
#include "graph/rules.h"

namespace reprise::passes {

class Rewriter {
 public:
  explicit Rewriter(graph::Graph& graph);

  // The nodes as they were; the graph's list is empty now and grows by keep() and emit().
  std::span<const graph::Node> old_nodes() const { return old_; }

  // With replaced arguments. The results of a view op get the memory of the replacement.
  graph::Node map(const graph::Node& node);
  graph::NodeId keep(const graph::Node& node);
  void replace(graph::ValueId old, graph::ValueId by);
  void replace(graph::ValueId old, graph::Arg constant);

  // Appends a node with metadata from the rules, in the phase and with the source of `like`. Nothing if the op has no
  // rule for these arguments.
  std::optional<graph::ValueId> emit(const graph::Node& like, graph::OpId op, std::span<const graph::Arg> args);
  // Infers only; the results are in rules().
  bool infer(graph::OpId op, std::span<const graph::Arg> args) { return graph::infer(op, args, rules_); }
  const graph::RuleCall& rules() const { return rules_; }

  // The node that computes the value, or nullptr (inputs, constants).
  const graph::Node* find_producer(graph::ValueId id) const;
  // Whether the value, or another one on its memory, is an output, an effect, a gradient or saved. Two roots that were
  // tensors of their own must stay so, and must not become (views of) inputs.
  bool is_root_memory(graph::ValueId id) const;

  void finish();

 private:
  void move_views(const graph::Node& node);
  void mark_root(graph::ValueId id);

  graph::Graph& graph_;
  graph::Context& context_;
  std::vector<graph::Node> old_;
  std::vector<graph::Arg> replacements_;  // by value; none: itself
  std::vector<bool> is_root_;             // by value
  std::vector<bool> is_root_storage_;
  graph::RuleCall rules_;
};

// The same sizes, strides, offset, dtype, device and flags.
bool is_same_layout(const graph::TensorMeta& a, const graph::TensorMeta& b);
bool has_same_sizes(const graph::TensorMeta& a, const graph::TensorMeta& b);

}  // namespace reprise::passes
