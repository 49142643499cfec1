// What happens to an operation on trace tensors: arguments in plain form, metadata, the sink, result tensors.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <chrono>

#include "host/torch/sym_scalar_impl.h"
#include "host/torch/trace_tensor_impl.h"

namespace reprise::host {

namespace {

class CallReader {
 public:
  CallReader(TraceRun::State& state, TracedCall& out) : state_(state), out_(out) {}

  OpArg read(const c10::IValue& value) {
    OpArg arg;
    if (value.isTensor()) return read_tensor(value.toTensor());
    if (value.isNone()) return arg;
    if (value.isInt()) return make_int(OpArg::Kind::Int, value.toInt());
    if (value.isDouble()) {
      arg.kind = OpArg::Kind::Float;
      arg.real = value.toDouble();
      return arg;
    }
    if (value.isBool()) return make_int(OpArg::Kind::Bool, value.toBool() ? 1 : 0);
    if (value.isComplexDouble()) {
      arg.kind = OpArg::Kind::Complex;
      arg.real = value.toComplexDouble().real();
      arg.imaginary = value.toComplexDouble().imag();
      return arg;
    }
    if (value.isDevice()) {
      const c10::Device device = value.toDevice();
      return make_int(OpArg::Kind::Device,
                      static_cast<int64_t>(device.type()) << 8 | static_cast<uint8_t>(device.index()));
    }
    if (value.isString()) {
      arg.kind = OpArg::Kind::Text;
      arg.id = static_cast<int32_t>(out_.call.texts.size());
      out_.call.texts.push_back(value.toStringRef());
      return arg;
    }
    if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) return read_symbolic(value);
    if (value.isList()) return read_list(value);
    return make_int(OpArg::Kind::Object, state_.add_constant(value));
  }

 private:
  static OpArg make_int(OpArg::Kind kind, int64_t number) {
    OpArg arg;
    arg.kind = kind;
    arg.integer = number;
    return arg;
  }

  OpArg read_tensor(const at::Tensor& tensor) {
    OpArg arg;
    if (!tensor.defined()) return arg;
    arg.kind = OpArg::Kind::Value;
    if (const TraceTensorImpl* traced = find_trace_tensor(tensor)) {
      arg.id = traced->value;
      return arg;
    }
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      arg.id = state_.capture(tensor);
      return arg;
    }
    if (const c10::SymNode symbol = find_wrapped_symbol(tensor)) {
      arg = arg_of_symbol(symbol);
    } else {
      const c10::impl::ExcludeDispatchKeyGuard no_trace(keys_above_kernels());
      arg = read(c10::IValue(tensor.item()));
    }
    arg.is_wrapped_number = true;
    return arg;
  }

  OpArg read_symbolic(const c10::IValue& value) {
    if (const c10::SymNode symbol = find_symbol(value)) return arg_of_symbol(symbol);
    if (value.isSymInt()) return make_int(OpArg::Kind::Int, value.toSymInt().expect_int());
    if (value.isSymBool()) return make_int(OpArg::Kind::Bool, *value.toSymBool().maybe_as_bool() ? 1 : 0);
    OpArg arg;
    arg.kind = OpArg::Kind::Float;
    arg.real = value.toSymFloat().as_float_unchecked();
    return arg;
  }

  OpArg read_list(const c10::IValue& value) {
    OpArg list;
    list.kind = OpArg::Kind::List;
    const c10::ArrayRef<c10::IValue> elements = value.toListRef();
    list.count = static_cast<int32_t>(elements.size());
    list.id = static_cast<int32_t>(out_.call.pool.size());
    out_.call.pool.resize(out_.call.pool.size() + elements.size());
    for (size_t i = 0; i < elements.size(); i++) {
      const OpArg element = read(elements[i]);  // may grow the pool
      out_.call.pool[static_cast<size_t>(list.id) + i] = element;
    }
    return list;
  }

  TraceRun::State& state_;
  TracedCall& out_;
};

// A number that depends on data where sizes and positions stand: results would have sizes that depend on data.
void refuse_symbols(TraceRun::State& state, const OpCall& call, const OpArg& arg) {
  bool has_symbol = arg.kind == OpArg::Kind::Value;
  if (arg.kind == OpArg::Kind::List) {
    for (const OpArg& element : call.elements(arg)) has_symbol |= element.kind == OpArg::Kind::Value;
  }
  if (has_symbol) fail_trace(state, "a size or position in " + call.op->name + " depends on data");
}

