// Ops that are written with others, by the tables decompositions.def and foreach_ops.def.
//
// Few on purpose: what lowering wants whole (softmax, norms, losses, gelu, dropout) stays whole, and what a library
// does stays extern. Lists of tensors become one op a tensor; views with several results become one view a result.
// A node whose rewriting would have another dtype or layout stays. Functional form; linear in nodes and results.
#pragma once

#include <optional>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

REPRISE_EXPORT std::optional<base::Unsupported> decompose(graph::Graph& graph);

}  // namespace reprise::passes
