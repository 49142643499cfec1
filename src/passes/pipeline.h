// The list of passes, and its runner.
//
// run_pipeline() runs the rows of pipeline.def on one graph: each pass is timed, verified if asked, dumped if the log
// word `graph` is on, and skipped if it is named in `disabled`. A pass that finds the graph unsupported ends the run;
// the graph is then as the pass before left it. One thread a graph (its Context's).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

using Pass = std::optional<base::Unsupported> (*)(graph::Graph& graph);

struct PassInfo {
  std::string_view name;
  std::string_view doc;
  Pass run;
};

// In order of pipeline.def.
REPRISE_EXPORT std::span<const PassInfo> get_passes();
REPRISE_EXPORT const PassInfo* find_pass(std::string_view name);

struct PassReport {
  std::string_view name;
  std::int64_t time_ns = 0;
  std::uint32_t nodes_before = 0;
  std::uint32_t nodes_after = 0;
};

struct PipelineOptions {
  std::span<const std::string_view> disabled;
  bool verifies = false;
  std::string_view graph_name = "graph";  // in dumps
};

struct PipelineResult {
  std::vector<PassReport> reports;
  std::optional<base::Unsupported> unsupported;
};

REPRISE_EXPORT PipelineResult run_pipeline(graph::Graph& graph, const PipelineOptions& options = {});

// "functionalise 0.31 ms 120 -> 131 nodes", a line a pass.
REPRISE_EXPORT std::string describe_reports(std::span<const PassReport> reports);

}  // namespace reprise::passes
