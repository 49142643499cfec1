// LLVM's side of CpuCompiler: target machine, the two IR passes, object emission.
#include <time.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include <llvm/ADT/StringExtras.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>

#include "codegen/cpu.h"
#include "codegen/llvm/emitter_impl.h"
#include "kernel/prepare.h"

namespace reprise::codegen {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

// LLVM's own process-wide state, in our hidden copy: targets, and switches that have no other place. LSR and the
// scheduler behind register allocation cost a third of the time and gain nothing on code that is emitted as it runs.
void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    const char* switches[] = {"reprise", "-disable-lsr", "-disable-post-ra"};
    llvm::cl::ParseCommandLineOptions(3, switches, "", &llvm::nulls());
  });
}

std::int64_t get_cpu_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

struct Diagnostics final : llvm::DiagnosticHandler {
  explicit Diagnostics(std::string* text) : text(text) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream out(*text);
    llvm::DiagnosticPrinterRawOStream printer(out);
    info.print(printer);
    return true;
  }
  std::string* text;
};

base::Unsupported fail(std::string text) { return {base::UnsupportedCode::CodegenFailed, std::move(text)}; }

// What one tier needs: a target machine, and the pass managers made for it.
struct TierState {
  std::unique_ptr<llvm::TargetMachine> machine;
  llvm::FunctionAnalysisManager analyses;
  llvm::FunctionPassManager passes;
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out{bytes};
  llvm::legacy::PassManager codegen;
};

class LlvmCompiler final : public CpuCompiler {
 public:
  explicit LlvmCompiler(const CpuTarget& target) : target_(target) {
    options_.has_avx512 = get_register_bytes(target) == 64;
  }

  std::string make_tier(Tier tier) {
    std::string error;
    const llvm::Triple triple(kTriple);
    const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
    if (found == nullptr) return error;
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    const auto level = tier == Tier::Full ? llvm::CodeGenOptLevel::Default : llvm::CodeGenOptLevel::None;
    auto state = std::make_unique<TierState>();
    state->machine.reset(found->createTargetMachine(triple, target_.name, target_.features, options, llvm::Reloc::PIC_,
                                                    llvm::CodeModel::Small, level, true));
    if (state->machine == nullptr) return "no target machine for " + target_.name;
    state->machine->setFastISel(false);  // it gives up on vectors
    llvm::TargetMachine* machine = state->machine.get();
    state->analyses.registerPass([] { return llvm::PassInstrumentationAnalysis(); });
    state->analyses.registerPass([] { return llvm::DominatorTreeAnalysis(); });
    state->analyses.registerPass([] { return llvm::AssumptionAnalysis(); });
    state->analyses.registerPass([] { return llvm::TargetLibraryAnalysis(); });
    state->analyses.registerPass([machine] { return machine->getTargetIRAnalysis(); });
    state->passes.addPass(llvm::PromotePass());
    state->passes.addPass(llvm::EarlyCSEPass(false));
    if (machine->addPassesToEmitFile(state->codegen, state->out, nullptr, llvm::CodeGenFileType::ObjectFile)) {
      return "no object files for " + target_.name;
    }
    tiers_[static_cast<std::size_t>(tier)] = std::move(state);
    return {};
  }

  base::Result<program::Code> compile(const kernel::Kernel& kernel, Tier tier) override {
    times_ = {};
    const base::Hash128 key = get_code_key(kernel, target_, tier);
    llvm::LLVMContext context;
    std::string error;
    std::unique_ptr<llvm::Module> module = make_module(kernel, tier, get_symbol(key), context, error);
    if (module == nullptr) return fail(error);
    TierState& state = get_tier(tier);
    std::int64_t start = get_cpu_time_ns();
    optimise(*module, state);
    times_.optimise_ns = get_cpu_time_ns() - start;
    start = get_cpu_time_ns();
    state.bytes.clear();
    state.codegen.run(*module);
    times_.codegen_ns = get_cpu_time_ns() - start;
    if (!error.empty()) return fail(error);
    program::Code code;
    code.key = key;
    code.kind = program::CodeKind::Object;
    code.symbols = {get_symbol(key)};
    code.bytes.assign(state.bytes.begin(), state.bytes.end());
    return code;
  }

