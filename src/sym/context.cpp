#include "sym/context.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"

namespace reprise::sym {

namespace {

__extension__ typedef __int128 Int128;

constexpr std::int64_t kLowest = Range::kNoLeast;
constexpr std::int64_t kHighest = Range::kNoMost;

std::int64_t clamp_to_word(Int128 value) {
  if (value <= kLowest) return kLowest;
  if (value >= kHighest) return kHighest;
  return static_cast<std::int64_t>(value);
}

// Arithmetic of range ends: an end of int64_t is "no bound" and stays one.
std::int64_t add_ends(std::int64_t a, std::int64_t b) {
  if (a == kLowest || b == kLowest) return kLowest;
  if (a == kHighest || b == kHighest) return kHighest;
  return clamp_to_word(Int128{a} + b);
}

std::int64_t multiply_ends(std::int64_t a, std::int64_t b) { return clamp_to_word(Int128{a} * b); }

Range add_ranges(Range a, Range b) { return {add_ends(a.least, b.least), add_ends(a.most, b.most)}; }

Range multiply_ranges(Range a, Range b) {
  const auto [least, most] = std::minmax({multiply_ends(a.least, b.least), multiply_ends(a.least, b.most),
                                          multiply_ends(a.most, b.least), multiply_ends(a.most, b.most)});
  return {least, most};
}

std::int64_t floor_divide_words(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

std::int64_t modulo_words(std::int64_t a, std::int64_t b) { return a - floor_divide_words(a, b) * b; }

// A word that is a constant; an internal error if it would be taken for an expression.
Int make_constant(Int128 value) {
  REPRISE_CHECK(value >= Int::kLeastConstant && value <= kHighest, "an integer of a shape does not fit in 64 bits");
  return Int(static_cast<std::int64_t>(value));
}

std::int64_t multiply_exactly(std::int64_t a, std::int64_t b) { return make_constant(Int128{a} * b).get_word(); }
std::int64_t add_exactly(std::int64_t a, std::int64_t b) { return make_constant(Int128{a} + b).get_word(); }

}  // namespace

Context::Context() = default;
Context::~Context() = default;

// --- symbols ---------------------------------------------------------------------------------------------------------

SymbolId Context::make_symbol(std::string_view name, Range range, std::optional<std::int64_t> hint) {
  REPRISE_CHECK(!find_symbol(name), "symbol " + std::string(name) + " is made twice");
  const SymbolId id(static_cast<std::uint32_t>(symbols_.size()));
  symbols_.push_back({arena_.copy(name), range, hint});
  return id;
}

std::optional<SymbolId> Context::find_symbol(std::string_view name) const {
  for (std::size_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].name == name) return SymbolId(static_cast<std::uint32_t>(i));
  }
  return std::nullopt;
}

Int Context::get_int(SymbolId symbol) { return make_atom(AtomKind::Symbol, symbol.index(), 0); }

// --- normal form -----------------------------------------------------------------------------------------------------

