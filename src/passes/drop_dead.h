// Dead code: nodes go whose results lead to no output, effect, gradient or saved value.
//
// Random ops, random states, asserts and ops without results stay, in order. Functional form; linear.
#pragma once

#include <optional>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

REPRISE_EXPORT std::optional<base::Unsupported> drop_dead(graph::Graph& graph);

// Whether the node lives without uses.
REPRISE_EXPORT bool is_root(const graph::Node& node);

}  // namespace reprise::passes
