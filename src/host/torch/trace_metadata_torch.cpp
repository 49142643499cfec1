// Metadata of results without a rule: the memo, the operation on zeros, torch's meta kernel. And the verify mode.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <sstream>

#include "host/torch/sym_scalar_impl.h"
#include "host/torch/trace_tensor_impl.h"

namespace reprise::host {

namespace {

// Above this many bytes in one storage the operation is not run on zeros.
constexpr size_t kMaxZeroBytes = size_t{1} << 30;

// ---- the memo's key: everything the metadata of results may depend on

class KeyWriter {
 public:
  explicit KeyWriter(std::string& key) : key_(key) { key_.clear(); }

  template <class T>
  void raw(const T& value) {
    key_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void dims(c10::IntArrayRef dims) { key_.append(reinterpret_cast<const char*>(dims.data()), dims.size() * 8); }

  void tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return tag('U');
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    tag(impl->is_wrapped_number() ? 'w' : 'T');
    tag(static_cast<char>(impl->is_conj() | impl->is_neg() << 1));
    tag(static_cast<char>(tensor.scalar_type()));
    tag(static_cast<char>(tensor.device().type()));
    tag(static_cast<char>(tensor.device().index()));
    tag(static_cast<char>(impl->dim()));
    dims(impl->sizes());
    dims(impl->strides());
    raw(impl->storage_offset());
  }

  // false: a value that no key can hold
  bool value(const c10::IValue& value) {
    if (value.isTensor()) {
      tensor(value.toTensor());
    } else if (value.isNone()) {
      tag('N');
    } else if (value.isInt()) {
      tag('i');
      raw(value.toInt());
    } else if (value.isDouble()) {
      tag('d');
      raw(value.toDouble());
    } else if (value.isBool()) {
      tag(value.toBool() ? 't' : 'f');
    } else if (value.isComplexDouble()) {
      tag('c');
      raw(value.toComplexDouble());
    } else if (value.isDevice()) {
      tag('D');
      raw(value.toDevice().type());
      raw(value.toDevice().index());
    } else if (value.isString()) {
      tag('s');
      raw(value.toStringRef().size());
      key_ += value.toStringRef();
    } else if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) {
      if (find_symbol(value)) return false;
      tag('S');
      raw(value.isSymInt() ? value.toSymInt().expect_int() : 0);
      raw(value.isSymFloat() ? value.toSymFloat().as_float_unchecked() : 0.0);
    } else if (value.isList()) {
      tag('[');
      raw(static_cast<uint32_t>(value.toListRef().size()));
      for (const c10::IValue& element : value.toListRef()) {
        if (!this->value(element)) return false;
      }
    } else {
      return false;
    }
    return true;
  }

 private:
  void tag(char c) { key_ += c; }
  std::string& key_;
};

bool write_key(std::string& key, const OpEntry& op, const c10::IValue* args) {
  KeyWriter writer(key);
  writer.raw(&op);
  writer.raw(c10::get_default_dtype_as_scalartype());
  for (size_t i = 0; i < op.args.size(); i++) {
    if (!writer.value(args[i])) return false;
  }
  return true;
}

// ---- running the operation on stand-ins

// Gives each trace tensor a real tensor (zeros, or on the meta device) with the same sharing of storages.
class StandIns {
 public:
  explicit StandIns(bool is_meta) : is_meta_(is_meta) {}

  at::Tensor get(const at::Tensor& tensor) {
    TraceTensorImpl* traced = find_trace_tensor(tensor);
    if (traced == nullptr) return get_real(tensor);
    for (const auto& [impl, made] : made_) {
      if (impl == traced) return made;
    }
    at::Tensor made = make(*traced);
    made_.emplace_back(traced, made);
    return made;
  }

  // Which trace tensor a result is, or shares memory with.
  TraceTensorImpl* find_same(const at::Tensor& result) const {
    for (const auto& [impl, made] : made_) {
      if (made.unsafeGetTensorImpl() == result.unsafeGetTensorImpl()) return impl;
    }
    return nullptr;
  }
  TraceTensorImpl* find_sharing(const at::Tensor& result) const {
    const c10::StorageImpl* storage = result.storage().unsafeGetStorageImpl();
    for (const auto& [impl, made] : made_) {
      if (made.storage().unsafeGetStorageImpl() == storage) return impl;
    }
    return nullptr;
  }

