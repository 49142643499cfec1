// One scalar operation on bits (numbers.h): the meaning of the rows of scalar_ops.def, class Number to Round.
#pragma once

#include <cstdint>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

// `operand_dtype` is that of the first operand (of the second for select); `dtype` that of the result.
REPRISE_EXPORT std::uint64_t evaluate_op(ScalarOp op, DType operand_dtype, DType dtype, std::uint64_t a,
                                         std::uint64_t b, std::uint64_t c);

// An accumulator's value and, for argmax and argmin, its index.
struct Partial {
  std::uint64_t bits = 0;
  std::int64_t index = 0;
};
REPRISE_EXPORT Partial get_start(Combine combine, DType dtype);
REPRISE_EXPORT Partial combine_partials(Combine combine, DType dtype, Partial a, Partial b);

// The start of max and min: the least (greatest) value of a dtype; infinities for floats.
REPRISE_EXPORT std::uint64_t get_least(DType dtype);
REPRISE_EXPORT std::uint64_t get_greatest(DType dtype);

}  // namespace reprise::kernel
