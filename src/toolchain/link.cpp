#include "toolchain/link.h"

#include <dlfcn.h>

#include <string>

namespace reprise::toolchain {

LoadedCode::~LoadedCode() = default;
Linker::~Linker() = default;

void* find_process_symbol(std::string_view name) { return dlsym(RTLD_DEFAULT, std::string(name).c_str()); }

}  // namespace reprise::toolchain
