// Random numbers that PyTorch draws one by one, drawn many at a time. Private to host/torch.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

#include "host/torch/native_program.h"

namespace reprise::host {

/// An operator on `stack`, its arguments. True: it is done and `stack` holds the results; false: nothing has happened.
/// Numbers, and the generator behind them, are those that PyTorch's own function would leave.
using FillFunction = bool (*)(torch::jit::Stack& stack);

/// For an operator by its name with overload; nullptr: there is none, or this PyTorch draws in another way (with MKL's
/// generators, on processors of Intel): draws_many_at_a_time().
FillFunction find_random_fill(std::string_view op);

}  // namespace reprise::host
