// Trace tensors and their run: inputs, constants, state around the run.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <array>
#include <thread>
#include <utility>

#include "host/torch/state_word.h"
#include "host/torch/trace_tensor_impl.h"

namespace reprise::host {

namespace {

TraceRun::State* current = nullptr;
std::thread::id current_thread;

c10::DispatchKeySet keys_of(const TraceValueMeta& meta) {
  const auto type = static_cast<c10::DeviceType>(meta.device_type);
  c10::DispatchKey key = c10::DispatchKey::CPU;
  if (type == c10::kCUDA) key = c10::DispatchKey::CUDA;
  if (type == c10::kMeta) key = c10::DispatchKey::Meta;
  return c10::DispatchKeySet(key) | c10::DispatchKeySet(kTraceKey);
}

c10::Device device_of(const TraceValueMeta& meta) {
  return {static_cast<c10::DeviceType>(meta.device_type), meta.device_index};
}

int64_t count_storage_elements(const TraceValueMeta& meta) {
  int64_t count = meta.offset + 1;
  for (size_t i = 0; i < meta.sizes.size(); i++) {
    if (meta.sizes[i] == 0) return 0;
    count += (meta.sizes[i] - 1) * meta.strides[i];
  }
  return count;
}

c10::Storage make_storage(int64_t size_bytes, c10::Device device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size_bytes,
                                                            c10::DataPtr(nullptr, device),
                                                            c10::GetAllocator(c10::kMeta), /*resizable=*/true));
}

c10::intrusive_ptr<TraceTensorImpl> copy_detached(const TraceTensorImpl& source) {
  auto copy = c10::make_intrusive<TraceTensorImpl>(
      c10::Storage(source.storage()), source.key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView,
      source.dtype(), source.value);
  copy->set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
  copy->constant = source.constant;
  if (source.is_wrapped_number()) copy->set_wrapped_number(true);
  if (source.is_conj()) copy->_set_conj(true);
  if (source.is_neg()) copy->_set_neg(true);
  return copy;
}

void register_fallback() {
  // Never unloaded: a tensor may outlive its run.
  static torch::Library* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kTraceKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&trace_fallback>());
    return made;
  }();
  static_cast<void>(library);
}

bool is_key_ours = false;

}  // namespace

TraceTensorImpl::TraceTensorImpl(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                                 TraceValueId value_id)
    : TensorImpl(std::move(storage), keys, dtype), value(value_id) {}

c10::intrusive_ptr<c10::TensorImpl> TraceTensorImpl::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                             bool allow_change) const {
  auto copy = copy_detached(*this);
  copy->set_version_counter(version);
  copy->set_allow_tensor_metadata_change(allow_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TraceTensorImpl::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                             bool allow_change) const {
  auto copy = copy_detached(*this);
  copy->set_version_counter(std::move(version));
  copy->set_allow_tensor_metadata_change(allow_change);
  return copy;
}

// `p.data = t`: p becomes the value of t.
void TraceTensorImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) {
  TORCH_CHECK(other->key_set().has(kTraceKey), "reprise: a traced tensor cannot take the data of a real one");
  const auto* source = static_cast<const TraceTensorImpl*>(other.get());
  copy_tensor_metadata(source, this, version_counter(), allow_tensor_metadata_change());
  value = source->value;
  constant = source->constant;
}

TraceContext::TraceContext() : memo_(std::make_unique<Memo>()) {}
TraceContext::~TraceContext() = default;

TraceConstants::TraceConstants() : values_(std::make_unique<Values>()) {}
TraceConstants::~TraceConstants() = default;
TraceConstants::TraceConstants(TraceConstants&&) noexcept = default;
TraceConstants& TraceConstants::operator=(TraceConstants&&) noexcept = default;
size_t TraceConstants::size() const { return values_->list.size(); }

struct EntryState::State {
  at::ThreadLocalState thread_state;
  caffe2::TypeMeta default_dtype;
};
EntryState::EntryState() = default;
EntryState EntryState::capture() {
  EntryState result;
  result.state_ = std::make_shared<State>(State{at::ThreadLocalState(), c10::get_default_dtype()});
  return result;
}

