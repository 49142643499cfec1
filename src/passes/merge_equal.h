// Common subexpressions: of equal nodes the first one stays.
//
// Equal means the same op, phase and arguments (floats bitwise). Not across phases: that would undo checkpointing. Not
// random ops, not writing ones, not extern ones, not empty tensors. Functional form; linear.
#pragma once

#include <optional>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

REPRISE_EXPORT std::optional<base::Unsupported> merge_equal(graph::Graph& graph);

}  // namespace reprise::passes
