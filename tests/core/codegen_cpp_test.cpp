#include "codegen/cpp/print_cpp.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "kernel/interpret.h"
#include "kernel/prepare.h"
#include "kernel/text.h"
#include "kernel_fuzz.h"
#include "kernel_samples.h"
#include "test.h"

using namespace reprise;

namespace {

using Function = void (*)(void* const*, const std::int64_t*, std::int64_t, std::int64_t);

// VML's functions on the C library, so that the printed code links alone.
std::string get_vml_source() {
  std::string text;
#define X(name, text_, operands, sleef, accuracy, mkl, libm)                            \
  if (sizeof(mkl) > 1) {                                                                \
    text += "extern \"C\" void vms" mkl                                                 \
            "(int n, const float* x, float* y, std::int64_t) { for (int i = 0; i < n; " \
            "++i) y[i] = std::" #libm "(x[i]); }\n";                                    \
    text += "extern \"C\" void vmd" mkl                                                 \
            "(int n, const double* x, double* y, std::int64_t) { for (int i = 0; i < "  \
            "n; ++i) y[i] = std::" #libm "(x[i]); }\n";                                 \
  }
#include "kernel/math_functions.def"
#undef X
  return text;
}

bool has_compiler() { return std::system("c++ --version > /dev/null 2>&1") == 0; }

// Compiles the kernels k0, k1, ... of one source; their functions, or none.
std::vector<Function> compile(const std::string& source, std::size_t count) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "codegen_cpp";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "kernels.cpp") << source;
  const std::string base = (folder / "kernels").string();
  const std::string command = "c++ -std=c++20 -O0 -ffp-contract=off -fno-strict-aliasing -shared -fPIC -o '" + base +
                              ".so' '" + base + ".cpp' > '" + base + ".log' 2>&1";
  std::vector<Function> functions;
  if (std::system(command.c_str()) != 0) return functions;
  void* library = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return functions;
  for (std::size_t i = 0; i < count; ++i) {
    functions.push_back(reinterpret_cast<Function>(dlsym(library, ("k" + std::to_string(i)).c_str())));
  }
  return functions;
}

}  // namespace

TEST("a kernel prints as C++ that can be read") {
  const kernel::ParseResult parsed = kernel::parse(R"(kernel
  buffer b0 bfloat16 read 1024
  buffer b1 float32 write 8
  param %9 float64
parallel %0 in 0 .. 8 {
  %1 = acc sum float32
  vector %2 in 0 .. 128 lanes 8 unroll 2 {
    %3 = load b0[128*%0 + %2]
    %4 = cast %3 to float32
    %5 = exp.sleef %4
    reduce %1, %5
  }
  %6 = result %1
  %7 = cast %9 to float32
  %8 = max %6, %7
  store b1[%0], %8
}
)");
  REQUIRE(parsed.error.empty());
  EXPECT_EQ(
      codegen::print_cpp(parsed.kernel, "exp_sum"),
      R"(extern "C" void exp_sum(void* const* buffers, const std::int64_t* scalars, std::int64_t begin, std::int64_t end) {
  auto* b0 = static_cast<const std::uint16_t*>(buffers[0]);
  auto* b1 = static_cast<float*>(buffers[1]);
  const double v0 = std::bit_cast<double>(scalars[0]);
  (void)buffers, (void)scalars;
  for (std::int64_t v1 = begin; v1 < end; ++v1) {
    float v2[16];
    std::fill(v2, v2 + 16, float(0.0f));
    {
      const std::int64_t lower = INT64_C(0), count = INT64_C(128) - lower;
      const auto step = [&](std::int64_t k, std::int64_t part) {
        const std::int64_t v3 = lower + k;
        const std::uint16_t v4 = b0[v1 * 128 + v3];
        const float v5 = from_bfloat16(v4);
        const float v6 = std::exp(v5);
        v2[part] = add(v2[part], v6);
      };
      std::int64_t k = 0;
      for (; k + 16 <= count; k += 16) {
#pragma omp simd
        for (std::int64_t part = 0; part < 16; ++part) step(k + part, part);
      }
      for (; k < count; ++k) step(k, k % 8);
    }
    const float v7 = fold(v2, [](float a, float b) -> float { return add(a, b); });
    const float v8 = static_cast<float>(v0);
    const float v9 = max_of(v7, v8);
    b1[v1] = v9;
  }
}
)");
}

TEST("printed C++ of samples and random kernels equals the interpreter") {
  if (!has_compiler()) return;
  std::vector<test::KernelCase> cases;
  for (test::KernelSample& sample : test::make_kernel_samples(11, 37)) {
    std::mt19937 random(3);
    test::KernelCase one{sample.kernel, {}};
    for (const kernel::Buffer& buffer : sample.kernel.buffers) {
      const std::int64_t limit = sample.index_limits[one.data.buffers.size()];
      one.data.buffers.push_back(test::make_random_elements(random, buffer.dtype, buffer.count, limit));
    }
    cases.push_back(std::move(one));
  }
  for (std::uint32_t seed = 40000; seed < 40060; ++seed) {
    const auto shape = static_cast<test::KernelShape>(seed % test::kKernelShapes);
    cases.push_back(test::make_random_kernel(seed, shape, 1 + seed / 2 % 40));
  }
  std::string source = std::string(codegen::get_cpp_prelude()) + get_vml_source();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    kernel::prepare(cases[i].kernel);
    source += codegen::print_cpp(cases[i].kernel, "k" + std::to_string(i));
  }
  const std::vector<Function> functions = compile(source, cases.size());
  REQUIRE(functions.size() == cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    test::KernelCase& one = cases[i];
    const std::int64_t units = kernel::count_units(one.kernel, one.data.scalars.data());
    test::KernelData expected = one.data;
    kernel::interpret(one.kernel, expected.get_pointers().data(), expected.scalars.data(), 0, units);
    REQUIRE(functions[i] != nullptr);
    functions[i](one.data.get_pointers().data(), one.data.scalars.data(), 0, units);
    const std::string difference = test::compare_buffers(one.kernel, one.data, expected);
    if (!difference.empty()) {
      test::note_failure(__FILE__, __LINE__,
                         "case " + std::to_string(i) + ": " + difference + "\n" + print(one.kernel));
    }
  }
}
