// The pipeline over recorded training steps of real models: tests/graph/recorded/*.txt, written by record_steps.py.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "passes/partition.h"
#include "passes/pipeline.h"
#include "passes/plan_writes.h"
#include "test.h"

using namespace reprise;
using namespace reprise::graph;

namespace {

void check_step(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto parsed = parse_graph(text.str());
  if (const auto* error = std::get_if<ParseError>(&parsed)) {
    test::note_failure(path.c_str(), error->line, error->text);
    return;
  }
  Graph graph = std::move(std::get<Graph>(parsed));
  const std::string recorded = print_graph(graph);
  if (const std::string error = find_graph_error(graph); !error.empty()) {
    test::note_failure(path.c_str(), 1, error);
    return;
  }
  passes::PipelineOptions options;
  options.verifies = true;
  const passes::PipelineResult result = passes::run_pipeline(graph, options);
  if (result.unsupported) {
    test::note_failure(path.c_str(), 1, result.unsupported->text);
    return;
  }
  // Every parameter that the optimizer changed has its effect, and only few nodes still write.
  std::size_t mutated = 0, parameters = 0, written = 0, copied = 0;
  for (const Input& input : graph.inputs) {
    parameters += input.kind == InputKind::Parameter;
    mutated += input.kind == InputKind::Parameter && input.is_mutated;
  }
  for (const Node& node : graph.nodes) {
    written += node.mut != 0;
    EXPECT(node.mut == 0 || get_op_info(node.op).family != OpFamily::Pointwise);
  }
  for (const passes::Write& write : passes::plan_writes(graph)) copied += write.kind == passes::WriteKind::Copy;
  EXPECT(parameters > 0);
  EXPECT_EQ(mutated, parameters);
  EXPECT(written <= 12);
  EXPECT_EQ(copied, 0u);
  // The same text twice, and it reads back.
  const std::string once = print_graph(graph);
  auto again = parse_graph(once);
  REQUIRE(std::holds_alternative<Graph>(again));
  EXPECT_EQ(print_graph(std::get<Graph>(again)), once);
}

}  // namespace

TEST("recorded training steps of models become functional graphs") {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/graph/recorded")) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  EXPECT_EQ(paths.size(), 4u);
  for (const auto& path : paths) check_step(path);
}