void visit_tensor(const at::Tensor& tensor, TracedCall& out) {
  if (!tensor.defined()) return;
  if (TraceTensorImpl* traced = find_trace_tensor(tensor)) {
    out.tensors.push_back(traced);
    out.has_lazy_bits |= traced->is_conj() || traced->is_neg();
  } else {
    out.has_real_tensors |= !tensor.unsafeGetTensorImpl()->is_wrapped_number();
  }
}

void run_for_real(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_trace(kTraceKey);
  handle.callBoxed(stack);
}

// tensor.item() from C++, or of a known constant.
bool take_item(TraceRun::State& state, const OpEntry& op, torch::jit::Stack* stack) {
  if (op.name != "aten::_local_scalar_dense") return false;
  const at::Tensor tensor = stack->back().toTensor();
  TraceTensorImpl* traced = find_trace_tensor(tensor);
  if (traced == nullptr) return false;
  if (traced->constant.defined()) {
    const c10::impl::ExcludeDispatchKeyGuard no_trace(keys_above_kernels());
    stack->back() = c10::IValue(traced->constant.item());
    return true;
  }
  OpArg arg;
  arg.kind = OpArg::Kind::Value;
  arg.id = traced->value;
  const TraceValueKind kind = kind_of_item(tensor.scalar_type());
  if (c10::isComplexType(tensor.scalar_type())) fail_trace(state, "the value of a complex scalar is needed");
  const c10::SymNode symbol = add_symbolic_op(ScalarOp::Item, {&arg, 1}, kind);
  if (kind == TraceValueKind::Float) {
    stack->back() = c10::IValue(c10::Scalar(c10::SymFloat(symbol)));
  } else if (kind == TraceValueKind::Int) {
    stack->back() = c10::IValue(c10::Scalar(c10::SymInt(symbol)));
  } else {
    stack->back() = c10::IValue(c10::Scalar(c10::SymBool(symbol)));
  }
  return true;
}

// torch.tensor([...]) ends here with a real tensor.
bool take_lifted(TraceRun::State& state, const OpEntry& op, const TracedCall& call, torch::jit::Stack* stack) {
  if (!call.tensors.empty() || (op.name != "aten::lift_fresh" && op.name != "aten::lift")) return false;
  stack->back() = state.make_fresh_constant(stack->back().toTensor());
  return true;
}

// torch.div(7, 2) gives a real tensor: the same in each run.
void take_real_results(TraceRun::State& state, const OpEntry& op, torch::jit::Stack* stack) {
  for (size_t i = stack->size() - op.returns.size(); i < stack->size(); i++) {
    c10::IValue& result = (*stack)[i];
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    const at::Tensor tensor = result.toTensor();
    if (tensor.layout() == c10::kStrided && !tensor.requires_grad()) result = state.make_fresh_constant(tensor);
  }
}

// a.set_(b): a is another tensor object for the value of b.
bool take_set(TraceRun::State& state, const OpEntry& op, torch::jit::Stack* stack) {
  if (!op.name.starts_with("aten::set_")) return false;
  const size_t base = stack->size() - op.args.size();
  TraceTensorImpl *target = nullptr, *source = nullptr;
  if (op.name == "aten::set_.source_Tensor") {
    target = find_trace_tensor((*stack)[base].toTensor());
    source = find_trace_tensor((*stack)[base + 1].toTensor());
  }
  if (target == nullptr || source == nullptr)
    fail_trace(state, "the storage of a tensor is replaced (" + op.name + ")");
  target->set_storage_keep_dtype(c10::Storage(source->storage()));
  target->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  target->value = source->value;
  target->constant = source->constant;
  stack->resize(base + 1);
  return true;
}

class ResultMaker {
 public:
  ResultMaker(TraceRun::State& state, const TracedCall& call) : state_(state), call_(call) {}

  /// Is it an argument, with other sizes than that has? One without elements has no values that could be kept.
  bool is_resized(const ResultMeta& result) const {
    const TraceTensorImpl* source = result.is_alias ? find(result.alias) : nullptr;
    return source != nullptr && source->numel() != 0 && source->sizes() != c10::IntArrayRef(result.meta.sizes);
  }

