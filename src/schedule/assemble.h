// Items and their kernels as the steps of a program, with memory.
#pragma once

#include <vector>

#include "schedule/emit.h"
#include "schedule/group.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

namespace reprise::schedule {

// Tensors that outputs, effects, gradients and saved values need behind the last step.
std::vector<bool> find_roots(const graph::Graph& graph);

// `emitted[g]` is the kernel of group g; the kernels move into the plan.
Plan assemble(const graph::Graph& graph, const Lowered& lowered, const Grouping& grouping, std::vector<Emitted> emitted,
              const Options& options);

}  // namespace reprise::schedule
