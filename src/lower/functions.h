// The functions that lower_ops.def names, by family; one file each (lower_<family>.cpp).
#pragma once

#include "lower/call.h"

namespace reprise::lower {

// Declares every function of the table once (the type is the same, so repetitions do no harm).
#define X(id, function) bool function(Call& call);
#include "lower/lower_ops.def"
#undef X

// --- shared by families: formulas of eager's kernels, on compute dtypes ---

// Whose bits a stand-alone function of eager has for results of this dtype (cpu_codegen report: MKL's VML for float32
// and float64, Sleef for half types and inside fused kernels).
Numerics choose_numerics(MathFunction function, DType result);

Ex emit_both(Call& call, Ex a, Ex b);                  // a and b; one that is not valid is always true
Ex emit_constant(Call& call, Ex like, double number);  // of the dtype of `like`
Ex emit_rounded(Call& call, Ex x, DType dtype);        // to the precision of a half type, where eager rounds in between
Ex emit_sigmoid(Call& call, Ex x);
Ex emit_fused_exp(Call& call, Ex x);  // exp as inside eager's fused kernels
Ex emit_erf(Call& call, Ex x);        // as inside eager's fused kernels

}  // namespace reprise::lower
