#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>

#include "host/torch/boxed_call_impl.h"
#include "host/torch/native_program_impl.h"
#include "host/torch/scalar_values_impl.h"

namespace reprise::host {

using program::StepKind;

namespace {

// A tensor over memory that exists. `offset` in elements.
at::Tensor make_tensor(const c10::Storage& storage, const NativeSlot& slot, int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(slot.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(slot.sizes, slot.strides, offset);
  return tensor;
}

at::Tensor allocate(const NativeSlot& slot) {
  return at::detail::empty_strided_cpu(slot.sizes, slot.strides, slot.dtype);
}

bool is_laid_out(const at::Tensor& tensor, const NativeSlot& slot) {
  if (tensor.sizes() != c10::IntArrayRef(slot.sizes)) return false;
  for (int64_t d = 0; d < tensor.dim(); d++) {
    const auto i = static_cast<size_t>(d);
    if (slot.sizes[i] > 1 && tensor.stride(d) != slot.strides[i]) return false;
  }
  return true;
}

char* address_of(const at::Tensor& tensor) { return static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())); }

int64_t word_of(const c10::IValue& value) {
  if (value.isDouble()) return std::bit_cast<int64_t>(value.toDouble());
  return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt();
}

// One run of a program.
class Runner {
 public:
  Runner(const NativeProgram::State& program, NativeRun& run) : program_(program), run_(run) {}

  void take_inputs(std::vector<c10::IValue>& inputs) {
    TORCH_INTERNAL_ASSERT(inputs.size() == program_.input_count);
    for (size_t i = 0; i < inputs.size(); i++) set_input(i, std::move(inputs[i]));
    inputs.clear();
    for (size_t i = 0; i < program_.constants.size(); i++) set_input(program_.input_count + i, program_.constants[i]);
  }

  void use_arena(const at::Tensor& memory) {
    arena_ = &memory;
    char* base = address_of(memory);
    if (run_.arena == base) return;
    run_.arena = base;
    for (const int32_t index : program_.arena_slots) data(index) = base + slot(index).arena_offset;
  }

  void run(std::vector<c10::IValue>& results) {
    for (const NativeStep& step : program_.steps) {
      switch (step.kind) {
        case StepKind::Allocate:
          set_tensor(step.slot, allocate(slot(step.slot)));
          break;
        case StepKind::Launch:
          launch(step);
          break;
        case StepKind::Extern:
          call_library(step);
          break;
        case StepKind::Check:
          check(step);
          break;
        case StepKind::View:
          make_view(step);
          break;
        case StepKind::Copy:
          tensor(step.slot).copy_(tensor(step.source));
          break;
        case StepKind::Free:
          value(step.slot) = c10::IValue();
          break;
        case StepKind::Return:
          for (size_t i = 0; i < step.results.size(); i++)
            results.push_back(take_result(step.results[i], step.is_cloned[i] != 0));
          break;
      }
      for (const int32_t dead : step.frees) value(dead) = c10::IValue();
    }
  }

 private:
  const NativeSlot& slot(int32_t index) const { return program_.slots[static_cast<size_t>(index)]; }
  c10::IValue& value(int32_t index) { return run_.values[static_cast<size_t>(index)]; }
  char*& data(int32_t index) { return run_.data[static_cast<size_t>(index)]; }

  void set_input(size_t index, c10::IValue given) {
    const NativeSlot& slot = program_.slots[index];
    c10::IValue& place = run_.values[index];
    if (given.isNone()) {  // what no step reads
      run_.data[index] = nullptr;
      place = std::move(given);
    } else if (slot.is_tensor) {
      TORCH_INTERNAL_ASSERT(given.isTensor());
      run_.data[index] = address_of(given.toTensor());
      place = std::move(given);
    } else {
      const bool is_kept_number = given.isTensor() && given.toTensor().dim() == 0;
      place = is_kept_number ? number_of(given.toTensor(), slot.number_kind) : std::move(given);
    }
  }

  void set_tensor(int32_t index, at::Tensor made) {
    data(index) = address_of(made);
    value(index) = std::move(made);
  }

  const at::Tensor& tensor(int32_t index) {
    c10::IValue& place = value(index);
    if (place.isNone()) {
      const NativeSlot& row = slot(index);
      TORCH_INTERNAL_ASSERT(row.arena_offset >= 0, "slot ", index, " of a program is not filled");
      place = make_tensor(arena_->storage(), row, row.arena_offset / static_cast<int64_t>(row.element_bytes));
    }
    return place.toTensor();
  }

