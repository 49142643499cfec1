#include <algorithm>

#include "base/check.h"
#include "lower/call.h"
#include "lower/functions.h"
#include "lower/lowered.h"

namespace reprise::lower {

namespace {

using graph::Graph;
using graph::Node;
using graph::OpId;
using graph::ValueId;
using graph::ValueKind;

struct Row {
  OpId op;
  LowerFunction function;
};
constexpr Row kRows[] = {
#define X(id, function) {OpId::id, function},
#include "lower/lower_ops.def"
#undef X
};

// Indexed by OpId.
constexpr auto make_table() {
  std::array<LowerFunction, graph::kKnownOpCount> table{};
  for (const Row& row : kRows) table[static_cast<std::size_t>(row.op)] = row.function;
  return table;
}
constexpr std::array<LowerFunction, graph::kKnownOpCount> kTable = make_table();

// The op on one element of a list; kKnownCount: none.
constexpr auto make_element_ops() {
  std::array<OpId, graph::kKnownOpCount> table{};
  table.fill(OpId::kKnownCount);
#define X(list, element) table[static_cast<std::size_t>(OpId::list)] = OpId::element;
#include "lower/foreach_ops.def"
#undef X
  return table;
}
constexpr std::array<OpId, graph::kKnownOpCount> kElementOps = make_element_ops();

bool is_kernel_dtype(DType dtype) {
  switch (dtype) {
    case DType::Bool:
    case DType::UInt8:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float32:
    case DType::Float64:
      return true;
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64:
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::Complex64:
    case DType::Complex128:
      return false;
  }
  return false;
}

class Lowerer {
 public:
  Lowerer(const Graph& graph, const Options& options) : graph_(graph), options_(options) {}

  Lowered run() {
    make_tensors();
    find_used();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) lower_node(i);
    return std::move(lowered_);
  }

 private:
  void make_tensors() {
    lowered_.tensors.resize(graph_.values.size());
    std::vector<std::uint32_t> storages(graph_.context->get_storage_count(), 0xffffffffu);
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const graph::Value& value = graph_.values[i];
      Tensor& tensor = lowered_.tensors[i];
      tensor.root = TensorId(static_cast<std::uint32_t>(i));
      tensor.is_source = value.is_source;
      if (value.kind != ValueKind::Tensor || !value.meta.storage.is_valid()) {  // a row that passes left behind
        tensor.storage = lowered_.storage_count++;
        continue;
      }
      const graph::TensorMeta& meta = value.meta;
      tensor.is_tensor = true;
      tensor.dtype = meta.dtype;
      std::uint32_t& storage = storages[meta.storage.index()];
      if (storage == 0xffffffffu) storage = lowered_.storage_count++;
      tensor.storage = storage;
      tensor.is_plain = meta.rank <= kMaxRank && meta.flags == graph::kNoTensorFlags &&
                        meta.device.kind == types::DeviceKind::Cpu && is_kernel_dtype(meta.dtype) &&
                        sym::are_constant({meta.sizes_and_strides, std::size_t{2} * meta.rank}) &&
                        meta.offset.is_constant();
      if (!tensor.is_plain) continue;
      tensor.offset = meta.offset.get_constant();
      for (const sym::Int size : meta.sizes()) tensor.sizes.push(size.get_constant());
      for (const sym::Int stride : meta.strides()) tensor.strides.push(stride.get_constant());
      if (tensor.sizes.count() == 0) tensor.is_plain = false;  // nothing to compute: left to the library
    }
  }

  // A view is read through the storage of its root, so it has to have the root's dtype.
  void lower_view(const Node& node) {
    const TensorId root = lowered_.get(get_tensor(node.args[0].get_value())).root;
    for (const ValueId id : node.outs) {
      if (!id.is_valid()) continue;
      Tensor& tensor = lowered_.tensors[id.index()];
      tensor.root = root;
      const Tensor& base = lowered_.get(root);
      if (!base.is_plain || base.dtype != tensor.dtype) tensor.is_plain = false;
    }
  }

