// Layouts as torch sees them: predicates on strides, strides of new tensors.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

// In this order, dimensions lie next to each other (sizes of 1 aside).
bool is_packed(RuleCall& call, const TensorMeta& meta, std::span<const std::size_t> order) {
  Int step = 1;
  for (const std::size_t d : order) {
    const std::optional<bool> is_one = ask_equal(call, meta.sizes()[d], 1);
    if (!is_one) return false;
    if (*is_one) continue;
    if (!is_equal(call, meta.strides()[d], step)) return false;
    step = call.symbols.multiply(step, meta.sizes()[d]);
  }
  return true;
}

// Insertion sort of the dimensions, innermost first, by a comparison that may be ambiguous (0), as TensorIterator
// does. Nothing if a comparison is undecided.
template <class Compare>
bool sort_dims(std::span<std::size_t> order, Compare&& compare) {
  for (std::size_t i = 1; i < order.size(); ++i) {
    std::size_t place = i;
    for (std::size_t k = i; k-- > 0;) {
      const std::optional<int> answer = compare(order[k], order[place]);
      if (!answer) return false;
      if (*answer > 0) {
        std::swap(order[k], order[place]);
        place = k;
      } else if (*answer < 0) {
        break;
      }
    }
  }
  return true;
}

// 1: dimension a goes outside of b; -1: inside; 0: ambiguous.
std::optional<int> compare_dims(RuleCall& call, std::span<const Int> sizes, std::span<const Int> strides, std::size_t a,
                                std::size_t b) {
  const std::optional<bool> a_is_zero = ask_equal(call, strides[a], 0);
  const std::optional<bool> b_is_zero = ask_equal(call, strides[b], 0);
  if (!a_is_zero || !b_is_zero) return std::nullopt;
  if (*a_is_zero || *b_is_zero) return 0;
  const std::optional<bool> is_less = ask_less(call, strides[a], strides[b]);
  const std::optional<bool> is_more = ask_less(call, strides[b], strides[a]);
  if (!is_less || !is_more) return std::nullopt;
  if (*is_less) return -1;
  if (*is_more) return 1;
  const std::optional<bool> is_larger = ask_less(call, sizes[b], sizes[a]);
  if (!is_larger) return std::nullopt;
  return *is_larger ? 1 : 0;
}

// is_channels_last_strides_2d and _3d of c10; `order` is innermost first: channels, then space backwards, then batch.
std::optional<bool> has_channels_last_strides(RuleCall& call, const TensorMeta& meta,
                                              std::span<const std::size_t> order) {
  const auto strides = meta.strides();
  const auto sizes = meta.sizes();
  Int least = 0;
  const std::optional<bool> is_broadcast = ask_equal(call, strides[1], 0);
  if (!is_broadcast) return std::nullopt;
  if (*is_broadcast) return false;
  for (const std::size_t d : order) {
    const std::optional<bool> is_empty = ask_equal(call, sizes[d], 0);
    const std::optional<bool> is_less = ask_less(call, strides[d], least);
    if (!is_empty || !is_less) return std::nullopt;
    if (*is_empty || *is_less) return false;
    if (d == 0) {
      const std::optional<bool> is_ambiguous = ask_equal(call, least, strides[1]);
      if (!is_ambiguous) return std::nullopt;
      if (*is_ambiguous) return false;
    }
    const std::optional<bool> is_long = ask_less(call, 1, sizes[d]);
    if (!is_long) return std::nullopt;
    least = *is_long ? call.symbols.multiply(strides[d], sizes[d]) : strides[d];
  }
  return true;
}

constexpr std::size_t kChannelsLast[] = {1, 3, 2, 0};
constexpr std::size_t kChannelsLast3d[] = {1, 4, 3, 2, 0};

}  // namespace

bool is_contiguous(RuleCall& call, const TensorMeta& meta) {
  for (const Int size : meta.sizes()) {
    if (size == Int(0)) return true;
  }
  std::array<std::size_t, Dims::kMost> order;
  for (std::size_t i = 0; i < meta.rank; ++i) order[i] = meta.rank - 1 - i;
  return is_packed(call, meta, std::span(order.data(), meta.rank));
}

bool is_channels_last(RuleCall& call, const TensorMeta& meta) {
  return meta.rank == 4 && is_packed(call, meta, kChannelsLast);
}