  void launch(const NativeStep& step) {
    if (step.units == 0) return;
    run_.buffers.resize(step.buffers.size());
    for (size_t i = 0; i < step.buffers.size(); i++)
      run_.buffers[i] = data(step.buffers[i].first) + step.buffers[i].second;
    run_.words.resize(step.words.size());
    for (size_t i = 0; i < step.words.size(); i++) {
      const auto [index, bits] = step.words[i];
      run_.words[i] = index < 0 ? bits : word_of(value(index));
    }
    run_kernel(program_.kernels->get(static_cast<size_t>(step.code)), run_.buffers.data(), run_.words.data(), step);
  }

  void check(const NativeStep& step) {
    const auto begin = run_.flags.begin() + step.first_check, end = begin + step.check_count;
    const auto found = std::find_if(begin, end, [](int32_t flag) { return flag != 0; });
    if (found == end) return;
    const program::Check& failed = program_.checks[static_cast<size_t>(found - run_.flags.begin())];
    std::fill(begin, end, 0);
    TORCH_CHECK_INDEX(!failed.is_index_error, failed.text);
    TORCH_CHECK(false, failed.text);
  }

  void make_view(const NativeStep& step) {
    const NativeSlot& row = slot(step.slot);
    const int64_t shift = row.offset - slot(step.source).offset;
    if (!row.needs_tensor) {
      data(step.slot) = data(step.source) + shift * static_cast<int64_t>(row.element_bytes);
      return;
    }
    const at::Tensor& source = tensor(step.source);
    at::Tensor view = make_tensor(source.storage(), row, source.storage_offset() + shift);
    set_tensor(step.slot, std::move(view));
  }

  const c10::IValue& load_slot(int32_t index) {
    if (slot(index).is_tensor) tensor(index);
    return value(index);
  }

  void push(const Loader& loader) {
    if (loader.kind == Loader::Kind::Constant) {
      run_.stack.push_back(loader.constant);
    } else if (loader.slot >= 0 && loader.kind == Loader::Kind::Slot) {
      run_.stack.push_back(load_slot(loader.slot));
    } else {
      if (loader.slot >= 0) load_slot(loader.slot);
      for (const Loader::Element& element : loader.elements) {
        if (element.slot >= 0) load_slot(element.slot);
      }
      run_.stack.push_back(load(loader, run_.values));
    }
  }

  void call_library(const NativeStep& step) {
    torch::jit::Stack& stack = run_.stack;
    stack.clear();
    for (const Loader& loader : step.arguments) push(loader);
    if (!step.handle) {
      c10::IValue result = run_scalar_op(step.scalar_op, {stack.data(), stack.size()});
      if (!step.results.empty() && step.results[0] >= 0) value(step.results[0]) = std::move(result);
      return;
    }
    if (step.copies_storage) leave_arena(step, stack[0]);
    step.position.move(stack.data());
    if (step.product != nullptr && multiply(step)) return;
    if (step.fill == nullptr || !step.fill(stack)) step.handle->callBoxed(&stack);
    size_t next = 0;
    for (size_t r = 0; r < step.is_list.size() && next < step.results.size(); r++) {
      if (step.is_list[r] == 0) {
        take_from_library(step.results[next++], std::move(stack[r]));
        continue;
      }
      for (const at::Tensor& element : stack[r].toTensorVector()) {
        if (next < step.results.size()) take_from_library(step.results[next++], element);
      }
    }
    stack.clear();
  }

  // The same tensor over memory that ends where it ends.
  void leave_arena(const NativeStep& step, c10::IValue& place) const {
    const at::Tensor& tensor = place.toTensor();
    if (arena_ == nullptr || !tensor.storage().is_alias_of(arena_->storage()) || step.position.traced != 0) return;
    place = at::from_blob(address_of(tensor), tensor.sizes(), tensor.strides(), tensor.options());
  }

  // mm(a, b, out), bmm likewise. False: not as these tensors are.
  bool multiply(const NativeStep& step) {
    torch::jit::Stack& stack = run_.stack;
    const at::Tensor &a = stack[0].toTensor(), &b = stack[1].toTensor(), &out = stack[2].toTensor();
    if (a.is_neg() || b.is_neg()) return false;
    // Never with a beta: oneDNN's sum of product and old contents writes behind the end (one row, 2048 x 2048).
    step.product(a, b, out, 0.0F, 1.0F);
    stack.clear();
    return true;
  }

