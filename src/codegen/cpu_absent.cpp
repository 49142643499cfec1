#include "codegen/cpu.h"

namespace reprise::codegen {

bool has_code_generator() { return false; }
CpuTarget get_host_target() { return {"generic", ""}; }

base::Result<std::unique_ptr<CpuCompiler>> make_cpu_compiler(const CpuTarget&) {
  return base::Unsupported{base::UnsupportedCode::NoCodeGenerator, "no code generator: built with REPRISE_LLVM=OFF"};
}

}  // namespace reprise::codegen
