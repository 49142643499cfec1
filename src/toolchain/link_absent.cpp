#include "toolchain/link.h"

namespace reprise::toolchain {

base::Result<std::unique_ptr<Linker>> make_linker(SymbolResolver) {
  return base::Unsupported{base::UnsupportedCode::NoCodeGenerator, "no linker: built with REPRISE_LLVM=OFF"};
}

}  // namespace reprise::toolchain
