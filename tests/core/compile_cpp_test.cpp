// Units of printed C++: compiled by the system's compiler, loaded, run; and what is said when that fails.
#include "toolchain/compile_cpp.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "codegen/cpp/print_cpp.h"
#include "kernel/text.h"
#include "test.h"
#include "toolchain/link.h"

using namespace reprise;

namespace {

// Sleef on the C library: what a resolver gives.
#define SLEEF(name)                                                     \
  typedef float name##_vector __attribute__((vector_size(32)));         \
  __attribute__((target("avx2"))) name##_vector name(name##_vector x) { \
    for (int i = 0; i < 8; ++i) x[i] = std::exp(x[i]);                  \
    return x;                                                           \
  }
SLEEF(fake_exp)
#undef SLEEF

void fake_vms_exp(int n, const float* x, float* y, std::int64_t) {
  for (int i = 0; i < n; ++i) y[i] = std::exp(x[i]);
}

void* resolve(std::string_view name) {
  if (name == "Sleef_expf8_u10avx2") return reinterpret_cast<void*>(&fake_exp);
  if (name == "vmsExp") return reinterpret_cast<void*>(&fake_vms_exp);
  return nullptr;
}

// y[i] = f(x[i]) over vectors, and the rest.
kernel::Kernel make_kernel(const std::string& function) {
  const kernel::ParseResult parsed = kernel::parse(
      "kernel\n  buffer b0 float32 read 100\n  buffer b1 float32 write 100\n"
      "parallel %0 in 0 .. 1 {\n  vector %1 in 0 .. 100 lanes 8 unroll 1 {\n"
      "    %2 = load b0[%1]\n    %3 = " +
      function + " %2\n    store b1[%1], %3\n  }\n}\n");
  REQUIRE(parsed.error.empty());
  return parsed.kernel;
}

const codegen::CpuTarget kTarget{"test", ""};

base::Result<std::shared_ptr<toolchain::LoadedCode>> build(const codegen::CppUnit& unit, toolchain::Linker& linker) {
  const auto compiler = toolchain::find_cpp_compiler();
  if (!compiler) return compiler.unsupported();
  auto bytes = toolchain::compile_cpp(compiler.value(), unit.source);
  if (!bytes) return bytes.unsupported();
  return linker.load({unit.key, program::CodeKind::Library, unit.symbols, std::move(bytes).value()});
}

// An environment variable for one scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, was_set_ = true;
    setenv(name, value, 1);
  }
  ~Variable() { was_set_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool was_set_ = false;
};

bool has_compiler() { return toolchain::find_cpp_compiler().is_ok(); }

}  // namespace

TEST("kernels of one unit are compiled together and call what the resolver gives") {
  if (!has_compiler()) return;
  const std::vector<kernel::Kernel> kernels = {make_kernel("exp.sleef"), make_kernel("exp.mkl"), make_kernel("neg"),
                                               make_kernel("neg")};
  const codegen::CppUnit unit = codegen::print_cpp_unit(kernels, kTarget);
  EXPECT_EQ(unit.symbols[2], unit.symbols[3]);
  const auto linker = toolchain::make_library_linker(resolve);
  auto code = build(unit, *linker);
  if (!code) test::note_failure(__FILE__, __LINE__, code.unsupported().text);
  REQUIRE(code.is_ok());
  EXPECT(linker->find(unit.key) == code.value());
  std::vector<float> x(100), y(100);
  for (std::size_t i = 0; i < 100; ++i) x[i] = static_cast<float>(i) * 0.25f - 10;
  void* buffers[] = {x.data(), y.data()};
  for (std::size_t k = 0; k < 4; ++k) {
    code.value()->get_functions()[k](buffers, nullptr, 0, 1);
    for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(y[i], k < 2 ? std::exp(x[i]) : -x[i]);
  }
  code.value().reset();
  EXPECT(linker->find(unit.key) == nullptr);
  EXPECT_EQ(linker->get_statistics().alive, 0);
}

TEST("a function that nobody has is named") {
  if (!has_compiler()) return;
  const std::vector<kernel::Kernel> kernels = {make_kernel("tanh.sleef")};
  const auto linker = toolchain::make_library_linker(resolve);
  const auto code = build(codegen::print_cpp_unit(kernels, kTarget), *linker);
  REQUIRE(!code.is_ok());
  EXPECT(code.unsupported().text.find("Sleef_tanhf8_u10avx2") != std::string::npos);
  EXPECT_EQ(linker->get_statistics().alive, 0);
}

TEST("a compiler that fails, or none, is a reason") {
  const codegen::CppUnit unit = codegen::print_cpp_unit(std::vector{make_kernel("neg")}, kTarget);
  const auto linker = toolchain::make_library_linker(resolve);
  {
    const Variable variable("CXX", "/bin/false");
    const auto code = build(unit, *linker);
    REQUIRE(!code.is_ok());
    EXPECT_EQ(code.unsupported().text, std::string("/bin/false ended with status 1"));
  }
  {
    const Variable variable("CXX", "/does/not/exist -m64");
    const auto code = build(unit, *linker);
    REQUIRE(!code.is_ok());
    EXPECT(code.unsupported().text.find("could not be started") != std::string::npos);
  }
  {
    const Variable compiler("CXX", " "), path("PATH", "/does/not/exist");
    const auto code = build(unit, *linker);
    REQUIRE(!code.is_ok());
    EXPECT(code.unsupported().text.find("no C++ compiler") != std::string::npos);
  }
  if (!has_compiler()) return;
  auto bytes = toolchain::compile_cpp(toolchain::find_cpp_compiler().value(), "int f() { return g(); }\n");
  REQUIRE(!bytes.is_ok());
  EXPECT(bytes.unsupported().text.find("error") != std::string::npos);
  EXPECT(!linker->load({{1, 2}, program::CodeKind::Library, {"f"}, {1, 2, 3}}).is_ok());
  EXPECT(!linker->load({{1, 2}, program::CodeKind::Object, {"f"}, {1, 2, 3}}).is_ok());
}

TEST("nothing stays in the temporary directory") {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "compile_cpp";
  std::filesystem::create_directories(folder);
  const Variable variable("TMPDIR", folder.c_str());
  const auto linker = toolchain::make_library_linker(resolve);
  const auto code = build(codegen::print_cpp_unit(std::vector{make_kernel("neg")}, kTarget), *linker);
  EXPECT_EQ(code.is_ok(), has_compiler());
  EXPECT(std::filesystem::is_empty(folder));
}
