// Invariants of a graph.
//
// 1. Every used id is a value of the graph, computed (or an input or a constant) before its first use.
// 2. Producers are right; in the functional form nothing is computed twice and results are no arguments.
// 3. new_values fit the mut mask: one for each tensor of each mut argument; none in the recorded form.
// 4. outs fit returns; kinds of arguments that the row knows (mut arguments are tensors or lists of them).
// 5. Metadata: as many strides as sizes, sizes not negative, a storage; results of view ops share argument 0's.
// 6. Outputs, effects and gradients name inputs and outputs that exist; an output that is another one or a view of one
//    names an output of kind Value, and only outputs of that kind have a value. An input with a Copy, SetData or Resize
//    effect is marked mutated, and only those.
// Linear in the size of the graph. Returns the first broken one as a text, or "".
#pragma once

#include <string>

#include "base/export.h"
#include "graph/graph.h"

namespace reprise::graph {

REPRISE_EXPORT std::string find_graph_error(const Graph& graph);
// Internal error with the text, if there is one.
REPRISE_EXPORT void verify_graph(const Graph& graph);

}  // namespace reprise::graph
