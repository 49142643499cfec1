// Kernel IR as C++ that people can read, for the system's compiler: the readable twin of codegen/llvm.
//
// print_cpp() gives one function of the kernels' calling convention, extern "C"; get_cpp_prelude() is what stands once
// in front of any number of them. Only the standard library is needed, and VML's functions where the kernel calls them.
// Compile with -O2 -ffp-contract=off -fno-strict-aliasing (-fopenmp-simd lets the pragmas count). Results are those of
// kernel/interpret.h with the C library's math: accumulators follow lanes and unrolling, so give it a prepared kernel.
// Deterministic; no state.
#pragma once

#include <string>
#include <string_view>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::codegen {

REPRISE_EXPORT std::string_view get_cpp_prelude();
REPRISE_EXPORT std::string print_cpp(const kernel::Kernel& kernel, const std::string& symbol);

}  // namespace reprise::codegen
