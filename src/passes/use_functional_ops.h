// Writing nodes become their functional twins: add_ -> add, _foreach_mul_ -> _foreach_mul, copy_ -> clone, zero_ ->
// full.
//
// Only where the twin's result has the dtype, sizes and strides of the new value; the rest keeps its `mut` mask. What
// is overwritten whole is then no longer an argument. Functional form; linear.
#pragma once

#include <optional>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

REPRISE_EXPORT std::optional<base::Unsupported> use_functional_ops(graph::Graph& graph);

}  // namespace reprise::passes
