#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "codegen/cpu.h"
#include "kernel/interpret.h"
#include "kernel/prepare.h"
#include "kernel/text.h"
#include "kernel/verify.h"
#include "kernel_fuzz.h"
#include "kernel_samples.h"
#include "test.h"
#include "toolchain/link.h"

using namespace reprise;

namespace {

test::KernelData make_data(const test::KernelSample& sample, std::uint32_t seed) {
  std::mt19937 random(seed);
  test::KernelData data;
  for (const kernel::Buffer& buffer : sample.kernel.buffers) {
    data.buffers.push_back(
        test::make_random_elements(random, buffer.dtype, buffer.count, sample.index_limits[data.buffers.size()]));
  }
  return data;
}

void check_sample(const test::KernelSample& sample) {
  auto compiler = codegen::make_cpu_compiler(codegen::get_host_target());
  auto linker = toolchain::make_linker(test::find_reference_symbol);
  REQUIRE(compiler.is_ok() && linker.is_ok());
  compiler.value()->verifies = true;
  EXPECT_EQ(kernel::verify(sample.kernel), "");
  kernel::Kernel prepared = sample.kernel;
  kernel::prepare(prepared, codegen::get_register_bytes(codegen::get_host_target()));
  EXPECT_EQ(kernel::verify(prepared), "");
  const test::KernelData data = make_data(sample, 5);
  const std::int64_t units = kernel::count_units(prepared, nullptr);
  test::KernelData expected = data;
  kernel::interpret(prepared, expected.get_pointers().data(), nullptr, 0, units, test::evaluate_reference);
  for (const codegen::Tier tier : {codegen::Tier::Quick, codegen::Tier::Full}) {
    const auto code = compiler.value()->compile(sample.kernel, tier);
    REQUIRE(code.is_ok());
    const auto loaded = linker.value()->load(code.value());
    REQUIRE(loaded.is_ok());
    test::KernelData found = data;
    loaded.value()->get_functions()[0](found.get_pointers().data(), nullptr, 0, units);
    const std::string difference = test::compare_buffers(prepared, found, expected);
    if (!difference.empty()) {
      test::note_failure(__FILE__, __LINE__, sample.name + ": " + difference + "\n" + print(prepared));
    }
  }
}

void check_samples(std::int64_t rows, std::int64_t columns) {
  for (const test::KernelSample& sample : test::make_kernel_samples(rows, columns)) check_sample(sample);
}

}  // namespace

TEST("the sample kernels equal the interpreter where lengths are multiples of the lanes") {
  if (codegen::has_code_generator()) check_samples(64, 256);
}

TEST("the sample kernels equal the interpreter where nothing is a multiple of anything") {
  if (codegen::has_code_generator()) check_samples(37, 131);
}

TEST("long rows are summed in blocks and are as good as eager's") {
  if (!codegen::has_code_generator()) return;
  check_samples(8, 9001);
}

TEST("a kernel compiles to the same bytes every time") {
  if (!codegen::has_code_generator()) return;
  auto first = codegen::make_cpu_compiler(codegen::get_host_target());
  auto second = codegen::make_cpu_compiler(codegen::get_host_target());
  REQUIRE(first.is_ok() && second.is_ok());
  for (const test::KernelSample& sample : test::make_kernel_samples(37, 131)) {
    const auto a = first.value()->compile(sample.kernel, codegen::Tier::Full);
    const auto b = second.value()->compile(sample.kernel, codegen::Tier::Full);
    const auto c = first.value()->compile(sample.kernel, codegen::Tier::Full);
    REQUIRE(a.is_ok() && b.is_ok() && c.is_ok());
    EXPECT(a.value() == b.value());
    EXPECT(a.value() == c.value());
  }
}

TEST("lane numbers that two loops inside a vector loop ask for are made in front of both") {
  if (!codegen::has_code_generator()) return;
  const kernel::ParseResult parsed = kernel::parse(R"(kernel
  buffer b0 float32 read 27648
  buffer b1 float32 read write 27648
parallel %0 in 0 .. 1 {
  vector %1 in 0 .. 36 {
    %2 = acc sum float32
    serial %3 in 0 .. 768 {
      %4 = load b0[768*%1 + %3]
      reduce %2, %4
    }
    %5 = result %2
    serial %6 in 0 .. 768 {
      %7 = load b0[768*%1 + %6]
      %8 = sub %7, %5
      store b1[768*%1 + %6], %8
    }
  }
}
)");
  EXPECT_EQ(parsed.error, "");
  check_sample({"two loops over gathered rows", parsed.kernel, {-1, -1}});
}

TEST("registers have 64 bytes with the parts of AVX-512 that code needs, else 32") {
  const auto count = [](const char* features) { return codegen::get_register_bytes({"any", features}); };
  EXPECT_EQ(count("+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl"), 64);
  EXPECT_EQ(count("+avx2,+avx512bw,+avx512dq,+avx512f,-avx512vl"), 32);
  EXPECT_EQ(count("+avx512bw,+avx512dq,+avx512fp16,+avx512vl"), 32);
  EXPECT_EQ(count("+avx2,+fma"), 32);
  EXPECT_EQ(count(""), 32);
}
