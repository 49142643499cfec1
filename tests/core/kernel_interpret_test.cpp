#include "kernel/interpret.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernel/builder.h"
#include "kernel/interpret_op.h"
#include "kernel/numbers.h"
#include "kernel/text.h"
#include "kernel/verify.h"
#include "test.h"

using namespace reprise::kernel;

namespace {

std::int64_t run_integer(ScalarOp op, DType dtype, std::int64_t a, std::int64_t b = 0) {
  return static_cast<std::int64_t>(
      evaluate_op(op, dtype, dtype, make_constant_bits(dtype, a), make_constant_bits(dtype, b), 0));
}

std::int64_t cast_float(DType to, double number) {
  return static_cast<std::int64_t>(convert(DType::Float64, to, to_bits(number)));
}

Kernel parse_kernel(const std::string& text) {
  ParseResult parsed = parse(text);
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(verify(parsed.kernel), "");
  return std::move(parsed.kernel);
}

}  // namespace

TEST("integers wrap in their own width") {
  EXPECT_EQ(run_integer(ScalarOp::Add, DType::Int8, 127, 1), -128);
  EXPECT_EQ(run_integer(ScalarOp::Mul, DType::UInt8, 20, 20), 144);
  EXPECT_EQ(run_integer(ScalarOp::Sub, DType::UInt8, 1, 2), 255);
  EXPECT_EQ(run_integer(ScalarOp::Neg, DType::Int32, INT32_MIN), INT32_MIN);
  EXPECT_EQ(run_integer(ScalarOp::Abs, DType::Int16, -32768), -32768);
  EXPECT_EQ(run_integer(ScalarOp::Mul, DType::Int64, INT64_MAX, 2), -2);
  EXPECT_EQ(run_integer(ScalarOp::Max, DType::UInt8, 200, 100), 200);
  EXPECT_EQ(run_integer(ScalarOp::Max, DType::Int8, -56, 100), 100);
}

TEST("integer division rounds as asked and never traps") {
  EXPECT_EQ(run_integer(ScalarOp::DivTrunc, DType::Int32, -7, 2), -3);
  EXPECT_EQ(run_integer(ScalarOp::DivFloor, DType::Int32, -7, 2), -4);
  EXPECT_EQ(run_integer(ScalarOp::DivFloor, DType::Int32, -8, 2), -4);
  EXPECT_EQ(run_integer(ScalarOp::RemTrunc, DType::Int32, -7, 2), -1);
  EXPECT_EQ(run_integer(ScalarOp::RemFloor, DType::Int32, -7, 2), 1);
  EXPECT_EQ(run_integer(ScalarOp::RemFloor, DType::Int32, 7, -2), -1);
  EXPECT_EQ(run_integer(ScalarOp::DivTrunc, DType::Int64, 5, 0), 0);
  EXPECT_EQ(run_integer(ScalarOp::RemFloor, DType::Int64, 5, 0), 0);
  EXPECT_EQ(run_integer(ScalarOp::DivTrunc, DType::Int32, INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(run_integer(ScalarOp::RemTrunc, DType::Int64, INT64_MIN, -1), 0);
  EXPECT_EQ(run_integer(ScalarOp::DivTrunc, DType::UInt8, 250, 7), 35);
}

TEST("shift counts outside of the width shift everything out") {
  EXPECT_EQ(run_integer(ScalarOp::Shl, DType::Int32, 1, 31), INT32_MIN);
  EXPECT_EQ(run_integer(ScalarOp::Shl, DType::Int32, 1, 32), 0);
  EXPECT_EQ(run_integer(ScalarOp::Shl, DType::Int32, 1, -1), 0);
  EXPECT_EQ(run_integer(ScalarOp::Shr, DType::Int8, -128, 7), -1);
  EXPECT_EQ(run_integer(ScalarOp::Shr, DType::Int8, -128, 100), -1);
  EXPECT_EQ(run_integer(ScalarOp::Shr, DType::UInt8, 128, 7), 1);
  EXPECT_EQ(run_integer(ScalarOp::Shr, DType::UInt8, 128, 8), 0);
}

TEST("casts from floats do what the machine does out of range") {
  EXPECT_EQ(cast_float(DType::Int32, -1.9), -1);
  EXPECT_EQ(cast_float(DType::Int32, 3e9), INT32_MIN);
  EXPECT_EQ(cast_float(DType::Int32, std::nan("")), INT32_MIN);
  EXPECT_EQ(cast_float(DType::Int64, 1e19), INT64_MIN);
  EXPECT_EQ(cast_float(DType::Int8, 300.0), 44);
  EXPECT_EQ(cast_float(DType::UInt8, -1.0), 255);
  EXPECT_EQ(cast_float(DType::UInt8, 5e9), 0);
  EXPECT_EQ(cast_float(DType::Bool, std::nan("")), 1);
  EXPECT_EQ(cast_float(DType::Bool, -0.0), 0);
}

TEST("half types round to nearest even, through float32") {
  EXPECT_EQ(float_to_float16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_float16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_float16(2049.0f), float_to_float16(2048.0f));
  EXPECT_EQ(float_to_float16(0x1p-25f), 0);
  EXPECT_EQ(float_to_float16(0x1.8p-25f), 1);
  EXPECT_EQ(float_to_float16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bfloat16(1.00390625f), 0x3f80);  // half way: even
  EXPECT_EQ(float_to_bfloat16(1.01171875f), 0x3f82);
  EXPECT_EQ(float_to_bfloat16(-std::nanf("")), 0x7fc0);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float number = float16_to_float(half);
    if (number != number) continue;
    EXPECT_EQ(float_to_float16(number), half);
    const auto next = static_cast<float>(std::nextafter(number, 1e9f));  // back to the same half
    if (std::isfinite(number) && number > 0) EXPECT_EQ(float_to_float16(next), half);
  }
}

TEST("maxima take NaN, and the lowest index among equals") {
  const Kernel kernel = parse_kernel(R"(kernel
  buffer b0 float32 read 6
  buffer b1 float32 write 2
  buffer b2 int64 write 2
parallel %0 in 0 .. 1 {
  %1 = acc argmax float32
  %2 = acc max float32
  %3 = acc argmin float32
  vector %4 in 0 .. 6 lanes 2 unroll 2 {
    %5 = load b0[%4]
    reduce %1, %5, %4
    reduce %2, %5
    reduce %3, %5, %4
  }
  %6 = result %1
  %7 = result %2
  %8 = result_index %1
  %9 = result_index %3
  store b1[0], %6
  store b1[1], %7
  store b2[0], %8
  store b2[1], %9
}
)");
  const auto run = [&](std::vector<float> x) {
    std::vector<float> values(2);
    std::vector<std::int64_t> indexes(2);
    void* buffers[] = {x.data(), values.data(), indexes.data()};
    interpret(kernel, buffers, nullptr, 0, 1);
    return std::to_string(values[0]) + " " + std::to_string(values[1]) + " " + std::to_string(indexes[0]) + " " +
           std::to_string(indexes[1]);
  };
  EXPECT_EQ(run({1, 5, 5, 2, 1, 5}), "5.000000 5.000000 1 0");
  EXPECT_EQ(run({3, 3, 3, 3, 3, 3}), "3.000000 3.000000 0 0");
  const float nan = std::nanf("");
  EXPECT_EQ(run({1, 5, nan, 2, nan, 9}), "nan nan 2 2");
}

TEST("a sum adds up in the order that its lanes say") {
  const std::string text = R"(kernel
  buffer b0 float32 read 7
  buffer b1 float32 write 1
parallel %0 in 0 .. 1 {
  %1 = acc sum float32
  vector %2 in 0 .. 7 lanes 2 unroll 2 {
    %3 = load b0[%2]
    reduce %1, %3
  }
  %4 = result %1
  store b1[0], %4
}
)";
  std::vector<float> x = {1e8f, 1, -1e8f, 2, 3, 4, 5};
  float sum = 0;
  void* buffers[] = {x.data(), &sum};
  interpret(parse_kernel(text), buffers, nullptr, 0, 1);
  // Parts: {1e8 + 3 + 5, 1 + 4, -1e8, 2}; then halves onto halves.
  const float p0 = 1e8f + 3 + 5;
  EXPECT_EQ(sum, (p0 + -1e8f) + (5.0f + 2));
}

