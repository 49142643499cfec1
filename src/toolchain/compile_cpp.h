// C++ source to a shared object, by the system's compiler.
//
// find_cpp_compiler() takes the command in $CXX (with arguments, parted by spaces), else the first of c++, g++ and
// clang++ on PATH, and runs it once to ask for its macros: they say which version it is and what -march=native means
// here. compile_cpp() runs it without a shell, in a private directory that is removed afterwards, and waits. No library
// for threads is linked: whoever calls a kernel divides its range. Any thread may call; nothing is printed; what fails
// is an Unsupported with the compiler's first error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"
#include "base/hash.h"
#include "base/result.h"

namespace reprise::toolchain {

struct CppCompiler {
  std::vector<std::string> command;
  base::Hash128 identity;  // of its macros and of our flags: equal ones give equal code
};

// The command that find_cpp_compiler() would run; empty: there is none. Cheap: runs nothing.
REPRISE_EXPORT std::vector<std::string> get_cpp_command();
REPRISE_EXPORT base::Result<CppCompiler> find_cpp_compiler();
REPRISE_EXPORT base::Result<std::vector<std::uint8_t>> compile_cpp(const CppCompiler& compiler,
                                                                   std::string_view source);

}  // namespace reprise::toolchain