bool is_dense(RuleCall& call, const TensorMeta& meta) {
  if (is_contiguous(call, meta)) return true;
  std::array<std::size_t, Dims::kMost> order;
  std::size_t count = 0;
  for (std::size_t i = 0; i < meta.rank; ++i) {
    const std::optional<bool> is_long = ask_less(call, 1, meta.sizes()[i]);
    if (!is_long) return false;
    if (*is_long) order[count++] = i;
  }
  const std::span<std::size_t> used(order.data(), count);
  const bool is_sorted = sort_dims(used, [&](std::size_t a, std::size_t b) -> std::optional<int> {
    const std::optional<bool> is_more = ask_less(call, meta.strides()[b], meta.strides()[a]);
    if (!is_more) return std::nullopt;
    return *is_more ? 1 : -1;
  });
  return is_sorted && is_packed(call, meta, used);
}

std::optional<MemoryFormat> suggest_format(RuleCall& call, const TensorMeta& meta) {
  if (meta.rank != 4 && meta.rank != 5) return MemoryFormat::Contiguous;
  const std::optional<bool> is_last = meta.rank == 4 ? has_channels_last_strides(call, meta, kChannelsLast)
                                                     : has_channels_last_strides(call, meta, kChannelsLast3d);
  if (!is_last) return std::nullopt;
  if (!*is_last) return MemoryFormat::Contiguous;
  return meta.rank == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
}

Dims make_contiguous_strides(RuleCall& call, std::span<const Int> sizes) {
  Dims strides(sizes);
  Int step = 1;
  for (std::size_t i = strides.size(); i-- > 0;) {
    strides[i] = step;
    step = call.symbols.multiply(step, call.symbols.max(sizes[i], 1));
  }
  return strides;
}

std::optional<Dims> make_strides(RuleCall& call, std::span<const Int> sizes, MemoryFormat format) {
  switch (format) {
    case MemoryFormat::Contiguous:
      return make_contiguous_strides(call, sizes);
    case MemoryFormat::Preserve:
      return std::nullopt;
    case MemoryFormat::ChannelsLast:
    case MemoryFormat::ChannelsLast3d: {
      const bool is_2d = format == MemoryFormat::ChannelsLast;
      if (sizes.size() != (is_2d ? 4u : 5u)) return std::nullopt;
      const std::span<const std::size_t> order =
          is_2d ? std::span<const std::size_t>(kChannelsLast) : std::span<const std::size_t>(kChannelsLast3d);
      Dims strides(sizes);
      Int step = 1;
      for (const std::size_t d : order) {
        strides[d] = step;
        step = call.symbols.multiply(step, call.symbols.max(sizes[d], 1));
      }
      return strides;
    }
  }
  return std::nullopt;
}

std::optional<Dims> make_dense_strides(RuleCall& call, std::span<const Int> sizes, std::span<const Int> strides) {
  if (sizes.size() > Dims::kMost) return std::nullopt;
  std::array<std::size_t, Dims::kMost> order;
  for (std::size_t i = 0; i < sizes.size(); ++i) order[i] = sizes.size() - 1 - i;
  const std::span<std::size_t> used(order.data(), sizes.size());
  if (!sort_dims(used, [&](std::size_t a, std::size_t b) { return compare_dims(call, sizes, strides, a, b); }))
    return std::nullopt;
  Dims dense(sizes);
  Int step = 1;
  for (const std::size_t d : used) {
    dense[d] = step;
    step = call.symbols.multiply(step, call.symbols.max(sizes[d], 1));
  }
  return dense;
}

std::optional<Dims> make_like_strides(RuleCall& call, const TensorMeta& meta, MemoryFormat format) {
  if (format != MemoryFormat::Preserve) return make_strides(call, meta.sizes(), format);
  if (is_dense(call, meta)) return Dims(meta.strides());
  return make_dense_strides(call, meta.sizes(), meta.strides());
}

// --- TensorIterator --------------------------------------------------------------------------------------------------

void Operands::add_operand(std::span<const Int> sizes, std::span<const Int> strides) {
  if (count_ == kMost) {
    is_full_ = true;
    return;
  }
  operands_[count_++] = {sizes, strides};
}

bool Operands::add(RuleCall& call, const Arg& arg, std::optional<DType> common) {
  if (const TensorMeta* meta = find_tensor(call, arg)) return add(call, *meta, common);
  if (!arg.is_number() && !arg.is_value()) return false;
  add_zero_dim();
  return true;
}