namespace {

// What at::ThreadLocalState leaves out of autocast: how deep it is nested, dtypes, whether casts of weights are kept.
class AutocastState {
 public:
  AutocastState() : nesting_(at::autocast::increment_nesting() - 1) {
    at::autocast::decrement_nesting();
    for (size_t i = 0; i < kDevices.size(); i++) dtypes_[i] = at::autocast::get_autocast_dtype(kDevices[i]);
  }
  void restore() const {
    int now = at::autocast::increment_nesting();
    while (now > nesting_) now = at::autocast::decrement_nesting();
    while (now < nesting_) now = at::autocast::increment_nesting();
    if (nesting_ == 0) at::autocast::clear_cache();
    for (size_t i = 0; i < kDevices.size(); i++) at::autocast::set_autocast_dtype(kDevices[i], dtypes_[i]);
    at::autocast::set_autocast_cache_enabled(is_cache_enabled_);
  }

 private:
  static constexpr std::array<c10::DeviceType, 2> kDevices = {c10::kCPU, c10::kCUDA};
  int nesting_;
  std::array<c10::ScalarType, 2> dtypes_{};
  bool is_cache_enabled_ = at::autocast::is_autocast_cache_enabled();
};

}  // namespace

struct EntryStateScope::Saved {
  at::ThreadLocalState thread_state;
  AutocastState autocast;
  caffe2::TypeMeta default_dtype = c10::get_default_dtype();
};

EntryStateScope::EntryStateScope(const EntryState& entry) : saved_(std::make_unique<Saved>()) {
  if (entry.state() == nullptr) return;
  at::ThreadLocalState::setThreadLocalState(entry.state()->thread_state);
  c10::set_default_dtype(entry.state()->default_dtype);
}

EntryStateScope::~EntryStateScope() {
  at::ThreadLocalState::setThreadLocalState(saved_->thread_state);
  saved_->autocast.restore();
  c10::set_default_dtype(saved_->default_dtype);
}

struct UndoPoint::Saved {
  at::ThreadLocalState thread_state;
  AutocastState autocast;
  caffe2::TypeMeta default_dtype = c10::get_default_dtype();
  std::vector<std::pair<at::Generator, at::Tensor>> generators;

  void add(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    generators.emplace_back(generator, generator.get_state());
  }
};

UndoPoint::UndoPoint() : saved_(std::make_unique<Saved>()) {
  saved_->add(at::detail::getDefaultCPUGenerator());
  if (!is_cuda_initialised()) return;
  for (c10::DeviceIndex i = 0; i < at::detail::getCUDAHooks().deviceCount(); i++) {
    saved_->add(at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, i)));
  }
}

UndoPoint::~UndoPoint() = default;

void UndoPoint::restore() const {
  at::ThreadLocalState::setThreadLocalState(saved_->thread_state);
  saved_->autocast.restore();
  c10::set_default_dtype(saved_->default_dtype);
  for (const auto& [generator, state] : saved_->generators) {
    at::Generator changed = generator;
    const std::lock_guard lock(changed.mutex());
    changed.set_state(state);
  }
}

// What a run gives back at its end.
struct TraceRun::State::Saved {
  explicit Saved(const EntryState& entry) : scope(entry) {}
  EntryStateScope scope;
  at::Tensor rng_state;
};

TraceRun::State* current_trace() { return current; }

void fail_trace(TraceRun::State& state, std::string reason) {
  if (state.failure.empty()) state.failure = reason;
  TORCH_CHECK(false, "reprise: ", reason);
}

TraceValueId TraceRun::State::new_value(TraceValueMeta meta) {
  sink->add_value(value_count, std::move(meta));
  return value_count++;
}

int32_t TraceRun::State::storage_of(const c10::Storage& storage) {
  const auto [place, is_new] =
      storages.try_emplace(storage.unsafeGetStorageImpl(), static_cast<int32_t>(kept_storages.size()));
  if (is_new) kept_storages.push_back(storage);
  return place->second;
}

TraceValueMeta meta_of(const at::TensorBase& tensor) {
  TraceValueMeta meta;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  meta.dtype = static_cast<int8_t>(tensor.scalar_type());
  meta.device_type = static_cast<int8_t>(tensor.device().type());
  meta.device_index = tensor.device().index();
  meta.is_conj = impl->is_conj();
  meta.is_neg = impl->is_neg();
  meta.offset = impl->storage_offset();
  meta.sizes = impl->sizes().vec();
  meta.strides = impl->strides().vec();
  return meta;
}

