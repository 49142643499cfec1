// OpInfo with its dispatcher handle. Private to host/torch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "host/torch/op_info.h"

namespace reprise::host {

struct OpEntry : OpInfo {
  explicit OpEntry(c10::OperatorHandle operator_handle) : handle(operator_handle) {}
  c10::OperatorHandle handle;
};

const OpEntry* entry_of(const c10::OperatorHandle& handle);
inline const OpEntry& entry_of(const OpInfo& info) { return static_cast<const OpEntry&>(info); }

}  // namespace reprise::host
