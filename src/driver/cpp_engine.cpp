#include "driver/cpp_engine.h"

#include <mutex>
#include <optional>
#include <utility>

#include "base/log.h"
#include "codegen/cpp/print_cpp.h"
#include "toolchain/compile_cpp.h"
#include "toolchain/link.h"

namespace reprise::driver {

namespace {

class CppEngine final : public NativeEngine {
 public:
  CppEngine()
      : linker_(toolchain::make_library_linker(host::find_torch_symbol)),
        arenas_(std::make_shared<host::ArenaPool>()) {}

  base::Result<std::shared_ptr<host::KernelTable>> compile(const std::vector<kernel::Kernel>& kernels,
                                                           std::shared_ptr<toolchain::CodeCache> cache,
                                                           CodeCounts& counts) override {
    auto functions = std::make_shared<host::KernelTable>(kernels.size());
    if (kernels.empty()) return functions;
    const std::lock_guard lock(mutex_);
    auto compiler = find_compiler();
    if (!compiler) return compiler.unsupported();
    const codegen::CpuTarget target{compiler.value().command[0], compiler.value().identity.get_text()};
    const codegen::CppUnit unit = codegen::print_cpp_unit(kernels, target);
    const auto count = static_cast<uint32_t>(kernels.size());
    std::shared_ptr<toolchain::LoadedCode> code = linker_->find(unit.key);
    if (code != nullptr) {
      counts.found += count;
    } else if (code = load_cached(cache.get(), *linker_, unit.key, count, counts); code == nullptr) {
      auto made = make(compiler.value(), unit, cache.get());
      if (!made) return made.unsupported();
      code = std::move(made).value();
      counts.compiled += count;
    }
    for (size_t i = 0; i < kernels.size(); i++) functions->set(i, code->get_functions()[i], code);
    return functions;
  }

  std::shared_ptr<host::ArenaPool> arenas() override { return arenas_; }

 private:
  // The compiler that is asked for now; it is run once to get to know it.
  base::Result<toolchain::CppCompiler> find_compiler() {
    if (compiler_.has_value() && compiler_->command == toolchain::get_cpp_command()) return *compiler_;
    auto found = toolchain::find_cpp_compiler();
    if (found) compiler_ = found.value();
    return found;
  }

  base::Result<std::shared_ptr<toolchain::LoadedCode>> make(const toolchain::CppCompiler& compiler,
                                                            const codegen::CppUnit& unit, toolchain::CodeCache* cache) {
    if (base::is_log_enabled(base::LogWord::Codegen)) base::write_log(base::LogWord::Codegen, unit.source);
    auto bytes = toolchain::compile_cpp(compiler, unit.source);
    if (!bytes) return bytes.unsupported();
    const program::Code code{unit.key, program::CodeKind::Library, unit.symbols, std::move(bytes).value()};
    if (cache != nullptr) cache->store(code);
    return linker_->load(code);
  }

  std::mutex mutex_;
  std::optional<toolchain::CppCompiler> compiler_;
  std::unique_ptr<toolchain::Linker> linker_;
  std::shared_ptr<host::ArenaPool> arenas_;
};

}  // namespace

std::unique_ptr<NativeEngine> make_cpp_engine() { return std::make_unique<CppEngine>(); }

}  // namespace reprise::driver
