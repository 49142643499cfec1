// The oracle of code generation: compiled random kernels give what the interpreter gives, bit for bit.
//
// REPRISE_FUZZ_SEED=n runs that seed alone; REPRISE_FUZZ_MORE=n runs n times as many, each from where the last ended.
#include <cstdlib>
#include <memory>
#include <string>

#include "codegen/cpu.h"
#include "kernel/interpret.h"
#include "kernel/prepare.h"
#include "kernel/text.h"
#include "kernel/verify.h"
#include "kernel_fuzz.h"
#include "test.h"
#include "toolchain/link.h"

using namespace reprise;
using reprise::test::KernelCase;
using reprise::test::KernelData;
using reprise::test::KernelShape;

namespace {

struct Machine {
  std::unique_ptr<codegen::CpuCompiler> compiler;
  std::unique_ptr<toolchain::Linker> linker;
  int register_bytes = 32;
};

Machine make_machine(const codegen::CpuTarget& target) {
  auto compiler = codegen::make_cpu_compiler(target);
  REQUIRE(compiler.is_ok());
  auto linker = toolchain::make_linker(test::find_reference_symbol);
  REQUIRE(linker.is_ok());
  Machine machine{std::move(compiler).value(), std::move(linker).value(), codegen::get_register_bytes(target)};
  machine.compiler->verifies = true;
  return machine;
}

// Returns what is wrong, with the text of the kernel.
std::string check_case(Machine& machine, KernelCase& one, codegen::Tier tier) {
  kernel::Kernel kernel = one.kernel;
  if (const std::string error = kernel::verify(kernel); !error.empty()) return error + "\n" + print(kernel);
  kernel::prepare(kernel, machine.register_bytes);
  const std::string text = print(kernel);
  if (const std::string error = kernel::verify(kernel); !error.empty()) return "prepared: " + error + "\n" + text;
  const kernel::ParseResult parsed = kernel::parse(text);
  if (!parsed.error.empty()) return parsed.error + "\n" + text;
  if (print(parsed.kernel) != text) return "parsed and printed:\n" + print(parsed.kernel) + "\nbut was:\n" + text;
  if (get_hash(parsed.kernel) != get_hash(kernel)) return "another hash after parsing\n" + text;
  if (!are_equal(parsed.kernel, kernel)) return "another kernel after parsing\n" + text;
  kernel::Kernel again = kernel;
  kernel::prepare(again, machine.register_bytes);
  if (get_hash(again) != get_hash(kernel)) return "prepared twice:\n" + print(again) + "\nbut was:\n" + text;

  KernelData expected = one.data;
  const std::int64_t units = kernel::count_units(kernel, expected.scalars.data());
  kernel::interpret(kernel, expected.get_pointers().data(), expected.scalars.data(), 0, units,
                    test::evaluate_reference);
  const auto code = machine.compiler->compile(one.kernel, tier);
  if (!code.is_ok()) return code.unsupported().text + "\n" + text;
  const auto loaded = machine.linker->load(code.value());
  if (!loaded.is_ok()) return loaded.unsupported().text + "\n" + text;
  KernelData found = one.data;
  const toolchain::KernelFunction function = loaded.value()->get_functions()[0];
  const std::int64_t middle = units / 2;  // as two threads would
  function(found.get_pointers().data(), found.scalars.data(), 0, middle);
  function(found.get_pointers().data(), found.scalars.data(), middle, units);
  const std::string difference = test::compare_buffers(kernel, found, expected);
  return difference.empty() ? "" : difference + "\n" + text;
}

void run_fuzz(Machine& machine, std::uint32_t first, std::uint32_t count, codegen::Tier tier, bool is_large) {
  constexpr std::int64_t kLarge[] = {64, 100, 513, 1000, 4096, 5000, 9001};
  const char* only = std::getenv("REPRISE_FUZZ_SEED");
  if (const char* more = std::getenv("REPRISE_FUZZ_MORE")) {
    count *= static_cast<std::uint32_t>(std::strtoul(more, nullptr, 10));
    first *= 1000;
  }
  int failures = 0;
  for (std::uint32_t seed = first; seed < first + count && failures < 3; ++seed) {
    if (only != nullptr && seed != std::strtoul(only, nullptr, 10)) continue;
    const auto shape = static_cast<KernelShape>(seed % test::kKernelShapes);
    const std::int64_t length = is_large ? kLarge[seed / test::kKernelShapes % std::size(kLarge)]
                                         : 1 + static_cast<std::int64_t>(seed / test::kKernelShapes % 40);
    KernelCase one = test::make_random_kernel(seed, shape, length);
    const std::string error = check_case(machine, one, tier);
    if (error.empty()) continue;
    ++failures;
    test::note_failure(__FILE__, __LINE__, "seed " + std::to_string(seed) + ": " + error);
  }
}

}  // namespace

TEST("compiled random kernels of lengths 1 to 40 equal the interpreter") {
  if (!codegen::has_code_generator()) return;
  Machine machine = make_machine(codegen::get_host_target());
  run_fuzz(machine, 0, 480, codegen::Tier::Full, false);
}

TEST("the quick tier gives the same results") {
  if (!codegen::has_code_generator()) return;
  Machine machine = make_machine(codegen::get_host_target());
  run_fuzz(machine, 10000, 240, codegen::Tier::Quick, false);
}

TEST("compiled random kernels of large lengths equal the interpreter") {
  if (!codegen::has_code_generator()) return;
  Machine machine = make_machine(codegen::get_host_target());
  run_fuzz(machine, 20000, 84, codegen::Tier::Full, true);
}

TEST("a machine with AVX2 and no AVX-512 gets code of its own") {
  if (!codegen::has_code_generator()) return;
  Machine machine = make_machine({"haswell", "+avx2,+fma,+f16c,+bmi2"});
  run_fuzz(machine, 30000, 240, codegen::Tier::Full, false);
}