TEST("masked accesses touch nothing where the mask is off") {
  const Kernel kernel = parse_kernel(R"(kernel
  buffer b0 int32 read 4
  buffer b1 int32 read write 8
parallel %0 in 0 .. 8 {
  %1 = const int64 4
  %2 = lt %0, %1
  %3 = load b0[%0] if %2
  store b1[%0], %3 if %2
}
)");
  std::vector<std::int32_t> x = {1, 2, 3, 4};
  std::vector<std::int32_t> y(8, 9);
  void* buffers[] = {x.data(), y.data()};
  interpret(kernel, buffers, nullptr, 2, 8);
  EXPECT(y == (std::vector<std::int32_t>{9, 9, 3, 4, 9, 9, 9, 9}));
}

TEST("the units of several bodies are counted one after the other") {
  const Kernel kernel = parse_kernel(R"(kernel
  buffer b0 int64 write 16
  param %0 int64
parallel %1 in 0 .. %0 {
  store b0[%1], %1
}
parallel %2 in 0 .. 2*%0 {
  store b0[%2 + 8], %2
}
)");
  std::vector<std::int64_t> y(16, -1);
  void* buffers[] = {y.data()};
  const std::int64_t scalars[] = {3};
  EXPECT_EQ(count_units(kernel, scalars), 9);
  interpret(kernel, buffers, scalars, 2, 5);
  EXPECT(y == (std::vector<std::int64_t>{-1, -1, 2, -1, -1, -1, -1, -1, 0, 1, -1, -1, -1, -1, -1, -1}));
}

TEST("an access outside of a buffer is a failed check") {
  const Kernel kernel = parse_kernel(R"(kernel
  buffer b0 int64 write 4
parallel %1 in 0 .. 8 {
  store b0[%1], %1
}
)");
  std::vector<std::int64_t> y(8);
  void* buffers[] = {y.data()};
  EXPECT_THROWS(interpret(kernel, buffers, nullptr, 0, 8), reprise::base::InternalError, "buffer 0 of 4 elements at 4");
}

TEST("the builder refuses operands that do not fit") {
  KernelBuilder b;
  const BufferId x = b.add_buffer(DType::Float16, kRead, 8);
  const ValueId i = b.begin_parallel(8);
  const ValueId half = b.load(x, i);
  EXPECT_THROWS(b.op(ScalarOp::Add, half, half), reprise::base::InternalError, "add of float16");
  EXPECT_THROWS(b.op(ScalarOp::Add, i, half), reprise::base::InternalError, "add of int64 and float16");
  EXPECT_THROWS(b.store(x, i, i), reprise::base::InternalError, "store of int64 into a buffer of float16");
  EXPECT_THROWS(b.load(x, half), reprise::base::InternalError, "int64");
  EXPECT_THROWS(std::move(b).finish(), reprise::base::InternalError, "1 loops are open");
}
