#include "aot/split.h"

#include <algorithm>

#include "passes/drop_dead.h"

namespace reprise::aot {

using graph::Graph;
using graph::InputKind;
using graph::ValueId;

base::Result<Graph> make_inference_graph(const Graph& joint) {
  Graph result = joint;
  result.gradients.clear();
  std::erase_if(result.inputs, [](const graph::Input& input) { return input.kind == InputKind::Tangent; });
  // Before dead code goes: random nodes of the backward are roots.
  std::erase_if(result.nodes, [](const graph::Node& node) { return node.phase == graph::Phase::Backward; });
  result.reset_producers();
  if (auto refused = passes::drop_dead(result)) return *std::move(refused);
  return result;
}

base::Result<Graph> make_backward_graph(const Graph& joint, std::span<const ValueId> saved) {
  passes::PartitionOptions options;
  options.available = saved;
  Graph backward = passes::partition_graph(joint, options).backward;
  std::vector<graph::Input> inputs;
  for (const ValueId id : saved) inputs.push_back({id, InputKind::Saved, false});
  for (const graph::Input& input : backward.inputs) {
    if (input.kind == InputKind::Tangent) {
      inputs.push_back(input);
    } else if (std::find(saved.begin(), saved.end(), input.value) == saved.end()) {
      return base::Unsupported{base::UnsupportedCode::UntraceableRegion,
                               "the backward of other tangents needs a value that the forward did not save"};
    }
  }
  backward.inputs = std::move(inputs);
  for (const graph::Input& input : backward.inputs) backward.get_value(input.value).is_source = true;
  backward.reset_producers();
  return backward;
}

}  // namespace reprise::aot
