// The types behind trace_tensor.h. Private to host/torch.
#pragma once

#include <ATen/core/TensorBody.h>
#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/torch/op_info_impl.h"
#include "host/torch/trace_tensor.h"

namespace reprise::host {

// Below autograd and functorch, above BackendSelect, so that factories are seen. torch.tensor() excludes it by itself.
constexpr c10::DispatchKey kTraceKey = c10::DispatchKey::Fake;

/// Real kernels run under this: no autograd, no modes, no tracing.
inline c10::DispatchKeySet keys_above_kernels() {
  return c10::DispatchKeySet(kTraceKey) | c10::autograd_dispatch_keyset_with_ADInplaceOrView |
         c10::DispatchKeySet(c10::DispatchKey::Python) | c10::DispatchKeySet(c10::DispatchKey::PythonTLSSnapshot);
}

class TraceTensorImpl : public c10::TensorImpl {
 public:
  TraceTensorImpl(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype, TraceValueId value);

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) override;

  TraceValueId value;
  at::Tensor constant;  // the data if they are known (torch.tensor([...])), until something writes to them
};

inline TraceTensorImpl* find_trace_tensor(const at::TensorBase& tensor) {
  if (!tensor.defined()) return nullptr;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->key_set().has(kTraceKey) ? static_cast<TraceTensorImpl*>(impl) : nullptr;
}

/// Runs under the entry's state for a scope (no effect if it is empty).
class EntryStateScope {
 public:
  explicit EntryStateScope(const EntryState& entry);
  ~EntryStateScope();
  EntryStateScope(const EntryStateScope&) = delete;
  EntryStateScope& operator=(const EntryStateScope&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

struct TraceConstants::Values {
  std::vector<c10::IValue> list;
};

/// A result in the memo: `alias` counts the trace tensors among the arguments.
struct TraceContext::Memo {
  std::unordered_map<std::string, std::vector<ResultMeta>> results;
  std::string key;  // used again by every look-up
};

struct TraceRun::State {
  TraceContext* context = nullptr;
  OpSink* sink = nullptr;
  TraceValueId value_count = 0;
  std::unordered_map<c10::StorageImpl*, int32_t> storages;
  std::vector<c10::Storage> kept_storages;  // addresses must not be used again
  std::unordered_map<const void*, c10::Storage> input_storages;
  std::unordered_map<c10::TensorImpl*, TraceValueId> captured;
  TraceConstants constants;
  std::string failure;
  struct Input {
    at::Tensor tensor;
    std::shared_ptr<at::Tensor> gradient;  // filled by a hook of the engine
  };
  std::vector<Input> inputs;
  bool is_in_backward = false;  // run_backward() is on
  struct Saved;
  std::unique_ptr<Saved> saved;

  TraceValueId new_value(TraceValueMeta meta);
  int32_t storage_of(const c10::Storage& storage);
  /// A tensor of `meta` over `storage`, or over a new one.
  at::Tensor make_tensor(TraceValueMeta meta, const c10::Storage* storage);
  /// The value of a tensor that is no trace tensor.
  TraceValueId capture(const at::Tensor& tensor);
  int32_t add_constant(c10::IValue value);
  at::Tensor make_fresh_constant(const at::Tensor& tensor);
};

/// The run of this process, or nullptr.
TraceRun::State* current_trace();
[[noreturn]] void fail_trace(TraceRun::State& state, std::string reason);

/// Arguments of an operation in plain form. `values` are the trace tensors among them, in order.
struct TracedCall {
  OpCall call;
  std::vector<TraceTensorImpl*> tensors;
  bool has_real_tensors = false;
  bool has_lazy_bits = false;
};
TracedCall read_call(TraceRun::State& state, const OpEntry& op, const c10::IValue* args);
void collect_tensors(const OpEntry& op, const c10::IValue* args, TracedCall& call);

TraceValueMeta meta_of(const at::TensorBase& tensor);
/// Has the tensor a gradient function that add_input() did not give it?
bool has_new_history(const at::Tensor& tensor);
/// PyTorch gives a view the history of a later write to its base only when it is asked for: is_leaf() does not ask.
bool is_leaf_now(const at::Tensor& tensor);

/// Metadata of the results by memo or by torch. `alias` of the results are values.
void infer_by_torch(TraceRun::State& state, const OpEntry& op, const c10::IValue* args, const TracedCall& call,
                    std::vector<ResultMeta>& results);
void verify_results(TraceRun::State& state, const OpEntry& op, const c10::IValue* args, const TracedCall& call,
                    const std::vector<ResultMeta>& results);

void trace_fallback(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace reprise::host
