// Random kernels with random data, for tests that compare two ways of running them.
//
// A case is decided by its seed alone. Values include NaN, infinities, signed zeros, denormals and extremes.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace reprise::test {

// Bytes of every argument of a kernel.
struct KernelData {
  std::vector<std::vector<std::uint8_t>> buffers;
  std::vector<std::int64_t> scalars;

  std::vector<void*> get_pointers();
};

struct KernelCase {
  kernel::Kernel kernel;
  KernelData data;
};

enum class KernelShape { Pointwise, Rows, Columns, Indirect, Tile, Fused };
inline constexpr int kKernelShapes = 6;

// `length` is that of the vector loops.
KernelCase make_random_kernel(std::uint32_t seed, KernelShape shape, std::int64_t length);

// Random elements of a buffer; `most` >= 0 limits integers to [0, most).
std::vector<std::uint8_t> make_random_elements(std::mt19937& random, kernel::DType dtype, std::int64_t count,
                                               std::int64_t most = -1);

// An empty string, or the first element that differs. NaN equals NaN; floats may differ by `ulps` of their dtype.
std::string compare_buffers(const kernel::Kernel& kernel, const KernelData& found, const KernelData& expected,
                            int ulps = 0);

// Sleef's expf, written with the C library's fma; and an evaluator that has it for exp with the numerics Sleef.
float compute_sleef_exp(float x);
double evaluate_reference(kernel::MathFunction function, kernel::Numerics numerics, kernel::DType dtype, double a,
                          double b);

// Functions that compiled kernels call, by name: Sleef's and VML's names on the C library, lane by lane.
void* find_reference_symbol(std::string_view name);

}  // namespace reprise::test