  std::pair<at::Tensor, TraceValueId> make(ResultMeta& result) {
    if (result.is_none) return {at::Tensor(), kNoTraceValue};
    TraceTensorImpl* source = result.alias == kNoTraceValue ? nullptr : find(result.alias);
    if (!result.is_alias) {
      at::Tensor tensor = state_.make_tensor(std::move(result.meta), source != nullptr ? &source->storage() : nullptr);
      const TraceValueId value = find_trace_tensor(tensor)->value;
      return {std::move(tensor), value};
    }
    TORCH_INTERNAL_ASSERT(source != nullptr);
    if (source->sizes() != c10::IntArrayRef(result.meta.sizes) ||
        source->strides() != c10::IntArrayRef(result.meta.strides) || source->storage_offset() != result.meta.offset) {
      // resize_ and its like: a new value in the same tensor.
      source->set_sizes_and_strides(result.meta.sizes, result.meta.strides, result.meta.offset);
      const size_t size_bytes = source->storage_offset() * source->itemsize() + storage_bytes(*source);
      if (source->storage().nbytes() < size_bytes) source->storage().set_nbytes(size_bytes);
      TraceValueMeta meta = std::move(result.meta);
      meta.storage = state_.storage_of(source->storage());
      source->value = state_.new_value(std::move(meta));
    }
    return {at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(source)), source->value};
  }

 private:
  static size_t storage_bytes(const TraceTensorImpl& tensor) {
    size_t last = 0;
    for (int64_t d = 0; d < tensor.dim(); d++) {
      if (tensor.size(d) == 0) return 0;
      last += static_cast<size_t>((tensor.size(d) - 1) * tensor.stride(d));
    }
    return (last + 1) * tensor.itemsize();
  }

  TraceTensorImpl* find(TraceValueId value) const {
    for (TraceTensorImpl* tensor : call_.tensors) {
      if (tensor->value == value) return tensor;
    }
    return nullptr;
  }

  TraceRun::State& state_;
  const TracedCall& call_;
};

// A constant that is written to is known no longer; _foreach_*_ bump versions in a loop below autograd.
void note_writes(const OpEntry& op, const c10::IValue* args) {
  const auto note = [&](const at::Tensor& tensor) {
    TraceTensorImpl* traced = find_trace_tensor(tensor);
    if (traced == nullptr) return;
    traced->constant = at::Tensor();
    if (op.bumps_versions && traced->device().is_cpu() && !traced->is_inference()) traced->bump_version();
  };
  for (size_t i = 0; i < op.args.size() && i < 64; i++) {
    if (!((op.mutated >> i) & 1)) continue;
    if (args[i].isTensor()) {
      note(args[i].toTensor());
    } else if (args[i].isList()) {
      for (const c10::IValue& element : args[i].toListRef()) {
        if (element.isTensor()) note(element.toTensor());
      }
    }
  }
}

// What depends on the state at the time of the call becomes an argument.
void pin_dtype(const OpEntry& op, const std::vector<ResultMeta>& results, OpCall& call) {
  if (!op.is_factory || op.dtype_argument < 0 || results.empty()) return;
  OpArg& dtype = call.pool[static_cast<size_t>(op.dtype_argument)];
  if (dtype.kind != OpArg::Kind::None) return;
  dtype.kind = OpArg::Kind::DType;
  dtype.integer = results[0].meta.dtype;
}

