// Indirect access.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

// (weight, indices, ...)
bool infer_embedding(RuleCall& call) {
  const TensorMeta* weight = find_tensor(call, 0);
  const TensorMeta* indices = find_tensor(call, 1);
  if (weight == nullptr || indices == nullptr || weight->rank != 2) return false;
  Dims sizes(indices->sizes());
  sizes.push_back(weight->sizes()[1]);
  return add_contiguous(call, sizes, weight->dtype, weight->device);
}

// (grad, indices, num_weights, ...)
bool infer_embedding_backward(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  const std::optional<Int> count = find_int(call, 2);
  if (grad == nullptr || !count || grad->rank == 0) return false;
  return add_contiguous(call, {*count, grad->sizes().back()}, grad->dtype, grad->device);
}

// (self, indices): a list of tensors and none. The operands of eager's iterator are the source, its indexed dimensions
// replaced by the broadcast index shape with stride 0, and the indices.
bool infer_index(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || call.args.size() < 2 || !call.args[1].is_list()) return false;
  const auto indices = call.args[1].get_list();
  if (indices.size() > self->rank) return false;
  // Elsewhere than on the CPU, eager lays the indices out anew.
  if (self->device != types::Device{} && !is_contiguous(call, *self)) return false;
  constexpr std::size_t kMostIndices = 4;
  std::array<const TensorMeta*, kMostIndices> tensors;
  std::array<std::size_t, kMostIndices> places;
  std::size_t count = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i].is_none()) continue;
    const TensorMeta* index = find_tensor(call, indices[i]);
    // A mask has sizes that depend on data; other types are converted first.
    if (index == nullptr || count == kMostIndices || index->dtype != DType::Int64 || index->device != self->device)
      return false;
    tensors[count] = index;
    places[count++] = i;
  }
  if (count == 0) return false;
  std::size_t rank = 0;
  for (std::size_t i = 0; i < count; ++i) rank = std::max<std::size_t>(rank, tensors[i]->rank);
  if (rank + self->rank > Dims::kMost) return false;
  Dims shape(rank, 1);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = rank - tensors[i]->rank;
    for (std::size_t d = 0; d < tensors[i]->rank; ++d) {
      const Int size = tensors[i]->sizes()[d];
      if (size == Int(1) || shape[first + d] == size) continue;
      if (shape[first + d] == Int(1)) {
        shape[first + d] = size;
      } else if (!is_equal(call, shape[first + d], size)) {
        return false;
      }
    }
  }
  const bool is_adjacent = places[count - 1] - places[0] + 1 == count;
  const std::size_t before = is_adjacent ? places[0] : 0;
  // Source dimensions in their order in the result, the index shape at `before`.
  Dims sizes, strides;
  const auto add_source_dims = [&](std::size_t from, std::size_t to) {
    for (std::size_t d = from; d < to; ++d) {
      bool is_indexed = false;
      for (std::size_t i = 0; i < count; ++i) is_indexed = is_indexed || places[i] == d;
      if (is_indexed) continue;
      sizes.push_back(self->sizes()[d]);
      strides.push_back(self->strides()[d]);
    }
  };
  add_source_dims(0, before);
  for (const Int size : shape) sizes.push_back(size), strides.push_back(0);
  add_source_dims(before, self->rank);
  Operands operands;
  operands.add_operand(sizes, strides);
  std::array<Dims, kMostIndices> index_sizes, index_strides;
  for (std::size_t i = 0; i < count; ++i) {
    index_sizes[i] = Dims(sizes.size(), 1);
    index_strides[i] = Dims(sizes.size(), 0);
    for (std::size_t d = 0; d < rank; ++d) index_sizes[i][before + d] = shape[d];
    const std::size_t first = rank - tensors[i]->rank;
    for (std::size_t d = 0; d < tensors[i]->rank; ++d) {
      const bool is_repeated = tensors[i]->sizes()[d] == Int(1) && shape[first + d] != Int(1);
      if (!is_repeated) index_strides[i][before + first + d] = tensors[i]->strides()[d];
    }
    operands.add_operand(index_sizes[i], index_strides[i]);
  }
  Dims result, result_strides;
  return operands.compute(call, result, result_strides) &&
         add_tensor(call, result, result_strides, self->dtype, self->device);
}

// (self, dim, index, ...)
bool infer_gather(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const TensorMeta* index = find_tensor(call, 2);
  return self != nullptr && index != nullptr && add_contiguous(call, Dims(index->sizes()), self->dtype, self->device);
}

// (self, dim, index)
bool infer_index_select(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const TensorMeta* index = find_tensor(call, 2);
  if (self == nullptr || index == nullptr || self->rank == 0 || index->rank > 1) return false;
  const auto dim = find_dim(call, 1, self->rank);
  if (!dim) return false;
  Dims sizes(self->sizes());
  sizes[*dim] = index->rank == 0 ? Int(1) : index->sizes()[0];
  return add_contiguous(call, sizes, self->dtype, self->device);
}

// (self, index)
bool infer_take(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const TensorMeta* index = find_tensor(call, 1);
  return self != nullptr && index != nullptr && is_contiguous(call, *index) &&
         add_contiguous(call, Dims(index->sizes()), self->dtype, self->device);
}

// (grad, input_sizes, ...)
bool infer_select_backward(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  Dims sizes;
  return grad != nullptr && find_ints(call, 1, sizes) && add_contiguous(call, sizes, grad->dtype, grad->device);
}

// bucketize(self, boundaries, out_int32, right), searchsorted(boundaries, self, out_int32, right, ...)
bool infer_searchsorted(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, call.op == OpId::bucketize_Tensor ? 0 : 1);
  const std::optional<bool> is_narrow = find_bool(call, 2);
  return self != nullptr && is_narrow &&
         add_contiguous(call, Dims(self->sizes()), *is_narrow ? DType::Int32 : DType::Int64, self->device);
}

}  // namespace reprise::graph
