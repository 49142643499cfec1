#include "base/options.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "passes/max_flow.h"
#include "passes/partition.h"
#include "passes/pipeline.h"
#include "passes/plan_writes.h"
#include "passes/split_bias.h"
#include "test.h"

using namespace reprise;
using namespace reprise::graph;

namespace {

Graph read_graph(std::string_view text) {
  auto parsed = parse_graph(text);
  if (const auto* error = std::get_if<ParseError>(&parsed)) EXPECT_EQ(error->text, "");
  REQUIRE(std::holds_alternative<Graph>(parsed));
  return std::move(std::get<Graph>(parsed));
}

}  // namespace

TEST("the pipeline reports its passes, and skips disabled ones") {
  Graph graph = read_graph("graph {\n %0 = input : float32[2]\n %1 = aten::exp(%0)\n return %0\n}\n");
  const std::string_view disabled[] = {"drop_dead"};
  passes::PipelineOptions options;
  options.disabled = disabled;
  options.verifies = true;
  const passes::PipelineResult result = passes::run_pipeline(graph, options);
  EXPECT(!result.unsupported.has_value());
  EXPECT_EQ(result.reports.size() + 1, passes::get_passes().size());
  EXPECT_EQ(graph.nodes.size(), 1u);
  EXPECT(passes::find_pass("drop_dead") != nullptr);
  EXPECT(passes::find_pass("no such pass") == nullptr);
}

TEST("every pass but the needed ones is a part that the option `without` names") {
  for (const passes::PassInfo& pass : passes::get_passes()) {
    const bool is_needed = pass.name == "functionalise" || pass.name == "drop_dead";
    EXPECT_EQ(base::find_part(pass.name) == nullptr, is_needed);
  }
}

TEST("writes: dead memory is taken over, inputs are written directly, the rest is copied") {
  Graph graph = read_graph(R"(graph functional {
  %0 = buffer mutated : float32[4]
  %1 = buffer mutated : float32[4]
  %2 = input : float32[8, 4]
  %3, %4, %5 = aten::native_batch_norm(%2, none, none, %0 => %6, %1 => %7, true, 0.1, 1e-05) : float32[8, 4], float32[4], float32[4], float32[4], float32[4]
  %8 = aten::add.Tensor(%1, %7, 1)
  %9 = aten::exp(%2)
  _ = aten::bernoulli_.float(%9 => %10, 0.5, none)
  _ = aten::bernoulli_.float(%2 => %11, 0.5, none)
  _ = aten::bernoulli_.float(%3 => %12, 0.5, none)
  return %8, %10, %11, %12, %3
  effect copy input 0 <- %6
  effect copy input 1 <- %7
})");
  verify_graph(graph);
  const std::vector<passes::Write> writes = passes::plan_writes(graph);
  REQUIRE(writes.size() == 5);
  EXPECT(writes[0].kind == passes::WriteKind::OnInput);
  EXPECT_EQ(writes[0].effect, 0u);
  EXPECT(writes[1].kind == passes::WriteKind::Copy);  // input 1 is read later
  EXPECT(writes[2].kind == passes::WriteKind::InPlace);
  EXPECT(writes[3].kind == passes::WriteKind::Copy);  // an input without an effect
  EXPECT(writes[4].kind == passes::WriteKind::Copy);  // an output
}

TEST("the maximum flow is the minimum cut") {
  // A chain with a side way: the cut is where the edges are narrow.
  passes::MaxFlow flow(6);
  flow.add_edge(0, 1, 10);
  flow.add_edge(0, 2, 10);
  flow.add_edge(1, 3, 4);
  flow.add_edge(2, 3, 3);
  flow.add_edge(2, 4, 2);
  flow.add_edge(3, 5, 100);
  flow.add_edge(4, 5, 100);
  EXPECT_EQ(flow.run(0, 5), 9);
  const std::vector<bool> is_source_side = flow.find_source_side(0);
  EXPECT(is_source_side[1] && is_source_side[2] && !is_source_side[3] && !is_source_side[4]);
}

TEST("a backward for a forward that exists saves only what that one has") {
  const Graph graph = read_graph(R"(graph functional {
  %0 = input : float32[4]
  %1 = tangent : float32[4]
  %2 = aten::exp(%0)
  %3 = aten::sin(%2)
  %4 = aten::mul.Tensor(%3, %2)
  backward:
  %5 = aten::mul.Tensor(%1, %3)
  return %4
  gradient of input 0: %5
})");
  const ValueId available[] = {ValueId(2)};
  passes::PartitionOptions options;
  options.available = available;
  const passes::Partition parts = passes::partition_graph(graph, options);
  REQUIRE(parts.forward.saved.size() == 1);
  EXPECT(parts.forward.saved[0] == ValueId(2));
  EXPECT_EQ(parts.saved_bytes, 16);
  EXPECT_EQ(parts.backward.nodes.size(), 2u);
  verify_graph(parts.backward);
}

