// The parts of a run that touch autograd: inputs with a place for their gradient, the engine, item(), random state.
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "host/torch/python_errors_impl.h"
#include "host/torch/sym_scalar_impl.h"
#include "host/torch/trace_tensor_impl.h"
#include "host/torch/version_autograd_impl.h"

namespace reprise::host {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// The history of an input that is no leaf: writing to it is legal. A backward that the callables start and that gets
// here would go on outside of the region.
class GradientSink : public Node {
 public:
  std::string name() const override { return "RepriseRegionInput"; }
  variable_list apply(variable_list&&) override {
    TraceRun::State* state = current_trace();
    if (state != nullptr && !state->is_in_backward)
      fail_trace(*state, "a backward inside of the region goes on outside of it");
    return {};
  }
};

}  // namespace

bool has_new_history(const at::Tensor& tensor) {
  const auto& function = tensor.grad_fn();
  return function != nullptr && dynamic_cast<GradientSink*>(function.get()) == nullptr;
}

bool is_leaf_now(const at::Tensor& tensor) {
  if (!tensor.is_leaf() || !tensor.is_view() || !tensor.requires_grad()) return tensor.is_leaf();
  try {
    return tensor.grad_fn() == nullptr;
  } catch (const c10::Error&) {  // a part of a split whose base was written to: nobody may use it any more
    return false;
  }
}

InputIdentity identify_input(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), is_leaf_now(tensor), tensor.is_view()};
}

bool has_gradient_hooks(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!torch::autograd::impl::hooks(tensor).empty()) return true;
  if (is_leaf_now(tensor) || tensor.grad_fn() == nullptr) return false;
  return !tensor.grad_fn()->tensor_pre_hooks().empty() || !tensor.grad_fn()->retains_grad_hooks().empty();
}

bool keeps_gradient(PyObject* object) { return THPVariable_Unpack(object).retains_grad(); }

TraceInput describe_input(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  TraceInput input;
  input.requires_grad = tensor.requires_grad();
  input.is_leaf = is_leaf_now(tensor);
  input.is_view = tensor.is_view();
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::DispatchKeySet others = c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
       c10::DispatchKey::Functionalize, c10::DispatchKey::ZeroTensor, kTraceKey});
  input.is_supported = tensor.layout() == c10::kStrided && !tensor.is_nested() && !tensor.is_quantized() &&
                       tensor.has_storage() && !impl->has_symbolic_sizes_strides() &&
                       !impl->key_set().has_any(others) && !tensor._fw_grad(/*level=*/0).defined();
  if (!input.is_supported) return input;
  input.meta = meta_of(tensor);
  input.storage = tensor.storage().unsafeGetStorageImpl();
  input.storage_bytes = tensor.storage().nbytes();
  input.is_wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  return input;
}

PyObject* TraceRun::add_input(const TraceInput& input) {
  at::Tensor tensor;
  const bool made = run_guarded([&] {
    if (!input.is_supported) fail_trace(*state_, "an input that is no plain strided tensor");
    const auto found = state_->input_storages.find(input.storage);
    const bool is_new = found == state_->input_storages.end();
    tensor = state_->make_tensor(input.meta, is_new ? nullptr : &found->second);
    if (is_new) {
      // As large as the real one: as_strided and resize_ see the same bounds.
      tensor.storage().set_nbytes(input.storage_bytes);
      state_->input_storages.emplace(input.storage, tensor.storage());
    }
    if (input.is_wrapped_number) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    auto gradient = std::make_shared<at::Tensor>();
    if (input.requires_grad && input.is_leaf) {
      tensor.set_requires_grad(true);
    } else if (input.requires_grad) {
      auto sink = make_node<GradientSink>();
      const auto number = static_cast<uint32_t>(sink->add_input_metadata(tensor));
      torch::autograd::impl::set_gradient_edge(tensor, Edge(std::move(sink), number));
    }
    if (input.requires_grad) {
      tensor.register_hook([gradient](const at::Tensor& value) { *gradient = value; });
    }
    state_->inputs.push_back({tensor, std::move(gradient)});
  });
  return made ? THPVariable_Wrap(tensor) : nullptr;
}

void TraceRun::set_gradient(PyObject* leaf, PyObject* gradient) {
  THPVariable_Unpack(leaf).mutable_grad() = gradient == nullptr ? at::Tensor() : THPVariable_Unpack(gradient);
}

