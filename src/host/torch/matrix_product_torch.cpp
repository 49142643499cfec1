#include "host/torch/matrix_product.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include "host/torch/matrix_product_impl.h"

namespace reprise::host {

namespace {

// Below this MKL is as quick, or the call costs too much.
constexpr int64_t kLeastWork = int64_t{1} << 24;
constexpr int64_t kLeastBatchedWork = int64_t{1} << 26;
constexpr int64_t kLeastSide = 8;

// Another maker's processor with AVX-512: MKL leaves half of each register unused.
bool is_slow_with_mkl() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") == 0 && __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

}  // namespace

ProductFunction find_onednn_product() {
  // at::native::mkldnn_matmul(Tensor, Tensor, Tensor, float, float): exported, but its header is not installed.
  static const auto found =
      reinterpret_cast<ProductFunction>(dlsym(RTLD_DEFAULT, "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff"));
  return found;
}

bool uses_onednn_products(base::Gemm option) {
  if (option == base::Gemm::Mkl || find_onednn_product() == nullptr) return false;
  if (!at::hasMKLDNN() || !at::globalContext().userEnabledMkldnn()) return false;
  return option == base::Gemm::Onednn || is_slow_with_mkl();
}

bool is_onednn_product(int64_t batches, int64_t m, int64_t k, int64_t n) {
  if (m < kLeastSide || k < kLeastSide || n < kLeastSide) return false;
  return batches * m * k * n >= (batches > 1 ? kLeastBatchedWork : kLeastWork);
}

}  // namespace reprise::host