 private:
  at::Tensor make(const TraceTensorImpl& traced) {
    const c10::Device device = is_meta_ ? c10::Device(c10::kMeta) : traced.device();
    at::Tensor result;
    for (const auto& [impl, made] : made_) {
      if (impl->storage().unsafeGetStorageImpl() == traced.storage().unsafeGetStorageImpl()) {
        result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(made.storage()), made.key_set(), traced.dtype());
        break;
      }
    }
    if (!result.defined()) {
      const auto options = at::TensorOptions().dtype(traced.dtype()).device(device);
      const size_t item = traced.dtype().itemsize();
      const auto count = static_cast<int64_t>((traced.storage().nbytes() + item - 1) / item);
      result = is_meta_ ? at::empty_strided({count}, {1}, options) : at::zeros({count}, options);
    }
    c10::TensorImpl* impl = result.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(traced.sizes(), traced.strides(), traced.storage_offset());
    if (traced.is_conj()) impl->_set_conj(true);
    if (traced.is_neg()) impl->_set_neg(true);
    if (traced.is_wrapped_number()) impl->set_wrapped_number(true);
    return result;
  }

  at::Tensor get_real(const at::Tensor& tensor) const {
    if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
    if (is_meta_) return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
    return tensor.clone();
  }

  bool is_meta_;
  std::vector<std::pair<TraceTensorImpl*, at::Tensor>> made_;
};

c10::IValue replace_symbol(const c10::IValue& value) {
  if (!find_symbol(value)) return value;
  if (value.isSymFloat()) return {0.5};
  if (value.isSymBool()) return {true};
  return {int64_t{1}};
}

c10::IValue stand_in(StandIns& stand_ins, OpArgKind kind, const c10::IValue& value, bool is_meta) {
  if (value.isTensor()) return stand_ins.get(value.toTensor());
  if (kind == OpArgKind::TensorList && value.isList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) list.push_back(stand_ins.get(element.toTensor()));
    return list;
  }
  if (kind == OpArgKind::OptionalTensorList && value.isList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::nullopt : std::optional(stand_ins.get(element.toTensor())));
    }
    return list;
  }
  if (kind == OpArgKind::NumberList && value.isList()) {
    c10::impl::GenericList list(c10::NumberType::get());
    for (const c10::IValue& element : value.toListRef()) list.push_back(replace_symbol(element));
    return list;
  }
  if (is_meta && value.isDevice()) return c10::Device(c10::kMeta);
  if (is_meta && value.isGenerator()) return {};
  return replace_symbol(value);
}

void add_result(const StandIns& stand_ins, const at::Tensor& tensor, c10::Device device,
                std::vector<ResultMeta>& results) {
  ResultMeta& result = results.emplace_back();
  if (!tensor.defined()) {
    result.is_none = true;
    return;
  }
  TORCH_CHECK(tensor.layout() == c10::kStrided, "reprise: a result that is not strided");
  result.meta = meta_of(tensor);
  TraceTensorImpl* source = stand_ins.find_same(tensor);
  result.is_alias = source != nullptr;
  if (source == nullptr) source = stand_ins.find_sharing(tensor);
  if (source != nullptr) {
    result.alias = source->value;
    device = source->device();
  }
  result.meta.device_type = static_cast<int8_t>(device.type());
  result.meta.device_index = device.index();
}

// The device of fresh results where stand-ins are on the meta device.
c10::Device guess_device(const OpEntry& op, const c10::IValue* args, const TracedCall& call) {
  if (op.device_argument >= 0 && args[op.device_argument].isDevice()) return args[op.device_argument].toDevice();
  for (const TraceTensorImpl* tensor : call.tensors) {
    if (tensor->dim() > 0) return tensor->device();
  }
  return call.tensors.empty() ? c10::Device(c10::kCPU) : call.tensors.front()->device();
}

