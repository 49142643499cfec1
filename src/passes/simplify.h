// Algebra that holds for NaN, infinities and signed zeros, and for wrapping integers; folding of Python numbers.
//
// The rules stand in simplify.cpp, each with its algebra above it. A copy that nobody can tell from the original goes
// unless it is an output or the like. Functional form; linear.
#pragma once

#include <optional>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

REPRISE_EXPORT std::optional<base::Unsupported> simplify(graph::Graph& graph);

}  // namespace reprise::passes