void trace_op(TraceRun::State& state, const OpEntry& op, torch::jit::Stack* stack) {
  const size_t base = stack->size() - op.args.size();
  const c10::IValue* args = stack->data() + base;
  TracedCall call;
  collect_tensors(op, args, call);
  if (take_item(state, op, stack) || take_lifted(state, op, call, stack) || take_set(state, op, stack)) return;
  const bool has_tensors = !call.tensors.empty() || call.has_real_tensors;
  if (!has_tensors && !op.is_factory && !op.is_random) {
    run_for_real(op.handle, stack);
    if (op.returns_tensors && op.mutated == 0) take_real_results(state, op, stack);
    return;
  }
  if (!op.returns_tensors) {
    // is_same_size and others: about metadata, unless the table says otherwise.
    if (op.reads_data) fail_trace(state, "the result of " + op.name + " is needed: the region must end in front of it");
    return run_for_real(op.handle, stack);
  }
  const size_t first_tensor_count = call.tensors.size();
  call = read_call(state, op, args);
  TORCH_INTERNAL_ASSERT(call.tensors.size() == first_tensor_count);
  TraceContext& context = *state.context;
  std::vector<ResultMeta> results;
  if (context.options.use_rules && !call.has_lazy_bits && state.sink->infer_results(call.call, results)) {
    context.statistics.rule_count++;
    if (context.options.verify != VerifyMode::Off) verify_results(state, op, args, call, results);
  } else {
    results.clear();
    infer_by_torch(state, op, args, call, results);
  }
  pin_dtype(op, results, call.call);
  note_writes(op, args);
  ResultMaker maker(state, call);
  const bool has_out = (op.mutated & ~uint64_t{1}) != 0;
  if (has_out && std::ranges::any_of(results, [&](const ResultMeta& result) { return maker.is_resized(result); }))
    fail_trace(state, "a tensor given as out= gets other sizes");
  std::vector<std::vector<TraceValueId>> values(op.returns.size());
  std::vector<c10::IValue> returned;
  returned.reserve(op.returns.size());
  size_t next = 0;
  for (size_t r = 0; r < op.returns.size(); r++) {
    if (op.returns[r].kind == OpArgKind::Tensor) {
      auto [tensor, value] = maker.make(results[next++]);
      values[r] = {value};
      returned.emplace_back(std::move(tensor));
    } else {
      // A list return is the only return of its operator, or has as many elements as its first argument.
      size_t count = op.returns.size() == 1 ? results.size() : results.size() / op.returns.size();
      c10::List<at::Tensor> list;
      for (size_t i = 0; i < count; i++) {
        auto [tensor, value] = maker.make(results[next++]);
        values[r].push_back(value);
        list.push_back(std::move(tensor));
      }
      returned.emplace_back(std::move(list));
    }
  }
  state.sink->add_op(std::move(call.call), std::move(values));
  stack->resize(base);
  for (c10::IValue& value : returned) stack->push_back(std::move(value));
}

}  // namespace

void collect_tensors(const OpEntry& op, const c10::IValue* args, TracedCall& out) {
  for (size_t i = 0; i < op.args.size(); i++) {
    switch (op.args[i].kind) {
      case OpArgKind::Tensor:
        if (args[i].isTensor()) visit_tensor(args[i].toTensor(), out);
        break;
      case OpArgKind::TensorList:
      case OpArgKind::OptionalTensorList:
        if (!args[i].isList()) break;
        for (const c10::IValue& element : args[i].toListRef()) {
          if (element.isTensor()) visit_tensor(element.toTensor(), out);
        }
        break;
      default:
        break;
    }
  }
}

TracedCall read_call(TraceRun::State& state, const OpEntry& op, const c10::IValue* args) {
  TracedCall out;
  out.call.op = &op;
  out.call.default_dtype = static_cast<int>(c10::get_default_dtype_as_scalartype());
  collect_tensors(op, args, out);
  out.call.pool.resize(op.args.size());
  CallReader reader(state, out);
  for (size_t i = 0; i < op.args.size(); i++) {
    OpArg arg = reader.read(args[i]);  // may grow the pool
    if (op.args[i].kind == OpArgKind::Int || op.args[i].kind == OpArgKind::IntList)
      refuse_symbols(state, out.call, arg);
    if (arg.kind == OpArg::Kind::Int) {
      if (op.args[i].kind == OpArgKind::DType) arg.kind = OpArg::Kind::DType;
      if (op.args[i].kind == OpArgKind::Layout) arg.kind = OpArg::Kind::Layout;
      if (op.args[i].kind == OpArgKind::MemoryFormat) arg.kind = OpArg::Kind::MemoryFormat;
    }
    out.call.pool[i] = arg;
  }
  return out;
}

void trace_fallback(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
  TraceRun::State* state = current_trace();
  const OpEntry& op = *entry_of(handle);
  if (state == nullptr) {
    TracedCall call;
    collect_tensors(op, stack->data() + stack->size() - op.args.size(), call);
    TORCH_CHECK(call.tensors.empty(), "reprise: ", op.name, " on a traced tensor that outlived its region");
    return run_for_real(handle, stack);
  }
  if (!state->context->statistics.is_timed) return trace_op(*state, op, stack);
  const auto start = std::chrono::steady_clock::now();
  trace_op(*state, op, stack);
  state->context->statistics.fallback_time_ns +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace reprise::host
