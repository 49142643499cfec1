// Calls of oneDNN's matrix product. Private to host/torch.
#pragma once

#include <ATen/core/Tensor.h>

namespace reprise::host {

/// result = beta * result + alpha * (a x b), for two or three dimensions.
using ProductFunction = void (*)(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result, float beta,
                                 float alpha);

/// PyTorch's own function around oneDNN, or nullptr: this PyTorch has none.
ProductFunction find_onednn_product();

}  // namespace reprise::host
