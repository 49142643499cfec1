#include <cmath>
#include <thread>
#include <vector>

#include "codegen/cpu.h"
#include "kernel/builder.h"
#include "kernel_fuzz.h"
#include "test.h"
#include "toolchain/link.h"

using namespace reprise;
using namespace reprise::kernel;

namespace {

// y[i] = x[i] + `number`, or f(x[i]) by the C library.
Kernel make_kernel(double number, bool calls) {
  KernelBuilder b;
  const BufferId x = b.add_buffer(DType::Float32, kRead, 8), y = b.add_buffer(DType::Float32, kWrite, 8);
  const ValueId i = b.begin_parallel(8);
  const ValueId value = b.load(x, i);
  b.store(y, i,
          calls ? b.math(MathFunction::Sin, Numerics::Libm, value)
                : b.op(ScalarOp::Add, value, b.constant(DType::Float32, number)));
  b.end_loop();
  return std::move(b).finish();
}

program::Code compile(const Kernel& kernel) {
  auto compiler = codegen::make_cpu_compiler(codegen::get_host_target());
  REQUIRE(compiler.is_ok());
  auto code = compiler.value()->compile(kernel, codegen::Tier::Full);
  REQUIRE(code.is_ok());
  return std::move(code).value();
}

float run(const toolchain::LoadedCode& code, float x) {
  std::vector<float> from(8, x);
  std::vector<float> to(8);
  void* buffers[] = {from.data(), to.data()};
  code.get_functions()[0](buffers, nullptr, 0, 8);
  return to[7];
}

}  // namespace

TEST("without a code generator there is a reason, with one there is none") {
  const auto compiler = codegen::make_cpu_compiler(codegen::get_host_target());
  const auto linker = toolchain::make_linker(toolchain::find_process_symbol);
  EXPECT_EQ(compiler.is_ok(), codegen::has_code_generator());
  EXPECT_EQ(linker.is_ok(), codegen::has_code_generator());
  if (!compiler.is_ok()) EXPECT(compiler.unsupported().code == base::UnsupportedCode::NoCodeGenerator);
}

TEST("loaded code runs, is found by its key while it lives, and is freed after") {
  if (!codegen::has_code_generator()) return;
  auto linker = toolchain::make_linker(toolchain::find_process_symbol);
  REQUIRE(linker.is_ok());
  const program::Code code = compile(make_kernel(2, false));
  auto first = linker.value()->load(code);
  REQUIRE(first.is_ok());
  EXPECT_EQ(run(*first.value(), 3), 5.0f);
  auto second = linker.value()->load(code);
  REQUIRE(second.is_ok());
  EXPECT(first.value() == second.value());
  EXPECT(linker.value()->find(code.key) == first.value());
  EXPECT_EQ(linker.value()->get_statistics().alive, 1);
  first.value().reset();
  second.value().reset();
  EXPECT(linker.value()->find(code.key) == nullptr);
  EXPECT_EQ(linker.value()->get_statistics().alive, 0);
  const auto third = linker.value()->load(code);  // the symbol is free again
  REQUIRE(third.is_ok());
  EXPECT_EQ(run(*third.value(), 3), 5.0f);
  EXPECT_EQ(linker.value()->get_statistics().loaded, 2);
}

TEST("code may outlive its linker") {
  if (!codegen::has_code_generator()) return;
  std::shared_ptr<toolchain::LoadedCode> code;
  {
    auto linker = toolchain::make_linker(toolchain::find_process_symbol);
    REQUIRE(linker.is_ok());
    auto loaded = linker.value()->load(compile(make_kernel(0, true)));
    REQUIRE(loaded.is_ok());
    code = loaded.value();
  }
  EXPECT_EQ(run(*code, 1), std::sin(1.0f));
}

TEST("a function that nobody has is named, and does no harm to others") {
  if (!codegen::has_code_generator()) return;
  auto linker = toolchain::make_linker([](std::string_view) -> void* { return nullptr; });
  REQUIRE(linker.is_ok());
  for (int i = 0; i < 2; ++i) {
    const auto loaded = linker.value()->load(compile(make_kernel(0, true)));
    REQUIRE(!loaded.is_ok());
    EXPECT(loaded.unsupported().code == base::UnsupportedCode::LinkFailed);
    EXPECT(loaded.unsupported().text.find("sinf") != std::string::npos);
  }
  const auto other = linker.value()->load(compile(make_kernel(1, false)));
  REQUIRE(other.is_ok());
  EXPECT_EQ(run(*other.value(), 1), 2.0f);
}

TEST("bytes that are no object file are refused") {
  if (!codegen::has_code_generator()) return;
  auto linker = toolchain::make_linker(toolchain::find_process_symbol);
  REQUIRE(linker.is_ok());
  program::Code code = compile(make_kernel(1, false));
  code.bytes.resize(100);
  EXPECT(!linker.value()->load(code).is_ok());
  code.bytes = {1, 2, 3};
  EXPECT(!linker.value()->load(code).is_ok());
  code.kind = program::CodeKind::Ptx;
  EXPECT_EQ(linker.value()->load(code).unsupported().text, "not an object file");
}

TEST("threads compile and load at once") {
  if (!codegen::has_code_generator()) return;
  auto linker = toolchain::make_linker(toolchain::find_process_symbol);
  REQUIRE(linker.is_ok());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto compiler = codegen::make_cpu_compiler(codegen::get_host_target());
      for (int i = 0; i < 10; ++i) {
        const double number = i % 3;  // the same keys on all threads
        const auto code = compiler.value()->compile(make_kernel(number, false), codegen::Tier::Quick);
        const auto loaded = linker.value()->load(code.value());
        wrong[t] += !loaded.is_ok() || run(*loaded.value(), 1) != 1 + static_cast<float>(number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
  EXPECT_EQ(linker.value()->get_statistics().alive, 0);
}
