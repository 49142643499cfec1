// Native code for the CPU from kernel IR, in this process: kernel -> object file bytes (toolchain/link.h loads them).
//
// A CpuCompiler holds what LLVM needs again and again (target machine, pass managers); one thread at a time uses it, so
// keep one a thread. Any number of them may work at once. compile() rewrites a copy of the kernel (kernel/prepare.h),
// and gives a Code with one symbol, get_symbol(key). Deterministic: the same kernel, target and tier give the same
// bytes and the same key in every process. Nothing is printed; what fails is an Unsupported.
// Without LLVM (-DREPRISE_LLVM=OFF) make_cpu_compiler() is an Unsupported and has_code_generator() is false.
// Math functions are called by name (Sleef_expf8_u10avx2, vmsExp, expf); who links resolves them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/export.h"
#include "base/hash.h"
#include "base/result.h"
#include "kernel/kernel.h"
#include "program/program.h"

namespace reprise::codegen {

// A CPU as LLVM knows it: a name and "+avx2,-avx512f,...".
struct CpuTarget {
  std::string name;
  std::string features;

  bool operator==(const CpuTarget&) const = default;
};

// Quick: a third of the time to compile, code 1 to 3 times slower. Full: what a kernel should run with.
enum class Tier : std::uint8_t { Quick, Full };

struct CompileTimes {  // thread CPU time
  std::int64_t prepare_ns = 0;
  std::int64_t emit_ns = 0;
  std::int64_t optimise_ns = 0;
  std::int64_t codegen_ns = 0;
};

class REPRISE_EXPORT CpuCompiler {
 public:
  virtual ~CpuCompiler();
  virtual base::Result<program::Code> compile(const kernel::Kernel& kernel, Tier tier) = 0;
  // As compile(), but gives LLVM's text: the IR before (false) or after (true) the IR passes.
  virtual base::Result<std::string> print_ir(const kernel::Kernel& kernel, Tier tier, bool is_optimised) = 0;

  // Of the last compile().
  const CompileTimes& get_times() const { return times_; }
  // LLVM's own verifier before code is generated; for tests.
  bool verifies = false;

 protected:
  CompileTimes times_;
};

// Of a vector register: 64 with AVX-512, else 32. What kernel::prepare() is given.
REPRISE_EXPORT int get_register_bytes(const CpuTarget& target);
REPRISE_EXPORT bool has_code_generator();
// REPRISE_TEST_CPU=avx2 in the environment hides AVX-512.
REPRISE_EXPORT CpuTarget get_host_target();
REPRISE_EXPORT base::Result<std::unique_ptr<CpuCompiler>> make_cpu_compiler(const CpuTarget& target);

// Names the code of a kernel: kernel, target, tier, and the version of the generator. 128 bits: nobody compares the
// kernels behind two equal keys.
REPRISE_EXPORT base::Hash128 get_code_key(const kernel::Kernel& kernel, const CpuTarget& target, Tier tier);
REPRISE_EXPORT std::string get_symbol(const base::Hash128& key);

}  // namespace reprise::codegen
