// sym::Context: the symbols and expressions of one compilation, what is known of them, and arithmetic on sym::Int.
//
// An expression is a polynomial with integer coefficients over atoms; an atom is a symbol, or floordiv, mod, min or max
// of two expressions. Both are interned. Division is Python's (rounds to minus infinity; a remainder has the divisor's
// sign). A number that does not fit is an internal error.
// What is known: the range of each symbol (from its making), and facts that guards have established (assume_*).
// Questions answer Yes, No or Unknown, and mark the facts that they used: Fact::used. Whoever relies on an answer
// has to guard those. Simplification itself uses ranges only, never facts: it does not depend on their order.
// One thread at a time. A context lives as long as any Int of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/arena.h"
#include "base/export.h"
#include "base/ids.h"
#include "sym/int.h"

namespace reprise::sym {

struct SymbolTag;
using SymbolId = base::Id<SymbolTag>;

// Both ends included; the ends of int64_t mean "no bound".
struct Range {
  static constexpr std::int64_t kNoLeast = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kNoMost = std::numeric_limits<std::int64_t>::max();

  std::int64_t least = kNoLeast;
  std::int64_t most = kNoMost;

  constexpr bool operator==(const Range&) const = default;
};

struct Symbol {
  std::string_view name;
  Range range;
  std::optional<std::int64_t> hint;  // the value that was seen when the trace was recorded
};

enum class FactKind : std::uint8_t { Zero, AtLeastZero };

struct Fact {
  FactKind kind;
  Int subject;
  bool used = false;
};

class REPRISE_EXPORT Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // --- symbols -------------------------------------------------------------------------------------------------------

  // The name is new in this context: a letter, then letters, digits and _.
  SymbolId make_symbol(std::string_view name, Range range = {}, std::optional<std::int64_t> hint = std::nullopt);
  std::optional<SymbolId> find_symbol(std::string_view name) const;
  const Symbol& get_symbol(SymbolId symbol) const { return symbols_[symbol.index()]; }
  std::size_t get_symbol_count() const { return symbols_.size(); }
  Int get_int(SymbolId symbol);

  // --- arithmetic ----------------------------------------------------------------------------------------------------

  Int add(Int a, Int b) {
    std::int64_t result;
    if (a.is_constant() && b.is_constant() && !__builtin_add_overflow(a.get_word(), b.get_word(), &result) &&
        result >= Int::kLeastConstant)
      return Int::make_from_word(result);
    return add_slowly(a, b, 1);
  }
  Int subtract(Int a, Int b) {
    std::int64_t result;
    if (a.is_constant() && b.is_constant() && !__builtin_sub_overflow(a.get_word(), b.get_word(), &result) &&
        result >= Int::kLeastConstant)
      return Int::make_from_word(result);
    return add_slowly(a, b, -1);
  }
  Int multiply(Int a, Int b) {
    std::int64_t result;
    if (a.is_constant() && b.is_constant() && !__builtin_mul_overflow(a.get_word(), b.get_word(), &result) &&
        result >= Int::kLeastConstant)
      return Int::make_from_word(result);
    return multiply_slowly(a, b);
  }
  Int negate(Int a) { return subtract(0, a); }
  // The divisor is not zero.
  Int floor_divide(Int a, Int b);
  Int ceil_divide(Int a, Int b) { return negate(floor_divide(negate(a), b)); }
  Int modulo(Int a, Int b);
  Int min(Int a, Int b);
  Int max(Int a, Int b);
  Int product(std::span<const Int> factors);  // 1 for none

  // --- questions -----------------------------------------------------------------------------------------------------

  Answer is_equal(Int a, Int b) {
    if (a == b) return Answer::Yes;
    if (a.is_constant() && b.is_constant()) return Answer::No;
    return is_equal_slowly(a, b);
  }
  Answer is_less(Int a, Int b) {
    if (a.is_constant() && b.is_constant()) return make_answer(a.get_word() < b.get_word());
    return is_less_slowly(a, b);
  }
  Answer is_less_equal(Int a, Int b) {
    const Answer reverse = is_less(b, a);
    return reverse == Answer::Unknown ? reverse : make_answer(reverse == Answer::No);
  }
  Answer is_divisible(Int a, Int b) { return is_equal(modulo(a, b), 0); }
  Range get_range(Int a) const;

  // --- facts ---------------------------------------------------------------------------------------------------------

  void assume_equal(Int a, Int b);
  void assume_less_equal(Int a, Int b);
  std::span<const Fact> get_facts() const { return facts_; }

  // --- values and text -----------------------------------------------------------------------------------------------

  // `values[i]` is the value of symbol i. Nothing if a step overflows or divides by zero.
  std::optional<std::int64_t> evaluate(Int a, std::span<const std::int64_t> values) const;
  // With the hints of the symbols; nothing if one has none.
  std::optional<std::int64_t> evaluate_hint(Int a) const;
  // Appends the symbols that the expression depends on, each once in this call, in order of their making.
  void collect_symbols(Int a, std::vector<SymbolId>& symbols) const;

  // "s0*s1*4 + 3", "s0//2", "s0%8", "min(s0, 4)". parse() reads what print() wrote (and any expression of + - * // %
  // min max and parentheses over known symbols); it takes what it can from the front of `text`.
  std::string print(Int a) const;
  void print_to(Int a, std::string& out) const;
  std::optional<Int> parse(std::string_view& text);

 private:
  // One summand: coefficient times a product of atoms (sorted by index, repeated for powers).
  struct Term {
    std::int64_t coefficient;
    std::span<const std::uint32_t> atoms;
  };
  struct Polynomial {
    std::int64_t constant;
    std::span<const Term> terms;  // sorted by their atoms; no coefficient is zero
    Range range;
  };
  enum class AtomKind : std::uint8_t { Symbol, FloorDivide, Modulo, Min, Max };
  struct Atom {
    AtomKind kind;
    Int a;  // Symbol: its index
    Int b;
    Range range;
  };
  struct Parser;

  Polynomial get_polynomial(Int a) const;
  Int make_polynomial(std::int64_t constant, std::vector<Term>& terms);
  Int make_atom(AtomKind kind, Int a, Int b);
  Range compute_range(std::int64_t constant, std::span<const Term> terms) const;
  Range compute_atom_range(AtomKind kind, Int a, Int b) const;
  static int compare_atoms(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b);

  bool divide_terms(Int a, Int b, Int& quotient, Int& rest);
  std::int64_t get_content(Int a) const;
  bool is_in_divisor(Int rest, Int b);  // 0 <= rest < b, by ranges

  Int add_slowly(Int a, Int b, std::int64_t sign);
  Int multiply_slowly(Int a, Int b);
  Answer is_equal_slowly(Int a, Int b);
  Answer is_less_slowly(Int a, Int b);
  // Is the difference at least zero, by ranges and then by one fact?
  bool is_at_least_zero(Int difference);
  std::optional<std::int64_t> evaluate_atom(const Atom& atom, std::span<const std::int64_t> values) const;
  void print_atom(const Atom& atom, std::string& out) const;
  void mark_symbols(Int a, std::vector<bool>& found) const;

  base::Arena arena_;
  std::vector<Symbol> symbols_;
  std::vector<Polynomial> polynomials_;
  std::vector<Atom> atoms_;
  std::vector<Fact> facts_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> polynomial_index_;  // by hash of the contents
  std::unordered_multimap<std::uint64_t, std::uint32_t> atom_index_;
};

}  // namespace reprise::sym
