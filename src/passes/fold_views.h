// Chains of view ops become one view op or none.
//
// A view with the metadata of something further up its chain is that value; a reshape of a reshape is one reshape; a
// permutation of a permutation is one. Functional form; linear (chains are looked at a few levels up).
#pragma once

#include <optional>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

REPRISE_EXPORT std::optional<base::Unsupported> fold_views(graph::Graph& graph);

}  // namespace reprise::passes
