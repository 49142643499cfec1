// The math that tests give to compiled kernels under Sleef's and VML's names, on the C library.
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "kernel/interpret.h"
#include "kernel_fuzz.h"

namespace reprise::test {

using kernel::DType;
using kernel::MathFunction;
using kernel::Numerics;

float compute_sleef_exp(float x) {
  const float rounded = std::nearbyint(x * 1.442695040888963407359924681001892137426645954152985934135449406931f);
  const int q = rounded > -2147483648.0f && rounded < 2147483648.0f ? static_cast<int>(rounded) : INT32_MIN;
  float s = std::fma(rounded, -0.693145751953125f, x);
  s = std::fma(rounded, -1.428606765330187045e-06f, s);
  float sum = 0.000198527617612853646278381f;
  for (const float coefficient : {0.00139304355252534151077271f, 0.00833336077630519866943359f,
                                  0.0416664853692054748535156f, 0.166666671633720397949219f, 0.5f}) {
    sum = std::fma(sum, s, coefficient);
  }
  sum = 1.0f + std::fma(s * s, sum, s);
  const auto power_of_two = [](int exponent) {
    return std::bit_cast<float>((static_cast<std::uint32_t>(exponent) + 0x7fu) << 23);
  };
  const int half = q >> 1;
  float result = sum * power_of_two(half) * power_of_two(q - half);
  if (x < -104.0f) result = 0.0f;
  return 100.0f < x ? INFINITY : result;
}

double evaluate_reference(MathFunction function, Numerics numerics, DType dtype, double a, double b) {
  if (function == MathFunction::Exp && numerics == Numerics::Sleef && dtype == DType::Float32) {
    return static_cast<double>(compute_sleef_exp(static_cast<float>(a)));
  }
  return kernel::evaluate_with_libm(function, numerics, dtype, a, b);
}

namespace {

template <MathFunction function, class T>
void run_lanes(T* x, const T* y, int count) {
  constexpr DType kDType = sizeof(T) == 8 ? DType::Float64 : DType::Float32;
  for (int i = 0; i < count; ++i) {
    x[i] = static_cast<T>(evaluate_reference(function, Numerics::Sleef, kDType, x[i], y[i]));
  }
}

template <MathFunction function>
__attribute__((target("avx2"))) __m256 run_floats(__m256 a, __m256 b) {
  alignas(__m256) float x[8], y[8];
  _mm256_store_ps(x, a);
  _mm256_store_ps(y, b);
  run_lanes<function>(x, y, 8);
  return _mm256_load_ps(x);
}

template <MathFunction function>
__attribute__((target("avx2"))) __m256d run_doubles(__m256d a, __m256d b) {
  alignas(__m256d) double x[4], y[4];
  _mm256_store_pd(x, a);
  _mm256_store_pd(y, b);
  run_lanes<function>(x, y, 4);
  return _mm256_load_pd(x);
}

template <MathFunction function>
__attribute__((target("avx512f"))) __m512 run_wide_floats(__m512 a, __m512 b) {
  alignas(__m512) float x[16], y[16];
  _mm512_store_ps(x, a);
  _mm512_store_ps(y, b);
  run_lanes<function>(x, y, 16);
  return _mm512_load_ps(x);
}

template <MathFunction function>
__attribute__((target("avx512f"))) __m512d run_wide_doubles(__m512d a, __m512d b) {
  alignas(__m512d) double x[8], y[8];
  _mm512_store_pd(x, a);
  _mm512_store_pd(y, b);
  run_lanes<function>(x, y, 8);
  return _mm512_load_pd(x);
}

template <MathFunction function, class T>
void run_array(int count, const T* from, T* to, std::int64_t mode) {
  constexpr DType kDType = sizeof(T) == 8 ? DType::Float64 : DType::Float32;
  if (mode != 0x140102) __builtin_trap();
  for (int i = 0; i < count; ++i) {
    const auto x = static_cast<double>(from[i]);
    to[i] = static_cast<T>(evaluate_reference(function, Numerics::Mkl, kDType, x, 0));
  }
}

}  // namespace

void* find_reference_symbol(std::string_view name) {
#define X(row, text, operands, sleef, accuracy, mkl, libm)                                                          \
  if (name == "Sleef_" sleef "f8_" accuracy "avx2") return reinterpret_cast<void*>(run_floats<MathFunction::row>);  \
  if (name == "Sleef_" sleef "d4_" accuracy "avx2") return reinterpret_cast<void*>(run_doubles<MathFunction::row>); \
  if (name == "Sleef_" sleef "f16_" accuracy "avx512f")                                                             \
    return reinterpret_cast<void*>(run_wide_floats<MathFunction::row>);                                             \
  if (name == "Sleef_" sleef "d8_" accuracy "avx512f")                                                              \
    return reinterpret_cast<void*>(run_wide_doubles<MathFunction::row>);                                            \
  if (sizeof(mkl) > 1 && name == "vms" mkl) return reinterpret_cast<void*>(run_array<MathFunction::row, float>);    \
  if (sizeof(mkl) > 1 && name == "vmd" mkl) return reinterpret_cast<void*>(run_array<MathFunction::row, double>);   \
  if (name == #libm)                                                                                                \
    return reinterpret_cast<void*>(static_cast<double (*)(double, double)>([](double a, double b) {                 \
      return evaluate_reference(MathFunction::row, Numerics::Libm, DType::Float64, a, b);                           \
    }));                                                                                                            \
  if (name == #libm "f")                                                                                            \
    return reinterpret_cast<void*>(static_cast<float (*)(float, float)>([](float a, float b) {                      \
      return static_cast<float>(evaluate_reference(MathFunction::row, Numerics::Libm, DType::Float32, a, b));       \
    }));
#include "kernel/math_functions.def"
#undef X
  if (name == "memcpy")
    return reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, std::size_t)>(std::memcpy));
  return nullptr;
}

}  // namespace reprise::test
