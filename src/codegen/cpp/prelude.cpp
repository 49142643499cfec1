#include "codegen/cpp/print_cpp.h"

namespace reprise::codegen {

// The arithmetic of kernel/kernel.h in C++. Half types are their bits.
std::string_view get_cpp_prelude() {
  return R"(#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace {

template <class T> T wrap(std::uint64_t bits) { return static_cast<T>(bits); }
template <class T> T add(T a, T b) { if constexpr (std::is_floating_point_v<T>) return a + b; else return wrap<T>(std::uint64_t(a) + std::uint64_t(b)); }
template <class T> T sub(T a, T b) { if constexpr (std::is_floating_point_v<T>) return a - b; else return wrap<T>(std::uint64_t(a) - std::uint64_t(b)); }
template <class T> T mul(T a, T b) { if constexpr (std::is_floating_point_v<T>) return a * b; else return wrap<T>(std::uint64_t(a) * std::uint64_t(b)); }
template <class T> T neg(T a) { if constexpr (std::is_floating_point_v<T>) return -a; else return wrap<T>(0 - std::uint64_t(a)); }
template <class T> T abs_of(T a) { if constexpr (std::is_floating_point_v<T>) return std::fabs(a); else if constexpr (std::is_signed_v<T>) return a < 0 ? neg(a) : a; else return a; }
template <class T> T max_of(T a, T b) { return a != a ? a : (a > b ? a : b); }
template <class T> T min_of(T a, T b) { return a != a ? a : (a < b ? a : b); }

// Division by 0 gives 0; the least value by -1 wraps.
template <class T> T div_trunc(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) { if (b == -1) return neg(a); }
  return static_cast<T>(a / b);
}
template <class T> T rem_trunc(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) { if (b == -1) return 0; }
  return static_cast<T>(a % b);
}
template <class T> T div_floor(T a, T b) { return static_cast<T>(div_trunc(a, b) - (b != 0 && rem_trunc(a, b) != 0 && (a < 0) != (b < 0))); }
template <class T> T rem_floor(T a, T b) { const T rest = rem_trunc(a, b); return static_cast<T>(rest != 0 && (a < 0) != (b < 0) ? rest + b : rest); }
template <class T> T shl(T a, T b) { return static_cast<std::make_unsigned_t<T>>(b) >= sizeof(T) * 8 ? T(0) : wrap<T>(std::uint64_t(a) << b); }
template <class T> T shr(T a, T b) {
  if (static_cast<std::make_unsigned_t<T>>(b) >= sizeof(T) * 8) return std::is_signed_v<T> && a < 0 ? T(-1) : T(0);
  return static_cast<T>(a >> b);
}

inline float from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
inline std::uint16_t to_bfloat16(float x) {
  if (x != x) return 0x7fc0;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float from_float16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t(half & 0x8000) << 16, exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13) | (mantissa != 0 ? 0x400000 : 0));
  if (exponent == 0) return std::bit_cast<float>(std::bit_cast<std::uint32_t>(float(mantissa) * 0x1p-24f) | sign);
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}
inline std::uint16_t to_float16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000));
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}

// Towards zero; out of range as x86 does it, through 32 bits for signed types of up to 32 bits, else through 64.
template <class To> To to_integer(double x) {
  if constexpr (std::is_signed_v<To> && sizeof(To) <= 4) return wrap<To>(std::fabs(x) < 0x1p31 ? std::int32_t(x) : INT32_MIN);
  else return wrap<To>(std::fabs(x) < 0x1p63 ? std::int64_t(x) : INT64_MIN);
}

// argmax and argmin: a value and its index; NaN is best, the lowest index wins among equals.
template <class T> struct Best { T value; std::int64_t index; };
template <class T> Best<T> arg_max(Best<T> a, Best<T> b) {
  const bool is_equal = a.value == b.value || (a.value != a.value && b.value != b.value);
  const bool is_better = b.value > a.value || (b.value != b.value && a.value == a.value);
  return is_better || (is_equal && b.index < a.index) ? b : a;
}
template <class T> Best<T> arg_min(Best<T> a, Best<T> b) {
  const bool is_equal = a.value == b.value || (a.value != a.value && b.value != b.value);
  const bool is_better = b.value < a.value || (b.value != b.value && a.value == a.value);
  return is_better || (is_equal && b.index < a.index) ? b : a;
}

// Halves onto halves.
template <class T, int count, class Combine> T fold(const T (&partial)[count], Combine combine) {
  T values[count];
  std::copy(partial, partial + count, values);
  for (int half = count / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] = combine(values[i], values[i + half]);
  }
  return values[0];
}

template <class T> void add_atomic(T* place, T value) {
  const std::atomic_ref<T> reference(*place);
  T old = reference.load(std::memory_order_relaxed);
  while (!reference.compare_exchange_weak(old, add(old, value), std::memory_order_relaxed)) {
  }
}

}  // namespace
)";
}

}  // namespace reprise::codegen
