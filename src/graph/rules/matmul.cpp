// Matrix products and attention kernels.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

// Matrices (or batches of them) that can be multiplied; of one dtype and device.
bool can_multiply(RuleCall& call, const TensorMeta* a, const TensorMeta* b, std::size_t a_rank, std::size_t b_rank) {
  return a != nullptr && b != nullptr && a->rank == a_rank && b->rank == b_rank && a->dtype == b->dtype &&
         a->device == b->device && is_equal(call, a->sizes()[a_rank - 1], b->sizes()[b_rank == 1 ? 0 : b_rank - 2]);
}

bool fits(const RuleCall& call, std::size_t i, const TensorMeta& like) {
  const TensorMeta* tensor = find_tensor(call, i);
  return tensor != nullptr && tensor->dtype == like.dtype && tensor->device == like.device;
}

}  // namespace

bool infer_mm(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 0);
  const TensorMeta* b = find_tensor(call, 1);
  return can_multiply(call, a, b, 2, 2) && add_contiguous(call, {a->sizes()[0], b->sizes()[1]}, a->dtype, a->device);
}

bool infer_bmm(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 0);
  const TensorMeta* b = find_tensor(call, 1);
  return can_multiply(call, a, b, 3, 3) && is_equal(call, a->sizes()[0], b->sizes()[0]) &&
         add_contiguous(call, {a->sizes()[0], a->sizes()[1], b->sizes()[2]}, a->dtype, a->device);
}

// (self, mat1, mat2, beta, alpha)
bool infer_addmm(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 1);
  const TensorMeta* b = find_tensor(call, 2);
  return can_multiply(call, a, b, 2, 2) && fits(call, 0, *a) &&
         add_contiguous(call, {a->sizes()[0], b->sizes()[1]}, a->dtype, a->device);
}

bool infer_baddbmm(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 1);
  const TensorMeta* b = find_tensor(call, 2);
  return can_multiply(call, a, b, 3, 3) && is_equal(call, a->sizes()[0], b->sizes()[0]) && fits(call, 0, *a) &&
         add_contiguous(call, {a->sizes()[0], a->sizes()[1], b->sizes()[2]}, a->dtype, a->device);
}

// (self, batch1, batch2, beta, alpha): the sum over the batch
bool infer_addbmm(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 1);
  const TensorMeta* b = find_tensor(call, 2);
  return can_multiply(call, a, b, 3, 3) && fits(call, 0, *a) &&
         add_contiguous(call, {a->sizes()[1], b->sizes()[2]}, a->dtype, a->device);
}

bool infer_mv(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 0);
  const TensorMeta* b = find_tensor(call, 1);
  return can_multiply(call, a, b, 2, 1) && add_contiguous(call, {a->sizes()[0]}, a->dtype, a->device);
}

bool infer_addmv(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 1);
  const TensorMeta* b = find_tensor(call, 2);
  return can_multiply(call, a, b, 2, 1) && fits(call, 0, *a) &&
         add_contiguous(call, {a->sizes()[0]}, a->dtype, a->device);
}

bool infer_dot(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 0);
  const TensorMeta* b = find_tensor(call, 1);
  return can_multiply(call, a, b, 1, 1) && add_contiguous(call, {}, a->dtype, a->device);
}

// (self, vec1, vec2, beta, alpha)
bool infer_addr(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 1);
  const TensorMeta* b = find_tensor(call, 2);
  if (a == nullptr || b == nullptr || a->rank != 1 || b->rank != 1 || a->dtype != b->dtype || !fits(call, 0, *a))
    return false;
  const TensorMeta* self = find_tensor(call, 0);
  return is_contiguous(call, *self) && add_contiguous(call, {a->sizes()[0], b->sizes()[0]}, a->dtype, a->device);
}

// (input, weight, bias?)
bool infer_linear(RuleCall& call) {
  const TensorMeta* a = find_tensor(call, 0);
  const TensorMeta* b = find_tensor(call, 1);
  if (a == nullptr || b == nullptr || a->rank == 0 || b->rank != 2 || a->dtype != b->dtype || a->device != b->device)
    return false;
  if (!is_equal(call, a->sizes().back(), b->sizes()[1]) || !is_contiguous(call, *a)) return false;
  Dims sizes(a->sizes());
  sizes[sizes.size() - 1] = b->sizes()[0];
  return add_contiguous(call, sizes, a->dtype, a->device);
}

// (query, key, value, ...) -> output laid out like the query, logsumexp laid out as [batch, row, head]
bool infer_flash_cpu(RuleCall& call) {
  const TensorMeta* query = find_tensor(call, 0);
  const TensorMeta* value = find_tensor(call, 2);
  if (query == nullptr || value == nullptr || query->rank != 4 || value->rank != 4) return false;
  const auto q = query->sizes();
  const Int batch = q[0], heads = q[1], rows = q[2];
  const DType wide = query->dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const std::optional<Dims> strides = make_like_strides(call, *query, MemoryFormat::Preserve);
  return strides && is_equal(call, q[3], value->sizes()[3]) &&
         add_tensor(call, Dims(q), *strides, query->dtype, query->device) &&
         add_tensor(call, {batch, heads, rows}, {call.symbols.multiply(rows, heads), 1, heads}, wide, query->device);
}

// (grad_out, query, key, value, ...) -> gradients of query, key, value
bool infer_flash_cpu_backward(RuleCall& call) {
  sym::Context& symbols = call.symbols;
  for (std::size_t i = 1; i < 4; ++i) {
    const TensorMeta* tensor = find_tensor(call, i);
    if (tensor == nullptr || tensor->rank != 4) return false;
    const auto s = tensor->sizes();
    const Int row = symbols.multiply(s[1], s[3]);
    if (!add_tensor(call, Dims(s), {symbols.multiply(s[2], row), s[3], row, 1}, tensor->dtype, tensor->device))
      return false;
  }
  return true;
}

}  // namespace reprise::graph
