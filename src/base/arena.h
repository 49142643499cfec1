// Arena: memory for many small objects that die together.
//
// allocate() bumps a pointer in a block; blocks double up to kMaxBlockBytes. Objects must be trivially destructible:
// nothing runs when the arena goes or is reset(). reset() keeps the largest block, so an arena that is used again
// stops calling malloc. One thread at a time. Pointers stay valid until reset() or the end of the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace reprise::base {

class Arena {
 public:
  static constexpr std::size_t kFirstBlockBytes = 4096;
  static constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 20;

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `alignment` is a power of two, at most alignof(std::max_align_t).
  void* allocate(std::size_t size_bytes, std::size_t alignment = alignof(std::max_align_t)) {
    const std::uintptr_t start = (next_ + (alignment - 1)) & ~(std::uintptr_t{alignment} - 1);
    if (start + size_bytes > end_ || next_ == 0) [[unlikely]] {
      REPRISE_CHECK(alignment <= alignof(std::max_align_t), "alignment " + std::to_string(alignment));
      add_block(size_bytes);
      return allocate(size_bytes, alignment);
    }
    next_ = start + size_bytes;
    return reinterpret_cast<void*>(start);
  }

  template <class T, class... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>, "an arena runs no destructors");
    return new (allocate(sizeof(T), alignof(T))) T{std::forward<Args>(args)...};
  }

  // Elements are value-initialised.
  template <class T>
  std::span<T> make_array(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T>, "an arena runs no destructors");
    T* first = static_cast<T*>(allocate(count * sizeof(T), alignof(T)));
    std::uninitialized_value_construct_n(first, count);
    return {first, count};
  }

  template <class T>
  std::span<T> copy(std::span<const T> elements) {
    static_assert(std::is_trivially_copyable_v<T>, "copied as bytes");
    T* first = static_cast<T*>(allocate(elements.size_bytes(), alignof(T)));
    if (!elements.empty()) std::memcpy(first, elements.data(), elements.size_bytes());
    return {first, elements.size()};
  }

  std::string_view copy(std::string_view text) {
    const std::span<char> bytes = copy(std::span<const char>(text.data(), text.size()));
    return {bytes.data(), bytes.size()};
  }

  // Forgets every object.
  void reset() {
    if (blocks_.empty()) return;
    std::swap(blocks_.front(), blocks_.back());
    blocks_.resize(1);
    use_block(blocks_.front());
    reserved_bytes_ = blocks_.front().size_bytes;
  }

  // Bytes taken from malloc, used or not.
  std::size_t reserved_bytes() const { return reserved_bytes_; }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size_bytes = 0;
  };

  void add_block(std::size_t least_bytes) {
    std::size_t size_bytes = blocks_.empty() ? kFirstBlockBytes : blocks_.back().size_bytes * 2;
    if (size_bytes > kMaxBlockBytes) size_bytes = kMaxBlockBytes;
    if (size_bytes < least_bytes + alignof(std::max_align_t)) size_bytes = least_bytes + alignof(std::max_align_t);
    blocks_.push_back(Block{std::make_unique_for_overwrite<std::byte[]>(size_bytes), size_bytes});
    reserved_bytes_ += size_bytes;
    use_block(blocks_.back());
  }

  void use_block(const Block& block) {
    next_ = reinterpret_cast<std::uintptr_t>(block.bytes.get());
    end_ = next_ + block.size_bytes;
  }

  std::uintptr_t next_ = 0;  // 0 before the first block
  std::uintptr_t end_ = 0;
  std::size_t reserved_bytes_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace reprise::base
