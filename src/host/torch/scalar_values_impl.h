// Numbers and random states among the values of a program. Private to host/torch.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <span>

#include "host/torch/op_sink.h"

namespace reprise::host {

/// Everything above the kernels that recorded operations have passed already.
inline c10::DispatchKeySet keys_passed() {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
}

/// A Python number in a tensor's place.
c10::IValue as_wrapped(const c10::IValue& number);

/// A number that was kept as a tensor without dimensions.
c10::IValue number_of(const at::Tensor& tensor, TraceValueKind kind);

/// Of the CPU's generator.
at::Tensor get_rng_state();
void set_rng_state(const at::Tensor& state);

c10::IValue run_scalar_op(ScalarOp op, std::span<const c10::IValue> args);

}  // namespace reprise::host
