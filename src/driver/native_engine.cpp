#include "driver/native_engine.h"

#include <Python.h>
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "codegen/cpu.h"
#include "kernel/text.h"
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

class CpuEngine final : public NativeEngine {
 public:
  CpuEngine(codegen::CpuTarget target, std::unique_ptr<codegen::CpuCompiler> quick,
            std::unique_ptr<codegen::CpuCompiler> full, std::unique_ptr<toolchain::Linker> linker)
      : target_(std::move(target)),
        quick_(std::move(quick)),
        full_(std::move(full)),
        linker_(std::move(linker)),
        arenas_(std::make_shared<host::ArenaPool>()) {}
  ~CpuEngine() override { stop(); }

  base::Result<std::shared_ptr<host::KernelTable>> compile(const std::vector<kernel::Kernel>& kernels) override {
    auto functions = std::make_shared<host::KernelTable>(kernels.size());
    for (size_t i = 0; i < kernels.size(); i++) {
      const base::Hash128 full_key = codegen::get_code_key(kernels[i], target_, Tier::Full);
      std::shared_ptr<toolchain::LoadedCode> code = linker_->find(full_key);
      if (code != nullptr) {
        set(*functions, i, std::move(code));
        continue;
      }
      code = linker_->find(codegen::get_code_key(kernels[i], target_, Tier::Quick));
      if (code == nullptr) {
        auto made = make(quick_, kernels[i], Tier::Quick);
        if (!made) return made.unsupported();
        code = std::move(made).value();
      }
      set(*functions, i, std::move(code));
      enqueue({kernels[i], full_key, functions, i});
    }
    return functions;
  }

  std::shared_ptr<host::ArenaPool> arenas() override { return arenas_; }

  // Around a fork: the worker is between two jobs, so the child finds no lock taken, neither ours nor LLVM's nor those
  // of the kernel tables and loaded code that it shares with its parent. The worker needs no GIL, which the caller may
  // hold.
  void pause() {
    job_mutex_.lock();
    queue_mutex_.lock();
  }
  void resume() {
    queue_mutex_.unlock();
    job_mutex_.unlock();
  }

  void stop() {
    {
      const std::lock_guard lock(queue_mutex_);
      is_stopped_ = true;
      queue_.clear();
    }
    work_.notify_all();
    if (worker_.joinable()) worker_.join();
  }

 private:
  struct Job {
    kernel::Kernel kernel;
    base::Hash128 key;
    std::weak_ptr<host::KernelTable> functions;
    size_t index = 0;
  };

  static void set(host::KernelTable& table, size_t index, std::shared_ptr<toolchain::LoadedCode> code) {
    const host::KernelFunction function = code->get_functions()[0];
    table.set(index, function, std::move(code));
  }

  base::Result<std::shared_ptr<toolchain::LoadedCode>> make(Compiler& compiler, const kernel::Kernel& kernel,
                                                            Tier tier) {
    const std::lock_guard lock(compiler.mutex);
    if (base::is_log_enabled(base::LogWord::Codegen)) {
      auto text = compiler.compiler->print_ir(kernel, tier, true);
      if (text) base::write_log(base::LogWord::Codegen, text.value());
    }
    auto code = compiler.compiler->compile(kernel, tier);
    if (!code) return code.unsupported();
    return linker_->load(code.value());
  }

  void enqueue(Job job) {
    const std::lock_guard lock(queue_mutex_);
    if (is_stopped_) return;
    queue_.push_back(std::move(job));
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
    work_.notify_one();
  }

  void work() {
    std::unique_lock lock(queue_mutex_);
    for (;;) {
      work_.wait(lock, [&] { return is_stopped_ || !queue_.empty(); });
      if (is_stopped_) return;
      Job job = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      {
        const std::lock_guard busy(job_mutex_);
        improve(job);
        job = {};  // what it owned is freed here, too
      }
      lock.lock();
    }
  }

  // What fails here leaves the first tier in place.
  void improve(const Job& job) {
    if (job.functions.expired()) return;
    std::shared_ptr<toolchain::LoadedCode> code = linker_->find(job.key);
    if (code == nullptr) {
      auto made = make(full_, job.kernel, Tier::Full);
      if (!made) return;
      code = std::move(made).value();
    }
    if (const std::shared_ptr<host::KernelTable> functions = job.functions.lock()) set(*functions, job.index, code);
  }

  const codegen::CpuTarget target_;
  Compiler quick_;
  Compiler full_;
  std::unique_ptr<toolchain::Linker> linker_;
  std::shared_ptr<host::ArenaPool> arenas_;
  std::mutex job_mutex_;  // held while the worker does something; before queue_mutex_
  std::mutex queue_mutex_;
  std::condition_variable work_;
  std::deque<Job> queue_;
  std::thread worker_;
  bool is_stopped_ = false;
};

// The process's engine; never destroyed: kernels may run until the very end. See base/globals.def.
CpuEngine* g_engine = nullptr;
pid_t g_engine_process = 0;

base::Result<NativeEngine*> make_engine() {
  const codegen::CpuTarget target = codegen::get_host_target();
  auto quick = codegen::make_cpu_compiler(target);
  if (!quick) return quick.unsupported();
  auto full = codegen::make_cpu_compiler(target);
  if (!full) return full.unsupported();
  auto linker = toolchain::make_linker(host::find_torch_symbol);
  if (!linker) return linker.unsupported();
  const bool is_first = g_engine == nullptr;
  g_engine = new CpuEngine(target, std::move(quick).value(), std::move(full).value(), std::move(linker).value());
  g_engine_process = getpid();
  if (is_first) {
    pthread_atfork([] { g_engine->pause(); }, [] { g_engine->resume(); }, [] { g_engine->resume(); });
    Py_AtExit([] {
      if (g_engine_process == getpid()) g_engine->stop();
    });
  }
  return static_cast<NativeEngine*>(g_engine);
}

}  // namespace

base::Result<NativeEngine*> find_native_engine() {
  if (g_engine != nullptr && g_engine_process == getpid()) return static_cast<NativeEngine*>(g_engine);
  return make_engine();
}

}  // namespace reprise::driver
