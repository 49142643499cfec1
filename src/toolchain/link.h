// Loads code into this process: bytes -> function pointers. make_linker() links object files in memory (JITLink),
// make_library_linker() loads shared objects through the dynamic linker.
//
// A Linker lives as long as the process wants native code; load() may be called on any thread. Names that an object
// does not define are asked of the resolver (the host half: torch's libraries first), which must be safe on any thread.
// LoadedCode is shared: loading a key that is still alive gives the same object again, and the memory is freed when the
// last owner drops it, which must not be while a function of it runs. A LoadedCode may outlive its Linker.
// Nothing is printed; what fails is an Unsupported that names the symbols that were not found.
// Without LLVM make_linker() is an Unsupported; make_library_linker() always works.
// A shared object names what it calls in a table and is given the addresses: codegen/cpp/print_cpp.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/export.h"
#include "base/hash.h"
#include "base/result.h"
#include "program/program.h"

namespace reprise::toolchain {

// The kernels' calling convention (kernel/kernel.h).
using KernelFunction = void (*)(void* const* buffers, const std::int64_t* scalars, std::int64_t begin,
                                std::int64_t end);

// The address of a function, or null.
using SymbolResolver = std::function<void*(std::string_view name)>;

class REPRISE_EXPORT LoadedCode {
 public:
  virtual ~LoadedCode();
  // In the order of Code::symbols.
  const std::vector<KernelFunction>& get_functions() const { return functions_; }

 protected:
  std::vector<KernelFunction> functions_;
};

struct LinkStatistics {
  std::int64_t loaded = 0;  // objects linked
  std::int64_t found = 0;   // loads that were answered by a living LoadedCode
  std::int64_t alive = 0;
};

class REPRISE_EXPORT Linker {
 public:
  virtual ~Linker();
  virtual base::Result<std::shared_ptr<LoadedCode>> load(const program::Code& code) = 0;
  // A living LoadedCode of that key, or null: nothing needs to be compiled.
  virtual std::shared_ptr<LoadedCode> find(const base::Hash128& key) = 0;
  virtual LinkStatistics get_statistics() = 0;
};

REPRISE_EXPORT base::Result<std::unique_ptr<Linker>> make_linker(SymbolResolver resolver);
REPRISE_EXPORT std::unique_ptr<Linker> make_library_linker(SymbolResolver resolver);

// Finds functions of the process by their names, as the dynamic linker does: libm, libc and what else is loaded.
REPRISE_EXPORT void* find_process_symbol(std::string_view name);

}  // namespace reprise::toolchain
