// Plans of recorded training steps of real models: tests/graph/recorded/*.txt.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/parser.h"
#include "kernel/text.h"
#include "kernel/verify.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"
#include "test.h"

using namespace reprise;

namespace {

void check_step(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto parsed = graph::parse_graph(text.str());
  REQUIRE(std::holds_alternative<graph::Graph>(parsed));
  graph::Graph graph = std::move(std::get<graph::Graph>(parsed));
  REQUIRE(!passes::run_pipeline(graph, {}).unsupported);
  const auto planned = schedule::make_plan(graph);
  REQUIRE(planned.is_ok());
  const schedule::Plan& plan = planned.value();
  EXPECT_EQ(program::verify(plan.program), "");
  for (const kernel::Kernel& kernel : plan.kernels) {
    if (const std::string error = kernel::verify(kernel); !error.empty())
      test::note_failure(path.c_str(), 1, error + "\n" + kernel::print(kernel));
  }
  // Parameters and their states are written in place, and the same graph gives the same plan.
  std::size_t left = 0;
  for (std::size_t e = 0; e < graph.effects.size(); ++e)
    left += graph.effects[e].kind == graph::EffectKind::Copy && !plan.effect_is_done[e];
  EXPECT_EQ(left, 0u);
  const auto again = schedule::make_plan(graph);
  EXPECT(again.value().program == plan.program);
  const auto only_extern = schedule::make_plan(graph, {.only_extern = true});
  EXPECT_EQ(program::verify(only_extern.value().program), "");
  EXPECT(only_extern.value().kernels.empty());
  EXPECT(plan.statistics.launches + plan.statistics.extern_ops < only_extern.value().statistics.extern_ops);
  if (std::getenv("REPRISE_SHOW") == nullptr) return;
  std::printf("%s: %zu nodes, %u launches of %zu kernels, %u library calls, %zu effects left\n%s", path.c_str(),
              graph.nodes.size(), plan.statistics.launches, plan.kernels.size(), plan.statistics.extern_ops, left,
              program::print(plan.program).c_str());
}

}  // namespace

TEST("recorded training steps of models have plans") {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/graph/recorded")) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  EXPECT(!paths.empty());
  for (const auto& path : paths) check_step(path);
}
