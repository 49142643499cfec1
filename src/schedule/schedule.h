// From a graph to a Plan: lowering, fusion, memory, steps.
//
//   base::Result<Plan> plan = make_plan(graph, options);
//
// The graph is functional and verified. Every op works: what is not lowered is an extern step by the op's name.
// Unsupported: sizes or numbers of the graph that are symbolic (for now).
// The memory plan is described at the top of assemble_memory.cpp. Near-linear in the graph; deterministic; no shared
// state.
#pragma once

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"
#include "schedule/plan.h"

namespace reprise::schedule {

struct Options {
  bool only_extern = false;   // backend aot_eager: no kernels
  bool fuse = true;           // false: one kernel an op
  bool reuse_memory = true;   // false: every temporary has memory of its own
  bool keep_rounding = true;  // half types are rounded between fused ops, as eager does; false: numerics="fast"
  bool write_inputs = true;   // a Copy effect may be done by the kernel or in-place op that computes the value
};

REPRISE_EXPORT base::Result<Plan> make_plan(const graph::Graph& graph, const Options& options = {});

// The groups of make_plan() as text: for tests and the log.
REPRISE_EXPORT std::string print_groups(const graph::Graph& graph, const Options& options = {});

}  // namespace reprise::schedule
