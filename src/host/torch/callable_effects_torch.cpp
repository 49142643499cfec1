#include <torch/csrc/jit/runtime/operator.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "host/torch/callables.h"
#include "host/torch/op_info_impl.h"

namespace reprise::host {

namespace {

using std::string_view;
using Kind = TorchCallableKind;

// Bound by hand: copies and conversions, no operators of these names.
constexpr string_view kWithoutOperator[] = {"float",
                                            "double",
                                            "half",
                                            "bfloat16",
                                            "bool",
                                            "int",
                                            "long",
                                            "short",
                                            "char",
                                            "byte",
                                            "cpu",
                                            "new_tensor",
                                            "type",
                                            "tensor",
                                            "as_tensor",
                                            "_wrap_for_grad",
                                            "_unwrap_for_grad",
                                            "_add_batch_dim",
                                            "_remove_batch_dim"};

// Parts of names of operators that write to statistics they are given without saying so, or call one that does.
constexpr string_view kWriters[] = {"batch_norm", "instance_norm", "fused_moving_avg", "set_data"};

// Made of other operators, the last of which computes: they never give what they were given.
constexpr string_view kMakers[] = {
    "linear", "matmul", "conv1d", "conv2d", "conv3d", "layer_norm", "group_norm", "rms_norm", "cross_entropy_loss",
    "max",    "min",    "norm",   "square", "softmax"};

// What reads data and keeps nothing of the tensor.
constexpr string_view kReaders[] = {
    "item",    "tolist",   "equal",     "allclose",    "is_nonzero", "_local_scalar_dense", "__bool__", "__nonzero__",
    "__int__", "__long__", "__float__", "__complex__", "__index__"};

string_view base_of(string_view name) {
  const size_t colons = name.find("::");
  if (colons == string_view::npos) return name.substr(name.rfind('.') + 1);
  const string_view base = name.substr(colons + 2);
  return base.substr(0, base.find('.'));
}

template <size_t N>
bool has(const string_view (&names)[N], string_view name) {
  for (string_view other : names) {
    if (other == name) return true;
  }
  return false;
}

// What all overloads say, but for those with `out=`, which callers ask about themselves.
CallEffects read_operators(const std::string& name) {
  const std::string base(base_of(name));
  for (string_view writer : kWriters) {
    if (base.find(writer) != std::string::npos) return {};
  }
  CallEffects found;
  found.makes_memory = true;
  for (const auto& op : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name))) {
    const c10::FunctionSchema& schema = op->schema();
    const auto handle = c10::Dispatcher::singleton().findSchema(schema.operator_name());
    if (!handle) continue;  // TorchScript's, of numbers
    bool is_out = false;
    for (size_t i = 0; i < schema.arguments().size(); i++) {
      const c10::Argument& argument = schema.arguments()[i];
      if (argument.alias_info() == nullptr || !argument.alias_info()->isWrite()) continue;
      is_out = is_out || argument.kwarg_only();
      if (argument.kwarg_only()) continue;
      if (i != 0) return {};
      found.writes_first = true;
    }
    if (is_out) continue;
    found.draws = found.draws || entry_of(*handle)->is_random;
    for (const c10::Argument& result : schema.returns()) {
      found.makes_memory = found.makes_memory && result.alias_info() == nullptr;
    }
    // Made of other operators, it may give what it was given.
    const bool is_composite = handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    if (is_composite && !has(kMakers, base)) found.makes_memory = false;
    found.is_known = true;
  }
  return found.is_known ? found : CallEffects();
}

}  // namespace

CallEffects find_effects(const TorchCallable& callable) {
  static auto* const known = new std::unordered_map<std::string, CallEffects>;
  if (!callable.is_torch) return {};
  if (callable.kind != Kind::Tensor && callable.kind != Kind::DataDependent && callable.kind != Kind::Metadata)
    return {};
  const std::string_view full(callable.name), base = base_of(full);
  std::string name("aten::" + std::string(base));
  if (const size_t colons = full.find("::"); colons != string_view::npos) name = full.substr(0, full.find('.', colons));
  const auto [place, is_new] = known->try_emplace(std::move(name));
  if (is_new) {
    place->second = read_operators(place->first);
    if (has(kWithoutOperator, base)) place->second.is_known = true;
  }
  return place->second;
}

bool only_reads_data(const TorchCallable& callable) {
  return callable.is_torch && callable.kind == Kind::Sync && has(kReaders, base_of(callable.name));
}

}  // namespace reprise::host
