// How it works.
//
// 1. Forward nodes: those that outputs and effects need, and the roots (random ops) of phase Forward, closed over
//    arguments. Backward nodes: those that gradients need and the roots of phase Backward, that are no forward nodes
//    and of phase Backward.
// 2. Needed values: what backward nodes (and gradients) use and neither tangents, constants nor backward nodes give.
// 3. Saved values are chosen: the roots of needed views, or a minimum cut. In the cut's graph each value of phase
//    Forward is an edge whose capacity is its size in bytes; what cannot be computed again hangs on the source, what
//    the backward needs on the sink, and recomputing a value needs its arguments. An input or an
//    output that the backward does not use itself is never saved: PyTorch would not have kept it, and somebody may
//    write to it before the backward runs.
// 4. From the needed values that are not saved, nodes to compute again are collected, closed over arguments.
// 5. Forward nodes grow by what saved values need. Recomputed nodes stand in the backward where they are first used.
#include "passes/partition.h"

#include <algorithm>

#include "base/check.h"
#include "passes/drop_dead.h"
#include "passes/max_flow.h"

namespace reprise::passes {

using graph::Graph;
using graph::InputKind;
using graph::Node;
using graph::NodeId;
using graph::OpFamily;
using graph::Phase;
using graph::Value;
using graph::ValueId;
using graph::ValueKind;

namespace {

constexpr std::int64_t kUnknownBytes = std::int64_t{1} << 20;

bool is_plain_view(const Node& node) {
  return graph::is_view(node.op) && node.mut == 0 && !node.args.empty() && node.args[0].is_value();
}

// Cheap enough to be computed again, and giving the same bits.
bool can_recompute(const Node& node) {
  if (is_plain_view(node)) return true;
  if (node.mut != 0 || is_root(node) || !graph::is_known(node.op) || graph::has_flag(node.op, graph::kKeep))
    return false;
  switch (graph::get_op_info(node.op).family) {
    case OpFamily::Pointwise:
    case OpFamily::Copy:
    case OpFamily::Factory:
    case OpFamily::Join:
      return true;
    default:
      return false;
  }
}

class Partitioner {
 public:
  Partitioner(const Graph& joint, const PartitionOptions& options)
      : joint_(joint),
        options_(options),
        value_count_(joint.values.size()),
        in_forward_(joint.nodes.size(), false),
        in_backward_(joint.nodes.size(), false),
        is_recomputed_(joint.nodes.size(), false),
        is_needed_(value_count_, false),
        is_saved_(value_count_, false),
        is_given_(value_count_, false),
        is_input_(value_count_, false) {
    for (const graph::Input& input : joint.inputs) {
      (input.kind == InputKind::Tangent ? is_given_ : is_input_)[input.value.index()] = true;
    }
    for (const graph::Constant& constant : joint.constants) is_given_[constant.value.index()] = true;
  }

  Partition run() {
    find_forward();
    find_backward();
    choose_saved();
    find_recomputed();
    const std::vector<ValueId> saved = list_saved();
    extend_forward(saved);
    Partition parts{make_forward(saved), make_backward(saved), 0};
    for (const ValueId id : saved) {
      if (!is_input_[id.index()]) parts.saved_bytes += get_bytes(id);
    }
    return parts;
  }

 private:
  NodeId producer(ValueId id) const { return joint_.get_value(id).producer; }
  bool is_produced_by_backward(ValueId id) const {
    return producer(id).is_valid() && in_backward_[producer(id).index()];
  }

  // Marks nodes from the last to the first: those with a live result, and those that `starts` says. `skips` are none
  // of ours.
  template <class Starts, class Skips>
  std::vector<bool> mark_nodes(std::vector<bool>& is_live, std::vector<bool>& marked, Starts&& starts, Skips&& skips) {
    for (std::size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = joint_.nodes[i];
      if (skips(i)) continue;
      bool lives = marked[i] || starts(node);
      graph::for_each_result(node, [&](ValueId id) { lives = lives || is_live[id.index()]; });
      if (!lives) continue;
      marked[i] = true;
      graph::for_each_use(node, [&](ValueId id) { is_live[id.index()] = true; });
    }
    return is_live;
  }

