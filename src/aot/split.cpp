#include "aot/split.h"

#include <algorithm>

#include "base/check.h"

namespace reprise::aot {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;

namespace {

using Flags = std::vector<uint8_t>;

bool is_root(const Node& node) { return graph::is_random(node.op) || graph::has_flag(node.op, graph::kRoot); }

Graph copy_values(const Graph& joint) {
  Graph result(joint.context);
  result.form = joint.form;
  result.values = joint.values;
  result.constants = joint.constants;
  return result;
}

void drop_unused_constants(Graph& graph) {
  Flags is_used(graph.values.size(), 0);
  for (const Node& node : graph.nodes) graph::for_each_use(node, [&](ValueId id) { is_used[id.index()] = 1; });
  graph::for_each_root(graph, [&](ValueId id) { is_used[id.index()] = 1; });
  std::erase_if(graph.constants, [&](const graph::Constant& constant) { return !is_used[constant.value.index()]; });
}

class Splitter {
 public:
  explicit Splitter(const Graph& joint)
      : joint_(joint),
        producer_(joint.values.size(), -1),
        is_tangent_(joint.values.size(), 0),
        in_forward_(joint.nodes.size(), 0),
        in_backward_(joint.nodes.size(), 0),
        is_needed_(joint.values.size(), 0) {
    for (size_t i = 0; i < joint.nodes.size(); i++) {
      graph::for_each_result(joint.nodes[i], [&](ValueId id) { producer_[id.index()] = static_cast<int32_t>(i); });
    }
    for (const graph::Input& input : joint.inputs) {
      if (input.kind == graph::InputKind::Tangent) is_tangent_[input.value.index()] = 1;
    }
  }

  void find_parts() {
    Flags live(joint_.values.size(), 0);
    for (const graph::Output& output : joint_.outputs) {
      if (output.kind == graph::OutputKind::Value) live[output.value.index()] = 1;
    }
    for (const graph::Effect& effect : joint_.effects) {
      if (effect.value.is_valid()) live[effect.value.index()] = 1;
    }
    sweep(live, Phase::Forward, in_forward_, [](size_t) { return true; });
    std::fill(live.begin(), live.end(), 0);
    for (const graph::Gradient& gradient : joint_.gradients) {
      if (gradient.value.is_valid()) live[gradient.value.index()] = 1;
    }
    sweep(live, Phase::Backward, in_backward_,
          [&](size_t i) { return joint_.nodes[i].phase == Phase::Backward && !in_forward_[i]; });
    // What the backward part uses and does not compute.
    for (size_t i = 0; i < joint_.nodes.size(); i++) {
      if (in_backward_[i]) {
        graph::for_each_use(joint_.nodes[i], [&](ValueId id) { note_need(id); });
      }
    }
    for (const graph::Gradient& gradient : joint_.gradients) {
      if (gradient.value.is_valid()) note_need(gradient.value);
    }
  }

  std::vector<ValueId> choose_saved() {
    Flags is_saved(joint_.values.size(), 0);
    std::vector<ValueId> saved;
    for (size_t i = 0; i < joint_.values.size(); i++) {
      ValueId id(static_cast<uint32_t>(i));
      if (!is_needed_[i] || is_constant(id)) continue;
      while (is_view(id)) id = joint_.nodes[static_cast<size_t>(producer_[id.index()])].args[0].get_value();
      if (is_constant(id) || is_saved[id.index()]) continue;
      is_saved[id.index()] = 1;
      saved.push_back(id);
    }
    return saved;
  }

  // Everything that is needed and not saved is computed from saved values; "" or what is missing.
  std::string make_backward(std::span<const ValueId> saved, Graph& backward) {
    Flags is_saved(joint_.values.size(), 0);
    for (const ValueId id : saved) is_saved[id.index()] = 1;
    Flags wanted = is_needed_;
    Flags is_recomputed(joint_.nodes.size(), 0);
    for (size_t i = joint_.nodes.size(); i-- > 0;) {
      if (in_backward_[i]) continue;
      bool is_wanted = false;
      graph::for_each_result(joint_.nodes[i],
                             [&](ValueId id) { is_wanted |= wanted[id.index()] && !is_saved[id.index()]; });
      if (!is_wanted) continue;
      if (is_root(joint_.nodes[i])) return "the backward would have to draw random numbers again";
      is_recomputed[i] = 1;
      graph::for_each_use(joint_.nodes[i], [&](ValueId id) { wanted[id.index()] = 1; });
    }
    for (size_t i = 0; i < joint_.values.size(); i++) {
      const ValueId id(static_cast<uint32_t>(i));
      if (wanted[i] && !is_saved[i] && producer_[i] < 0 && !is_constant(id) && !is_tangent_[i]) {
        return "the backward needs an input that the forward did not save";
      }
    }
    for (const ValueId id : saved) backward.inputs.push_back({id, graph::InputKind::Saved, false});
    for (const graph::Input& input : joint_.inputs) {
      if (is_tangent_[input.value.index()]) backward.inputs.push_back(input);
    }
    backward.gradients = joint_.gradients;
    place_nodes(is_recomputed, is_saved, backward);
    drop_unused_constants(backward);
    return {};
  }

