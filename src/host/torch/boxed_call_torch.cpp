#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "host/torch/argument_loader_impl.h"
#include "host/torch/boxed_call_impl.h"
#include "host/torch/op_info_impl.h"
#include "host/torch/scalar_values_impl.h"
#include "host/torch/trace_tensor_impl.h"

namespace reprise::host {

namespace {

c10::IValue constant_of(const OpCall& call, const OpArg& arg) {
  switch (arg.kind) {
    case OpArg::Kind::None:
      return {};
    case OpArg::Kind::Float:
      return {arg.real};
    case OpArg::Kind::Bool:
      return {arg.integer != 0};
    case OpArg::Kind::Complex:
      return {c10::complex<double>(arg.real, arg.imaginary)};
    case OpArg::Kind::Device:
      return {c10::Device(static_cast<c10::DeviceType>(arg.integer >> 8), static_cast<int8_t>(arg.integer & 0xff))};
    case OpArg::Kind::Text:
      return {call.texts[static_cast<size_t>(arg.id)]};
    case OpArg::Kind::Int:
    case OpArg::Kind::DType:
    case OpArg::Kind::Layout:
    case OpArg::Kind::MemoryFormat:
      return {arg.integer};
    default:
      TORCH_INTERNAL_ASSERT(false, "no constant");
  }
}

template <typename T>
c10::IValue constant_list(const OpCall& call, const OpArg& arg) {
  c10::List<T> list;
  for (const OpArg& element : call.elements(arg)) list.push_back(constant_of(call, element).to<T>());
  return list;
}

Loader make_loader(const OpCall& call, const OpArg& arg, OpArgKind kind) {
  Loader loader;
  if (arg.kind == OpArg::Kind::Value) {
    loader.kind = arg.is_wrapped_number ? Loader::Kind::WrappedSlot : Loader::Kind::Slot;
    loader.slot = arg.id;
    return loader;
  }
  if (arg.kind != OpArg::Kind::List) {
    loader.constant = constant_of(call, arg);
    if (arg.is_wrapped_number) loader.constant = as_wrapped(loader.constant);
    return loader;
  }
  bool has_slots = false;
  for (const OpArg& element : call.elements(arg)) has_slots |= element.kind == OpArg::Kind::Value;
  if (!has_slots && kind == OpArgKind::BoolList) {
    loader.constant = constant_list<bool>(call, arg);
    return loader;
  }
  if (!has_slots && kind == OpArgKind::IntList) {
    loader.constant = constant_list<int64_t>(call, arg);
    return loader;
  }
  loader.kind = list_kind(kind);
  for (const OpArg& element : call.elements(arg)) {
    Loader::Element& made = loader.elements.emplace_back();
    if (element.kind == OpArg::Kind::Value) {
      made.slot = element.id;
    } else {
      made.constant = constant_of(call, element);
      if (element.is_wrapped_number) made.constant = as_wrapped(made.constant);
    }
  }
  return loader;
}

}  // namespace

struct BoxedProgram::State {
  struct Instruction {
    std::optional<c10::OperatorHandle> handle;
    ScalarOp scalar_op = ScalarOp::Item;
    bool is_list_result = false;
    uint64_t mut = 0;
    StoragePosition position;
    std::vector<Loader> loaders;
    std::vector<std::vector<int32_t>> results;
    std::vector<int32_t> new_values;
    std::vector<uint8_t> is_consumed;
    std::vector<int32_t> frees;
  };
  int32_t slot_count = 0;
  std::vector<std::pair<int32_t, TraceValueKind>> inputs;
  std::vector<std::pair<int32_t, c10::IValue>> constants;
  std::vector<Instruction> instructions;
  std::vector<std::pair<int32_t, bool>> outputs;
};

namespace {

// Clones what may not be written to, and notes the tensors that are written.
void prepare_writes(uint64_t mut, const std::vector<uint8_t>& is_consumed, torch::jit::Stack& stack,
                    std::vector<at::Tensor>& written) {
  const auto take = [&](const at::Tensor& tensor) {
    const bool may_write = is_consumed[written.size()] != 0;
    written.push_back(may_write ? tensor : tensor.clone());
    return written.back();
  };
  for (size_t i = 0; i < stack.size(); i++) {
    if (((mut >> i) & 1) == 0 || stack[i].isNone()) continue;
    if (stack[i].isTensor()) {
      stack[i] = take(stack[i].toTensor());
      continue;
    }
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : stack[i].toTensorVector()) list.push_back(take(tensor));
    stack[i] = std::move(list);
  }
}

}  // namespace

BoxedProgram::BoxedProgram() : state_(std::make_unique<State>()) {}
BoxedProgram::~BoxedProgram() = default;
BoxedProgram::BoxedProgram(BoxedProgram&&) noexcept = default;
BoxedProgram& BoxedProgram::operator=(BoxedProgram&&) noexcept = default;

int32_t BoxedProgram::add_slot() { return state_->slot_count++; }
void BoxedProgram::add_input(int32_t slot, TraceValueKind kind) { state_->inputs.emplace_back(slot, kind); }
void BoxedProgram::add_constant(int32_t slot, const TraceConstants& constants, int32_t index) {
  state_->constants.emplace_back(slot, constants.values().list[static_cast<size_t>(index)]);
}
void BoxedProgram::add_output(int32_t slot, bool is_cloned) { state_->outputs.emplace_back(slot, is_cloned); }
size_t BoxedProgram::instruction_count() const { return state_->instructions.size(); }
size_t BoxedProgram::clone_count() const {
  size_t count = 0;
  for (const State::Instruction& instruction : state_->instructions) {
    count += static_cast<size_t>(std::count(instruction.is_consumed.begin(), instruction.is_consumed.end(), 0));
  }
  return count;
}

