// Matrix products of float32 on the CPU: which library computes them.
//
// PyTorch calls MKL, which takes its AVX2 kernels on processors of other makers even where they have AVX-512. oneDNN,
// which PyTorch has too (it is what convolutions call), does not ask who made the processor
// (docs/decisions/0010-products-by-onednn.md has figures). The choice depends on the processor and the sizes alone, so
// a program gives the same bits in every run.
#pragma once

#include <cstdint>

#include "base/options.h"

namespace reprise::host {

/// Whether programs made with this option call oneDNN for products that are large enough. False where PyTorch has no
/// such function or the user has switched oneDNN off (torch.backends.mkldnn).
bool uses_onednn_products(base::Gemm option);

/// Whether `batches` products [m, k] x [k, n] are worth a call of oneDNN, whose calls cost 15 us more than MKL's.
bool is_onednn_product(int64_t batches, int64_t m, int64_t k, int64_t n);

}  // namespace reprise::host
