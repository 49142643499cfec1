#include "passes/rewriter.h"

#include <algorithm>

namespace reprise::passes {

using graph::Arg;
using graph::Node;
using graph::NodeId;
using graph::TensorMeta;
using graph::ValueId;

Rewriter::Rewriter(graph::Graph& graph)
    : graph_(graph),
      context_(*graph.context),
      old_(std::move(graph.nodes)),
      replacements_(graph.values.size()),
      is_root_(graph.values.size(), false),
      is_root_storage_(graph.context->get_storage_count(), false),
      rules_(context_, graph.values) {
  REPRISE_CHECK(graph.form == graph::Form::Functional, "the graph is not functional yet");
  graph_.nodes.clear();
  graph_.nodes.reserve(old_.size());
  for (graph::Value& value : graph_.values) value.producer = NodeId();
  graph::for_each_root(graph_, [&](ValueId& id) { mark_root(id); });
}

void Rewriter::mark_root(ValueId id) {
  if (id.index() >= is_root_.size()) is_root_.resize(graph_.values.size(), false);
  is_root_[id.index()] = true;
  const graph::Value& value = graph_.get_value(id);
  if (value.kind != graph::ValueKind::Tensor) return;
  const std::size_t storage = value.meta.storage.index();
  if (storage >= is_root_storage_.size()) is_root_storage_.resize(context_.get_storage_count(), false);
  is_root_storage_[storage] = true;
}

bool Rewriter::is_root_memory(ValueId id) const {
  const graph::Value& value = graph_.get_value(id);
  if (value.kind != graph::ValueKind::Tensor) return id.index() < is_root_.size() && is_root_[id.index()];
  return value.meta.storage.index() < is_root_storage_.size() && is_root_storage_[value.meta.storage.index()];
}

namespace {

Arg replace_in(graph::Context& context, const std::vector<Arg>& replacements, const Arg& arg);

std::span<const Arg> replace_in(graph::Context& context, const std::vector<Arg>& replacements,
                                std::span<const Arg> args) {
  std::span<Arg> copy;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Arg replaced = replace_in(context, replacements, args[i]);
    if (copy.empty() && replaced.kind() == args[i].kind() && replaced.bits() == args[i].bits()) continue;
    if (copy.empty()) copy = context.arena().copy(args);
    copy[i] = replaced;
  }
  return copy.empty() ? args : std::span<const Arg>(copy);
}

Arg replace_in(graph::Context& context, const std::vector<Arg>& replacements, const Arg& arg) {
  if (arg.is_value()) {
    const std::size_t index = arg.get_value().index();
    if (index >= replacements.size() || replacements[index].is_none()) return arg;
    return arg.is_wrapped() ? replacements[index].as_wrapped() : replacements[index];
  }
  if (arg.is_list()) {
    const std::span<const Arg> old = arg.get_list();
    const std::span<const Arg> replaced = replace_in(context, replacements, old);
    return replaced.data() == old.data() ? arg : Arg::make_list(replaced);
  }
  return arg;
}

}  // namespace

Node Rewriter::map(const Node& node) {
  Node mapped = node;
  mapped.args = replace_in(context_, replacements_, node.args);
  if (graph::is_view(node.op) && mapped.args[0].is_value()) {
    const graph::StorageId memory = graph_.get_meta(mapped.args[0].get_value()).storage;
    bool is_moved = false;
    for (const ValueId out : node.outs)
      is_moved = is_moved || (out.is_valid() && graph_.get_meta(out).storage != memory);
    if (is_moved) move_views(mapped);
  }
  return mapped;
}

void Rewriter::move_views(const Node& node) {
  const bool is_known = graph::infer(node.op, node.args, rules_) && rules_.results().size() == node.outs.size();
  REPRISE_CHECK(is_known, "the view " + std::string(context_.get_op_name(node.op)) + " of a replaced value");
  for (std::size_t i = 0; i < node.outs.size(); ++i) {
    if (!node.outs[i].is_valid()) continue;
    const bool was_root = is_root_memory(node.outs[i]);
    graph_.get_value(node.outs[i]).meta = rules_.results()[i].meta;
    if (was_root) mark_root(node.outs[i]);
  }
}

NodeId Rewriter::keep(const Node& node) {
  const NodeId id(static_cast<std::uint32_t>(graph_.nodes.size()));
  graph_.nodes.push_back(node);
  graph::for_each_result(node, [&](ValueId result) { graph_.get_value(result).producer = id; });
  return id;
}

void Rewriter::replace(ValueId old, ValueId by) {
  const Arg through = replace_in(context_, replacements_, Arg::make_value(by));
  replacements_[old.index()] = through;
  if (is_root_memory(old)) mark_root(through.get_value());
}

void Rewriter::replace(ValueId old, Arg constant) {
  REPRISE_CHECK(!is_root_memory(old), "a root is replaced by a constant");
  replacements_[old.index()] = constant;
}

std::optional<ValueId> Rewriter::emit(const Node& like, graph::OpId op, std::span<const Arg> args) {
  if (!graph::infer(op, args, rules_) || rules_.results().size() != 1) return std::nullopt;
  const graph::ResultMeta& result = rules_.results()[0];
  TensorMeta meta = result.meta;
  if (result.kind == graph::ResultKind::Fresh) meta.storage = context_.make_storage();
  if (result.kind != graph::ResultKind::Fresh && result.kind != graph::ResultKind::View) return std::nullopt;
  const ValueId out = graph_.add_tensor(meta);
  replacements_.resize(graph_.values.size());
  Node node;
  node.op = op;
  node.phase = like.phase;
  node.source = like.source;
  node.args = args;
  node.returns = rules_.returns();
  node.outs = {&out, 1};
  graph_.add_node(node);
  return out;
}

const Node* Rewriter::find_producer(ValueId id) const {
  const NodeId producer = graph_.get_value(id).producer;
  return producer.is_valid() ? &graph_.nodes[producer.index()] : nullptr;
}

void Rewriter::finish() {
  graph::for_each_root(graph_, [&](ValueId& id) {
    const Arg& by = replacements_[id.index()];
    if (!by.is_none()) id = by.get_value();
  });
}

bool has_same_sizes(const TensorMeta& a, const TensorMeta& b) {
  return std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin(), b.sizes().end());
}

bool is_same_layout(const TensorMeta& a, const TensorMeta& b) {
  return has_same_sizes(a, b) && std::equal(a.strides().begin(), a.strides().end(), b.strides().begin()) &&
         a.offset == b.offset && a.dtype == b.dtype && a.device == b.device && a.flags == b.flags;
}

}  // namespace reprise::passes
