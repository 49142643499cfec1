#include "schedule/schedule.h"

#include "base/check.h"
#include "schedule/assemble.h"

namespace reprise::schedule {

namespace {

bool is_static(const graph::Arg& arg) {
  if (arg.is_int()) return arg.get_int().is_constant();
  if (!arg.is_list()) return true;
  for (const graph::Arg& element : arg.get_list()) {
    if (!is_static(element)) return false;
  }
  return true;
}

// What is symbolic in the graph, or "".
std::string find_symbolic(const graph::Graph& graph) {
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const graph::TensorMeta& meta = graph.values[i].meta;
    if (graph.values[i].kind == graph::ValueKind::Tensor &&
        !(sym::are_constant({meta.sizes_and_strides, std::size_t{2} * meta.rank}) && meta.offset.is_constant()))
      return "%" + std::to_string(i) + " has symbolic sizes";
  }
  for (const graph::Node& node : graph.nodes) {
    for (const graph::Arg& arg : node.args) {
      if (!is_static(arg)) return "an argument of " + std::string(graph::get_op_name(graph, node)) + " is symbolic";
    }
  }
  return {};
}

}  // namespace

base::Result<Plan> make_plan(const graph::Graph& graph, const Options& options) {
  if (std::string text = find_symbolic(graph); !text.empty())
    return base::Unsupported{base::UnsupportedCode::SymbolicSize, std::move(text)};
  const Lowered lowered = lower::lower(graph, {options.only_extern});
  const std::vector<bool> is_root = find_roots(graph);
  const Grouping grouping = make_groups(lowered, graph, is_root, {options.fuse});
  std::vector<Emitted> emitted;
  emitted.reserve(grouping.groups.size());
  for (const Group& group : grouping.groups)
    emitted.push_back(emit_group(lowered, graph, group, options.keep_rounding));
  return assemble(graph, lowered, grouping, std::move(emitted), options);
}

std::string print_groups(const graph::Graph& graph, const Options& options) {
  const Lowered lowered = lower::lower(graph, {options.only_extern});
  return print(make_groups(lowered, graph, find_roots(graph), {options.fuse}), lowered);
}

}  // namespace reprise::schedule
