// Text tests: tests/ir/lower/*.gir and tests/ir/schedule/*.gir.
//
// A file is a list of cases. A case is
//     // a sentence
//     show: lower groups kernels program      (what is printed, in this order; "done": which effects the program has
//                                             done; "fast": without rounding inside of kernels)
//     <functional graph>
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
#include "graph/verify.h"
#include "kernel/text.h"
#include "kernel/verify.h"
#include "lower/lowered.h"
#include "schedule/schedule.h"
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

std::string run_case(const std::string& words, const std::string& text) {
  auto parsed = graph::parse_graph(text);
  if (const auto* error = std::get_if<graph::ParseError>(&parsed))
    return "line " + std::to_string(error->line) + " of the graph: " + error->text + "\n";
  const graph::Graph& graph = std::get<graph::Graph>(parsed);
  if (const std::string error = graph::find_graph_error(graph); !error.empty()) return error + "\n";
  schedule::Options options;
  options.keep_rounding = words.find("fast") == std::string::npos;
  auto plan = schedule::make_plan(graph, options);
  if (!plan) return "unsupported: " + plan.unsupported().text + "\n";
  if (const std::string error = program::verify(plan.value().program); !error.empty()) return error + "\n";
  std::string found;
  std::istringstream names(words);
  for (std::string name; names >> name;) {
    if (name == "lower") found += lower::print(lower::lower(graph));
    if (name == "groups") found += schedule::print_groups(graph);
    if (name == "program") {
      program::Program program = plan.value().program;
      for (program::Code& code : program.codes) code.key = 0;  // changes with every change of the kernel
      found += program::print(program);
    }
    if (name == "done") {
      for (std::size_t e = 0; e < plan.value().effect_is_done.size(); ++e)
        found += "effect " + std::to_string(e) + (plan.value().effect_is_done[e] ? " is done\n" : " is left\n");
    }
    for (const kernel::Kernel& kernel : plan.value().kernels) {
      if (const std::string error = kernel::verify(kernel); !error.empty()) found += error + "\n";
      if (name == "kernels") found += kernel::print(kernel);
    }
  }
  return found;
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
    const std::size_t words_at = one.find("show:");
    if (words_at == std::string::npos) continue;
    const std::size_t line_end = one.find('\n', words_at);
    const std::size_t bar = one.find("----\n", line_end);
    const std::string head = one.substr(0, bar == std::string::npos ? one.size() : bar);
    const std::string expected = bar == std::string::npos ? "" : one.substr(bar + 5);
    const std::string found = run_case(one.substr(words_at + 5, line_end - words_at - 5), head.substr(line_end + 1));
    const bool is_right = fits(split_lines(expected), 0, split_lines(found), 0);
    blessed += head + (head.ends_with('\n') ? "" : "\n") + "----\n" + (is_right ? expected : found) + "====\n";
    if (!is_right && !blesses)
      test::note_failure(path.c_str(), 1, one.substr(0, words_at) + "found:\n" + found + "expected:\n" + expected);
  }
  if (blesses) std::ofstream(path) << blessed;
}

void run_folder(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gir") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  EXPECT(!paths.empty());
  for (const auto& path : paths) run_file(path);
}

}  // namespace

TEST("the text tests of lowering hold") { run_folder("tests/ir/lower"); }
TEST("the text tests of fusion, kernels and programs hold") { run_folder("tests/ir/schedule"); }
