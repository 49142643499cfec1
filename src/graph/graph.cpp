#include "graph/graph.h"

#include <algorithm>

#include "base/check.h"

namespace reprise::graph {

ValueId Graph::add_tensor(const TensorMeta& meta) {
  const ValueId id(static_cast<std::uint32_t>(values.size()));
  Value& value = values.emplace_back();
  value.meta = meta;
  return id;
}

ValueId Graph::add_value(ValueKind kind, sym::Int number) {
  const ValueId id(static_cast<std::uint32_t>(values.size()));
  Value& value = values.emplace_back();
  value.kind = kind;
  value.number = number;
  return id;
}

ValueId Graph::add_input(InputKind kind, const TensorMeta& meta) {
  const ValueId id = add_tensor(meta);
  add_input(kind, id);
  return id;
}

void Graph::add_input(InputKind kind, ValueId value) {
  get_value(value).is_source = true;
  inputs.push_back({value, kind, false});
}

ValueId Graph::add_constant(std::uint32_t host_index, const TensorMeta& meta) {
  const ValueId id = add_tensor(meta);
  get_value(id).is_source = true;
  constants.push_back({id, host_index});
  return id;
}

NodeId Graph::add_node(const Node& node) {
  const NodeId id(static_cast<std::uint32_t>(nodes.size()));
  base::Arena& arena = context->arena();
  Node& added = nodes.emplace_back(node);
  added.args = arena.copy(node.args);
  added.returns = arena.copy(node.returns);
  added.outs = arena.copy(node.outs);
  added.new_values = arena.copy(node.new_values);
  for_each_result(added, [&](ValueId result) {
    Value& value = get_value(result);
    if (!value.producer.is_valid() && !value.is_source) value.producer = id;
  });
  return id;
}

void Graph::reset_producers() {
  for (Value& value : values) value.producer = NodeId();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for_each_result(nodes[i], [&](ValueId result) {
      Value& value = get_value(result);
      if (!value.producer.is_valid() && !value.is_source) value.producer = NodeId(static_cast<std::uint32_t>(i));
    });
  }
}

std::string_view get_op_name(const Graph& graph, const Node& node) { return graph.context->get_op_name(node.op); }

std::string_view get_input_kind_name(InputKind kind) {
  switch (kind) {
#define X(name, text)   \
  case InputKind::name: \
    return text;
#include "graph/input_kinds.def"
#undef X
  }
  REPRISE_UNREACHABLE("input kind " + std::to_string(static_cast<int>(kind)));
}

std::string_view get_effect_name(EffectKind kind) {
  switch (kind) {
#define X(name, text, doc) \
  case EffectKind::name:   \
    return text;
#include "graph/effects.def"
#undef X
  }
  REPRISE_UNREACHABLE("effect kind " + std::to_string(static_cast<int>(kind)));
}

std::vector<std::vector<std::uint32_t>> find_aliased_inputs(const Graph& graph) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.get_value(graph.inputs[i].value).kind == ValueKind::Tensor) order.push_back(i);
  }
  const auto get_storage = [&](std::uint32_t i) { return graph.get_meta(graph.inputs[i].value).storage; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return get_storage(a) < get_storage(b); });
  std::vector<std::vector<std::uint32_t>> groups;
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && get_storage(order[end]) == get_storage(order[first])) ++end;
    if (end - first > 1) groups.emplace_back(order.begin() + first, order.begin() + end);
    first = end;
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace reprise::graph