int Context::compare_atoms(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

Context::Polynomial Context::get_polynomial(Int a) const {
  if (a.is_constant()) return {a.get_word(), {}, {a.get_word(), a.get_word()}};
  return polynomials_[a.get_expression()];
}

Range Context::get_range(Int a) const { return get_polynomial(a).range; }

Range Context::compute_range(std::int64_t constant, std::span<const Term> terms) const {
  Range sum = {constant, constant};
  for (const Term& term : terms) {
    Range product = {term.coefficient, term.coefficient};
    for (const std::uint32_t atom : term.atoms) product = multiply_ranges(product, atoms_[atom].range);
    sum = add_ranges(sum, product);
  }
  return sum;
}

Int Context::make_polynomial(std::int64_t constant, std::vector<Term>& terms) {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return compare_atoms(a.atoms, b.atoms) < 0; });
  std::size_t count = 0;
  for (const Term& term : terms) {
    if (count > 0 && compare_atoms(terms[count - 1].atoms, term.atoms) == 0) {
      terms[count - 1].coefficient = add_exactly(terms[count - 1].coefficient, term.coefficient);
    } else {
      if (count > 0 && terms[count - 1].coefficient == 0) --count;
      terms[count++] = term;
    }
  }
  if (count > 0 && terms[count - 1].coefficient == 0) --count;
  terms.resize(count);
  if (terms.empty()) return Int(constant);

  base::Hasher hasher;
  hasher.add(constant);
  for (const Term& term : terms) {
    hasher.add(term.coefficient).add(term.atoms.size());
    for (const std::uint32_t atom : term.atoms) hasher.add(atom);
  }
  const std::uint64_t hash = hasher.finish();
  const auto [first, last] = polynomial_index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Polynomial& known = polynomials_[it->second];
    const auto is_same = [](const Term& a, const Term& b) {
      return a.coefficient == b.coefficient && compare_atoms(a.atoms, b.atoms) == 0;
    };
    if (known.constant == constant &&
        std::equal(known.terms.begin(), known.terms.end(), terms.begin(), terms.end(), is_same))
      return Int::make_expression(it->second);
  }
  const std::uint32_t index = static_cast<std::uint32_t>(polynomials_.size());
  for (Term& term : terms) term.atoms = arena_.copy(term.atoms);
  const std::span<const Term> kept = arena_.copy(std::span<const Term>(terms));
  polynomials_.push_back({constant, kept, compute_range(constant, kept)});
  polynomial_index_.emplace(hash, index);
  return Int::make_expression(index);
}

Range Context::compute_atom_range(AtomKind kind, Int a, Int b) const {
  if (kind == AtomKind::Symbol) return symbols_[static_cast<std::size_t>(a.get_word())].range;
  const Range x = get_range(a);
  const Range y = get_range(b);
  switch (kind) {
    case AtomKind::Symbol:
      break;
    case AtomKind::FloorDivide: {
      if (y.least <= 0) return {};
      const auto divide = [](std::int64_t number, std::int64_t divisor) {
        if (number == kLowest || number == kHighest) return number;
        if (divisor == kHighest) return number < 0 ? std::int64_t{-1} : std::int64_t{0};
        return floor_divide_words(number, divisor);
      };
      return {divide(x.least, x.least < 0 ? y.least : y.most), divide(x.most, x.most < 0 ? y.most : y.least)};
    }
    case AtomKind::Modulo:
      if (y.least <= 0) return {};
      return {0, std::min(x.least >= 0 ? x.most : kHighest, y.most == kHighest ? kHighest : y.most - 1)};
    case AtomKind::Min:
      return {std::min(x.least, y.least), std::min(x.most, y.most)};
    case AtomKind::Max:
      return {std::max(x.least, y.least), std::max(x.most, y.most)};
  }
  REPRISE_UNREACHABLE("atom kind " + std::to_string(static_cast<int>(kind)));
}

Int Context::make_atom(AtomKind kind, Int a, Int b) {
  const std::uint64_t hash = base::Hasher().add(kind).add(a.get_word()).add(b.get_word()).finish();
  std::uint32_t index = static_cast<std::uint32_t>(atoms_.size());
  const auto [first, last] = atom_index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Atom& known = atoms_[it->second];
    if (known.kind == kind && known.a == a && known.b == b) index = it->second;
  }
  if (index == atoms_.size()) {
    atoms_.push_back({kind, a, b, compute_atom_range(kind, a, b)});
    atom_index_.emplace(hash, index);
  }
  std::vector<Term> terms = {{1, {&index, 1}}};
  return make_polynomial(0, terms);
}

// --- arithmetic ------------------------------------------------------------------------------------------------------

Int Context::add_slowly(Int a, Int b, std::int64_t sign) {
  const Polynomial x = get_polynomial(a);
  const Polynomial y = get_polynomial(b);
  std::vector<Term> terms(x.terms.begin(), x.terms.end());
  for (const Term& term : y.terms) terms.push_back({multiply_exactly(term.coefficient, sign), term.atoms});
  return make_polynomial(add_exactly(x.constant, multiply_exactly(y.constant, sign)), terms);
}

