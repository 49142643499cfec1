#include "codegen/cpu.h"

namespace reprise::codegen {
namespace {

// Bump when the same kernel is to give other code.
constexpr std::uint32_t kGeneratorVersion = 1;

}  // namespace

CpuCompiler::~CpuCompiler() = default;

base::Hash128 get_code_key(const kernel::Kernel& kernel, const CpuTarget& target, Tier tier) {
  return base::WideHasher()
      .add(kGeneratorVersion)
      .add(kernel::get_hash(kernel))
      .add(std::string_view(target.name))
      .add(std::string_view(target.features))
      .add(tier)
      .finish();
}

std::string get_symbol(const base::Hash128& key) { return "reprise_kernel_" + key.get_text(); }

}  // namespace reprise::codegen
