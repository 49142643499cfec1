// Memory-bound kernels as a scheduler would write them: for tests against the interpreter, and for measuring.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace reprise::test {

struct KernelSample {
  std::string name;
  kernel::Kernel kernel;
  std::vector<std::int64_t> index_limits;  // by argument: integers are below it; -1: any
};

// Rows and columns of the operands; both at least 8.
std::vector<KernelSample> make_kernel_samples(std::int64_t rows, std::int64_t columns);

}  // namespace reprise::test