void run_on_stand_ins(const OpEntry& op, const c10::IValue* args, const TracedCall& call, bool is_meta,
                      std::vector<ResultMeta>& results) {
  const c10::impl::ExcludeDispatchKeyGuard no_trace(keys_above_kernels());
  StandIns stand_ins(is_meta);
  torch::jit::Stack stack;
  for (size_t i = 0; i < op.args.size(); i++) {
    stack.push_back(stand_in(stand_ins, op.args[i].kind, args[i], is_meta));
  }
  if (is_meta && op.is_factory && op.device_argument >= 0) {
    stack[static_cast<size_t>(op.device_argument)] = c10::Device(c10::kMeta);
    for (size_t i = 0; i < op.args.size(); i++) {
      if (op.args[i].name == "pin_memory") stack[i] = c10::IValue();
    }
  }
  const c10::Device guessed = guess_device(op, args, call);
  op.handle.callBoxed(&stack);
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      add_result(stand_ins, tensor, tensor.defined() && !is_meta ? tensor.device() : guessed, results);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        add_result(stand_ins, tensor, is_meta ? guessed : tensor.device(), results);
      }
    } else {
      // Undefined tensors of some kernels come back as None.
      results.emplace_back().is_none = true;
    }
  }
}

bool can_run_on_zeros(const OpEntry& op, const TracedCall& call) {
  // With random numbers: the run gives the generator's state back at its end.
  for (const TraceTensorImpl* tensor : call.tensors) {
    if (tensor->storage().nbytes() > kMaxZeroBytes || tensor->device().is_meta()) return false;
  }
  return !op.reads_data;
}

bool run_on_zeros(const OpEntry& op, const c10::IValue* args, const TracedCall& call,
                  std::vector<ResultMeta>& results) {
  if (!can_run_on_zeros(op, call)) return false;
  try {
    run_on_stand_ins(op, args, call, false, results);
    return true;
  } catch (const c10::Error&) {
    // Wrong arguments, or data that the kernel does not take (a singular matrix): the meta kernel says which.
    results.clear();
    return false;
  }
}

bool has_data_dependent_sizes(const OpEntry& op, const c10::IValue* args) {
  static constexpr std::string_view kNames[] = {"aten::nonzero",        "aten::masked_select",
                                                "aten::_unique2",       "aten::unique_consecutive",
                                                "aten::unique_dim",     "aten::bincount",
                                                "aten::nonzero_static", "aten::repeat_interleave.Tensor",
                                                "aten::_unique",        "aten::unique_dim_consecutive",
                                                "aten::nonzero.out",    "aten::masked_select.out"};
  if (std::find(std::begin(kNames), std::end(kNames), op.name) != std::end(kNames)) {
    return op.name != "aten::nonzero_static";
  }
  if (op.name == "aten::index.Tensor") {
    for (const c10::IValue& index : args[1].toListRef()) {
      if (!index.isTensor() || !index.toTensor().defined()) continue;
      const c10::ScalarType type = index.toTensor().scalar_type();
      if (type == c10::kBool || type == c10::kByte) return true;
    }
  }
  return false;
}

std::string describe(const ResultMeta& result) {
  std::ostringstream text;
  if (result.is_none) return "none";
  text << c10::toString(static_cast<c10::ScalarType>(result.meta.dtype)) << c10::IntArrayRef(result.meta.sizes)
       << " strides " << c10::IntArrayRef(result.meta.strides) << " offset " << result.meta.offset;
  if (result.alias != kNoTraceValue) text << (result.is_alias ? " is %" : " views %") << result.alias;
  return text.str();
}

bool is_equal(const ResultMeta& a, const ResultMeta& b) {
  if (a.is_none || b.is_none) return a.is_none == b.is_none;
  if (a.meta.sizes != b.meta.sizes || a.meta.dtype != b.meta.dtype || a.is_alias != b.is_alias) return false;
  if ((a.alias == kNoTraceValue) != (b.alias == kNoTraceValue)) return false;
  if (a.meta.is_conj != b.meta.is_conj || a.meta.is_neg != b.meta.is_neg) return false;
  if (a.alias != kNoTraceValue && a.meta.offset != b.meta.offset) return false;
  int64_t count = 1;
  for (int64_t size : a.meta.sizes) count *= size;
  if (count == 0) return true;
  for (size_t d = 0; d < a.meta.sizes.size(); d++) {
    if (a.meta.sizes[d] > 1 && a.meta.strides[d] != b.meta.strides[d]) return false;
  }
  return true;
}