Int Context::multiply_slowly(Int a, Int b) {
  const Polynomial x = get_polynomial(a);
  const Polynomial y = get_polynomial(b);
  std::vector<Term> terms;
  const auto add_term = [&](std::int64_t coefficient, std::span<const std::uint32_t> p,
                            std::span<const std::uint32_t> q) {
    if (coefficient == 0) return;
    const std::span<std::uint32_t> atoms = arena_.make_array<std::uint32_t>(p.size() + q.size());
    std::merge(p.begin(), p.end(), q.begin(), q.end(), atoms.begin());
    terms.push_back({coefficient, atoms});
  };
  for (const Term& p : x.terms) {
    for (const Term& q : y.terms) add_term(multiply_exactly(p.coefficient, q.coefficient), p.atoms, q.atoms);
    add_term(multiply_exactly(p.coefficient, y.constant), p.atoms, {});
  }
  for (const Term& q : y.terms) add_term(multiply_exactly(x.constant, q.coefficient), {}, q.atoms);
  return make_polynomial(multiply_exactly(x.constant, y.constant), terms);
}

Int Context::product(std::span<const Int> factors) {
  Int result = 1;
  for (const Int factor : factors) result = multiply(result, factor);
  return result;
}

// a = quotient * b + rest, by exact division of terms. True if something was divided.
// b is a constant or one term without a constant.
bool Context::divide_terms(Int a, Int b, Int& quotient, Int& rest) {
  const Polynomial x = get_polynomial(a);
  const Polynomial y = get_polynomial(b);
  if (y.terms.size() > 1 || (y.terms.size() == 1 && y.constant != 0)) return false;
  const Term divisor = y.terms.empty() ? Term{y.constant, {}} : y.terms[0];
  std::vector<Term> divided;
  std::vector<Term> kept;
  for (const Term& term : x.terms) {
    const bool is_multiple =
        term.coefficient % divisor.coefficient == 0 &&
        std::includes(term.atoms.begin(), term.atoms.end(), divisor.atoms.begin(), divisor.atoms.end());
    if (!is_multiple) {
      kept.push_back(term);
      continue;
    }
    const std::span<std::uint32_t> atoms = arena_.make_array<std::uint32_t>(term.atoms.size() - divisor.atoms.size());
    std::set_difference(term.atoms.begin(), term.atoms.end(), divisor.atoms.begin(), divisor.atoms.end(),
                        atoms.begin());
    divided.push_back({term.coefficient / divisor.coefficient, atoms});
  }
  std::int64_t divided_constant = 0;
  std::int64_t kept_constant = x.constant;
  for (std::size_t i = 0; i < divided.size(); ++i) {
    if (!divided[i].atoms.empty()) continue;
    divided_constant += divided[i].coefficient;
    divided.erase(divided.begin() + static_cast<std::ptrdiff_t>(i));
    break;  // at most one: the terms were different
  }
  if (divisor.atoms.empty()) {
    const std::int64_t part = floor_divide_words(x.constant, divisor.coefficient);
    divided_constant += part;
    kept_constant = x.constant - part * divisor.coefficient;
  }
  if (divided.empty() && divided_constant == 0) return false;
  quotient = make_polynomial(divided_constant, divided);
  rest = make_polynomial(kept_constant, kept);
  return true;
}

// The greatest constant that divides every coefficient, the constant included.
std::int64_t Context::get_content(Int a) const {
  const Polynomial x = get_polynomial(a);
  std::int64_t content = x.constant < 0 ? -x.constant : x.constant;
  for (const Term& term : x.terms) content = std::gcd(content, term.coefficient);
  return content;
}

bool Context::is_in_divisor(Int rest, Int b) {
  if (get_range(b).least <= 0) return false;
  return get_range(rest).least >= 0 && get_range(subtract(b, rest)).least > 0;
}