bool Operands::add(RuleCall& call, const TensorMeta& meta, std::optional<DType> common) {
  // Tensors of one device; a 0-dim tensor of the CPU goes with every device.
  if (!device_ || (meta.rank > 0 && !has_dimensioned_)) {
    if (device_ && meta.device != *device_ && *device_ != types::Device{}) return false;
    device_ = meta.device;
  } else if (meta.device != *device_ && !(meta.rank == 0 && meta.device == types::Device{})) {
    return false;
  }
  has_dimensioned_ |= meta.rank > 0;
  add_operand(meta.sizes(), meta.strides());
  // On the CPU an operand of another dtype is converted first; the copy of one with gaps has none.
  const bool is_copied = common && meta.dtype != *common && meta.rank > 0 && meta.device == types::Device{};
  if (is_copied && count_ > 0 && !is_dense(call, meta)) {
    const std::optional<Dims> dense = make_dense_strides(call, meta.sizes(), meta.strides());
    if (!dense) return false;
    copies_[count_ - 1] = *dense;
    operands_[count_ - 1].strides = copies_[count_ - 1];
  }
  return !is_full_;
}

bool Operands::broadcast(RuleCall& call, Dims& sizes) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < count_; ++i) rank = std::max(rank, operands_[i].sizes.size());
  if (rank > Dims::kMost) return false;
  sizes = Dims(rank, 1);
  for (std::size_t i = 0; i < count_; ++i) {
    const std::span<const Int> other = operands_[i].sizes;
    const std::size_t first = rank - other.size();
    for (std::size_t d = 0; d < other.size(); ++d) {
      Int& size = sizes[first + d];
      if (size == other[d] || other[d] == Int(1)) continue;
      if (size == Int(1)) {
        size = other[d];
      } else if (!is_equal(call, size, other[d])) {
        return false;
      }
    }
  }
  return true;
}

bool Operands::compute(RuleCall& call, Dims& sizes, Dims& strides) {
  if (is_full_ || count_ == 0 || !broadcast(call, sizes)) return false;
  const std::size_t rank = sizes.size();
  bool all_same = true, all_contiguous = true, all_channels_last = true, all_equal = true;
  TensorMeta probe;
  std::array<Int, 2 * Dims::kMost> memory;
  for (std::size_t i = 0; i < count_; ++i) {
    const Operand& operand = operands_[i];
    all_same = all_same && is_equal(call, operand.sizes, sizes);
    if (!all_same) break;
    for (std::size_t d = 0; d < rank; ++d) memory[d] = operand.sizes[d], memory[rank + d] = operand.strides[d];
    probe.sizes_and_strides = memory.data();
    probe.rank = static_cast<std::uint8_t>(rank);
    all_contiguous = all_contiguous && is_contiguous(call, probe);
    all_channels_last = all_channels_last && is_channels_last(call, probe);
    all_equal = all_equal && is_dense(call, probe) && is_equal(call, operand.strides, operands_[0].strides);
  }
  if (all_same && all_contiguous) {
    strides = make_contiguous_strides(call, sizes);
    return true;
  }
  if (all_same && all_channels_last) {
    strides = *make_strides(call, sizes, MemoryFormat::ChannelsLast);
    return true;
  }
  if (all_same && all_equal) {
    strides = Dims(operands_[0].strides);
    return true;
  }
  // Strides over the broadcast shape: 0 where an operand is repeated.
  std::array<Dims, kMost> full;
  for (std::size_t i = 0; i < count_; ++i) {
    const Operand& operand = operands_[i];
    full[i] = Dims(rank, 0);
    const std::size_t first = rank - operand.sizes.size();
    for (std::size_t d = 0; d < operand.sizes.size(); ++d) {
      const bool is_repeated = operand.sizes[d] == Int(1) && sizes[first + d] != Int(1);
      if (!is_repeated) full[i][first + d] = operand.strides[d];
    }
  }
  std::array<std::size_t, Dims::kMost> order;
  for (std::size_t i = 0; i < rank; ++i) order[i] = rank - 1 - i;
  const std::span<std::size_t> used(order.data(), rank);
  const bool is_sorted = sort_dims(used, [&](std::size_t a, std::size_t b) -> std::optional<int> {
    for (std::size_t i = 0; i < count_; ++i) {
      const std::optional<int> answer = compare_dims(call, sizes, full[i], a, b);
      if (!answer || *answer != 0) return answer;
    }
    return 0;
  });
  if (!is_sorted) return false;
  bool is_plain = true;
  for (std::size_t i = 0; i < rank; ++i) is_plain = is_plain && order[i] == rank - 1 - i;
  if (is_plain) {
    strides = make_contiguous_strides(call, sizes);
    return true;
  }
  strides = Dims(rank, 0);
  Int step = 1;
  for (const std::size_t d : used) {
    strides[d] = step;
    step = call.symbols.multiply(step, sizes[d]);
  }
  return true;
}

bool Operands::add_result(RuleCall& call, DType dtype) {
  Dims sizes, strides;
  return device_ && compute(call, sizes, strides) && add_tensor(call, sizes, strides, dtype, *device_);
}

}  // namespace reprise::graph