at::Tensor TraceRun::State::make_tensor(TraceValueMeta meta, const c10::Storage* storage) {
  const auto dtype = static_cast<c10::ScalarType>(meta.dtype);
  c10::Storage own =
      storage != nullptr
          ? *storage
          : make_storage(count_storage_elements(meta) * static_cast<int64_t>(c10::elementSize(dtype)), device_of(meta));
  meta.storage = storage_of(own);
  auto impl = c10::make_intrusive<TraceTensorImpl>(std::move(own), keys_of(meta), c10::scalarTypeToTypeMeta(dtype),
                                                   value_count);
  impl->set_sizes_and_strides(meta.sizes, meta.strides, meta.offset);
  if (meta.is_conj) impl->_set_conj(true);
  if (meta.is_neg) impl->_set_neg(true);
  new_value(std::move(meta));
  return at::Tensor(std::move(impl));
}

int32_t TraceRun::State::add_constant(c10::IValue value) {
  constants.values().list.push_back(std::move(value));
  return static_cast<int32_t>(constants.size()) - 1;
}

TraceValueId TraceRun::State::capture(const at::Tensor& tensor) {
  const auto found = captured.find(tensor.unsafeGetTensorImpl());
  if (found != captured.end()) return found->second;
  if (tensor.layout() != c10::kStrided || tensor.is_nested()) {
    fail_trace(*this, "a tensor that is not strided came from outside of the region");
  }
  if (tensor.requires_grad() && c10::GradMode::is_enabled()) {
    fail_trace(*this, "a tensor that requires grad came from outside of the region");
  }
  TraceValueMeta meta = meta_of(tensor);
  meta.storage = storage_of(tensor.storage());
  const TraceValueId id = new_value(std::move(meta));
  sink->add_constant(id, add_constant(tensor), ConstantKind::Captured);
  captured.emplace(tensor.unsafeGetTensorImpl(), id);
  return id;
}

at::Tensor TraceRun::State::make_fresh_constant(const at::Tensor& tensor) {
  at::Tensor result = make_tensor(meta_of(tensor), nullptr);
  TraceTensorImpl* impl = find_trace_tensor(result);
  impl->constant = tensor;
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  sink->add_constant(impl->value, add_constant(tensor), ConstantKind::Fresh);
  return result;
}

std::string find_trace_obstacle() {
  if (current != nullptr) return "another region is being traced";
  if (is_key_ours) return {};
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kTraceKey)) {
    return "the dispatch key Fake has a fallback of someone else";
  }
  return {};
}

bool is_traced_elsewhere() { return current != nullptr && current_thread != std::this_thread::get_id(); }

TraceRun::TraceRun(TraceContext& context, OpSink& sink, const EntryState& entry) : state_(std::make_unique<State>()) {
  TORCH_CHECK(find_trace_obstacle().empty(), "reprise: ", find_trace_obstacle());
  register_fallback();
  is_key_ours = true;
  state_->context = &context;
  state_->sink = &sink;
  state_->saved = std::make_unique<State::Saved>(entry);
  {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    state_->saved->rng_state = generator.get_state();
  }
  current = state_.get();
  current_thread = std::this_thread::get_id();
  c10::impl::tls_set_dispatch_key_included(kTraceKey, true);
}

TraceRun::~TraceRun() {
  {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state_->saved->rng_state);
  }
  // Hooks hold the places of gradients, and so does the graph: cut the cycles while the run is still known.
  state_->inputs.clear();
  current = nullptr;
  state_->saved.reset();
}

TracedTensor TraceRun::describe(PyObject* object) const {
  TracedTensor result;
  if (!THPVariable_Check(object)) return result;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  result.is_plain = Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(THPVariableClass);
  const TraceTensorImpl* impl = find_trace_tensor(tensor);
  if (impl == nullptr) return result;
  result.value = impl->value;
  result.storage = state_->storage_of(impl->storage());
  result.requires_grad = tensor.requires_grad();
  result.is_leaf = is_leaf_now(tensor);
  try {
    result.has_new_history = has_new_history(tensor);
  } catch (const c10::Error&) {  // a part of a split whose base was written to: nobody may use it any more
    return {};
  }
  result.version = tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
  return result;
}

bool TraceRun::is_grad_mode() const { return c10::GradMode::is_enabled(); }
const std::string& TraceRun::failure() const { return state_->failure; }
TraceConstants TraceRun::take_constants() { return std::move(state_->constants); }

}  // namespace reprise::host
