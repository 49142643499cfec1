// Hashing that gives the same value in every process and on every run, so it may name things on disk.
//
// hash_bytes() is the folded 128-bit multiply of wyhash over 16 bytes a step; not against an adversary.
// Hasher feeds several fields in order; integers are fed as 8 bytes, texts with their length, so that
// ("ab", "c") and ("a", "bc") differ.
// WideHasher gives 128 bits, from two chains that have nothing in common: for names that stand for what they name (code
// that is not compiled again), where a collision would be a wrong answer. Use Hasher where equality is checked.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace reprise::base {

namespace detail {

__extension__ typedef unsigned __int128 Uint128;

inline std::uint64_t fold_multiply(std::uint64_t a, std::uint64_t b) noexcept {
  const Uint128 product = static_cast<Uint128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline constexpr std::uint64_t kHashSecret0 = 0xa0761d6478bd642full;
inline constexpr std::uint64_t kHashSecret1 = 0xe7037ed1a0b428dbull;
inline constexpr std::uint64_t kHashSecret2 = 0x8ebc6af09c88c6e3ull;
inline constexpr std::uint64_t kHashSecret3 = 0x589965cc75374cc3ull;

}  // namespace detail

inline std::uint64_t hash_combine(std::uint64_t seed, std::uint64_t value) noexcept {
  return detail::fold_multiply(seed ^ detail::kHashSecret0, value ^ detail::kHashSecret1);
}

inline std::uint64_t hash_bytes(const void* data, std::size_t size_bytes, std::uint64_t seed = 0) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t hash = hash_combine(seed, size_bytes);
  while (size_bytes > 0) {
    std::uint64_t words[2] = {0, 0};
    const std::size_t step = size_bytes < 16 ? size_bytes : 16;
    std::memcpy(words, bytes, step);
    hash = detail::fold_multiply(words[0] ^ hash ^ detail::kHashSecret0, words[1] ^ detail::kHashSecret1);
    bytes += step;
    size_bytes -= step;
  }
  return detail::fold_multiply(hash ^ detail::kHashSecret0, detail::kHashSecret1);
}

class Hasher {
 public:
  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  Hasher& add(T value) noexcept {
    state_ = hash_combine(state_, static_cast<std::uint64_t>(value));
    return *this;
  }
  Hasher& add(std::string_view text) noexcept {
    state_ = hash_bytes(text.data(), text.size(), state_);
    return *this;
  }

  std::uint64_t finish() const noexcept {
    return detail::fold_multiply(state_ ^ detail::kHashSecret1, detail::kHashSecret0);
  }

 private:
  std::uint64_t state_ = 0;
};

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  auto operator<=>(const Hash128&) const = default;
  // 32 hexadecimal digits.
  std::string get_text() const {
    std::string text;
    for (const std::uint64_t word : {high, low}) {
      for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(word >> shift) & 0xf];
    }
    return text;
  }
};

class WideHasher {
 public:
  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  WideHasher& add(T value) noexcept {
    low_.add(value);
    high_ = detail::fold_multiply(high_ ^ detail::kHashSecret2,
                                  std::rotl(static_cast<std::uint64_t>(value), 32) ^ detail::kHashSecret3);
    return *this;
  }
  WideHasher& add(std::string_view text) noexcept {
    low_.add(text);
    return add(hash_bytes(text.data(), text.size(), high_));
  }
  WideHasher& add(const Hash128& hash) noexcept { return add(hash.low).add(hash.high); }

  Hash128 finish() const noexcept {
    return {low_.finish(), detail::fold_multiply(high_ ^ detail::kHashSecret3, detail::kHashSecret2)};
  }

 private:
  Hasher low_;
  std::uint64_t high_ = 0;
};

}  // namespace reprise::base

template <>
struct std::hash<reprise::base::Hash128> {
  std::size_t operator()(const reprise::base::Hash128& hash) const noexcept { return hash.low; }
};
