// Type promotion, as at::result_type.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

using types::DTypeKind;

// Promotion of these with other integers is an error in torch, or rare; left to the host.
bool is_rare(DType dtype) {
  return dtype == DType::UInt16 || dtype == DType::UInt32 || dtype == DType::UInt64 || dtype == DType::Float8E4M3FN ||
         dtype == DType::Float8E5M2;
}

}  // namespace

std::optional<DType> make_complex(DType dtype) {
  switch (dtype) {
    case DType::BFloat16:
    case DType::Float32:
    case DType::Complex64:
      return DType::Complex64;
    case DType::Float64:
    case DType::Complex128:
      return DType::Complex128;
    default:  // float16 would be a complex half; the rest has no complex type
      return std::nullopt;
  }
}

DType make_real(DType dtype) {
  if (dtype == DType::Complex64) return DType::Float32;
  if (dtype == DType::Complex128) return DType::Float64;
  return dtype;
}

std::optional<DType> promote(DType a, DType b) {
  if (a == b) return a;
  if (is_rare(a) || is_rare(b)) return std::nullopt;
  if (types::get_kind(a) > types::get_kind(b)) std::swap(a, b);
  // Now the kind of b is the same or higher: bool < unsigned < signed < float < complex.
  if (a == DType::Bool) return b;
  const std::size_t a_bytes = types::get_size_bytes(a);
  const std::size_t b_bytes = types::get_size_bytes(b);
  switch (types::get_kind(b)) {
    case DTypeKind::Bool:
    case DTypeKind::Unsigned:
      return b;  // uint8 is the only one here
    case DTypeKind::Signed:
      if (a == DType::UInt8) return b == DType::Int8 ? DType::Int16 : b;
      return a_bytes > b_bytes ? a : b;
    case DTypeKind::Float:
      if (types::get_kind(a) != DTypeKind::Float) return b;
      if (a_bytes == b_bytes) return DType::Float32;  // float16 and bfloat16
      return a_bytes > b_bytes ? a : b;
    case DTypeKind::Complex:
      return a == DType::Float64 || a == DType::Complex128 ? DType::Complex128 : b;
  }
  return std::nullopt;
}

bool Promotion::add(const Arg& arg) {
  const auto merge = [&](std::optional<DType>& into, DType dtype) {
    const std::optional<DType> merged = into ? promote(*into, dtype) : dtype;
    is_undecided_ |= !merged;
    into = merged;
  };
  const auto add_number = [&](ValueKind kind) {
    switch (kind) {
      case ValueKind::Int:
        merge(wrapped_, DType::Int64);
        return true;
      case ValueKind::Float:
        merge(wrapped_, call_.default_dtype);
        return true;
      case ValueKind::Bool:
        merge(wrapped_, DType::Bool);
        return true;
      case ValueKind::Complex:
        if (const auto dtype = make_complex(call_.default_dtype)) {
          merge(wrapped_, *dtype);
          return true;
        }
        return false;
      case ValueKind::Tensor:
      case ValueKind::RandomState:
        return false;
    }
    return false;
  };
  switch (arg.kind()) {
    case ArgKind::None:
      return true;
    case ArgKind::Int:
    case ArgKind::LowInt:
      return add_number(ValueKind::Int);
    case ArgKind::Float:
      return add_number(ValueKind::Float);
    case ArgKind::Bool:
      return add_number(ValueKind::Bool);
    case ArgKind::Complex:
      return add_number(ValueKind::Complex);
    case ArgKind::Value: {
      const Value& value = call_.values[arg.get_value().index()];
      if (value.kind != ValueKind::Tensor) return add_number(value.kind);
      if (arg.is_wrapped()) return false;  // a tensor that is a wrapped number: not made here
      merge(value.meta.rank > 0 ? dimensioned_ : zero_dim_, value.meta.dtype);
      return !is_undecided_;
    }
    case ArgKind::DType:
    case ArgKind::Device:
    case ArgKind::Layout:
    case ArgKind::MemoryFormat:
    case ArgKind::String:
    case ArgKind::List:
      return false;
  }
  return false;
}

std::optional<DType> Promotion::finish() const {
  // A lower class counts only if it is of a higher kind: it then says the kind, the higher one the width.
  const auto combine = [](std::optional<DType> higher, std::optional<DType> lower) -> std::optional<DType> {
    if (!higher) return lower;
    if (!lower || types::is_complex(*higher)) return higher;
    if (types::is_float(*higher)) return types::is_complex(*lower) ? make_complex(*higher) : higher;
    if (*higher == DType::Bool || types::is_float(*lower) || types::is_complex(*lower)) return promote(*higher, *lower);
    return higher;
  };
  if (is_undecided_) return std::nullopt;
  const std::optional<DType> low = combine(zero_dim_, wrapped_);
  if ((zero_dim_ || wrapped_) && !low) return std::nullopt;
  return combine(dimensioned_, low);
}

}  // namespace reprise::graph
