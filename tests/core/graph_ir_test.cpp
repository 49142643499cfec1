// Text tests: tests/ir/graph/*.gir.
//
// A file is a list of cases. A case is
//     // a sentence
//     passes: functionalise drop_dead         (names of pipeline.def, "pipeline", "partition" or "partition min_cut")
//     <graph>
//     ----
//     <expected text>
//     ====
// The found text is compared line by line; a line "..." fits any number of lines. BLESS=1 writes the found texts.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "passes/partition.h"
#include "passes/pipeline.h"
#include "test.h"

using namespace reprise;

namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    lines.push_back(line.substr(first, line.find_last_not_of(' ') + 1 - first));
  }
  return lines;
}

bool fits(const std::vector<std::string>& expected, std::size_t e, const std::vector<std::string>& found,
          std::size_t f) {
  for (; e < expected.size(); ++e, ++f) {
    if (expected[e] == "...") {
      for (std::size_t rest = f; rest <= found.size(); ++rest) {
        if (fits(expected, e + 1, found, rest)) return true;
      }
      return false;
    }
    if (f == found.size() || expected[e] != found[f]) return false;
  }
  return f == found.size();
}

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

void run_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream whole;
  whole << file.rdbuf();
  const std::string text = whole.str();
  const bool blesses = std::getenv("BLESS") != nullptr;
  std::string blessed;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = text.find("====\n", at);
    if (end == std::string::npos) end = text.size();
    const std::string one = text.substr(at, end - at);
    at = std::min(end + 5, text.size());
    const std::size_t passes_at = one.find("passes:");
    if (passes_at == std::string::npos) continue;
    const std::size_t line_end = one.find('\n', passes_at);
    const std::size_t bar = one.find("----\n", line_end);
    const std::string head = one.substr(0, bar == std::string::npos ? one.size() : bar);
    const std::string expected = bar == std::string::npos ? "" : one.substr(bar + 5);
    const std::string found = run_case(one.substr(passes_at + 7, line_end - passes_at - 7), head.substr(line_end + 1));
    const bool is_right = fits(split_lines(expected), 0, split_lines(found), 0);
    blessed += head + (head.ends_with('\n') ? "" : "\n") + "----\n" + (is_right ? expected : found) + "====\n";
    if (!is_right && !blesses)
      test::note_failure(path.c_str(), 1, one.substr(0, passes_at) + "found:\n" + found + "expected:\n" + expected);
  }
  if (blesses) std::ofstream(path) << blessed;
}

}  // namespace

TEST("the text tests of graph passes hold") {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/ir/graph")) {
    if (entry.path().extension() == ".gir") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  EXPECT(!paths.empty());
  for (const auto& path : paths) run_file(path);
}