  void lower_node(std::size_t index) {
    const Node& node = graph_.nodes[index];
    const graph::NodeId id(static_cast<std::uint32_t>(index));
    const std::size_t first_op = lowered_.ops.size();
    if (graph::is_view(node.op) && !node.args.empty() && node.args[0].is_value()) {
      lower_view(node);
      add_op(OpKind::View, node, id);
      return;
    }
    if (!options_.only_extern && graph::is_known(node.op) && are_results_plain(node) && are_operands_plain(node)) {
      const std::size_t first_tensor = lowered_.tensors.size();
      const std::size_t first_expr = lowered_.exprs.size();
      const std::size_t first_access = lowered_.accesses.size();
      const std::size_t first_check = lowered_.checks.size();
      if (run_function(node, id) || lower_elements(node, id)) return;
      lowered_.ops.resize(first_op);
      lowered_.tensors.resize(first_tensor);
      lowered_.exprs.resize(first_expr);
      lowered_.accesses.resize(first_access);
      lowered_.checks.resize(first_check);
    }
    add_op(OpKind::Extern, node, id);
  }

  bool run_function(const Node& node, graph::NodeId id) {
    const LowerFunction function = kTable[static_cast<std::size_t>(node.op)];
    if (function == nullptr) return false;
    Call call(graph_, node, id, lowered_, options_);
    return function(call);
  }

  // A list op as its op on each element.
  bool lower_elements(const Node& node, graph::NodeId id) {
    const OpId element_op = kElementOps[static_cast<std::size_t>(node.op)];
    if (element_op == OpId::kKnownCount || node.args.empty() || !node.args[0].is_list()) return false;
    const std::span<const ValueId> results = node.new_values.empty() ? node.outs : node.new_values;
    const std::size_t count = node.args[0].get_list().size();
    if (results.size() != count) return false;
    std::vector<graph::Arg> args(node.args.begin(), node.args.end());
    constexpr graph::Return kReturn = graph::Return::make_single();
    Node element;
    element.op = element_op;
    element.args = args;
    element.returns = {&kReturn, 1};
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t i = 0; i < args.size(); ++i) {
        if (node.args[i].is_list() && node.args[i].get_list().size() == count) args[i] = node.args[i].get_list()[k];
      }
      if (!results[k].is_valid()) continue;
      element.outs = results.subspan(k, 1);
      if (!run_function(element, id)) return false;
    }
    return true;
  }

  // What nobody uses may be anything (batch norm's empty results in evaluation mode).
  bool are_results_plain(const Node& node) const {
    bool are_plain = true;
    graph::for_each_result(
        node, [&](ValueId id) { are_plain &= lowered_.get(get_tensor(id)).is_plain || !is_used_[id.index()]; });
    return are_plain;
  }

  void find_used() {
    is_used_.assign(graph_.values.size(), false);
    for (const Node& node : graph_.nodes) {
      graph::for_each_use(node, [&](ValueId id) { is_used_[id.index()] = true; });
    }
    graph::for_each_root(const_cast<Graph&>(graph_), [&](ValueId& id) { is_used_[id.index()] = true; });
  }

  bool are_operands_plain(const Node& node) const {
    bool are_plain = true;
    graph::for_each_use(node, [&](ValueId id) {
      const Tensor& tensor = lowered_.get(get_tensor(id));
      are_plain &= !tensor.is_tensor || tensor.is_plain;
    });
    return are_plain;
  }

  void add_op(OpKind kind, const Node& node, graph::NodeId id) {
    const OpIndex index(static_cast<std::uint32_t>(lowered_.ops.size()));
    Op& op = lowered_.ops.emplace_back();
    op.kind = kind;
    op.node = id;
    graph::for_each_result(node, [&](ValueId result) { lowered_.tensors[result.index()].producer = index; });
  }

  const Graph& graph_;
  const Options& options_;
  Lowered lowered_;
  std::vector<bool> is_used_;  // by value
};

}  // namespace

Lowered lower(const Graph& graph, const Options& options) {
  REPRISE_CHECK(graph.form == graph::Form::Functional, "only functional graphs are lowered");
  return Lowerer(graph, options).run();
}

}  // namespace reprise::lower
