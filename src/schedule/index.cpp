#include "schedule/index.h"

#include <algorithm>

namespace reprise::schedule {

Decomposition decompose(const VarIndex& position, const VarSpace& space, std::int64_t base,
                        std::span<const std::int64_t> strides, std::span<const std::int64_t> sizes) {
  Decomposition result;
  std::array<std::uint8_t, lower::kMaxRank> order{};
  std::size_t count = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    if (strides[d] <= 0 || sizes[d] == 0) return result;
    order[count++] = static_cast<std::uint8_t>(d);
  }
  std::stable_sort(order.begin(), order.begin() + count,
                   [&](std::uint8_t a, std::uint8_t b) { return strides[a] > strides[b]; });

  std::int64_t rest = position.constant - base;
  if (rest < 0) return result;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t d = order[k];
    const std::int64_t index = std::min(rest / strides[d], sizes[d] - 1);
    result.indexes[d].constant = index;
    rest -= index * strides[d];
  }
  if (rest != 0) return result;

  for (std::size_t v = 0; v < space.count; ++v) {
    std::int64_t step = position.by_var[v];
    if (step == 0 || space.sizes[v] == 1) continue;
    if (step < 0) return result;
    for (std::size_t k = 0; k < count && step != 0; ++k) {
      const std::size_t d = order[k];
      result.indexes[d].by_var[v] = step / strides[d];
      step %= strides[d];
    }
    if (step != 0) return result;
  }

  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t d = order[k];
    const VarIndex& index = result.indexes[d];
    std::int64_t most = index.constant;
    for (std::size_t v = 0; v < space.count; ++v)
      most += index.by_var[v] * std::max<std::int64_t>(space.sizes[v] - 1, 0);
    if (most < sizes[d]) continue;
    // A variable that runs beyond this dimension: what is left of it goes to the dimension outside.
    for (std::size_t v = 0; v < space.count && index.constant == 0; ++v) {
      const std::int64_t step = index.by_var[v];
      if (step == 0 || step * space.sizes[v] <= sizes[d] || sizes[d] % step != 0) continue;
      const std::int64_t factor = sizes[d] / step;
      if (factor <= 1 || space.sizes[v] % factor != 0 || space.count >= kMaxVars) continue;
      result.outcome = Outcome::Split;
      result.var = static_cast<std::uint8_t>(v);
      result.factor = factor;
      return result;
    }
    return result;
  }
  result.outcome = Outcome::Done;
  return result;
}

bool is_bijection(const Indexes& indexes, std::span<const std::int64_t> sizes, const VarSpace& space,
                  std::uint32_t vars) {
  std::uint32_t used = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const VarIndex& index = indexes[d];
    if (index.constant != 0) return false;
    std::uint32_t left = index.get_vars();
    if ((left & used) != 0) return false;
    used |= left;
    std::int64_t expected = 1;  // mixed radix: the steps are the products of the sizes below
    while (left != 0) {
      bool is_found = false;
      for (std::size_t v = 0; v < space.count; ++v) {
        if ((left >> v & 1) == 0 || index.by_var[v] != expected || space.sizes[v] == 1) continue;
        expected *= space.sizes[v];
        left &= ~(1u << v);
        is_found = true;
        break;
      }
      if (!is_found) return false;
    }
    if (expected != sizes[d]) return false;
  }
  std::uint32_t needed = 0;
  for (std::size_t v = 0; v < space.count; ++v) {
    if (space.sizes[v] != 1) needed |= vars & (1u << v);
  }
  return used == needed;
}

VarIndex compose(std::int64_t constant, std::span<const std::int64_t> by_dim, const Indexes& indexes) {
  VarIndex position;
  position.constant = constant;
  for (std::size_t d = 0; d < by_dim.size(); ++d) {
    if (by_dim[d] != 0) position.add(indexes[d], by_dim[d]);
  }
  return position;
}

void split(VarIndex& index, std::size_t var, std::int64_t factor, std::size_t fresh) {
  index.by_var[fresh] = index.by_var[var];
  index.by_var[var] *= factor;
}

}  // namespace reprise::schedule