  void find_forward() {
    std::vector<bool> is_live(value_count_, false);
    for (const graph::Output& output : joint_.outputs) {
      if (output.value.is_valid()) is_live[output.value.index()] = true;
    }
    for (const graph::Effect& effect : joint_.effects) {
      if (effect.value.is_valid()) is_live[effect.value.index()] = true;
    }
    mark_nodes(
        is_live, in_forward_, [](const Node& node) { return node.phase == Phase::Forward && is_root(node); },
        [](std::size_t) { return false; });
  }

  void find_backward() {
    std::vector<bool> is_live(value_count_, false);
    for (const graph::Gradient& gradient : joint_.gradients) {
      if (gradient.value.is_valid()) is_live[gradient.value.index()] = true;
    }
    mark_nodes(
        is_live, in_backward_, [](const Node& node) { return is_root(node); },
        [&](std::size_t i) { return in_forward_[i] || joint_.nodes[i].phase == Phase::Forward; });
    for (std::size_t i = 0; i < value_count_; ++i) {
      const ValueId id(static_cast<std::uint32_t>(i));
      is_needed_[i] = is_live[i] && !is_given_[i] && !is_produced_by_backward(id);
    }
  }

  // The value that a chain of views starts from.
  ValueId find_root(ValueId id) const {
    while (producer(id).is_valid()) {
      const Node& node = joint_.get_node(producer(id));
      if (!is_plain_view(node)) break;
      id = node.args[0].get_value();
    }
    return id;
  }

  void save(ValueId id) {
    const ValueId root = find_root(id);
    if (!is_given_[root.index()]) is_saved_[root.index()] = true;
  }

  void choose_saved() {
    if (!options_.available.empty()) {
      for (const ValueId id : options_.available) is_saved_[id.index()] = true;
      for (std::size_t i = 0; i < value_count_; ++i) is_saved_[i] = is_saved_[i] || is_input_[i];
      return;
    }
    if (options_.mode == PartitionMode::MinCut) {
      choose_by_cut();
      return;
    }
    for (std::size_t i = 0; i < value_count_; ++i) {
      if (is_needed_[i]) save(ValueId(static_cast<std::uint32_t>(i)));
    }
  }

  std::int64_t get_bytes(ValueId id) const {
    const Value& value = joint_.get_value(id);
    if (value.kind != ValueKind::Tensor) return 8;
    sym::Context& symbols = joint_.context->symbols();
    const auto numel = symbols.evaluate_hint(symbols.product(value.meta.sizes()));
    if (!numel) return kUnknownBytes;
    return *numel * static_cast<std::int64_t>(types::get_size_bytes(value.meta.dtype));
  }

