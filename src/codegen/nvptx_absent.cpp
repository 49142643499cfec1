#include "codegen/nvptx.h"

namespace reprise::codegen {

base::Result<program::Code> compile_ptx(const kernel::Kernel&, const GpuTarget&) {
  return base::Unsupported{base::UnsupportedCode::NoCodeGenerator, "no code generator: built with REPRISE_LLVM=OFF"};
}

}  // namespace reprise::codegen
