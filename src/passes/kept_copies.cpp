#include "passes/kept_copies.h"

namespace reprise::passes {

using graph::Graph;
using graph::Node;
using graph::TensorMeta;
using graph::ValueId;

namespace {

bool has(const std::vector<bool>& marks, const TensorMeta& meta) {
  return meta.storage.index() < marks.size() && marks[meta.storage.index()];
}

void mark(std::vector<bool>& marks, const TensorMeta& meta) {
  if (meta.storage.index() >= marks.size()) marks.resize(meta.storage.index() + 1, false);
  marks[meta.storage.index()] = true;
}

}  // namespace

KeptCopies::KeptCopies(const Graph& graph, std::span<const Node> nodes) {
  if (graph.gradients.empty()) return;
  const auto mark_value = [&](std::vector<bool>& marks, ValueId id) {
    if (id.is_valid() && graph.get_value(id).kind == graph::ValueKind::Tensor) mark(marks, graph.get_meta(id));
  };
  for (const graph::Input& input : graph.inputs) mark_value(is_shared_, input.value);
  for (const graph::Output& output : graph.outputs) mark_value(is_shared_, output.value);
  for (const Node& node : nodes) {
    if (node.phase != graph::Phase::Backward) continue;
    graph::for_each_use(node, [&](ValueId id) { mark_value(is_for_backward_, id); });
  }
}

bool KeptCopies::are_apart(const TensorMeta& a, const TensorMeta& b) const {
  if (a.storage == b.storage) return false;
  return (has(is_shared_, a) && has(is_for_backward_, b)) || (has(is_shared_, b) && has(is_for_backward_, a));
}

void KeptCopies::note_replaced(const TensorMeta& old, const TensorMeta& by) {
  if (has(is_shared_, old)) mark(is_shared_, by);
  if (has(is_for_backward_, old)) mark(is_for_backward_, by);
}

}  // namespace reprise::passes
