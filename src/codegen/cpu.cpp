#include "codegen/cpu.h"

#include "base/hash.h"

namespace reprise::codegen {
namespace {

// Bump when the same kernel is to give other code.
constexpr std::uint32_t kGeneratorVersion = 1;

}  // namespace

CpuCompiler::~CpuCompiler() = default;

std::uint64_t get_code_key(const kernel::Kernel& kernel, const CpuTarget& target, Tier tier) {
  return base::Hasher()
      .add(kGeneratorVersion)
      .add(kernel::get_hash(kernel))
      .add(std::string_view(target.name))
      .add(std::string_view(target.features))
      .add(tier)
      .finish();
}

std::string get_symbol(std::uint64_t key) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string symbol = "reprise_kernel_";
  for (int shift = 60; shift >= 0; shift -= 4) symbol += kDigits[(key >> shift) & 0xf];
  return symbol;
}

}  // namespace reprise::codegen