TEST("rules and passes carry symbolic sizes") {
  Graph graph = read_graph(R"(graph {
  symbol s0 in [2, 4096] hint 8
  %0 = input : float32[s0, 16]
  %1 = parameter : float32[32, 16]
  %2 = aten::t(%1)
  %3 = aten::mm(%0, %2)
  %4 = aten::view(%3, [{s0}, 4, 8])
  %5 = aten::permute(%4, [1, 0, 2])
  %6 = aten::clone(%5, contiguous_format)
  %6 = aten::relu_(mut %6)
  %7 = aten::sum.dim_IntList(%6, [-1], true, none)
  %8 = aten::slice.Tensor(%0, 0, 1, 9223372036854775807, 1)
  %9 = aten::cat([%8, %0], 0)
  %10 = aten::view(%6, [-1, 8])
  return %7, %9, %10
})");
  passes::PipelineOptions options;
  options.verifies = true;
  EXPECT(!passes::run_pipeline(graph, options).unsupported.has_value());
  EXPECT_EQ(print_graph(graph), R"(graph functional {
  symbol s0 in [2, 4096] hint 8
  %0 = input : float32[s0, 16] storage 1
  %1 = parameter : float32[32, 16] storage 3
  %2 = aten::t(%1) : float32[16, 32; 1, 16] storage 3
  %3 = aten::mm(%0, %2) : float32[s0, 32] storage 4
  %4 = aten::view(%3, [{s0}, 4, 8]) : float32[s0, 4, 8] storage 4
  %5 = aten::permute(%4, [1, 0, 2]) : float32[4, s0, 8; 8, 32, 1] storage 4
  %6 = aten::clone(%5, contiguous_format) : float32[4, s0, 8]
  %11 = aten::relu(%6) : float32[4, s0, 8] storage 8
  %7 = aten::sum.dim_IntList(%11, [-1], true, none) : float32[4, s0, 1]
  %8 = aten::slice.Tensor(%0, 0, 1, 9223372036854775807, 1) : float32[s0 - 1, 16] @16 storage 1
  %9 = aten::cat([%8, %0], 0) : float32[s0*2 - 1, 16]
  %10 = aten::view(%11, [{s0*4}, 8]) : float32[s0*4, 8] storage 8
  return %7, %9, %10
}
)");
}

TEST("split_bias: a product and a sum where the test says so and both scales are 1") {
  Graph graph = read_graph(R"(graph functional {
  %0 = input : float32[8]
  %1 = input : float32[4, 16]
  %2 = input : float32[16, 8]
  %3 = aten::addmm(%0, %1, %2, 1, 1)
  %4 = aten::addmm(%0, %1, %2, 2, 1)
  %5 = input : float64[4, 16]
  %6 = input : float64[16, 8]
  %7 = input : float64[8]
  %8 = aten::addmm(%7, %5, %6, 1, 1)
  return %3, %4, %8
})");
  const passes::ProductTest is_this = [](std::int64_t batches, std::int64_t m, std::int64_t k, std::int64_t n) {
    return batches == 1 && m == 4 && k == 16 && n == 8;
  };
  EXPECT(!passes::split_bias(graph, is_this).has_value());
  verify_graph(graph);
  REQUIRE(graph.nodes.size() == 4);
  EXPECT(graph.nodes[0].op == OpId::mm);
  EXPECT(graph.nodes[1].op == OpId::add_Tensor);
  EXPECT(graph.nodes[2].op == OpId::addmm);
  EXPECT(graph.nodes[3].op == OpId::addmm);
  EXPECT(graph.outputs[0].value == graph.nodes[1].outs[0]);
  Graph same = read_graph(
      "graph functional {\n %0 = input : float32[8]\n %1 = input : float32[4, 16]\n"
      " %2 = input : float32[16, 8]\n %3 = aten::addmm(%0, %1, %2, 1, 1)\n return %3\n}\n");
  EXPECT(!passes::split_bias(same, [](auto...) { return false; }).has_value());
  EXPECT_EQ(same.nodes.size(), 1u);
}
