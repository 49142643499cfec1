// Text of expressions, both ways.
#include <cctype>
#include <charconv>

#include "base/check.h"
#include "sym/context.h"

namespace reprise::sym {

void Context::print_atom(const Atom& atom, std::string& out) const {
  const auto print_operand = [&](Int operand) {
    const bool is_simple = operand.is_constant() ? operand.get_word() >= 0 : [&] {
      const Polynomial& x = polynomials_[operand.get_expression()];
      return x.constant == 0 && x.terms.size() == 1 && x.terms[0].coefficient == 1 && x.terms[0].atoms.size() == 1 &&
             atoms_[x.terms[0].atoms[0]].kind == AtomKind::Symbol;
    }();
    if (!is_simple) out += '(';
    print_to(operand, out);
    if (!is_simple) out += ')';
  };
  switch (atom.kind) {
    case AtomKind::Symbol:
      out += symbols_[static_cast<std::size_t>(atom.a.get_word())].name;
      return;
    case AtomKind::FloorDivide:
    case AtomKind::Modulo:
      print_operand(atom.a);
      out += atom.kind == AtomKind::Modulo ? "%" : "//";
      print_operand(atom.b);
      return;
    case AtomKind::Min:
    case AtomKind::Max:
      out += atom.kind == AtomKind::Min ? "min(" : "max(";
      print_to(atom.a, out);
      out += ", ";
      print_to(atom.b, out);
      out += ')';
      return;
  }
  REPRISE_UNREACHABLE("atom kind " + std::to_string(static_cast<int>(atom.kind)));
}

void Context::print_to(Int a, std::string& out) const {
  if (a.is_constant()) {
    out += std::to_string(a.get_word());
    return;
  }
  const Polynomial& x = polynomials_[a.get_expression()];
  bool is_first = true;
  for (const Term& term : x.terms) {
    const bool is_negative = term.coefficient < 0;
    out += is_first ? (is_negative ? "-" : "") : (is_negative ? " - " : " + ");
    is_first = false;
    const bool is_alone = term.atoms.size() == 1 && term.coefficient == 1;
    for (std::size_t i = 0; i < term.atoms.size(); ++i) {
      if (i > 0) out += '*';
      const Atom& atom = atoms_[term.atoms[i]];
      const bool needs_parentheses = !is_alone && (atom.kind == AtomKind::FloorDivide || atom.kind == AtomKind::Modulo);
      if (needs_parentheses) out += '(';
      print_atom(atom, out);
      if (needs_parentheses) out += ')';
    }
    const std::int64_t magnitude = is_negative ? -term.coefficient : term.coefficient;
    if (magnitude != 1) out += '*' + std::to_string(magnitude);
  }
  if (x.constant > 0) out += " + " + std::to_string(x.constant);
  if (x.constant < 0) out += " - " + std::to_string(-x.constant);
}

std::string Context::print(Int a) const {
  std::string out;
  print_to(a, out);
  return out;
}

// sum: product (+|- product)*; product: unary (*|//|% unary)*; unary: -unary | (sum) | number | name | min(sum, sum)
struct Context::Parser {
  Context& context;
  std::string_view rest;

  bool take(std::string_view token) {
    std::string_view text = rest;
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    if (!text.starts_with(token)) return false;
    rest = text.substr(token.size());
    return true;
  }

  std::optional<Int> parse_sum() {
    std::optional<Int> left = parse_product();
    while (left) {
      const bool is_plus = take("+");
      if (!is_plus && !take("-")) return left;
      const std::optional<Int> right = parse_product();
      if (!right) return std::nullopt;
      left = is_plus ? context.add(*left, *right) : context.subtract(*left, *right);
    }
    return left;
  }

  std::optional<Int> parse_product() {
    std::optional<Int> left = parse_unary();
    while (left) {
      const char operation = take("//") ? '/' : take("*") ? '*' : take("%") ? '%' : '\0';
      if (operation == '\0') return left;
      const std::optional<Int> right = parse_unary();
      if (!right || (operation != '*' && *right == Int(0))) return std::nullopt;
      left = operation == '*'   ? context.multiply(*left, *right)
             : operation == '/' ? context.floor_divide(*left, *right)
                                : context.modulo(*left, *right);
    }
    return left;
  }

  std::optional<Int> parse_unary() {
    if (take("-")) {
      const std::optional<Int> operand = parse_unary();
      return operand ? std::optional(context.negate(*operand)) : std::nullopt;
    }
    if (take("(")) {
      const std::optional<Int> inner = parse_sum();
      return inner && take(")") ? inner : std::nullopt;
    }
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    if (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest.front()))) {
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
      if (error != std::errc()) return std::nullopt;
      rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
      return Int(number);
    }
    std::size_t length = 0;
    while (length < rest.size() && (std::isalnum(static_cast<unsigned char>(rest[length])) || rest[length] == '_'))
      ++length;
    const std::string_view name = rest.substr(0, length);
    rest.remove_prefix(length);
    if ((name == "min" || name == "max") && take("(")) {
      const std::optional<Int> a = parse_sum();
      if (!a || !take(",")) return std::nullopt;
      const std::optional<Int> b = parse_sum();
      if (!b || !take(")")) return std::nullopt;
      return name == "min" ? context.min(*a, *b) : context.max(*a, *b);
    }
    const std::optional<SymbolId> symbol = context.find_symbol(name);
    return symbol ? std::optional(context.get_int(*symbol)) : std::nullopt;
  }
};

std::optional<Int> Context::parse(std::string_view& text) {
  Parser parser{*this, text};
  const std::optional<Int> result = parser.parse_sum();
  if (result) text = parser.rest;
  return result;
}

}  // namespace reprise::sym
