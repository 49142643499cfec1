// The part of the state word that consists of Python objects: modes, hooks, functorch levels. Private to state_word.
//
// Almost always there are none, and has_modes() says so in a few loads; summarise_modes() is for the rest and may take
// microseconds. It calls C functions of torch through the C API (functorch's stack has no usable C++ header: it needs
// nlohmann/json, which torch's package lacks) but never Python code, and leaves a pending exception as it is.
#pragma once

#include <Python.h>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstdint>
#include <vector>

#include "host/torch/version_torch.h"

namespace reprise::host {

using FunctionTls = at::impl::PythonTorchFunctionTLS;
using DispatchTls = c10::impl::TorchDispatchModeTLS;
using HooksTls = at::impl::SavedTensorDefaultHooksTLS;

REPRISE_EXPOSE(FunctionTls_disabled_state, FunctionTls, disabled_state_);
REPRISE_EXPOSE(FunctionTls_stack, FunctionTls, stack_);
#if REPRISE_TORCH_HAS_SKIP_NEXT_TORCH_FUNCTION
REPRISE_EXPOSE(FunctionTls_skip_next, FunctionTls, skip_next_);
#endif
REPRISE_EXPOSE(DispatchTls_stack, DispatchTls, stack_);
REPRISE_EXPOSE(DispatchTls_infra, DispatchTls, infra_modes_);

/// Where the state of the calling thread lives; the addresses stay for the life of the thread.
struct ThreadTls {
  const c10::impl::PODLocalDispatchKeySet* keys = nullptr;
  const c10::AutogradState* autograd = nullptr;
  const FunctionTls* functions = nullptr;
  const DispatchTls* dispatch = nullptr;
  const HooksTls* hooks = nullptr;
};

struct ModeSummary {
  uint64_t function_modes = 0;
  uint64_t dispatch_modes = 0;
  uint64_t saved_tensor_hooks = 0;
  uint64_t functorch_levels = 0;
  uint64_t graph_exec_group = 0;
  uint8_t function_mode_count = 0;
  uint8_t dispatch_mode_count = 0;
  uint8_t functorch_level_count = 0;
  uint8_t user_mode_count = 0;
};

inline bool has_modes(const ThreadTls& tls) noexcept {
  const auto& infra = (*tls.dispatch).*expose(DispatchTls_infra{});
  bool any = !((*tls.functions).*expose(FunctionTls_stack{})).empty() ||
             !((*tls.dispatch).*expose(DispatchTls_stack{})).empty() || !tls.hooks->stack.empty() ||
             tls.autograd->get_graph_exec_group().has_value() ||
             tls.keys->included().has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  for (const auto& mode : infra) any = any || mode.has_value();
  return any;
}

ModeSummary summarise_modes(const ThreadTls& tls) noexcept;

/// The objects that summarise_modes() names by address; borrowed.
std::vector<PyObject*> find_mode_objects(const ThreadTls& tls);

}  // namespace reprise::host
