// Scalars of every dtype as 64 bits, and the conversions between them: the arithmetic half of the interpreter.
//
// Bits of a value: floats in their own width (zero-extended), signed integers sign-extended, unsigned integers
// zero-extended, bool 0 or 1. Complex and 8-bit floats do not occur in kernels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "types/dtype.h"

namespace reprise::kernel {

using types::DType;

inline float as_float(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }
inline double as_double(std::uint64_t bits) { return std::bit_cast<double>(bits); }
inline std::uint64_t to_bits(float number) { return std::bit_cast<std::uint32_t>(number); }
inline std::uint64_t to_bits(double number) { return std::bit_cast<std::uint64_t>(number); }

inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// To nearest even; every NaN becomes 0x7fc0.
inline std::uint16_t float_to_bfloat16(float number) {
  if (number != number) return 0x7fc0;
  const auto bits = std::bit_cast<std::uint32_t>(number);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float float16_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t mantissa = half & 0x3ff;
  if (exponent == 0x1f) {  // inf, NaN (quiet)
    return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13) | (mantissa != 0 ? 0x400000 : 0));
  }
  if (exponent == 0) {  // zero, denormal: exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// To nearest even; NaN stays quiet with the top bits of its payload.
inline std::uint16_t float_to_float16(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // denormal or zero: let the float unit round
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

// The low bits of an integer as a value of the dtype.
inline std::uint64_t wrap_integer(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::Bool:
      return bits & 1;
    case DType::UInt8:
      return static_cast<std::uint8_t>(bits);
    case DType::UInt16:
      return static_cast<std::uint16_t>(bits);
    case DType::UInt32:
      return static_cast<std::uint32_t>(bits);
    case DType::Int8:
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(bits)));
    case DType::Int16:
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int16_t>(bits)));
    case DType::Int32:
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(bits)));
    case DType::UInt64:
    case DType::Int64:
      return bits;
    default:
      REPRISE_UNREACHABLE("not an integer: " + std::string(types::get_dtype_name(dtype)));
  }
}

inline bool is_signed(DType dtype) { return types::get_kind(dtype) == types::DTypeKind::Signed; }
inline bool is_half(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }
inline int count_bits(DType dtype) {
  return dtype == DType::Bool ? 1 : static_cast<int>(types::get_size_bytes(dtype)) * 8;
}

inline std::uint64_t from_float(DType dtype, float number) {
  switch (dtype) {
    case DType::Float16:
      return float_to_float16(number);
    case DType::BFloat16:
      return float_to_bfloat16(number);
    case DType::Float32:
      return to_bits(number);
    case DType::Float64:
      return to_bits(static_cast<double>(number));
    default:
      REPRISE_UNREACHABLE("not a float: " + std::string(types::get_dtype_name(dtype)));
  }
}

inline std::uint64_t from_double(DType dtype, double number) {
  return dtype == DType::Float64 ? to_bits(number) : from_float(dtype, static_cast<float>(number));
}

inline std::uint64_t from_int(DType dtype, std::int64_t number) {
  return dtype == DType::Float64 ? to_bits(static_cast<double>(number)) : from_float(dtype, static_cast<float>(number));
}

// A value of any float dtype; exact.
inline double to_double(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::Float16:
      return float16_to_float(static_cast<std::uint16_t>(bits));
    case DType::BFloat16:
      return bfloat16_to_float(static_cast<std::uint16_t>(bits));
    case DType::Float32:
      return as_float(bits);
    case DType::Float64:
      return as_double(bits);
    default:
      REPRISE_UNREACHABLE("not a float: " + std::string(types::get_dtype_name(dtype)));
  }
}

// Rule 6 of kernel.h.
inline std::uint64_t float_to_integer(DType dtype, double number) {
  const bool through_int32 = is_signed(dtype) && types::get_size_bytes(dtype) <= 4;
  if (through_int32) {
    const bool fits = number > -2147483649.0 && number < 2147483648.0;
    return wrap_integer(dtype, static_cast<std::uint64_t>(fits ? static_cast<std::int32_t>(number) : INT32_MIN));
  }
  const bool fits = number >= -9223372036854775808.0 && number < 9223372036854775808.0;
  return wrap_integer(dtype, static_cast<std::uint64_t>(fits ? static_cast<std::int64_t>(number) : INT64_MIN));
}

inline std::uint64_t convert(DType from, DType to, std::uint64_t bits) {
  if (from == to) return bits;
  if (types::is_float(from)) {
    if (to == DType::Bool) return to_double(from, bits) != 0;
    if (types::is_float(to)) return from_double(to, to_double(from, bits));
    return float_to_integer(to, to_double(from, bits));
  }
  if (to == DType::Bool) return bits != 0;
  if (!types::is_float(to)) return wrap_integer(to, bits);
  if (from == DType::UInt64) {
    return to == DType::Float64 ? to_bits(static_cast<double>(bits)) : from_float(to, static_cast<float>(bits));
  }
  return from_int(to, static_cast<std::int64_t>(bits));
}

// An element in memory; unaligned is fine.
inline std::uint64_t read_element(DType dtype, const void* base, std::int64_t index) {
  const std::size_t size_bytes = types::get_size_bytes(dtype);
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, static_cast<const char*>(base) + index * static_cast<std::int64_t>(size_bytes), size_bytes);
  if (dtype == DType::Bool) return bits != 0;
  return types::is_float(dtype) ? bits : wrap_integer(dtype, bits);
}

inline void write_element(DType dtype, void* base, std::int64_t index, std::uint64_t bits) {
  const std::size_t size_bytes = types::get_size_bytes(dtype);
  __builtin_memcpy(static_cast<char*>(base) + index * static_cast<std::int64_t>(size_bytes), &bits, size_bytes);
}

}  // namespace reprise::kernel
