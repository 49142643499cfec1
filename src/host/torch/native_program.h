// The executor: a program::Program run with torch's tensors, its kernels as machine code, everything else by ATen.
//
// make() turns the steps into calls once: operators are looked up, constant arguments made, slots that only kernels
// touch get no tensor at all. run() may be called by several threads at once, needs no GIL, and runs below autograd and
// autocast; C++ exceptions of torch pass through it. Kernels run over torch's own thread pool. Temporaries lie in one
// block of an ArenaPool, which programs share and which keeps its memory between runs. What a library call returns is
// laid out as the program says, or copied so that it is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/torch/boxed_call.h"
#include "program/program.h"

namespace reprise::host {

/// The kernels' calling convention (kernel/kernel.h).
using KernelFunction = void (*)(void* const* buffers, const int64_t* scalars, int64_t begin, int64_t end);

/// The functions of a program's codes. A quicker one may take the place of another while both run.
class KernelTable {
 public:
  explicit KernelTable(size_t count) : functions_(count) {}
  size_t size() const { return functions_.size(); }
  KernelFunction get(size_t code) const { return functions_[code].load(std::memory_order_acquire); }
  /// `owner` keeps the function's memory; it lives as long as the table.
  void set(size_t code, KernelFunction function, std::shared_ptr<void> owner) {
    const std::lock_guard lock(mutex_);
    owners_.push_back(std::move(owner));
    functions_[code].store(function, std::memory_order_release);
  }

 private:
  std::vector<std::atomic<KernelFunction>> functions_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> owners_;
};

/// Blocks of memory for temporaries, kept between runs: fresh pages cost several times what a kernel does. One run has
/// one block at a time; the pool keeps as many as ran at once, each as large as any program asked for.
class ArenaPool {
 public:
  ArenaPool();
  ~ArenaPool();
  struct Block;
  std::unique_ptr<Block> take(int64_t size_bytes);
  void give_back(std::unique_ptr<Block> block);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

class NativeProgram final : public RegionProgram {
 public:
  /// Every code has a function in `kernels`. `constants`: the last inputs of the program, in order. `uses_onednn`: see
  /// matrix_product.h. Needs the GIL.
  static base::Result<std::unique_ptr<NativeProgram>> make(
      const program::Program& program, std::shared_ptr<KernelTable> kernels, std::shared_ptr<ArenaPool> arenas,
      const TraceConstants& constants, std::span<const uint32_t> constant_indices, bool uses_onednn);
  ~NativeProgram() override;

  void run(ValueList&& inputs, ValueList& outputs) const override;
  size_t instruction_count() const override;
  /// Matrix products that oneDNN computes.
  size_t product_count() const;

  struct State;

 private:
  explicit NativeProgram(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Whether programs draw random numbers many at a time (random_fill_impl.h) as PyTorch draws them here. Found out once.
bool draws_many_at_a_time();

/// The address of a function of torch's libraries or of the process (Sleef and MKL for kernels), or nullptr.
void* find_torch_symbol(std::string_view name);

}  // namespace reprise::host
