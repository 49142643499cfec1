#include "driver/llvm_engine.h"

#include <mutex>
#include <utility>

#include "base/log.h"
#include "codegen/cpu.h"
#include "toolchain/link.h"

namespace reprise::driver {

namespace {

using codegen::Tier;

// A compiler and a lock: one thread at a time uses it.
struct Compiler {
  explicit Compiler(std::unique_ptr<codegen::CpuCompiler> made) : compiler(std::move(made)) {}
  std::mutex mutex;
  std::unique_ptr<codegen::CpuCompiler> compiler;
};

class LlvmEngine final : public NativeEngine {
 public:
  LlvmEngine(BackgroundWorker& worker, codegen::CpuTarget target, std::unique_ptr<codegen::CpuCompiler> quick,
             std::unique_ptr<codegen::CpuCompiler> full, std::unique_ptr<toolchain::Linker> linker)
      : worker_(worker),
        target_(std::move(target)),
        quick_(std::move(quick)),
        full_(std::move(full)),
        linker_(std::move(linker)),
        arenas_(std::make_shared<host::ArenaPool>()) {}

  base::Result<std::shared_ptr<host::KernelTable>> compile(const std::vector<kernel::Kernel>& kernels,
                                                           std::shared_ptr<toolchain::CodeCache> cache,
                                                           CodeCounts& counts) override {
    auto functions = std::make_shared<host::KernelTable>(kernels.size());
    for (size_t i = 0; i < kernels.size(); i++) {
      const base::Hash128 full_key = codegen::get_code_key(kernels[i], target_, Tier::Full);
      std::shared_ptr<toolchain::LoadedCode> code = linker_->find(full_key);
      if (code != nullptr) {
        ++counts.found;
        set(*functions, i, std::move(code));
        continue;
      }
      if (code = load_cached(cache.get(), *linker_, full_key, 1, counts); code != nullptr) {
        set(*functions, i, std::move(code));
        continue;
      }
      code = linker_->find(codegen::get_code_key(kernels[i], target_, Tier::Quick));
      if (code != nullptr) {
        ++counts.found;
      } else {
        auto made = make(quick_, kernels[i], Tier::Quick, nullptr);
        if (!made) return made.unsupported();
        code = std::move(made).value();
        ++counts.compiled;
      }
      set(*functions, i, std::move(code));
      worker_.add([this, job = Job{kernels[i], full_key, functions, i, cache}] { improve(job); });
    }
    return functions;
  }

  std::shared_ptr<host::ArenaPool> arenas() override { return arenas_; }

 private:
  struct Job {
    kernel::Kernel kernel;
    base::Hash128 key;
    std::weak_ptr<host::KernelTable> functions;
    size_t index = 0;
    std::shared_ptr<toolchain::CodeCache> cache;
  };

  static void set(host::KernelTable& table, size_t index, std::shared_ptr<toolchain::LoadedCode> code) {
    const host::KernelFunction function = code->get_functions()[0];
    table.set(index, function, std::move(code));
  }

  base::Result<std::shared_ptr<toolchain::LoadedCode>> make(Compiler& compiler, const kernel::Kernel& kernel, Tier tier,
                                                            toolchain::CodeCache* cache) {
    const std::lock_guard lock(compiler.mutex);
    if (base::is_log_enabled(base::LogWord::Codegen)) {
      auto text = compiler.compiler->print_ir(kernel, tier, true);
      if (text) base::write_log(base::LogWord::Codegen, text.value());
    }
    auto code = compiler.compiler->compile(kernel, tier);
    if (!code) return code.unsupported();
    if (cache != nullptr) cache->store(code.value());
    return linker_->load(code.value());
  }

  // What fails here leaves the first tier in place.
  void improve(const Job& job) {
    if (job.functions.expired()) return;
    std::shared_ptr<toolchain::LoadedCode> code = linker_->find(job.key);
    if (code == nullptr) {
      auto made = make(full_, job.kernel, Tier::Full, job.cache.get());
      if (!made) return;
      code = std::move(made).value();
    }
    if (const std::shared_ptr<host::KernelTable> functions = job.functions.lock()) set(*functions, job.index, code);
  }

  BackgroundWorker& worker_;
  const codegen::CpuTarget target_;
  Compiler quick_;
  Compiler full_;
  std::unique_ptr<toolchain::Linker> linker_;
  std::shared_ptr<host::ArenaPool> arenas_;
};

}  // namespace

base::Result<std::unique_ptr<NativeEngine>> make_llvm_engine(BackgroundWorker& worker) {
  const codegen::CpuTarget target = codegen::get_host_target();
  auto quick = codegen::make_cpu_compiler(target);
  if (!quick) return quick.unsupported();
  auto full = codegen::make_cpu_compiler(target);
  if (!full) return full.unsupported();
  auto linker = toolchain::make_linker(host::find_torch_symbol);
  if (!linker) return linker.unsupported();
  return std::unique_ptr<NativeEngine>(std::make_unique<LlvmEngine>(
      worker, target, std::move(quick).value(), std::move(full).value(), std::move(linker).value()));
}

}  // namespace reprise::driver