  void make_forward(std::span<const ValueId> saved, Graph& forward) {
    for (const graph::Input& input : joint_.inputs) {
      if (!is_tangent_[input.value.index()]) forward.inputs.push_back(input);
    }
    forward.outputs = joint_.outputs;
    forward.effects = joint_.effects;
    forward.saved.assign(saved.begin(), saved.end());
    // Saved values may need nodes that the outputs do not.
    Flags live(joint_.values.size(), 0);
    for (const ValueId id : saved) live[id.index()] = 1;
    Flags is_extra(joint_.nodes.size(), 0);
    sweep(live, Phase::Forward, is_extra, [&](size_t i) { return !in_backward_[i]; });
    for (size_t i = 0; i < joint_.nodes.size(); i++) {
      if (in_forward_[i] || is_extra[i]) forward.nodes.push_back(joint_.nodes[i]);
    }
    drop_unused_constants(forward);
  }

  const Flags& in_forward() const { return in_forward_; }

 private:
  // Marks what live values need; roots of the phase are live.
  template <typename Allow>
  void sweep(Flags& live, Phase phase, Flags& marked, Allow&& allow) const {
    for (size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = joint_.nodes[i];
      if (!allow(i)) continue;
      bool is_live = node.phase == phase && is_root(node);
      graph::for_each_result(node, [&](ValueId id) { is_live |= live[id.index()] != 0; });
      if (!is_live) continue;
      marked[i] = 1;
      graph::for_each_use(node, [&](ValueId id) { live[id.index()] = 1; });
    }
  }

  void note_need(ValueId id) {
    const int32_t producer = producer_[id.index()];
    if (!is_tangent_[id.index()] && (producer < 0 || !in_backward_[static_cast<size_t>(producer)])) {
      is_needed_[id.index()] = 1;
    }
  }

  bool is_constant(ValueId id) const {
    if (!joint_.get_value(id).is_source) return false;
    for (const graph::Constant& constant : joint_.constants) {
      if (constant.value == id) return true;
    }
    return false;
  }

  bool is_view(ValueId id) const {
    const int32_t producer = producer_[id.index()];
    if (producer < 0) return false;
    const Node& node = joint_.nodes[static_cast<size_t>(producer)];
    return node.mut == 0 && graph::is_view(node.op) && node.args[0].is_value();
  }

  // Recomputed nodes stand in front of the first node that needs them, so their results live shortly.
  void place_nodes(const Flags& is_recomputed, const Flags& is_saved, Graph& backward) const {
    Flags is_placed(joint_.nodes.size(), 0);
    std::vector<size_t> stack;
    const auto place = [&](size_t start) {
      stack.push_back(start);
      while (!stack.empty()) {
        const size_t i = stack.back();
        bool is_ready = true;
        if (!is_placed[i]) {
          graph::for_each_use(joint_.nodes[i], [&](ValueId id) {
            const int32_t producer = producer_[id.index()];
            if (is_saved[id.index()] || producer < 0) return;
            const auto p = static_cast<size_t>(producer);
            if (!is_recomputed[p] || is_placed[p]) return;
            stack.push_back(p);
            is_ready = false;
          });
        }
        if (!is_ready) continue;
        stack.pop_back();
        if (!is_placed[i]) backward.nodes.push_back(joint_.nodes[i]);
        is_placed[i] = 1;
      }
    };
    for (size_t i = 0; i < joint_.nodes.size(); i++) {
      if (in_backward_[i]) place(i);
    }
    for (const graph::Gradient& gradient : joint_.gradients) {
      if (!gradient.value.is_valid() || is_saved[gradient.value.index()]) continue;
      const int32_t producer = producer_[gradient.value.index()];
      if (producer >= 0 && is_recomputed[static_cast<size_t>(producer)]) place(static_cast<size_t>(producer));
    }
  }

  const Graph& joint_;
  std::vector<int32_t> producer_;
  Flags is_tangent_;
  Flags in_forward_;
  Flags in_backward_;
  Flags is_needed_;  // by the backward, not computed there
};

}  // namespace

Graph make_inference_graph(const Graph& joint) {
  Splitter splitter(joint);
  splitter.find_parts();
  Graph result = copy_values(joint);
  splitter.make_forward({}, result);
  result.reset_producers();
  return result;
}

SplitGraphs split_joint_graph(const Graph& joint) {
  Splitter splitter(joint);
  splitter.find_parts();
  SplitGraphs result{copy_values(joint), copy_values(joint)};
  const std::vector<ValueId> saved = splitter.choose_saved();
  const std::string problem = splitter.make_backward(saved, result.backward);
  REPRISE_CHECK(problem.empty(), problem);
  splitter.make_forward(saved, result.forward);
  for (Graph* graph : {&result.forward, &result.backward}) {
    for (const graph::Input& input : graph->inputs) graph->get_value(input.value).is_source = true;
    graph->reset_producers();
  }
  return result;
}

base::Result<Graph> make_backward_graph(const Graph& joint, std::span<const ValueId> available) {
  Splitter splitter(joint);
  splitter.find_parts();
  Graph result = copy_values(joint);
  std::string problem = splitter.make_backward(available, result);
  if (!problem.empty()) return base::Unsupported{base::UnsupportedCode::UntraceableRegion, std::move(problem)};
  for (const graph::Input& input : result.inputs) result.get_value(input.value).is_source = true;
  result.reset_producers();
  return result;
}

}  // namespace reprise::aot
