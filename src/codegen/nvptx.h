// PTX for NVIDIA's GPUs from kernel IR, as text: pointwise kernels, reductions over rows and columns.
//
// A first version: one element a load, no libdevice linked (its functions stay open), no local arrays, no masked
// accesses; those are an Unsupported. How threads share the work stands at the top of llvm/emit_threads.cpp.
// Any thread; makes its own target machine each time. Without LLVM an Unsupported.
#pragma once

#include <string>

#include "base/export.h"
#include "base/result.h"
#include "kernel/kernel.h"
#include "program/program.h"

namespace reprise::codegen {

struct GpuTarget {
  std::string processor = "sm_80";
  std::string features = "+ptx74";
};

// Code of kind Ptx; its bytes are the text.
REPRISE_EXPORT base::Result<program::Code> compile_ptx(const kernel::Kernel& kernel, const GpuTarget& target);

}  // namespace reprise::codegen
