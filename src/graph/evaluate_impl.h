// Between evaluate.cpp (arrays, the walk over nodes) and evaluate_ops.cpp (one pointwise op on elements).
#pragma once

#include <optional>
#include <span>

#include "graph/evaluate.h"

namespace reprise::graph {

// The result of a pointwise op on one position. `operands` are the arguments in order (a number as such; none as
// integer 0 with `present` false). Computed on reals if `is_float`, else on integers. Nothing: the op is not known.
std::optional<Element> evaluate_pointwise(OpId op, std::span<const Element> operands, std::span<const bool> present,
                                          bool is_float);
// a op b of a scalar:: op, or nothing.
std::optional<Element> evaluate_scalar(OpId op, std::span<const Element> operands);

inline Element make_real(double value) { return {true, value, 0}; }
inline Element make_integer(std::int64_t value) { return {false, 0, value}; }

}  // namespace reprise::graph