Int Context::floor_divide(Int a, Int b) {
  if (a.is_constant() && b.is_constant()) {
    REPRISE_CHECK(b.get_word() != 0, "division of " + std::to_string(a.get_word()) + " by zero");
    return make_constant(b.get_word() == -1 ? -Int128{a.get_word()} : floor_divide_words(a.get_word(), b.get_word()));
  }
  REPRISE_CHECK(b != Int(0), "division of " + print(a) + " by zero");
  if (b == Int(1) || a == Int(0)) return a;
  if (a == b && get_range(b).least > 0) return 1;
  // (q*b + r)//b -> q + r//b
  Int quotient, rest;
  if (divide_terms(a, b, quotient, rest)) return add(quotient, floor_divide(rest, b));
  // r//b -> 0, for 0 <= r < b
  if (is_in_divisor(a, b)) return 0;
  if (b.is_constant() && b.get_word() > 0) {
    // (g*r)//(g*b) -> r//b
    if (const std::int64_t common = std::gcd(get_content(a), b.get_word()); common > 1)
      return floor_divide(floor_divide(a, common), b.get_word() / common);
    // (x//c)//b -> x//(c*b), for c, b > 0
    const Polynomial x = get_polynomial(a);
    if (x.constant == 0 && x.terms.size() == 1 && x.terms[0].coefficient == 1 && x.terms[0].atoms.size() == 1) {
      const Atom inner = atoms_[x.terms[0].atoms[0]];
      if (inner.kind == AtomKind::FloorDivide && inner.b.is_constant() && inner.b.get_word() > 0)
        return floor_divide(inner.a, multiply(inner.b, b));
    }
  }
  return make_atom(AtomKind::FloorDivide, a, b);
}

Int Context::modulo(Int a, Int b) {
  if (a.is_constant() && b.is_constant()) {
    REPRISE_CHECK(b.get_word() != 0, "remainder of " + std::to_string(a.get_word()) + " by zero");
    return b.get_word() == -1 ? Int(0) : make_constant(modulo_words(a.get_word(), b.get_word()));
  }
  REPRISE_CHECK(b != Int(0), "remainder of " + print(a) + " by zero");
  if (b == Int(1) || a == Int(0) || a == b) return 0;
  // (q*b + r)%b -> r%b
  Int quotient, rest;
  if (divide_terms(a, b, quotient, rest)) return modulo(rest, b);
  // r%b -> r, for 0 <= r < b
  if (is_in_divisor(a, b)) return a;
  // (g*r)%(g*b) -> g*(r%b), for g, b > 0
  if (b.is_constant() && b.get_word() > 0) {
    if (const std::int64_t common = std::gcd(get_content(a), b.get_word()); common > 1)
      return multiply(common, modulo(floor_divide(a, common), b.get_word() / common));
  }
  return make_atom(AtomKind::Modulo, a, b);
}

Int Context::min(Int a, Int b) {
  if (a == b) return a;
  const Range difference = get_range(subtract(b, a));
  if (difference.least >= 0) return a;
  if (difference.most <= 0) return b;
  if (a.get_word() > b.get_word()) std::swap(a, b);
  return make_atom(AtomKind::Min, a, b);
}

Int Context::max(Int a, Int b) {
  if (a == b) return a;
  const Range difference = get_range(subtract(b, a));
  if (difference.least >= 0) return b;
  if (difference.most <= 0) return a;
  if (a.get_word() > b.get_word()) std::swap(a, b);
  return make_atom(AtomKind::Max, a, b);
}

// --- questions and facts ---------------------------------------------------------------------------------------------

bool Context::is_at_least_zero(Int difference) {
  if (get_range(difference).least >= 0) return true;
  for (Fact& fact : facts_) {
    const bool follows = get_range(subtract(difference, fact.subject)).least >= 0 ||
                         (fact.kind == FactKind::Zero && get_range(add(difference, fact.subject)).least >= 0);
    if (!follows) continue;
    fact.used = true;
    return true;
  }
  return false;
}

