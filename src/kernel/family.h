// Kernels that differ in sizes only, as one kernel with parameters.
//
// A graph that is compiled for a second choice of input sizes has the kernels it had before, but for numbers in them:
// bounds of loops, coefficients and constants of indexes, constants of scalars. adapt() finds the kernel whose
// structure is the same and makes the numbers that differ parameters (numbers that changed alike share one), so that a
// third choice of sizes needs no code: it is the same kernel with other words.
//
// Callers may rely on: a kernel that adapt() gives, run with its words behind those that the given kernel takes, writes
// what the given kernel writes, to the bit (prepare.h splits sums of unknown length as long ones). Kernels are not
// prepared yet. A kernel that nothing like it came before is given back as it is, as is one whose varying numbers no
// parameter can stand for (strides along a vector loop, sizes of local arrays). Deterministic: the same calls give the
// same kernels. Threads: any; calls wait for each other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

class REPRISE_EXPORT KernelFamily {
 public:
  struct Member {
    Kernel kernel;
    std::vector<std::int64_t> words;  // values of the parameters that it has more than the given kernel
  };

  KernelFamily();
  ~KernelFamily();
  KernelFamily(const KernelFamily&) = delete;
  KernelFamily& operator=(const KernelFamily&) = delete;

  /// `sizes` names the choice of sizes that the kernel is for: kernels of one choice are never joined. Without
  /// `may_join` the kernel is given back as it is, and later ones may join it.
  Member adapt(const Kernel& kernel, std::uint64_t sizes, bool may_join);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::kernel
