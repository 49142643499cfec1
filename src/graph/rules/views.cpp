// Views of argument 0, and the copies that are named after views.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

// at::detail::computeStride: strides of a view with other sizes, or nothing if there is none.
std::optional<Dims> find_view_strides(RuleCall& call, const TensorMeta& self, const Dims& sizes) {
  sym::Context& symbols = call.symbols;
  const auto old_sizes = self.sizes();
  const auto old_strides = self.strides();
  if (old_sizes.empty()) return Dims(sizes.size(), 1);
  const std::optional<bool> is_empty = ask_equal(call, get_numel(call, self), 0);
  if (!is_empty) return std::nullopt;
  if (*is_empty) {
    if (is_equal(call, old_sizes, sizes)) return Dims(old_strides);
    return make_contiguous_strides(call, sizes);
  }
  Dims strides(sizes);
  std::size_t left = sizes.size();
  Int chunk_stride = old_strides.back();
  Int tensor_numel = 1, view_numel = 1;
  for (std::size_t d = old_sizes.size(); d-- > 0;) {
    tensor_numel = symbols.multiply(tensor_numel, old_sizes[d]);
    if (d > 0) {
      const std::optional<bool> is_one = ask_equal(call, old_sizes[d - 1], 1);
      if (!is_one) return std::nullopt;
      const std::optional<bool> is_joined =
          *is_one ? true : ask_equal(call, old_strides[d - 1], symbols.multiply(tensor_numel, chunk_stride));
      if (!is_joined) return std::nullopt;
      if (*is_joined) continue;
    }
    while (left > 0) {
      const std::optional<bool> is_less = ask_less(call, view_numel, tensor_numel);
      const std::optional<bool> is_one = ask_equal(call, sizes[left - 1], 1);
      if (!is_less || !is_one) return std::nullopt;
      if (!*is_less && !*is_one) break;
      strides[left - 1] = symbols.multiply(view_numel, chunk_stride);
      view_numel = symbols.multiply(view_numel, sizes[left - 1]);
      --left;
    }
    if (!is_equal(call, view_numel, tensor_numel)) return std::nullopt;
    if (d > 0) {
      chunk_stride = old_strides[d - 1];
      tensor_numel = 1;
      view_numel = 1;
    }
  }
  if (left != 0) return std::nullopt;
  return strides;
}

// Sizes with one -1 replaced by what fits.
bool complete_sizes(RuleCall& call, const TensorMeta& self, Dims& sizes) {
  sym::Context& symbols = call.symbols;
  std::size_t open = Dims::kMost;
  Int known = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == Int(-1)) {
      if (open != Dims::kMost) return false;
      open = i;
    } else {
      known = symbols.multiply(known, sizes[i]);
    }
  }
  const Int numel = get_numel(call, self);
  if (open == Dims::kMost) return is_equal(call, known, numel);
  const std::optional<bool> is_zero = ask_equal(call, known, 0);
  if (!is_zero || *is_zero || !sym::is_yes(symbols.is_divisible(numel, known))) return false;
  sizes[open] = symbols.floor_divide(numel, known);
  return true;
}

Int clamp_index(sym::Context& symbols, Int index, Int least, Int most) {
  return symbols.min(symbols.max(index, least), most);
}

}  // namespace

bool infer_alias(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  return self != nullptr && add_view(call, Dims(self->sizes()), Dims(self->strides()), self->offset);
}

bool infer_transposed(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank > 2) return false;
  Dims sizes(self->sizes()), strides(self->strides());
  if (self->rank == 2) {
    std::swap(sizes[0], sizes[1]);
    std::swap(strides[0], strides[1]);
  }
  return add_view(call, sizes, strides, self->offset);
}

// (self, dim0, dim1)
bool infer_transpose(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const auto a = find_dim(call, 1, self->rank);
  const auto b = find_dim(call, 2, self->rank);
  if (!a || !b) return false;
  Dims sizes(self->sizes()), strides(self->strides());
  if (self->rank > 0) {
    std::swap(sizes[*a], sizes[*b]);
    std::swap(strides[*a], strides[*b]);
  }
  return add_view(call, sizes, strides, self->offset);
}

