// addmm(bias, a, b) -> add(mm(a, b), bias), baddbmm likewise, where `is_split(batches, m, k, n)` says so: for libraries
// that do not add the bias themselves. The sum becomes part of a kernel that needs it.
//
// Functional form, scales of 1; linear. Another rounding than the library's: the product is rounded before the sum.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/export.h"
#include "base/result.h"
#include "graph/graph.h"

namespace reprise::passes {

using ProductTest = std::function<bool(std::int64_t batches, std::int64_t m, std::int64_t k, std::int64_t n)>;

REPRISE_EXPORT std::optional<base::Unsupported> split_bias(graph::Graph& graph, const ProductTest& is_split);

}  // namespace reprise::passes