Answer Context::is_less_slowly(Int a, Int b) {
  const Int difference = subtract(b, a);
  if (is_at_least_zero(subtract(difference, 1))) return Answer::Yes;
  if (is_at_least_zero(negate(difference))) return Answer::No;
  return Answer::Unknown;
}

Answer Context::is_equal_slowly(Int a, Int b) {
  const Int difference = subtract(b, a);
  if (is_at_least_zero(subtract(difference, 1)) || is_at_least_zero(subtract(negate(difference), 1))) return Answer::No;
  if (is_at_least_zero(difference) && is_at_least_zero(negate(difference))) return Answer::Yes;
  return Answer::Unknown;
}

void Context::assume_equal(Int a, Int b) { facts_.push_back({FactKind::Zero, subtract(a, b)}); }
void Context::assume_less_equal(Int a, Int b) { facts_.push_back({FactKind::AtLeastZero, subtract(b, a)}); }

// --- values ----------------------------------------------------------------------------------------------------------

std::optional<std::int64_t> Context::evaluate_atom(const Atom& atom, std::span<const std::int64_t> values) const {
  if (atom.kind == AtomKind::Symbol) {
    const std::size_t index = static_cast<std::size_t>(atom.a.get_word());
    return index < values.size() ? std::optional(values[index]) : std::nullopt;
  }
  const std::optional<std::int64_t> a = evaluate(atom.a, values);
  const std::optional<std::int64_t> b = evaluate(atom.b, values);
  if (!a || !b) return std::nullopt;
  switch (atom.kind) {
    case AtomKind::Symbol:
      break;
    case AtomKind::FloorDivide:
      if (*b == 0 || (*b == -1 && *a == kLowest)) return std::nullopt;
      return floor_divide_words(*a, *b);
    case AtomKind::Modulo:
      if (*b == 0) return std::nullopt;
      return *b == -1 ? 0 : modulo_words(*a, *b);
    case AtomKind::Min:
      return std::min(*a, *b);
    case AtomKind::Max:
      return std::max(*a, *b);
  }
  REPRISE_UNREACHABLE("atom kind " + std::to_string(static_cast<int>(atom.kind)));
}

std::optional<std::int64_t> Context::evaluate(Int a, std::span<const std::int64_t> values) const {
  if (a.is_constant()) return a.get_word();
  const Polynomial& x = polynomials_[a.get_expression()];
  std::int64_t sum = x.constant;
  for (const Term& term : x.terms) {
    std::int64_t product = term.coefficient;
    for (const std::uint32_t atom : term.atoms) {
      const std::optional<std::int64_t> value = evaluate_atom(atoms_[atom], values);
      if (!value || __builtin_mul_overflow(product, *value, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

std::optional<std::int64_t> Context::evaluate_hint(Int a) const {
  if (a.is_constant()) return a.get_word();
  std::vector<SymbolId> used;
  collect_symbols(a, used);
  std::vector<std::int64_t> values(symbols_.size(), 0);
  for (const SymbolId symbol : used) {
    const std::optional<std::int64_t> hint = symbols_[symbol.index()].hint;
    if (!hint) return std::nullopt;
    values[symbol.index()] = *hint;
  }
  return evaluate(a, values);
}

void Context::mark_symbols(Int a, std::vector<bool>& found) const {
  if (a.is_constant()) return;
  for (const Term& term : polynomials_[a.get_expression()].terms) {
    for (const std::uint32_t index : term.atoms) {
      const Atom& atom = atoms_[index];
      if (atom.kind == AtomKind::Symbol) {
        found[static_cast<std::size_t>(atom.a.get_word())] = true;
      } else {
        mark_symbols(atom.a, found);
        mark_symbols(atom.b, found);
      }
    }
  }
}

void Context::collect_symbols(Int a, std::vector<SymbolId>& symbols) const {
  if (a.is_constant()) return;
  std::vector<bool> found(symbols_.size(), false);
  mark_symbols(a, found);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i]) symbols.push_back(SymbolId(static_cast<std::uint32_t>(i)));
  }
}

}  // namespace reprise::sym
