// ValueList as torch values. Private to host/torch.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "host/torch/boxed_call.h"

namespace reprise::host {

struct ValueList::Values {
  std::vector<c10::IValue> list;
};

}  // namespace reprise::host
