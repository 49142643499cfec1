// From the recorded form to the functional one.
//
// Writes go away: a writing node keeps its op and its `mut` mask and gets new values for what it wrote; later uses of
// the same memory, through whatever view, read the new contents. Inputs that changed get Copy effects at the end.
// Outputs get their kind: a value, a view of an input or of another output, the input object, another output.
// detach, alias and lift_fresh vanish. View ops stay view ops; views of changed memory are made again.
// The graph is rebuilt; ids of values that keep their meaning are kept. Linear in the graph (a write through a chain
// of views costs the length of the chain).
// Unsupported (AliasedMutation): a write to inputs that share memory of which none covers the others, or to a view
// that cannot be made again. The graph is then unchanged.
#pragma once

#include <optional>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

REPRISE_EXPORT std::optional<base::Unsupported> functionalise(graph::Graph& graph);

}  // namespace reprise::passes
