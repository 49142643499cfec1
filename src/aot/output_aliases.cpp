#include "aot/output_aliases.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "graph/printer.h"

namespace reprise::aot {

using graph::OutputKind;
using graph::ValueId;

namespace {

constexpr int64_t kMaxComparedElements = int64_t{1} << 22;

const graph::TensorMeta& meta_of(const graph::Graph& graph, const OutputTensor& tensor) {
  return graph.get_meta(ValueId(static_cast<uint32_t>(tensor.value)));
}

int64_t count_elements(const graph::TensorMeta& meta) {
  int64_t count = 1;
  for (const sym::Int size : meta.sizes()) count *= size.get_constant();
  return count;
}

struct ElementRange {
  int64_t first = 0;
  int64_t end = 0;  // behind the last
};
ElementRange range_of(const graph::TensorMeta& meta) {
  const int64_t first = meta.offset.get_constant();
  if (count_elements(meta) == 0) return {first, first};
  int64_t last = first;
  for (size_t d = 0; d < meta.rank; d++) {
    last += (meta.sizes()[d].get_constant() - 1) * meta.strides()[d].get_constant();
  }
  return {first, last + 1};
}

// Every position of the range is an element, each once.
bool is_dense(const graph::TensorMeta& meta) {
  const ElementRange range = range_of(meta);
  if (range.end - range.first != count_elements(meta)) return false;
  for (size_t d = 0; d < meta.rank; d++) {
    if (meta.strides()[d].is_constant(0) && meta.sizes()[d].get_constant() > 1) return false;
  }
  return true;
}

template <typename Visit>
void visit_positions(const graph::TensorMeta& meta, Visit&& visit) {
  const int64_t count = count_elements(meta);
  for (int64_t n = 0; n < count; n++) {
    int64_t rest = n, position = meta.offset.get_constant();
    for (size_t d = meta.rank; d-- > 0;) {
      const int64_t size = meta.sizes()[d].get_constant();
      position += rest % size * meta.strides()[d].get_constant();
      rest /= size;
    }
    visit(position);
  }
}

// The most positions that the tensor can have: expanded dimensions count once.
int64_t count_positions(const graph::TensorMeta& meta) {
  int64_t count = 1;
  for (size_t d = 0; d < meta.rank; d++) {
    if (!meta.strides()[d].is_constant(0)) count *= meta.sizes()[d].get_constant();
  }
  const ElementRange range = range_of(meta);
  return std::min(count, range.end - range.first);
}

enum class Overlap : uint8_t { None, Inside, Partial };

// Of `inner` with `outer`: Inside: all elements of inner are elements of outer.
Overlap find_overlap(const graph::TensorMeta& outer, const graph::TensorMeta& inner) {
  const ElementRange a = range_of(outer), b = range_of(inner);
  if (b.first >= a.end || a.first >= b.end) return Overlap::None;
  if (a.first <= b.first && b.end <= a.end && is_dense(outer)) return Overlap::Inside;
  if (count_elements(outer) + count_elements(inner) + (a.end - a.first) > kMaxComparedElements) return Overlap::Partial;
  std::vector<bool> has_element(static_cast<size_t>(a.end - a.first));
  visit_positions(outer, [&](int64_t position) { has_element[static_cast<size_t>(position - a.first)] = true; });
  int64_t common = 0;
  visit_positions(inner, [&](int64_t position) {
    common += position >= a.first && position < a.end && has_element[static_cast<size_t>(position - a.first)];
  });
  if (common == 0) return Overlap::None;
  return common == count_elements(inner) ? Overlap::Inside : Overlap::Partial;
}

// The input that views lead to from an output. Several inputs may have one memory, with histories of their own
// (x and x.data).
std::optional<uint32_t> find_viewed_input(const graph::Graph& graph, std::span<const OutputTensor> inputs,
                                          ValueId value) {
  while (true) {
    for (uint32_t k = 0; k < inputs.size(); k++) {
      if (value == ValueId(static_cast<uint32_t>(inputs[k].value))) return k;
    }
    const graph::NodeId producer = graph.get_value(value).producer;
    if (!producer.is_valid()) return std::nullopt;
    const graph::Node& node = graph.get_node(producer);
    if (!graph::is_view(node.op) || node.args.empty() || !node.args[0].is_value()) return std::nullopt;
    const ValueId of = node.args[0].get_value();
    if (of.index() >= value.index()) return std::nullopt;
    value = of;
  }
}

}  // namespace

std::string find_output_aliases(const graph::Graph& graph, std::span<const OutputTensor> inputs,
                                std::span<const OutputTensor> tensors, std::vector<graph::Output>& outputs,
                                std::vector<uint32_t>& refused) {
  std::string problem;
  const auto refuse = [&](uint32_t i, std::string why) {
    refused.push_back(i);
    if (problem.empty()) problem = std::move(why);
  };
  std::unordered_map<int32_t, uint32_t> input_of_storage;
  for (size_t i = 0; i < inputs.size(); i++) input_of_storage.emplace(inputs[i].storage, static_cast<uint32_t>(i));
  std::unordered_map<const void*, uint32_t> first_of_object;
  std::unordered_map<int32_t, std::vector<uint32_t>> groups;
  std::vector<int32_t> group_order;
  outputs.assign(tensors.size(), {});
  for (uint32_t i = 0; i < tensors.size(); i++) {
    const OutputTensor& tensor = tensors[i];
    graph::Output& output = outputs[i];
    output.value = ValueId(static_cast<uint32_t>(tensor.value));
    const auto [first, is_new] = first_of_object.emplace(tensor.object, i);
    if (!is_new) {
      output.kind = OutputKind::SameOutput;
      output.index = first->second;
      continue;
    }
    const auto input = input_of_storage.find(tensor.storage);
    if (input == input_of_storage.end()) {
      std::vector<uint32_t>& group = groups[tensor.storage];
      if (group.empty()) group_order.push_back(tensor.storage);
      group.push_back(i);
      continue;
    }
    output.index = find_viewed_input(graph, inputs, output.value).value_or(input->second);
    for (uint32_t k = 0; k < inputs.size(); k++) {
      if (inputs[k].object == tensor.object) output = {OutputKind::Input, output.value, k, {}};
    }
    if (output.kind == OutputKind::Input) continue;
    output.kind = OutputKind::ViewOfInput;
    const graph::TensorMeta &view = meta_of(graph, tensor), &base = meta_of(graph, inputs[output.index]);
    if (view.dtype != base.dtype || view.flags != base.flags) {
      refuse(i, "an output views an input as another dtype");
    }
  }
  for (const int32_t storage : group_order) {
    std::vector<uint32_t> order = groups[storage];
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      if (tensors[a].requires_grad != tensors[b].requires_grad) return static_cast<bool>(tensors[a].requires_grad);
      // A tensor that holds all of another comes first, whatever the other one repeats.
      const graph::TensorMeta &meta_a = meta_of(graph, tensors[a]), &meta_b = meta_of(graph, tensors[b]);
      const int64_t positions_a = count_positions(meta_a), positions_b = count_positions(meta_b);
      return positions_a != positions_b ? positions_a > positions_b : is_dense(meta_a) > is_dense(meta_b);
    });
    std::vector<uint32_t> bases;
    for (const uint32_t i : order) {
      const graph::TensorMeta& meta = meta_of(graph, tensors[i]);
      for (const uint32_t base : bases) {
        const graph::TensorMeta& base_meta = meta_of(graph, tensors[base]);
        const Overlap overlap = find_overlap(base_meta, meta);
        if (overlap == Overlap::None) continue;
        if (overlap == Overlap::Partial) {
          refuse(i, "outputs that share some of their elements: " + graph::print_meta(*graph.context, base_meta) +
                        " and " + graph::print_meta(*graph.context, meta));
          break;
        }
        if (meta.dtype != base_meta.dtype || meta.flags != base_meta.flags) {
          refuse(i, "an output views another one as another dtype");
        }
        outputs[i].kind = OutputKind::ViewOfOutput;
        outputs[i].index = base;
        break;
      }
      if (outputs[i].kind == OutputKind::Value) bases.push_back(i);
    }
  }
  return problem;
}

}  // namespace reprise::aot