void BoxedProgram::add_instruction(BoxedInstruction source) {
  State::Instruction& made = state_->instructions.emplace_back();
  made.scalar_op = source.scalar_op;
  if (source.op != nullptr) {
    made.handle = entry_of(*source.op).handle;
    made.position = StoragePosition::of(*source.op, source.traced_offset);
    made.is_list_result = source.op->returns.size() == 1 && source.op->returns[0].kind == OpArgKind::TensorList;
    for (size_t i = 0; i < source.op->args.size(); i++) {
      made.loaders.push_back(make_loader(source.call, source.call.pool[i], source.op->args[i].kind));
    }
  } else {
    for (const OpArg& arg : source.call.pool) made.loaders.push_back(make_loader(source.call, arg, OpArgKind::Number));
  }
  made.mut = source.mut;
  made.results = std::move(source.results);
  made.new_values = std::move(source.new_values);
  made.is_consumed = std::move(source.is_consumed);
  made.frees = std::move(source.frees);
}

void BoxedProgram::run(ValueList&& inputs, ValueList& outputs) const {
  const c10::impl::ExcludeDispatchKeyGuard below(keys_passed());
  run_calls(std::move(inputs), outputs);
}

void BoxedProgram::run_with_autograd(ValueList&& inputs, ValueList& outputs) const {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autocast_dispatch_keyset);
  run_calls(std::move(inputs), outputs);
}

void BoxedProgram::run_calls(ValueList&& inputs, ValueList& outputs) const {
  const State& state = *state_;
  std::vector<c10::IValue> slots(static_cast<size_t>(state.slot_count));
  std::vector<c10::IValue>& given = inputs.values().list;
  TORCH_INTERNAL_ASSERT(given.size() == state.inputs.size());
  for (size_t i = 0; i < given.size(); i++) {
    const auto [slot, kind] = state.inputs[i];
    const bool is_number = kind != TraceValueKind::Tensor && kind != TraceValueKind::RngState;
    slots[static_cast<size_t>(slot)] =
        is_number && given[i].isTensor() ? number_of(given[i].toTensor(), kind) : std::move(given[i]);
  }
  given.clear();
  for (const auto& [slot, value] : state.constants) slots[static_cast<size_t>(slot)] = value;
  torch::jit::Stack stack;
  std::vector<at::Tensor> written;
  for (const State::Instruction& instruction : state.instructions) {
    stack.clear();
    for (const Loader& loader : instruction.loaders) stack.push_back(load(loader, slots));
    if (!instruction.handle) {
      c10::IValue result = run_scalar_op(instruction.scalar_op, {stack.data(), stack.size()});
      if (!instruction.results.empty() && instruction.results[0][0] >= 0) {
        slots[static_cast<size_t>(instruction.results[0][0])] = std::move(result);
      }
    } else {
      written.clear();
      if (instruction.mut != 0) prepare_writes(instruction.mut, instruction.is_consumed, stack, written);
      instruction.position.move(stack.data());
      instruction.handle->callBoxed(&stack);
      for (size_t r = 0; r < instruction.results.size(); r++) {
        const std::vector<int32_t>& targets = instruction.results[r];
        if (stack[r].isTensorList()) {
          const auto list = stack[r].toTensorVector();
          for (size_t k = 0; k < targets.size(); k++) {
            if (targets[k] >= 0) slots[static_cast<size_t>(targets[k])] = list[k];
          }
        } else if (!targets.empty() && targets[0] >= 0) {
          slots[static_cast<size_t>(targets[0])] = std::move(stack[r]);
        }
      }
      for (size_t k = 0; k < instruction.new_values.size(); k++) {
        if (instruction.new_values[k] >= 0) slots[static_cast<size_t>(instruction.new_values[k])] = written[k];
      }
    }
    for (const int32_t slot : instruction.frees) slots[static_cast<size_t>(slot)] = c10::IValue();
  }
  std::vector<c10::IValue>& results = outputs.values().list;
  results.clear();
  for (const auto& [slot, is_cloned] : state.outputs) {
    if (slot < 0) {
      results.emplace_back();
    } else if (is_cloned) {
      results.emplace_back(slots[static_cast<size_t>(slot)].toTensor().clone());
    } else {
      results.push_back(slots[static_cast<size_t>(slot)]);
    }
  }
}

void append_constants(ValueList& values, const TraceConstants& constants, std::span<const int32_t> indices) {
  for (const int32_t index : indices) {
    values.values().list.push_back(constants.values().list[static_cast<size_t>(index)]);
  }
}

ValueList::ValueList() : values_(std::make_unique<Values>()) {}
ValueList::~ValueList() = default;
ValueList::ValueList(ValueList&&) noexcept = default;
ValueList& ValueList::operator=(ValueList&&) noexcept = default;
size_t ValueList::size() const { return values_->list.size(); }
void ValueList::clear() { values_->list.clear(); }
void ValueList::add_tensor(PyObject* tensor) { values_->list.emplace_back(THPVariable_Unpack(tensor)); }
PyObject* ValueList::get_object(size_t index) const {
  const c10::IValue& value = values_->list[index];
  if (!value.isTensor() || !value.toTensor().defined()) return Py_NewRef(Py_None);
  return THPVariable_Wrap(value.toTensor());
}

}  // namespace reprise::host
