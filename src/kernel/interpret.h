// The reference: runs a kernel node by node, with exactly the meaning that kernel.h gives. Slow and plain.
//
// Same calling convention as compiled code. Accumulators follow the lanes and unrolling that the IR says, so results
// equal those of a code generator bit for bit, but for math functions: those come from `math`, which computes one
// element (float32 arguments are exact in double; the result is rounded to the dtype by the caller of `math`).
// The default is the C library in the dtype's own precision.
// Threads: no shared state. Bounds: an access outside of a buffer's count is a failed REPRISE_CHECK.
#pragma once

#include <cstdint>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

using MathEvaluator = double (*)(MathFunction function, Numerics numerics, DType dtype, double a, double b);

REPRISE_EXPORT double evaluate_with_libm(MathFunction function, Numerics numerics, DType dtype, double a, double b);

REPRISE_EXPORT void interpret(const Kernel& kernel, void* const* buffers, const std::int64_t* scalars,
                              std::int64_t begin, std::int64_t end, MathEvaluator math = evaluate_with_libm);

// The number of units of the outermost ranges, for given scalars.
REPRISE_EXPORT std::int64_t count_units(const Kernel& kernel, const std::int64_t* scalars);

}  // namespace reprise::kernel