  void take_from_library(int32_t index, c10::IValue result) {
    if (index < 0) return;
    const NativeSlot& row = slot(index);
    if (!row.is_tensor) {
      value(index) = std::move(result);
      return;
    }
    at::Tensor made = std::move(result).toTensor();
    if (!is_laid_out(made, row)) {
      TORCH_INTERNAL_ASSERT(made.sizes() == c10::IntArrayRef(row.sizes), "a library call gave sizes ", made.sizes(),
                            " where the program expects ", c10::IntArrayRef(row.sizes));
      at::Tensor copy = allocate(row);
      copy.copy_(made);
      made = std::move(copy);
    }
    set_tensor(index, std::move(made));
  }

  c10::IValue take_result(int32_t index, bool is_cloned) {
    if (index < 0) return {};
    if (!slot(index).is_tensor) return value(index);
    return is_cloned ? tensor(index).clone() : tensor(index);
  }

  const NativeProgram::State& program_;
  NativeRun& run_;
  const at::Tensor* arena_ = nullptr;
};

// The state of a run, taken from the program and given back without what it held.
class RunScope {
 public:
  explicit RunScope(const NativeProgram::State& program) : program_(program), run_(program.spare.exchange(nullptr)) {
    if (run_ == nullptr) {
      run_ = new NativeRun;
      run_->values.resize(program.slots.size());
      run_->data.resize(program.slots.size());
      run_->flags.assign(program.checks.size(), 0);
      if (program.flags_slot >= 0) {
        run_->data[static_cast<size_t>(program.flags_slot)] = reinterpret_cast<char*>(run_->flags.data());
      }
    }
    if (program.arena_bytes > 0) block_ = program.arenas->take(program.arena_bytes);
  }
  ~RunScope() {
    run_->stack.clear();
    for (c10::IValue& value : run_->values) value = c10::IValue();
    if (block_ != nullptr) program_.arenas->give_back(std::move(block_));
    delete program_.spare.exchange(run_);
  }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

  NativeRun& run() { return *run_; }
  const ArenaPool::Block* block() const { return block_.get(); }

 private:
  const NativeProgram::State& program_;
  NativeRun* run_;
  std::unique_ptr<ArenaPool::Block> block_;
};

}  // namespace

ArenaPool::ArenaPool() = default;
ArenaPool::~ArenaPool() = default;

std::unique_ptr<ArenaPool::Block> ArenaPool::take(int64_t size_bytes) {
  std::unique_ptr<Block> block;
  {
    const std::lock_guard lock(mutex_);
    if (!blocks_.empty()) {
      block = std::move(blocks_.back());
      blocks_.pop_back();
    }
  }
  if (block == nullptr) block = std::make_unique<Block>();
  if (!block->memory.defined() || block->memory.numel() < size_bytes) {
    block->memory = at::Tensor();
    block->memory = at::detail::empty_cpu({size_bytes}, at::kByte);
  }
  return block;
}

void ArenaPool::give_back(std::unique_ptr<Block> block) {
  const std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(block));
}

NativeProgram::NativeProgram(std::unique_ptr<State> state) : state_(std::move(state)) {}
NativeProgram::~NativeProgram() = default;

void NativeProgram::run(ValueList&& inputs, ValueList& outputs) const {
  const c10::impl::ExcludeDispatchKeyGuard below(keys_passed());
  RunScope scope(*state_);
  Runner runner(*state_, scope.run());
  runner.take_inputs(inputs.values().list);
  if (scope.block() != nullptr) runner.use_arena(scope.block()->memory);
  std::vector<c10::IValue>& results = outputs.values().list;
  results.clear();
  runner.run(results);
}

size_t NativeProgram::instruction_count() const {
  return static_cast<size_t>(std::count_if(state_->steps.begin(), state_->steps.end(), [](const NativeStep& step) {
    return step.kind == StepKind::Launch || step.kind == StepKind::Extern;
  }));
}

size_t NativeProgram::product_count() const {
  return static_cast<size_t>(std::count_if(state_->steps.begin(), state_->steps.end(),
                                           [](const NativeStep& step) { return step.product != nullptr; }));
}

}  // namespace reprise::host
