#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "passes/decompose.h"
#include "passes/drop_dead.h"
#include "passes/fold_views.h"
#include "passes/functionalise.h"
#include "passes/merge_equal.h"
#include "passes/simplify.h"
#include "passes/use_functional_ops.h"

namespace reprise::passes {

namespace {

constexpr PassInfo kPasses[] = {
#define X(function, header, doc) {#function, doc, function},
#include "passes/pipeline.def"
#undef X
};

void log_graph(const graph::Graph& graph, std::string_view graph_name, std::string_view when) {
  if (!base::is_log_enabled(base::LogWord::Graph)) return;
  base::write_log(base::LogWord::Graph,
                  std::string(graph_name) + ", " + std::string(when) + ":\n" + graph::print_graph(graph));
}

}  // namespace

std::span<const PassInfo> get_passes() { return kPasses; }

const PassInfo* find_pass(std::string_view name) {
  for (const PassInfo& pass : kPasses) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

PipelineResult run_pipeline(graph::Graph& graph, const PipelineOptions& options) {
  PipelineResult result;
  log_graph(graph, options.graph_name, "before the passes");
  if (options.verifies) graph::verify_graph(graph);
  for (const PassInfo& pass : kPasses) {
    if (std::find(options.disabled.begin(), options.disabled.end(), pass.name) != options.disabled.end()) continue;
    PassReport report;
    report.name = pass.name;
    report.nodes_before = static_cast<std::uint32_t>(graph.nodes.size());
    const auto start = std::chrono::steady_clock::now();
    result.unsupported = pass.run(graph);
    report.time_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
    report.nodes_after = static_cast<std::uint32_t>(graph.nodes.size());
    result.reports.push_back(report);
    if (result.unsupported) return result;
    log_graph(graph, options.graph_name, "after " + std::string(pass.name));
    if (options.verifies) graph::verify_graph(graph);
  }
  return result;
}

std::string describe_reports(std::span<const PassReport> reports) {
  std::string text;
  for (const PassReport& report : reports) {
    char line[160];
    std::snprintf(line, sizeof(line), "%.*s %.2f ms %u -> %u nodes\n", static_cast<int>(report.name.size()),
                  report.name.data(), static_cast<double>(report.time_ns) * 1e-6, report.nodes_before,
                  report.nodes_after);
    text += line;
  }
  return text;
}

}  // namespace reprise::passes
