// The rules against what eager PyTorch gave: tests/graph/rule_expectations.txt, written by tests/graph/rule_cases.py.
#include <fstream>
#include <set>
#include <sstream>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/rules.h"
#include "test.h"

using namespace reprise::graph;

namespace {

std::string describe(const Graph& graph, const ResultMeta& result) {
  const Context& context = *graph.context;
  switch (result.kind) {
    case ResultKind::None:
      return "_";
    case ResultKind::Fresh:
      return print_meta(context, result.meta);
    case ResultKind::View:
      return print_meta(context, result.meta) + " on storage of %" + std::to_string(result.of.index());
    case ResultKind::Argument:
      return "%" + std::to_string(result.of.index());
    case ResultKind::Number:
      return "a number";
  }
  return "?";
}

// What the text says about one result, in the words of describe().
std::string describe_expected(const Graph& graph, const Node& node, ValueId id) {
  if (!id.is_valid()) return "_";
  if (graph.get_value(id).is_source) return "%" + std::to_string(id.index());
  const TensorMeta& meta = graph.get_meta(id);
  std::string text = print_meta(*graph.context, meta);
  ValueId base;
  for_each_use(node, [&](ValueId used) {
    if (!base.is_valid() && graph.get_meta(used).storage == meta.storage) base = used;
  });
  if (base.is_valid()) text += " on storage of %" + std::to_string(base.index());
  return text;
}

struct Counts {
  int agreed = 0;
  std::set<std::string> inferred_ops;
  std::set<std::string> declined;  // nodes
};

Counts check_rules(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto parsed = parse_graph(text.str());
  if (const auto* error = std::get_if<ParseError>(&parsed)) {
    EXPECT_EQ("line " + std::to_string(error->line) + ": " + error->text, "");
    return {};
  }
  const Graph& graph = std::get<Graph>(parsed);
  RuleCall call(*graph.context, graph.values);
  Counts counts;
  for (const Node& node : graph.nodes) {
    const std::string line = print_node(graph, node);
    if (!infer(node.op, node.args, call)) {
      counts.declined.insert(line);
      continue;
    }
    std::string found, expected;
    for (const ResultMeta& result : call.results()) found += describe(graph, result) + ", ";
    for (const ValueId id : node.outs) expected += describe_expected(graph, node, id) + ", ";
    const bool same_returns =
        std::equal(call.returns().begin(), call.returns().end(), node.returns.begin(), node.returns.end());
    if (found == expected && same_returns) {
      ++counts.agreed;
      counts.inferred_ops.insert(std::string(graph.context->get_op_name(node.op)));
    } else {
      reprise::test::note_failure(__FILE__, __LINE__, line + "\n    rule: " + found);
    }
  }
  return counts;
}

}  // namespace

TEST("the rules give the metadata that eager gives") {
  const Counts counts = check_rules("tests/graph/rule_expectations.txt");
  EXPECT(counts.agreed > 1000);
  EXPECT(counts.inferred_ops.size() >= 250);
  // Declining is allowed, but a rule that starts to decline more is noticed.
  std::string lines;
  for (const std::string& line : counts.declined) lines += line + "\n";
  EXPECT(counts.declined.size() <= 5);
  if (counts.declined.size() > 5) EXPECT_EQ(lines, "");
}

TEST("the rules give the metadata that eager gives in the training of models") {
  const Counts counts = check_rules("tests/graph/rule_expectations_models.txt");
  EXPECT(counts.agreed > 500);
  std::string lines;
  for (const std::string& line : counts.declined) lines += line + "\n";
  EXPECT_EQ(lines, "");
}

TEST("rules decline what they do not cover") {
  auto parsed = parse_graph(R"(graph {
  %0 = input : complex64[2] conj
  %1 = input : float32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
  %2 = input : float32[2, 3]
  %3 = input : float32[2, 3] cuda:0
  %4 = input : uint16[2]
  %5 = input : int32[2]
  %6 = input : bool[2, 3]
})");
  const Graph& graph = std::get<Graph>(parsed);
  RuleCall call(*graph.context, graph.values);
  const auto value = [](std::uint32_t id) { return Arg::make_value(ValueId(id)); };
  const auto declines = [&](OpId op, std::vector<Arg> args) {
    const bool is_known = infer(op, args, call);
    EXPECT(is_known || call.results().empty());
    return !is_known;
  };
  EXPECT(declines(OpId::exp, {value(0)}));                   // lazily conjugated
  EXPECT(!declines(OpId::_conj, {value(0)}));                // views pass that on
  EXPECT(declines(OpId::exp, {value(1)}));                   // too many dimensions
  EXPECT(declines(OpId::mul_Tensor, {value(2), value(3)}));  // two devices
  EXPECT(declines(OpId::mul_Tensor, {value(4), value(5)}));  // a promotion that torch refuses
  EXPECT(declines(OpId::mm, {value(2), value(2)}));          // sizes do not fit
  EXPECT(declines(OpId::view, {value(2), graph.context->make_int_list(std::vector<reprise::sym::Int>{4, -1})}));
  EXPECT(declines(OpId::index_Tensor, {value(2), graph.context->make_list(std::vector<Arg>{value(6)})}));  // a mask
  EXPECT(declines(OpId::nonzero, {value(2)}));
  EXPECT(declines(OpId::exp, {}));
  EXPECT(declines(graph.context->intern_op("vendor::op"), {value(2)}));
}
