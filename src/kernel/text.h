// The textual form of kernels. parse(print(k)) gives a kernel that prints the same text and has the same hash.
//
//   kernel
//     buffer b0 float32 read 262144
//     buffer b1 float32 write 262144
//     local b2 float32 512
//     param %0 int64
//     %1 = const float32 0.5
//   parallel %2 in 0 .. 256 {
//     %3 = acc sum float32
//     vector %4 in 0 .. 1024 lanes 8 unroll 4 {
//       %5 = load b0[%4 + 1024*%2]
//       reduce %3, %5
//     }
//     %6 = result %3
//     store b1[%2], %6
//   }
//
// A loop may have "limit <affine>" and "step <n>" behind its range. A mask stands at the end: "if %7". Math functions
// carry their numerics: "%8 = exp.sleef %5". Floats are printed so that they read back the same bits; NaN, inf by name.
// Text behind '#' is a comment. Names are numbers, given anew in program order by print().
#pragma once

#include <string>
#include <string_view>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

REPRISE_EXPORT std::string print(const Kernel& kernel);

struct ParseResult {
  Kernel kernel;
  std::string error;  // empty: parsed (not verified); else "line 3: expected ..., found ..."
};
REPRISE_EXPORT ParseResult parse(std::string_view text);

}  // namespace reprise::kernel
