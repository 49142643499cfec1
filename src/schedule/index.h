// Affine functions of the loop variables of a group, and how one way to count elements is turned into another.
//
// A VarIndex is constant + sum of by_var[v] * variable v: the index of one dimension of an op, or the position of an
// element in a storage. decompose() finds, for a position and a dense layout (strides and sizes), the index of each
// dimension; if a variable runs through more than one dimension, it says how to split that variable. That one function
// carries reshapes, permutations, slices, diagonals and broadcasts: it looks at strides only, never at the view op.
// Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lower/lowered.h"

namespace reprise::schedule {

inline constexpr std::size_t kMaxVars = 12;

struct VarIndex {
  std::int64_t constant = 0;
  std::array<std::int64_t, kMaxVars> by_var{};

  bool operator==(const VarIndex&) const = default;
  VarIndex& add(const VarIndex& other, std::int64_t factor) {
    constant += other.constant * factor;
    for (std::size_t v = 0; v < kMaxVars; ++v) by_var[v] += other.by_var[v] * factor;
    return *this;
  }
  // Bit v: the function depends on variable v.
  std::uint32_t get_vars() const {
    std::uint32_t mask = 0;
    for (std::size_t v = 0; v < kMaxVars; ++v) mask |= static_cast<std::uint32_t>(by_var[v] != 0) << v;
    return mask;
  }
};

using Indexes = std::array<VarIndex, lower::kMaxRank>;  // one a dimension of an op

// Sizes of the variables.
struct VarSpace {
  std::array<std::int64_t, kMaxVars> sizes{};
  std::uint8_t count = 0;
};

enum class Outcome : std::uint8_t { Done, Split, Failed };

struct Decomposition {
  Outcome outcome = Outcome::Failed;
  std::uint8_t var = 0;  // Split: variable `var` = factor * (what it becomes) + a new variable below `factor`
  std::int64_t factor = 0;
  Indexes indexes;
};

// `position` as sum of strides[d] * index[d] + base, with 0 <= index[d] < sizes[d] everywhere.
Decomposition decompose(const VarIndex& position, const VarSpace& space, std::int64_t base,
                        std::span<const std::int64_t> strides, std::span<const std::int64_t> sizes);

// Whether every element of the box of `sizes` is met by exactly one assignment of the variables of `vars`.
bool is_bijection(const Indexes& indexes, std::span<const std::int64_t> sizes, const VarSpace& space,
                  std::uint32_t vars);

// The position that an access of an op has, given the indexes of the op's dimensions.
VarIndex compose(std::int64_t constant, std::span<const std::int64_t> by_dim, const Indexes& indexes);

// Variable `var` becomes factor * var + `fresh`.
void split(VarIndex& index, std::size_t var, std::int64_t factor, std::size_t fresh);

}  // namespace reprise::schedule
