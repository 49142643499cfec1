// sym::Int: a size, stride, offset or other integer of a trace: a 64-bit word.
//
// It is a constant (the word is the number) or an expression of a sym::Context (the word is a handle). Constants cost
// what an int64_t costs; arithmetic that may meet expressions goes through the context: ctx.add(a, b) and so on, whose
// inline part is the constant case. The 2^32 lowest numbers of an int64_t stand for expressions and cannot be
// constants. Expressions are interned and kept in a normal form, so == (equal words) means equal for every value of the
// symbols;
// != means nothing: ask ctx.is_equal(). Words of two contexts must not be mixed. Plain value, safe to share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>

#include "base/check.h"

namespace reprise::sym {

class Int {
 public:
  constexpr Int() = default;
  constexpr Int(std::int64_t value) : word_(value) {  // NOLINT: implicit
    if (value < kLeastConstant) [[unlikely]]
      fail_constant(value);
  }

  // The expression with this index in its context.
  static constexpr Int make_expression(std::uint32_t index) {
    Int result;
    result.word_ = std::numeric_limits<std::int64_t>::min() + static_cast<std::int64_t>(index);
    return result;
  }
  static constexpr Int make_from_word(std::int64_t word) {
    Int result;
    result.word_ = word;
    return result;
  }

  constexpr bool is_constant() const { return word_ >= kLeastConstant; }
  constexpr bool is_constant(std::int64_t value) const { return word_ == value; }
  std::int64_t get_constant() const {
    REPRISE_CHECK(is_constant(), "the integer is the expression " + std::to_string(get_expression()));
    return word_;
  }
  constexpr std::uint32_t get_expression() const {
    return static_cast<std::uint32_t>(word_ - std::numeric_limits<std::int64_t>::min());
  }
  constexpr std::int64_t get_word() const { return word_; }

  constexpr bool operator==(const Int&) const = default;

  static constexpr std::int64_t kLeastConstant = std::numeric_limits<std::int64_t>::min() + (std::int64_t{1} << 32);

 private:
  static void fail_constant(std::int64_t value) {
    REPRISE_CHECK(value >= kLeastConstant, "the number " + std::to_string(value) + " stands for an expression");
  }

  std::int64_t word_ = 0;
};

// What is known of a comparison.
enum class Answer : std::uint8_t { No, Yes, Unknown };

constexpr Answer make_answer(bool yes) { return yes ? Answer::Yes : Answer::No; }
constexpr bool is_yes(Answer answer) { return answer == Answer::Yes; }
constexpr bool is_no(Answer answer) { return answer == Answer::No; }

constexpr bool are_constant(std::span<const Int> numbers) {
  for (const Int number : numbers) {
    if (!number.is_constant()) return false;
  }
  return true;
}

}  // namespace reprise::sym

template <>
struct std::hash<reprise::sym::Int> {
  std::size_t operator()(reprise::sym::Int number) const noexcept {
    return static_cast<std::size_t>(number.get_word());
  }
};