// (self, dims)
bool infer_permute(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims order;
  if (self == nullptr || !find_ints(call, 1, order) || order.size() != self->rank) return false;
  Dims sizes, strides;
  for (const Int dim : order) {
    const auto d = dim.is_constant() ? wrap_dim(dim.get_word(), self->rank) : std::nullopt;
    if (!d) return false;
    sizes.push_back(self->sizes()[*d]);
    strides.push_back(self->strides()[*d]);
  }
  return add_view(call, sizes, strides, self->offset);
}

// (self, sizes)
bool infer_view(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes;
  if (self == nullptr || !find_ints(call, 1, sizes) || !complete_sizes(call, *self, sizes)) return false;
  const std::optional<Dims> strides = find_view_strides(call, *self, sizes);
  return strides && add_view(call, sizes, *strides, self->offset);
}

bool infer_view_copy(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes;
  if (self == nullptr || !find_ints(call, 1, sizes) || !complete_sizes(call, *self, sizes)) return false;
  return add_contiguous(call, sizes, self->dtype, self->device);
}

// (self, sizes, strides)
bool infer_reshape_alias(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes, strides;
  if (self == nullptr || !find_ints(call, 1, sizes) || !find_ints(call, 2, strides)) return false;
  return sizes.size() == strides.size() && add_view(call, sizes, strides, self->offset);
}

// (self, sizes, strides, offset?)
bool infer_as_strided(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes, strides;
  if (self == nullptr || !find_ints(call, 1, sizes) || !find_ints(call, 2, strides)) return false;
  const std::optional<Int> offset = is_none(call, 3) ? self->offset : find_int(call, 3);
  return offset && sizes.size() == strides.size() && add_view(call, sizes, strides, *offset);
}

// (self, sizes, implicit)
bool infer_expand(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes;
  if (self == nullptr || !find_ints(call, 1, sizes) || sizes.size() < self->rank) return false;
  const std::size_t added = sizes.size() - self->rank;
  Dims strides(sizes);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const Int size = i >= added ? self->sizes()[i - added] : Int(1);
    Int stride = 1;
    if (i >= added) {
      stride = self->strides()[i - added];
    } else if (i + 1 < sizes.size()) {
      stride = call.symbols.multiply(sizes[i + 1], strides[i + 1]);
    }
    if (sizes[i] == Int(-1)) {
      if (i < added) return false;
      sizes[i] = size;
    }
    const std::optional<bool> is_same = ask_equal(call, sizes[i], size);
    if (!is_same) return false;
    if (!*is_same && size != Int(1)) return false;
    strides[i] = *is_same && self->rank > 0 ? stride : Int(0);
  }
  return add_view(call, sizes, strides, self->offset);
}

// (self, dim, start?, end?, step)
bool infer_slice(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank == 0) return false;
  sym::Context& symbols = call.symbols;
  const auto d = find_dim(call, 1, self->rank);
  const std::optional<std::int64_t> step = find_constant(call, 4);
  if (!d || !step || *step <= 0) return false;
  const Int size = self->sizes()[*d];
  const auto find_bound = [&](std::size_t i, Int otherwise) -> std::optional<Int> {
    if (is_none(call, i)) return otherwise;
    std::optional<Int> bound = find_int(call, i);
    if (!bound) return std::nullopt;
    if (bound->is_constant() && bound->get_word() == std::numeric_limits<std::int64_t>::max()) return size;
    const std::optional<bool> is_negative = ask_less(call, *bound, 0);
    if (!is_negative) return std::nullopt;
    return *is_negative ? symbols.add(*bound, size) : *bound;
  };
  std::optional<Int> start = find_bound(2, 0);
  std::optional<Int> end = find_bound(3, size);
  if (!start || !end) return false;
  start = clamp_index(symbols, *start, 0, size);
  end = clamp_index(symbols, *end, *start, size);
  Dims sizes(self->sizes()), strides(self->strides());
  sizes[*d] = symbols.ceil_divide(symbols.subtract(*end, *start), *step);
  strides[*d] = symbols.multiply(strides[*d], *step);
  return add_view(call, sizes, strides, symbols.add(self->offset, symbols.multiply(*start, self->strides()[*d])));
}