  base::Result<std::string> print_ir(const kernel::Kernel& kernel, Tier tier, bool is_optimised) override {
    llvm::LLVMContext context;
    std::string error;
    std::unique_ptr<llvm::Module> module = make_module(kernel, tier, "kernel", context, error);
    if (module == nullptr) return fail(error);
    if (is_optimised) optimise(*module, get_tier(tier));
    std::string text;
    llvm::raw_string_ostream out(text);
    module->print(out, nullptr);
    return text;
  }

 private:
  TierState& get_tier(Tier tier) { return *tiers_[static_cast<std::size_t>(tier)]; }

  std::unique_ptr<llvm::Module> make_module(const kernel::Kernel& original, Tier tier, const std::string& symbol,
                                            llvm::LLVMContext& context, std::string& error) {
    std::int64_t start = get_cpu_time_ns();
    kernel::Kernel kernel = original;
    kernel::prepare(kernel, get_register_bytes(target_));
    times_.prepare_ns = get_cpu_time_ns() - start;
    start = get_cpu_time_ns();
    context.setDiscardValueNames(true);
    context.setDiagnosticHandler(std::make_unique<Diagnostics>(&error));
    auto module = std::make_unique<llvm::Module>("reprise", context);
    module->setTargetTriple(llvm::Triple(kTriple));
    module->setDataLayout(get_tier(tier).machine->createDataLayout());
    EmitOptions options = options_;
    options.inline_exp = tier == Tier::Full;
    error = Emitter(kernel, *module, options).emit(symbol);
    if (!error.empty()) return nullptr;
    for (llvm::Function& function : *module) {
      if (function.isDeclaration()) continue;
      function.addFnAttr("target-cpu", target_.name);
      function.addFnAttr("target-features", target_.features);
      function.addFnAttr("no-trapping-math", "true");
    }
    times_.emit_ns = get_cpu_time_ns() - start;
    if (verifies) {
      llvm::raw_string_ostream out(error);
      if (llvm::verifyModule(*module, &out)) return nullptr;
    }
    return module;
  }

  static void optimise(llvm::Module& module, TierState& state) {
    for (llvm::Function& function : module) {
      if (function.isDeclaration()) continue;
      state.passes.run(function, state.analyses);
      state.analyses.clear(function, function.getName());
    }
  }

  CpuTarget target_;
  EmitOptions options_;
  std::unique_ptr<TierState> tiers_[2];
};

}  // namespace

bool has_code_generator() { return true; }

CpuTarget get_host_target() {
  CpuTarget target;
  target.name = llvm::sys::getHostCPUName().str();
  llvm::SmallVector<std::string, 128> features;
  // REPRISE_TEST_CPU=avx2: the code of a processor without AVX-512, on one that has it.
  const char* level = std::getenv("REPRISE_TEST_CPU");
  const bool has_wide = level == nullptr || std::string_view(level) != "avx2";
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    const bool is_on = feature.getValue() && (has_wide || !feature.getKey().starts_with("avx512"));
    features.push_back((is_on ? "+" : "-") + feature.getKey().str());
  }
  std::sort(features.begin(), features.end());  // a hash table: its order is no promise
  target.features = llvm::join(features, ",");
  return target;
}

base::Result<std::unique_ptr<CpuCompiler>> make_cpu_compiler(const CpuTarget& target) {
  initialise_llvm();
  auto compiler = std::make_unique<LlvmCompiler>(target);
  for (const Tier tier : {Tier::Quick, Tier::Full}) {
    const std::string error = compiler->make_tier(tier);
    if (!error.empty()) return fail(error);
  }
  return std::unique_ptr<CpuCompiler>(std::move(compiler));
}

}  // namespace reprise::codegen
