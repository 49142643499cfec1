// Text tests: tests/ir/graph/*.gir (ir_text.h). The words of a case are
//     passes: functionalise drop_dead         (names of pipeline.def, "pipeline", "partition" or "partition min_cut")
#include <sstream>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "ir_text.h"
#include "passes/partition.h"
#include "passes/pipeline.h"
#include "test.h"

using namespace reprise;

namespace {

std::string run_case(const std::string& passes, const std::string& text) {
  auto parsed = graph::parse_graph(text);
  if (const auto* error = std::get_if<graph::ParseError>(&parsed))
    return "line " + std::to_string(error->line) + " of the graph: " + error->text + "\n";
  graph::Graph graph = std::move(std::get<graph::Graph>(parsed));
  if (const std::string error = graph::find_graph_error(graph); !error.empty()) return error + "\n";
  std::istringstream names(passes);
  for (std::string name; names >> name;) {
    if (name == "pipeline") {
      passes::PipelineOptions options;
      options.verifies = true;
      const auto result = passes::run_pipeline(graph, options);
      if (result.unsupported) return "unsupported: " + result.unsupported->text + "\n";
    } else if (name == "partition") {
      std::string mode;
      passes::PartitionOptions options;
      if (names >> mode && mode == "min_cut") options.mode = passes::PartitionMode::MinCut;
      const passes::Partition parts = passes::partition_graph(graph, options);
      for (const graph::Graph* part : {&parts.forward, &parts.backward}) {
        if (const std::string error = graph::find_graph_error(*part); !error.empty()) return error + "\n";
      }
      return graph::print_graph(parts.forward) + graph::print_graph(parts.backward);
    } else {
      const passes::PassInfo* pass = passes::find_pass(name);
      if (pass == nullptr) return "no pass " + name + "\n";
      if (const auto unsupported = pass->run(graph)) return "unsupported: " + unsupported->text + "\n";
      if (const std::string error = graph::find_graph_error(graph); !error.empty())
        return error + "\n" + graph::print_graph(graph);
    }
  }
  return graph::print_graph(graph);
}

}  // namespace

TEST("the text tests of graph passes hold") { test::run_text_folder("tests/ir/graph", "passes:", run_case); }
