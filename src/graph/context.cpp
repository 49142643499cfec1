#include "graph/context.h"

#include "base/check.h"

namespace reprise::graph {

Context::Context() = default;
Context::~Context() = default;

OpId Context::intern_op(std::string_view name, bool is_random) {
  if (const auto known = find_known_op(name)) return *known;
  if (const auto found = extern_ids_.find(name); found != extern_ids_.end()) return found->second;
  const std::string_view kept = arena_.copy(name);
  const auto index = static_cast<std::uint32_t>(extern_names_.size());
  const OpId op = static_cast<OpId>((kKnownOpCount + index) | (is_random ? kExternRandom : 0));
  extern_names_.push_back(kept);
  extern_ids_.emplace(kept, op);
  return op;
}

std::string_view Context::get_op_name(OpId op) const {
  if (is_known(op)) return get_op_info(op).name;
  const std::size_t index = (static_cast<std::uint32_t>(op) & ~kExternRandom) - kKnownOpCount;
  REPRISE_CHECK(index < extern_names_.size(), "op " + std::to_string(static_cast<std::uint32_t>(op)));
  return extern_names_[index];
}

Arg Context::make_int_list(std::span<const sym::Int> elements) {
  const std::span<Arg> list = arena_.make_array<Arg>(elements.size());
  for (std::size_t i = 0; i < elements.size(); ++i) list[i] = Arg::make_int(elements[i]);
  return Arg::make_list(list);
}

TensorMeta Context::make_meta(std::span<const sym::Int> sizes, std::span<const sym::Int> strides, types::DType dtype,
                              types::Device device, sym::Int offset, StorageId storage) {
  REPRISE_CHECK(sizes.size() == strides.size() && sizes.size() < 256,
                std::to_string(sizes.size()) + " sizes, " + std::to_string(strides.size()) + " strides");
  const std::span<sym::Int> both = arena_.make_array<sym::Int>(2 * sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    both[i] = sizes[i];
    both[sizes.size() + i] = strides[i];
  }
  TensorMeta meta;
  meta.sizes_and_strides = both.data();
  meta.offset = offset;
  meta.storage = storage.is_valid() ? storage : make_storage();
  meta.device = device;
  meta.rank = static_cast<std::uint8_t>(sizes.size());
  meta.dtype = dtype;
  return meta;
}

TensorMeta Context::make_meta(std::span<const sym::Int> sizes, types::DType dtype, types::Device device) {
  TensorMeta meta = make_meta(sizes, sizes, dtype, device);
  sym::Int* strides = const_cast<sym::Int*>(meta.strides().data());  // fresh, nobody else has seen it
  sym::Int step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step = symbols_.multiply(step, symbols_.max(sizes[i], 1));
  }
  return meta;
}

}  // namespace reprise::graph