void compare(TraceStatistics& statistics, const OpEntry& op, const TracedCall& call, const char* source,
             const std::vector<ResultMeta>& rule, const std::vector<ResultMeta>& truth) {
  bool equal = rule.size() == truth.size();
  for (size_t i = 0; equal && i < rule.size(); i++) equal = is_equal(rule[i], truth[i]);
  if (equal) return;
  std::ostringstream text;
  text << op.name << ":";
  for (const ResultMeta& result : rule) text << " rule " << describe(result) << ";";
  for (const ResultMeta& result : truth) text << " " << source << " " << describe(result) << ";";
  for (const TraceTensorImpl* tensor : call.tensors) text << " in " << tensor->sizes() << tensor->strides() << ";";
  statistics.mismatches.push_back(text.str());
}

// Between values of this call and their places among its tensors, so that the memo holds for all calls.
void to_places(const TracedCall& call, std::vector<ResultMeta>& results) {
  for (ResultMeta& result : results) {
    if (result.alias == kNoTraceValue) continue;
    for (size_t i = 0; i < call.tensors.size(); i++) {
      if (call.tensors[i]->value != result.alias) continue;
      result.alias = static_cast<TraceValueId>(i);
      break;
    }
  }
}
void to_values(const TracedCall& call, std::vector<ResultMeta>& results) {
  for (ResultMeta& result : results) {
    if (result.alias != kNoTraceValue) result.alias = call.tensors[static_cast<size_t>(result.alias)]->value;
  }
}

}  // namespace

void infer_by_torch(TraceRun::State& state, const OpEntry& op, const c10::IValue* args, const TracedCall& call,
                    std::vector<ResultMeta>& results) {
  TraceContext& context = *state.context;
  if (has_data_dependent_sizes(op, args))
    fail_trace(state, "the sizes of the result of " + op.name + " depend on data");
  TraceContext::Memo& memo = context.memo();
  const bool has_key = context.options.use_memo && write_key(memo.key, op, args);
  if (has_key) {
    const auto found = memo.results.find(memo.key);
    if (found != memo.results.end()) {
      context.statistics.memo_count++;
      results = found->second;
      to_values(call, results);
      return;
    }
  }
  // Running the operation may come back here (never for the same key): the key is kept apart.
  const std::string key = has_key ? memo.key : std::string();
  if (context.options.use_zeros && run_on_zeros(op, args, call, results)) {
    context.statistics.zeros_count++;
  } else {
    context.statistics.meta_count++;
    run_on_stand_ins(op, args, call, true, results);
  }
  std::vector<std::string>& seen = context.statistics.without_rule;
  if (std::find(seen.begin(), seen.end(), op.name) == seen.end()) seen.push_back(op.name);
  if (!has_key) return;
  std::vector<ResultMeta> kept = results;
  to_places(call, kept);
  memo.results.emplace(key, std::move(kept));
}

void verify_results(TraceRun::State& state, const OpEntry& op, const c10::IValue* args, const TracedCall& call,
                    const std::vector<ResultMeta>& results) {
  TraceContext& context = *state.context;
  std::vector<ResultMeta> truth;
  if (run_on_zeros(op, args, call, truth)) {
    compare(context.statistics, op, call, "kernel", results, truth);
  }
  if (context.options.verify != VerifyMode::Meta) return;
  truth.clear();
  try {
    run_on_stand_ins(op, args, call, true, truth);
    compare(context.statistics, op, call, "meta", results, truth);
  } catch (const c10::Error& error) {
    context.statistics.mismatches.push_back(op.name + ": the meta kernel raises " + error.what_without_backtrace());
  }
}

}  // namespace reprise::host
