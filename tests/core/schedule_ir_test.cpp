// Text tests: tests/ir/lower/*.gir and tests/ir/schedule/*.gir (ir_text.h). The text in is a functional graph, the
// words of a case are
//     show: lower groups kernels program      (what is printed, in this order; "done": which effects the program has
//                                             done; "fast": without rounding inside of kernels)
#include <sstream>

#include "graph/parser.h"
#include "graph/verify.h"
#include "ir_text.h"
#include "kernel/text.h"
#include "kernel/verify.h"
#include "lower/lowered.h"
#include "schedule/schedule.h"
#include "test.h"

using namespace reprise;

namespace {

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
      for (program::Code& code : program.codes) code.key = {};  // changes with every change of the kernel
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

}  // namespace

TEST("the text tests of lowering hold") { test::run_text_folder("tests/ir/lower", "show:", run_case); }
TEST("the text tests of fusion, kernels and programs hold") {
  test::run_text_folder("tests/ir/schedule", "show:", run_case);
}
