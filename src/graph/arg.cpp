#include "graph/arg.h"

#include "base/hash.h"

namespace reprise::graph {

bool is_same_arg(const Arg& a, const Arg& b) {
  if (a.kind() != b.kind() || a.is_wrapped() != b.is_wrapped()) return false;
  switch (a.kind()) {
    case ArgKind::Complex: {
      const ComplexNumber x = a.get_complex();
      const ComplexNumber y = b.get_complex();
      return std::bit_cast<std::uint64_t>(x.real) == std::bit_cast<std::uint64_t>(y.real) &&
             std::bit_cast<std::uint64_t>(x.imaginary) == std::bit_cast<std::uint64_t>(y.imaginary);
    }
    case ArgKind::String:
      return a.get_string() == b.get_string();
    case ArgKind::List: {
      const auto x = a.get_list();
      const auto y = b.get_list();
      if (x.size() != y.size()) return false;
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!is_same_arg(x[i], y[i])) return false;
      }
      return true;
    }
    case ArgKind::None:
    case ArgKind::Value:
    case ArgKind::Int:
    case ArgKind::LowInt:
    case ArgKind::Float:
    case ArgKind::Bool:
    case ArgKind::DType:
    case ArgKind::Device:
    case ArgKind::Layout:
    case ArgKind::MemoryFormat:
      return a.bits() == b.bits();
  }
  REPRISE_UNREACHABLE("argument kind " + std::to_string(static_cast<int>(a.kind())));
}

std::uint64_t hash_arg(const Arg& arg, std::uint64_t seed) {
  std::uint64_t hash = base::hash_combine(seed, static_cast<std::uint64_t>(arg.kind()) * 2 + arg.is_wrapped());
  if (arg.kind() == ArgKind::Complex) {
    const ComplexNumber number = arg.get_complex();
    hash = base::hash_combine(hash, std::bit_cast<std::uint64_t>(number.real));
    return base::hash_combine(hash, std::bit_cast<std::uint64_t>(number.imaginary));
  }
  if (arg.kind() == ArgKind::String) {
    const std::string_view text = arg.get_string();
    return base::hash_bytes(text.data(), text.size(), hash);
  }
  if (!arg.is_list()) return base::hash_combine(hash, arg.bits());
  hash = base::hash_combine(hash, arg.get_list().size());
  for (const Arg& element : arg.get_list()) hash = hash_arg(element, hash);
  return hash;
}

}  // namespace reprise::graph
