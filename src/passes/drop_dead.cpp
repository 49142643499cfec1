#include "passes/drop_dead.h"

#include <algorithm>

namespace reprise::passes {

using graph::Node;
using graph::ValueId;

bool is_root(const Node& node) {
  const bool has_results = !node.outs.empty() || !node.new_values.empty();
  return !has_results || graph::has_flag(node.op, graph::kRandom) || graph::has_flag(node.op, graph::kRoot);
}

std::optional<base::Unsupported> drop_dead(graph::Graph& graph) {
  std::vector<bool> is_live(graph.values.size(), false);
  graph::for_each_root(graph, [&](ValueId& id) { is_live[id.index()] = true; });
  std::vector<bool> is_kept(graph.nodes.size(), false);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool lives = is_root(node);
    graph::for_each_result(node, [&](ValueId id) { lives = lives || is_live[id.index()]; });
    if (!lives) continue;
    is_kept[i] = true;
    graph::for_each_use(node, [&](ValueId id) { is_live[id.index()] = true; });
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (is_kept[i]) graph.nodes[count++] = graph.nodes[i];
  }
  graph.nodes.resize(count);
  graph.reset_producers();
  return std::nullopt;
}

}  // namespace reprise::passes
