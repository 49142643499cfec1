// The executor's own form of a program. Private to host/torch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

#include "host/torch/argument_loader_impl.h"
#include "host/torch/matrix_product_impl.h"
#include "host/torch/native_program.h"
#include "host/torch/random_fill_impl.h"

namespace reprise::host {

struct ArenaPool::Block {
  at::Tensor memory;  // bytes; undefined: none yet
};

/// One run: what every slot holds. Kept between runs for its memory.
struct NativeRun {
  std::vector<c10::IValue> values;  // by slot: tensors, numbers, random states
  std::vector<char*> data;          // by slot: where the first element of a tensor is
  const char* arena = nullptr;      // the block that the addresses of arena slots are in
  std::vector<int32_t> flags;       // what checks of the program found; 0 between runs
  std::vector<void*> buffers;       // of one launch
  std::vector<int64_t> words;
  torch::jit::Stack stack;
};

/// A slot of the program.
struct NativeSlot {
  bool is_tensor = true;
  bool needs_tensor = false;  // a library call, a copy or the caller gets it; else its address is enough
  TraceValueKind number_kind = TraceValueKind::Float;
  c10::ScalarType dtype = c10::ScalarType::Float;
  size_t element_bytes = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  int64_t arena_offset = -1;
};

struct NativeStep {
  program::StepKind kind = program::StepKind::Free;
  int32_t slot = -1;
  int32_t source = -1;
  // Launch
  int32_t code = -1;
  std::vector<std::pair<int32_t, int64_t>> buffers;  // slot, byte offset
  std::vector<std::pair<int32_t, int64_t>> words;    // slot of the number, or -1 and the bits
  int64_t units = 0;
  int64_t unit_work = 1;
  int64_t grain = 1;
  // Check
  uint32_t first_check = 0;
  uint32_t check_count = 0;
  // Extern
  std::optional<c10::OperatorHandle> handle;  // nothing: scalar_op
  ScalarOp scalar_op = ScalarOp::Item;
  std::vector<Loader> arguments;
  StoragePosition position;
  bool copies_storage = false;        // PyTorch's function copies all memory that its first argument is in
  ProductFunction product = nullptr;  // instead of the handle: a matrix product by oneDNN
  FillFunction fill = nullptr;        // in front of the handle: random numbers many at a time
  std::vector<int32_t> results;       // -1: not needed. Return: -1: None
  std::vector<uint8_t> is_list;       // by return of the op
  std::vector<uint8_t> is_cloned;
  std::vector<int32_t> frees;  // inputs that are dead behind the step, and their views
};

struct NativeProgram::State {
  std::shared_ptr<KernelTable> kernels;
  std::shared_ptr<ArenaPool> arenas;
  int64_t arena_bytes = 0;
  size_t input_count = 0;  // that the caller gives; constants follow
  std::vector<NativeSlot> slots;
  std::vector<NativeStep> steps;
  std::vector<c10::IValue> constants;
  std::vector<int32_t> arena_slots;
  int32_t flags_slot = -1;
  std::vector<program::Check> checks;
  mutable std::atomic<NativeRun*> spare{nullptr};

  ~State() { delete spare.load(); }
};

/// `function` over [0, units), in parts of multiples of `grain`, on torch's thread pool if the work is worth it.
void run_kernel(KernelFunction function, void* const* buffers, const int64_t* words, const NativeStep& step);

}  // namespace reprise::host