// (self, dim, index)
bool infer_select(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank == 0) return false;
  const auto d = find_dim(call, 1, self->rank);
  std::optional<Int> index = find_int(call, 2);
  if (!d || !index) return false;
  const std::optional<bool> is_negative = ask_less(call, *index, 0);
  if (!is_negative) return false;
  if (*is_negative) index = call.symbols.add(*index, self->sizes()[*d]);
  Dims sizes(self->sizes()), strides(self->strides());
  const Int offset = call.symbols.add(self->offset, call.symbols.multiply(*index, strides[*d]));
  sizes.erase(*d);
  strides.erase(*d);
  return add_view(call, sizes, strides, offset);
}

// (self, dim)
bool infer_unsqueeze(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const auto d = find_dim(call, 1, self->rank + 1u);
  if (!d) return false;
  Dims sizes(self->sizes()), strides(self->strides());
  const Int stride = *d < self->rank ? call.symbols.multiply(sizes[*d], strides[*d]) : Int(1);
  sizes.insert(*d, 1);
  strides.insert(*d, stride);
  return add_view(call, sizes, strides, self->offset);
}

// (self), (self, dim) or (self, dims)
bool infer_squeeze(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  std::uint64_t chosen = ~std::uint64_t{0};
  if (call.args.size() > 1) {
    Dims dims;
    if (!find_ints(call, 1, dims)) return false;
    chosen = 0;
    for (const Int dim : dims) {
      const auto d = dim.is_constant() ? wrap_dim(dim.get_word(), self->rank) : std::nullopt;
      if (!d) return false;
      chosen |= std::uint64_t{1} << *d;
    }
  }
  Dims sizes, strides;
  for (std::size_t i = 0; i < self->rank; ++i) {
    const std::optional<bool> is_one = ask_equal(call, self->sizes()[i], 1);
    if (!is_one) return false;
    if (*is_one && (chosen >> i & 1) != 0) continue;
    sizes.push_back(self->sizes()[i]);
    strides.push_back(self->strides()[i]);
  }
  return add_view(call, sizes, strides, self->offset);
}

// (self, split_size, dim)
bool infer_split(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<std::int64_t> step = find_constant(call, 1);
  if (self == nullptr || self->rank == 0 || !step || *step <= 0) return false;
  const auto d = find_dim(call, 2, self->rank);
  if (!d || !self->sizes()[*d].is_constant()) return false;
  const std::int64_t size = self->sizes()[*d].get_word();
  const Dims strides(self->strides());
  Dims sizes(self->sizes());
  call.start_list();
  for (std::int64_t start = 0; start < size || start == 0; start += *step) {
    sizes[*d] = std::min(*step, size - start);
    if (!add_view(call, sizes, strides, call.symbols.add(self->offset, call.symbols.multiply(start, strides[*d]))))
      return false;
  }
  call.end_list();
  return true;
}

// (self, split_sizes, dim)
bool infer_split_sizes(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank == 0 || call.args.size() < 3 || !call.args[1].is_list()) return false;
  const auto d = find_dim(call, 2, self->rank);
  if (!d) return false;
  const Dims strides(self->strides());
  Dims sizes(self->sizes());
  Int start = 0;
  call.start_list();
  for (const Arg& element : call.args[1].get_list()) {
    if (!element.is_int()) return false;
    sizes[*d] = element.get_int();
    if (!add_view(call, sizes, strides, call.symbols.add(self->offset, call.symbols.multiply(start, strides[*d]))))
      return false;
    start = call.symbols.add(start, element.get_int());
  }
  call.end_list();
  return is_equal(call, start, self->sizes()[*d]);
}

// (self, dim)
bool infer_unbind(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank == 0) return false;
  const auto d = find_dim(call, 1, self->rank);
  if (!d || !self->sizes()[*d].is_constant()) return false;
  Dims sizes(self->sizes()), strides(self->strides());
  const Int stride = strides[*d];
  sizes.erase(*d);
  strides.erase(*d);
  call.start_list();
  for (std::int64_t i = 0; i < self->sizes()[*d].get_word(); ++i) {
    if (!add_view(call, sizes, strides, call.symbols.add(self->offset, call.symbols.multiply(i, stride)))) return false;
  }
  call.end_list();
  return true;
}

