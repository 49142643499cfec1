// Kernel IR as C++ that people can read, for the system's compiler: the readable twin of codegen/llvm.
//
// print_cpp() gives one function of the kernels' calling convention, extern "C"; get_cpp_prelude() is what stands once
// in front of any number of them. Only the standard library is needed, and VML's functions where the kernel calls them.
// Compile with -O2 -ffp-contract=off -fno-strict-aliasing (-fopenmp-simd lets the pragmas count). Results are those of
// kernel/interpret.h with the C library's math: accumulators follow lanes and unrolling, so give it a prepared kernel.
// print_cpp_unit() gives one source for the kernels of a program, with the math that codegen/llvm calls: Sleef and VML,
// through pointers. Who loads it (toolchain/link.h) finds two more symbols:
//     extern "C" const char* const reprise_import_names[];       what it calls; ends with a null
//     extern "C" void reprise_set_imports(void* const* values);  their addresses in that order, before the first call
// Deterministic; no state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"
#include "base/hash.h"
#include "codegen/cpu.h"
#include "kernel/kernel.h"

namespace reprise::codegen {

// Libm: the C library's functions. Torch: Sleef's and VML's, declared by print_cpp_unit().
enum class CppMath : std::uint8_t { Libm, Torch };

REPRISE_EXPORT std::string_view get_cpp_prelude();
REPRISE_EXPORT std::string print_cpp(const kernel::Kernel& kernel, const std::string& symbol,
                                     CppMath math = CppMath::Libm);

struct CppUnit {
  base::Hash128 key;                 // names the compiled code: kernels, target, version of the generator
  std::vector<std::string> symbols;  // one for each kernel; equal kernels share one
  std::string source;
};

// `kernels` as the scheduler made them; they are prepared here. `target`: the compiler, as the key is to know it.
REPRISE_EXPORT CppUnit print_cpp_unit(std::span<const kernel::Kernel> kernels, const CpuTarget& target);

}  // namespace reprise::codegen
