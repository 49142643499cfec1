#include "codegen/cpu.h"

namespace reprise::codegen {
namespace {

// Bump when the same kernel is to give other code.
constexpr std::uint32_t kGeneratorVersion = 2;

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

int get_register_bytes(const CpuTarget& target) {
  for (const std::string_view feature : {"+avx512f", "+avx512vl", "+avx512bw", "+avx512dq"}) {
    const std::size_t at = target.features.find(feature);
    const std::size_t end = at == std::string::npos ? at : at + feature.size();
    if (end == std::string::npos || (end < target.features.size() && target.features[end] != ',')) return 32;
  }
  return 64;
}

std::string get_symbol(const base::Hash128& key) { return "reprise_kernel_" + key.get_text(); }

}  // namespace reprise::codegen