// (self, offset, dim1, dim2)
bool infer_diagonal(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank < 2) return false;
  const std::optional<std::int64_t> shift = find_constant(call, 1);
  const auto a = find_dim(call, 2, self->rank);
  const auto b = find_dim(call, 3, self->rank);
  if (!shift || !a || !b || *a == *b) return false;
  sym::Context& symbols = call.symbols;
  Dims sizes(self->sizes()), strides(self->strides());
  const Int rows = *shift < 0 ? symbols.add(sizes[*a], *shift) : sizes[*a];
  const Int columns = *shift < 0 ? sizes[*b] : symbols.subtract(sizes[*b], *shift);
  const Int length = symbols.max(symbols.min(rows, columns), 0);
  const std::optional<bool> is_empty = ask_equal(call, length, 0);
  if (!is_empty) return false;
  Int offset = self->offset;
  if (!*is_empty) {
    const Int along = *shift < 0 ? symbols.multiply(-*shift, strides[*a]) : symbols.multiply(*shift, strides[*b]);
    offset = symbols.add(offset, along);
  }
  const Int stride = symbols.add(strides[*a], strides[*b]);
  sizes.erase(std::max(*a, *b));
  sizes.erase(std::min(*a, *b));
  strides.erase(std::max(*a, *b));
  strides.erase(std::min(*a, *b));
  sizes.push_back(length);
  strides.push_back(stride);
  return add_view(call, sizes, strides, offset);
}

// (self, dim, size, step)
bool infer_unfold(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank == 0) return false;
  const auto d = find_dim(call, 1, self->rank);
  const std::optional<std::int64_t> size = find_constant(call, 2);
  const std::optional<std::int64_t> step = find_constant(call, 3);
  if (!d || !size || !step || *step <= 0) return false;
  Dims sizes(self->sizes()), strides(self->strides());
  const Int stride = strides[*d];
  sizes[*d] = call.symbols.add(call.symbols.floor_divide(call.symbols.subtract(sizes[*d], *size), *step), 1);
  strides[*d] = call.symbols.multiply(stride, *step);
  sizes.push_back(*size);
  strides.push_back(stride);
  return add_view(call, sizes, strides, self->offset);
}

namespace {

bool add_view_of_dtype(RuleCall& call, const Dims& sizes, const Dims& strides, Int offset, DType dtype) {
  if (!add_view(call, sizes, strides, offset)) return false;
  call.last_result().meta.dtype = dtype;
  return true;
}

}  // namespace

bool infer_view_as_real(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || !types::is_complex(self->dtype) || self->flags != kNoTensorFlags) return false;
  Dims sizes(self->sizes()), strides;
  for (const Int stride : self->strides()) strides.push_back(call.symbols.multiply(stride, 2));
  sizes.push_back(2);
  strides.push_back(1);
  return add_view_of_dtype(call, sizes, strides, call.symbols.multiply(self->offset, 2), make_real(self->dtype));
}

bool infer_view_as_complex(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank == 0 || self->flags != kNoTensorFlags) return false;
  const std::optional<DType> dtype =
      self->dtype == DType::Float32 || self->dtype == DType::Float64 ? make_complex(self->dtype) : std::nullopt;
  if (!dtype) return false;
  Dims sizes(self->sizes()), strides;
  sizes.erase(sizes.size() - 1);
  for (const Int stride : self->strides().first(sizes.size())) strides.push_back(call.symbols.floor_divide(stride, 2));
  return add_view_of_dtype(call, sizes, strides, call.symbols.floor_divide(self->offset, 2), *dtype);
}

// (self, dtype): of the same width
bool infer_view_dtype(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->flags != kNoTensorFlags) return false;
  const std::optional<DType> dtype = find_dtype(call, 1, self->dtype);
  if (!dtype || types::get_size_bytes(*dtype) != types::get_size_bytes(self->dtype)) return false;
  return add_view_of_dtype(call, Dims(self->sizes()), Dims(self->strides()), self->offset, *dtype);
}

bool infer_conj(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || !types::is_complex(self->dtype) || !infer_alias(call)) return false;
  call.last_result().meta.flags ^= kConjugate;
  return true;
}

bool infer_neg_view(RuleCall& call) {
  if (!infer_alias(call)) return false;
  call.last_result().meta.flags ^= kNegative;
  return true;
}

// resize_(self, sizes, memory_format): the same storage, contiguous
bool infer_resize(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes;
  if (self == nullptr || !is_none(call, 2) || !find_ints(call, 1, sizes)) return false;
  if (is_equal(call, self->sizes(), sizes)) return add_argument(call, 0);
  return add_view(call, sizes, make_contiguous_strides(call, sizes), self->offset);
}

}  // namespace reprise::graph