  void choose_by_cut() {
    const std::uint32_t source = static_cast<std::uint32_t>(2 * value_count_);
    const std::uint32_t sink = source + 1;
    MaxFlow flow(sink + 1);
    // Only what the needed values depend on is looked at.
    std::vector<bool> is_relevant(is_needed_);
    for (std::size_t i = joint_.nodes.size(); i-- > 0;) {
      bool counts = false;
      graph::for_each_result(joint_.nodes[i], [&](ValueId id) { counts = counts || is_relevant[id.index()]; });
      if (!counts || in_backward_[i]) continue;
      graph::for_each_use(joint_.nodes[i], [&](ValueId id) { is_relevant[id.index()] = true; });
    }
    std::vector<bool> is_saved_anyway(value_count_, false);
    for (std::uint32_t i = 0; i < value_count_; ++i) {
      if (is_needed_[i]) is_saved_anyway[find_root(ValueId(i)).index()] = true;
    }
    std::vector<bool> is_shared(is_input_);
    for (const graph::Output& output : joint_.outputs) {
      if (output.value.is_valid()) is_shared[find_root(output.value).index()] = true;
    }
    for (std::uint32_t i = 0; i < value_count_; ++i) {
      const ValueId id(i);
      if (!is_relevant[i] || is_given_[i]) continue;
      const Node* node = producer(id).is_valid() ? &joint_.get_node(producer(id)) : nullptr;
      const bool is_fixed = node == nullptr || !can_recompute(*node);
      if (is_fixed) flow.add_edge(source, 2 * i, MaxFlow::kInfinite);
      // An input that is saved anyway, in PyTorch too, is nearly free. A view stands for what it is a view of.
      const std::uint32_t root = find_root(id).index();
      std::int64_t capacity = is_input_[i] ? 1 : std::max<std::int64_t>(2, get_bytes(id));
      if (is_shared[root] && !is_saved_anyway[root]) capacity = MaxFlow::kInfinite;
      flow.add_edge(2 * i, 2 * i + 1, capacity);
      if (is_needed_[i]) flow.add_edge(2 * i + 1, sink, MaxFlow::kInfinite);
      if (is_fixed) continue;
      graph::for_each_use(*node, [&](ValueId used) {
        if (!is_given_[used.index()]) flow.add_edge(2 * used.index() + 1, 2 * i, MaxFlow::kInfinite);
      });
    }
    flow.run(source, sink);
    const std::vector<bool> is_source_side = flow.find_source_side(source);
    for (std::uint32_t i = 0; i < value_count_; ++i) {
      if (is_source_side[2 * i] && !is_source_side[2 * i + 1]) save(ValueId(i));
    }
  }

  void find_recomputed() {
    std::vector<bool> is_live(is_needed_);
    for (std::size_t i = joint_.nodes.size(); i-- > 0;) {
      if (in_backward_[i]) continue;
      bool lives = false;
      graph::for_each_result(joint_.nodes[i],
                             [&](ValueId id) { lives = lives || (is_live[id.index()] && !is_saved_[id.index()]); });
      if (!lives) continue;
      REPRISE_CHECK(!graph::has_flag(joint_.nodes[i].op, graph::kRandom), "a random op would be computed again");
      is_recomputed_[i] = true;
      graph::for_each_use(joint_.nodes[i], [&](ValueId id) { is_live[id.index()] = true; });
    }
  }

  // Those that the backward really uses, in order of their ids.
  std::vector<ValueId> list_saved() {
    std::vector<bool> is_used(value_count_, false);
    for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (!in_backward_[i] && !is_recomputed_[i]) continue;
      graph::for_each_use(joint_.nodes[i], [&](ValueId id) { is_used[id.index()] = true; });
    }
    for (const graph::Gradient& gradient : joint_.gradients) {
      if (gradient.value.is_valid()) is_used[gradient.value.index()] = true;
    }
    std::vector<ValueId> saved;
    for (std::uint32_t i = 0; i < value_count_; ++i) {
      const bool is_other = is_input_[i] && !is_saved_[i] && is_used[i];
      if (is_used[i] && (is_saved_[i] || is_other) && !is_given_[i]) saved.push_back(ValueId(i));
    }
    return saved;
  }

  void extend_forward(const std::vector<ValueId>& saved) {
    if (!options_.available.empty()) return;  // that forward exists
    std::vector<bool> is_live(value_count_, false);
    for (const ValueId id : saved) is_live[id.index()] = true;
    mark_nodes(is_live, in_forward_, [](const Node&) { return false; }, [&](std::size_t i) { return in_backward_[i]; });
  }

  Graph start_graph() const {
    Graph part(joint_.context);
    part.form = graph::Form::Functional;
    part.values = joint_.values;
    return part;
  }

