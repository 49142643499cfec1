// Id<Tag>: a 32-bit handle into a table, typed by its tag so that handles of two tables do not mix.
//
//   struct ValueTag; using ValueId = base::Id<ValueTag>;
//
// A default-constructed Id is invalid. Plain value; ordered and hashable by index.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace reprise::base {

template <class Tag>
class Id {
 public:
  static constexpr std::uint32_t kInvalidIndex = 0xffffffffu;

  constexpr Id() = default;
  constexpr explicit Id(std::uint32_t index) : index_(index) {}

  constexpr bool is_valid() const { return index_ != kInvalidIndex; }
  constexpr std::uint32_t index() const { return index_; }

  constexpr auto operator<=>(const Id&) const = default;

 private:
  std::uint32_t index_ = kInvalidIndex;
};

}  // namespace reprise::base

template <class Tag>
struct std::hash<reprise::base::Id<Tag>> {
  std::size_t operator()(reprise::base::Id<Tag> id) const noexcept { return id.index(); }
};
