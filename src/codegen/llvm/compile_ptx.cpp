#include <mutex>
#include <optional>

#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>

#include "codegen/cpu.h"
#include "codegen/llvm/emitter_impl.h"
#include "codegen/nvptx.h"

namespace reprise::codegen {
namespace {

base::Unsupported fail(std::string text) { return {base::UnsupportedCode::CodegenFailed, std::move(text)}; }

// Registers the target, once in a process (base/globals.def: llvm_options).
void initialise_nvptx() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

}  // namespace

base::Result<program::Code> compile_ptx(const kernel::Kernel& kernel, const GpuTarget& target) {
  initialise_nvptx();
  const llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (found == nullptr) return fail(error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  const std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(triple, target.processor, target.features, options, std::nullopt));
  if (machine == nullptr) return fail("no target machine for " + target.processor);

  const base::Hash128 key = get_code_key(kernel, {target.processor, target.features}, Tier::Full);
  llvm::LLVMContext context;
  context.setDiscardValueNames(true);
  llvm::Module module("reprise", context);
  module.setTargetTriple(triple);
  module.setDataLayout(machine->createDataLayout());
  EmitOptions emit;
  emit.is_gpu = true;
  error = Emitter(kernel, module, emit).emit(get_symbol(key));
  if (!error.empty()) return fail(error);
  {
    llvm::raw_string_ostream out(error);
    if (llvm::verifyModule(module, &out)) return fail(error);
  }
  llvm::FunctionAnalysisManager analyses;
  analyses.registerPass([] { return llvm::PassInstrumentationAnalysis(); });
  analyses.registerPass([] { return llvm::DominatorTreeAnalysis(); });
  analyses.registerPass([] { return llvm::AssumptionAnalysis(); });
  analyses.registerPass([] { return llvm::TargetLibraryAnalysis(); });
  analyses.registerPass([&] { return machine->getTargetIRAnalysis(); });
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::PromotePass());
  passes.addPass(llvm::EarlyCSEPass(false));
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) passes.run(function, analyses);
  }
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream out(text);
  llvm::legacy::PassManager manager;
  if (machine->addPassesToEmitFile(manager, out, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
    return fail("no PTX for " + target.processor);
  }
  manager.run(module);
  program::Code code;
  code.key = key;
  code.kind = program::CodeKind::Ptx;
  code.symbols = {get_symbol(key)};
  code.bytes.assign(text.begin(), text.end());
  return code;
}

}  // namespace reprise::codegen