  void add_constants(Graph& part) const {
    std::vector<bool> is_used(value_count_, false);
    for (const Node& node : part.nodes) graph::for_each_use(node, [&](ValueId id) { is_used[id.index()] = true; });
    graph::for_each_root(part, [&](ValueId& id) { is_used[id.index()] = true; });
    for (const graph::Constant& constant : joint_.constants) {
      if (is_used[constant.value.index()]) part.constants.push_back(constant);
    }
  }

  Graph make_forward(const std::vector<ValueId>& saved) const {
    Graph part = start_graph();
    for (const graph::Input& input : joint_.inputs) {
      if (input.kind != InputKind::Tangent) part.inputs.push_back(input);
    }
    part.outputs = joint_.outputs;
    part.effects = joint_.effects;
    part.saved = saved;
    for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (in_forward_[i]) part.nodes.push_back(joint_.nodes[i]);
    }
    add_constants(part);
    part.reset_producers();
    return part;
  }

  Graph make_backward(const std::vector<ValueId>& saved) {
    Graph part = start_graph();
    for (const ValueId id : saved) {
      part.inputs.push_back({id, InputKind::Saved, false});
      part.get_value(id).is_source = true;
    }
    for (const graph::Input& input : joint_.inputs) {
      if (input.kind == InputKind::Tangent) part.inputs.push_back(input);
    }
    part.gradients = joint_.gradients;
    for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (in_backward_[i]) add_with_recomputed(part, i);
    }
    for (const graph::Gradient& gradient : joint_.gradients) {
      if (!gradient.value.is_valid() || is_saved_[gradient.value.index()]) continue;
      const NodeId made = producer(gradient.value);
      if (made.is_valid() && is_recomputed_[made.index()]) add_with_recomputed(part, made.index());
    }
    add_constants(part);
    part.reset_producers();
    return part;
  }

  // The node, behind the recomputed nodes that it needs and that do not stand there yet.
  void add_with_recomputed(Graph& part, std::size_t index) {
    if (is_added_.empty()) is_added_.resize(joint_.nodes.size(), false);
    std::vector<std::size_t> stack = {index};
    while (!stack.empty()) {
      const std::size_t at = stack.back();
      if (is_added_[at]) {
        stack.pop_back();
        continue;
      }
      const std::size_t size_before = stack.size();
      graph::for_each_use(joint_.nodes[at], [&](ValueId id) {
        const NodeId made = producer(id);
        if (is_saved_[id.index()] || !made.is_valid()) return;
        if (is_recomputed_[made.index()] && !is_added_[made.index()]) stack.push_back(made.index());
      });
      if (stack.size() > size_before) continue;
      stack.pop_back();
      is_added_[at] = true;
      Node node = joint_.nodes[at];
      node.phase = Phase::Backward;
      drop_saved_results(part, node);
      part.nodes.push_back(node);
    }
  }

  // A recomputed node of several results, of which one is saved: that one is an input already.
  void drop_saved_results(Graph& part, Node& node) const {
    bool has_saved = false;
    graph::for_each_result(node, [&](ValueId id) { has_saved = has_saved || part.get_value(id).is_source; });
    if (!has_saved) return;
    std::vector<ValueId> outs(node.outs.begin(), node.outs.end());
    for (ValueId& out : outs) {
      if (out.is_valid() && part.get_value(out).is_source) out = ValueId();
    }
    node.outs = joint_.context->arena().copy(std::span<const ValueId>(outs));
  }

  const Graph& joint_;
  const PartitionOptions& options_;
  std::size_t value_count_;
  std::vector<bool> in_forward_, in_backward_, is_recomputed_, is_added_;  // by node
  std::vector<bool> is_needed_, is_saved_;                                 // by value
  std::vector<bool> is_given_;                                             // tangents and constants
  std::vector<bool> is_input_;
};

}  // namespace

Partition partition_graph(const Graph& joint, const PartitionOptions& options) {
  REPRISE_CHECK(joint.form == graph::Form::Functional, "the graph is not functional yet");
  return Partitioner(joint, options).run();
}

}  // namespace reprise::passes
