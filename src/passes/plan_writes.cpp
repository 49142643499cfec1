#include "passes/plan_writes.h"

#include "base/check.h"
#include "passes/rewriter.h"

namespace reprise::passes {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::ValueId;
using graph::ValueKind;

namespace {

constexpr std::uint32_t kNone = 0xffffffffu;
constexpr std::uint32_t kAtTheEnd = 0xfffffffeu;

class WritePlanner {
 public:
  explicit WritePlanner(const Graph& graph)
      : graph_(graph),
        last_use_(graph.context->get_storage_count(), 0),
        input_of_(graph.values.size(), kNone),
        is_shared_(graph.context->get_storage_count(), false) {}

  std::vector<Write> run() {
    note_uses();
    std::vector<Write> writes;
    for (std::uint32_t i = 0; i < graph_.nodes.size(); ++i) plan_node(i, writes);
    return writes;
  }

 private:
  std::uint32_t* find_last_use(ValueId id) {
    const graph::Value& value = graph_.get_value(id);
    return value.kind == ValueKind::Tensor ? &last_use_[value.meta.storage.index()] : nullptr;
  }
  void use(ValueId id, std::uint32_t when) {
    if (std::uint32_t* last = find_last_use(id)) *last = when;
  }

  void note_uses() {
    for (std::uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      graph::for_each_use(graph_.nodes[i], [&](ValueId id) { use(id, i); });
    }
    for (const graph::Output& output : graph_.outputs) {
      if (output.value.is_valid()) use(output.value, kAtTheEnd);
    }
    for (const graph::Gradient& gradient : graph_.gradients) {
      if (gradient.value.is_valid()) use(gradient.value, kAtTheEnd);
    }
    for (const ValueId id : graph_.saved) use(id, kAtTheEnd);
    effect_of_.assign(graph_.inputs.size(), kNone);
    for (std::uint32_t i = 0; i < graph_.effects.size(); ++i) {
      const graph::Effect& effect = graph_.effects[i];
      if (effect.value.is_valid()) use(effect.value, kAtTheEnd);
      if (effect.kind == graph::EffectKind::Bump) continue;
      const bool is_only = effect.kind == graph::EffectKind::Copy && effect_of_[effect.input] == kNone;
      effect_of_[effect.input] = is_only ? i : kAtTheEnd;
    }
    std::vector<bool> is_seen(last_use_.size(), false);
    for (std::uint32_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId id = graph_.inputs[i].value;
      input_of_[id.index()] = i;
      if (graph_.get_value(id).kind != ValueKind::Tensor) continue;
      const std::size_t storage = graph_.get_meta(id).storage.index();
      is_shared_[storage] = is_seen[storage];
      is_seen[storage] = true;
      is_source_.resize(last_use_.size(), false);
      is_source_[storage] = true;
    }
    is_source_.resize(last_use_.size(), false);
    for (const graph::Constant& constant : graph_.constants)
      is_source_[graph_.get_meta(constant.value).storage.index()] = true;
  }

  void plan_node(std::uint32_t index, std::vector<Write>& writes) {
    const Node& node = graph_.nodes[index];
    if (node.mut == 0) return;
    std::size_t next = 0;
    for (std::size_t k = 0; k < node.args.size() && k < 64; ++k) {
      if ((node.mut >> k & 1) == 0) continue;
      graph::for_each_value(node.args[k], [&](ValueId id) {
        Write write{NodeId(index), id, node.new_values[next++], WriteKind::Copy, 0, 0};
        choose(index, write);
        writes.push_back(write);
      });
    }
  }

  void choose(std::uint32_t index, Write& write) {
    const graph::TensorMeta& old_meta = graph_.get_meta(write.old_value);
    const graph::TensorMeta& new_meta = graph_.get_meta(write.new_value);
    const bool has_layout =
        has_same_sizes(old_meta, new_meta) && old_meta.dtype == new_meta.dtype &&
        std::equal(old_meta.strides().begin(), old_meta.strides().end(), new_meta.strides().begin());
    const std::size_t storage = old_meta.storage.index();
    if (!has_layout || last_use_[storage] != index || count_uses(index, old_meta.storage) != 1) return;
    if (!is_source_[storage]) {
      write.kind = WriteKind::InPlace;
      return;
    }
    const std::uint32_t input = input_of_[write.old_value.index()];
    if (input == kNone || is_shared_[storage] || effect_of_[input] >= kAtTheEnd) return;
    if (graph_.effects[effect_of_[input]].value != write.new_value) return;
    write.kind = WriteKind::OnInput;
    write.input = input;
    write.effect = effect_of_[input];
  }

  // How many arguments of the node are on this memory. Counted once a node.
  std::uint32_t count_uses(std::uint32_t index, graph::StorageId storage) {
    if (counted_node_ != index) {
      for (const std::uint32_t at : counted_) uses_[at] = 0;
      counted_.clear();
      uses_.resize(last_use_.size(), 0);
      counted_node_ = index;
      graph::for_each_use(graph_.nodes[index], [&](ValueId id) {
        if (graph_.get_value(id).kind != ValueKind::Tensor) return;
        const std::uint32_t at = graph_.get_meta(id).storage.index();
        if (uses_[at]++ == 0) counted_.push_back(at);
      });
    }
    return uses_[storage.index()];
  }

  const Graph& graph_;
  std::vector<std::uint32_t> last_use_;   // by storage
  std::vector<std::uint32_t> input_of_;   // by value
  std::vector<bool> is_shared_;           // by storage: several inputs
  std::vector<bool> is_source_;           // by storage: an input or a constant
  std::vector<std::uint32_t> effect_of_;  // by input; kAtTheEnd: not only a copy
  std::vector<std::uint32_t> uses_;
  std::vector<std::uint32_t> counted_;
  std::uint32_t counted_node_ = kNone;
};

}  // namespace

std::vector<Write> plan_writes(const Graph& graph) {
  REPRISE_CHECK(graph.form == graph::Form::Functional, "the graph is not functional yet");
  return WritePlanner(graph).run();
}

}  // namespace reprise::passes
