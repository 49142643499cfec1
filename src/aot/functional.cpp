#include "aot/functional.h"

#include <algorithm>

#include "passes/functionalise.h"

namespace reprise::aot {

using graph::ValueId;

base::Result<FunctionalRegion> make_functional(const RegionTrace& trace) {
  FunctionalRegion result{trace.graph, {}, trace.forward_value_count};
  // The pass looks at what the outputs of every kind are.
  for (size_t i = 0; i < trace.output_values.size(); i++) result.graph.outputs[i].value = trace.output_values[i];
  if (auto refused = passes::functionalise(result.graph)) return *std::move(refused);
  for (const graph::Node& node : result.graph.nodes) {
    if (node.phase != graph::Phase::Forward) continue;
    graph::for_each_result(node, [&](ValueId id) { result.forward_results.push_back(id); });
  }
  return result;
}

std::optional<std::vector<ValueId>> translate_values(const std::vector<ValueId>& values, const FunctionalRegion& from,
                                                     const FunctionalRegion& to) {
  if (from.forward_results.size() != to.forward_results.size()) return std::nullopt;
  std::vector<int32_t> place(from.graph.values.size(), -1);
  for (size_t i = 0; i < from.forward_results.size(); i++) {
    place[from.forward_results[i].index()] = static_cast<int32_t>(i);
  }
  std::vector<ValueId> result;
  for (const ValueId value : values) {
    const int32_t index = place[value.index()];
    if (index < 0 && value.index() >= from.forward_value_count) return std::nullopt;
    result.push_back(index < 0 ? value : to.forward_results[static_cast<size_t>(index)]);
  }
  return result;
}

}  // namespace reprise::aot
