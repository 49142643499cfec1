#include "passes/merge_equal.h"

#include <unordered_map>

#include "base/hash.h"
#include "passes/kept_copies.h"
#include "passes/rewriter.h"

namespace reprise::passes {

using graph::Node;
using graph::OpId;
using graph::ValueId;

namespace {

bool can_merge(const Node& node) {
  if (node.mut != 0 || node.outs.empty() || !graph::is_known(node.op)) return false;
  if (graph::has_flag(node.op, graph::kRandom) || graph::has_flag(node.op, graph::kRoot)) return false;
  switch (node.op) {
    case OpId::empty_memory_format:
    case OpId::empty_like:
    case OpId::empty_strided:
    case OpId::empty_permuted:
    case OpId::new_empty:
    case OpId::new_empty_strided:
      return false;  // each is written on its own
    default:
      return true;
  }
}

std::uint64_t hash_node(const Node& node) {
  std::uint64_t hash = base::hash_combine(static_cast<std::uint64_t>(node.op), static_cast<std::uint64_t>(node.phase));
  for (const graph::Arg& arg : node.args) hash = graph::hash_arg(arg, hash);
  return hash;
}

bool is_same_node(const Node& a, const Node& b) {
  if (a.op != b.op || a.phase != b.phase || a.args.size() != b.args.size() || a.outs.size() != b.outs.size())
    return false;
  for (std::size_t i = 0; i < a.args.size(); ++i) {
    if (!graph::is_same_arg(a.args[i], b.args[i])) return false;
  }
  return true;
}

// Two outputs that are tensors of their own. (Views of one memory are one anyway.)
bool are_both_roots(const Rewriter& rewriter, const Node& first, const Node& node) {
  if (graph::is_view(node.op)) return false;
  for (std::size_t i = 0; i < node.outs.size(); ++i) {
    if (node.outs[i].is_valid() && rewriter.is_root_memory(node.outs[i]) && rewriter.is_root_memory(first.outs[i]))
      return true;
  }
  return false;
}

bool are_apart(const graph::Graph& graph, const KeptCopies& kept_copies, const Node& first, const Node& node) {
  for (std::size_t i = 0; i < node.outs.size(); ++i) {
    if (!node.outs[i].is_valid() || graph.get_value(node.outs[i]).kind != graph::ValueKind::Tensor) continue;
    if (kept_copies.are_apart(graph.get_meta(first.outs[i]), graph.get_meta(node.outs[i]))) return true;
  }
  return false;
}

}  // namespace

std::optional<base::Unsupported> merge_equal(graph::Graph& graph) {
  Rewriter rewriter(graph);
  KeptCopies kept_copies(graph, rewriter.old_nodes());
  std::unordered_map<std::uint64_t, graph::NodeId> first_of;
  first_of.reserve(rewriter.old_nodes().size());
  for (const Node& old : rewriter.old_nodes()) {
    const Node node = rewriter.map(old);
    if (!can_merge(node)) {
      rewriter.keep(node);
      continue;
    }
    const auto [found, is_new] = first_of.try_emplace(hash_node(node), graph::NodeId());
    if (!is_new && is_same_node(graph.nodes[found->second.index()], node) &&
        !are_both_roots(rewriter, graph.nodes[found->second.index()], node) &&
        !are_apart(graph, kept_copies, graph.nodes[found->second.index()], node)) {
      const Node& first = graph.nodes[found->second.index()];
      for (std::size_t i = 0; i < node.outs.size(); ++i) {
        if (!node.outs[i].is_valid()) continue;
        if (graph.get_value(node.outs[i]).kind == graph::ValueKind::Tensor)
          kept_copies.note_replaced(graph.get_meta(node.outs[i]), graph.get_meta(first.outs[i]));
        rewriter.replace(node.outs[i], first.outs[i]);
      }
      continue;
    }
    found->second = rewriter.keep(node);
  }
  rewriter.finish();
  return std::nullopt;
}

}  // namespace reprise::passes