PyObject* TraceRun::get_gradient(PyObject* leaf) const {
  const at::Tensor& gradient = THPVariable_Unpack(leaf).grad();
  return gradient.defined() ? THPVariable_Wrap(gradient) : nullptr;
}

TraceValueId TraceRun::input_gradient(size_t index) const {
  const at::Tensor& gradient = *state_->inputs.at(index).gradient;
  const TraceTensorImpl* impl = find_trace_tensor(gradient);
  return impl == nullptr ? kNoTraceValue : impl->value;
}

bool TraceRun::run_backward(std::span<PyObject* const> roots, std::span<const std::vector<int64_t>> strides,
                            std::vector<TraceValueId>& tangents) {
  torch::autograd::edge_list edges;
  variable_list seeds;
  return run_guarded([&] {
    // The callables may have differentiated too; and what the engine adds up now is no effect of theirs.
    for (State::Input& input : state_->inputs) {
      *input.gradient = at::Tensor();
      if (input.tensor.is_leaf() && input.tensor.requires_grad()) input.tensor.mutable_grad().reset();
    }
    for (size_t i = 0; i < roots.size(); i++) {
      const at::Tensor& root = THPVariable_Unpack(roots[i]);
      TraceValueMeta meta = meta_of(root);
      meta.offset = 0;
      meta.is_conj = meta.is_neg = false;
      if (i < strides.size() && !strides[i].empty()) meta.strides = strides[i];
      at::Tensor seed = state_->make_tensor(std::move(meta), nullptr);
      tangents.push_back(find_trace_tensor(seed)->value);
      edges.push_back(torch::autograd::impl::gradient_edge(root));
      seeds.push_back(std::move(seed));
    }
    state_->is_in_backward = true;
    PyThreadState* thread = PyEval_SaveThread();
    try {
      torch::autograd::Engine::get_default_engine().execute(edges, seeds, /*keep_graph=*/false,
                                                            /*create_graph=*/false, /*accumulate_grad=*/true);
    } catch (...) {
      PyEval_RestoreThread(thread);
      throw;
    }
    PyEval_RestoreThread(thread);
  });
}

PyObject* TraceRun::add_number(TraceValueKind kind, TraceValueId& value) {
  TraceValueMeta meta;
  meta.kind = kind;
  value = state_->new_value(std::move(meta));
  return wrap_symbol(make_symbol(value, kind));
}

PyObject* TraceRun::item(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  PyObject* result = nullptr;
  const bool ok = run_guarded([&] {
    const TraceTensorImpl* impl = find_trace_tensor(tensor);
    TORCH_CHECK(impl != nullptr && tensor.numel() == 1, "a Tensor with ", tensor.numel(),
                " elements cannot be converted to Scalar");
    if (impl->constant.defined()) {
      const c10::impl::ExcludeDispatchKeyGuard no_trace(keys_above_kernels());
      const c10::Scalar value = impl->constant.item();
      if (value.isBoolean()) {
        result = PyBool_FromLong(value.toBool());
      } else if (value.isFloatingPoint()) {
        result = PyFloat_FromDouble(value.toDouble());
      } else {
        TORCH_CHECK(value.isIntegral(false), "reprise: item() of a complex constant");
        result = PyLong_FromLongLong(value.toLong());
      }
      return;
    }
    if (c10::isComplexType(tensor.scalar_type())) fail_trace(*state_, "the value of a complex scalar is needed");
    OpArg arg;
    arg.kind = OpArg::Kind::Value;
    arg.id = impl->value;
    result = wrap_symbol(add_symbolic_op(ScalarOp::Item, {&arg, 1}, kind_of_item(tensor.scalar_type())));
  });
  return ok ? result : nullptr;
}

TraceValueId TraceRun::get_rng_state() {
  TraceValueMeta meta;
  meta.kind = TraceValueKind::RngState;
  const TraceValueId result = state_->new_value(std::move(meta));
  state_->sink->add_scalar_op(ScalarOp::RngGet, {}, result);
  return result;
}

void TraceRun::set_rng_state(TraceValueId value) {
  OpArg arg;
  arg.kind = OpArg::Kind::Value;
  arg.id = value;
  state_->sink->add_scalar_op(ScalarOp::RngSet, {&arg, 1}, kNoTraceValue);
}

}  // namespace reprise::host
