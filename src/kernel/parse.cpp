#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "kernel/builder.h"
#include "kernel/text.h"

namespace reprise::kernel {
namespace {

// Leaves a line that does not parse; caught in parse().
struct SyntaxError {
  std::string text;
};

template <class Enum, std::size_t count, class GetText>
Enum find_enum(std::string_view word, const char* what, GetText get_text_of) {
  for (std::size_t i = 0; i < count; ++i) {
    if (get_text_of(static_cast<Enum>(i)) == word) return static_cast<Enum>(i);
  }
  throw SyntaxError{std::string("expected ") + what + ", found '" + std::string(word) + "'"};
}

constexpr std::size_t kOpCount = static_cast<std::size_t>(ScalarOp::VectorCall) + 1;
constexpr std::size_t kFunctionCount = static_cast<std::size_t>(MathFunction::Fmod) + 1;
constexpr std::size_t kCombineCount = static_cast<std::size_t>(Combine::All) + 1;
constexpr std::size_t kNumericsCount = static_cast<std::size_t>(Numerics::Libm) + 1;

// Words, numbers and single signs of one line. A number may carry a sign only where the reader asks for one.
class Scanner {
 public:
  explicit Scanner(std::string_view line) : rest_(line) { skip(); }

  bool is_at_end() const { return rest_.empty(); }

  bool accept(std::string_view sign) {
    if (!rest_.starts_with(sign)) return false;
    const bool is_word = sign.size() > 1 && std::isalpha(static_cast<unsigned char>(sign[0])) != 0;
    if (is_word && rest_.size() > sign.size() && is_word_sign(rest_[sign.size()])) return false;
    rest_.remove_prefix(sign.size());
    skip();
    return true;
  }

  void expect(std::string_view sign) {
    if (!accept(sign)) fail("'" + std::string(sign) + "'");
  }

  std::string_view read_word() {
    std::size_t size = 0;
    while (size < rest_.size() && is_word_sign(rest_[size])) ++size;
    if (size == 0) fail("a word");
    const std::string_view word = rest_.substr(0, size);
    rest_.remove_prefix(size);
    skip();
    return word;
  }

  // Up to a blank or the end.
  std::string_view read_text() {
    const std::string_view text = rest_.substr(0, rest_.find(' '));
    if (text.empty()) fail("a value");
    rest_.remove_prefix(text.size());
    skip();
    return text;
  }

  bool is_at_digit() const { return !rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_[0])); }

  std::uint64_t read_unsigned() {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc()) fail("a number");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    skip();
    return number;
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw SyntaxError{"expected " + expected + ", found '" + std::string(rest_) + "'"};
  }

 private:
  static bool is_word_sign(char sign) { return std::isalnum(static_cast<unsigned char>(sign)) != 0 || sign == '_'; }
  void skip() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

class Parser {
 public:
  void parse_line(Scanner& line) {
    if (line.accept("kernel")) return;
    if (line.accept("}")) return builder_.end_loop();
    if (line.accept("buffer")) return parse_buffer(line, false);
    if (line.accept("local")) return parse_buffer(line, true);
    if (line.accept("param")) {
      const std::uint64_t name = read_name(line);
      values_[name] = builder_.add_param(read_dtype(line));
      return;
    }
    for (const LoopKind kind : {LoopKind::Parallel, LoopKind::Serial, LoopKind::Vector, LoopKind::TileRows}) {
      if (line.accept(get_text(kind))) return parse_loop(line, kind);
    }
    if (line.accept("store")) return parse_store(line);
    if (line.accept("reduce")) {
      const ValueId accumulator = read_value(line);
      line.expect(",");
      const ValueId value = read_value(line);
      return builder_.reduce(accumulator, value, line.accept(",") ? read_value(line) : ValueId());
    }
    if (line.accept("vector_call")) return parse_call(line);
    const std::uint64_t name = read_name(line);
    line.expect("=");
    values_[name] = parse_value(line);
  }

  Kernel finish() { return std::move(builder_).finish(); }

 private:
  static std::uint64_t read_name(Scanner& line) {
    line.expect("%");
    return line.read_unsigned();
  }

  ValueId read_value(Scanner& line) const {
    const std::uint64_t name = read_name(line);
    const auto found = values_.find(name);
    if (found == values_.end()) throw SyntaxError{"no value %" + std::to_string(name)};
    return found->second;
  }

  BufferId read_buffer(Scanner& line) const {
    line.expect("b");
    const std::uint64_t number = line.read_unsigned();
    if (number >= builder_.peek().buffers.size()) throw SyntaxError{"no buffer b" + std::to_string(number)};
    return BufferId(static_cast<std::uint32_t>(number));
  }

  static DType read_dtype(Scanner& line) {
    const std::string_view word = line.read_word();
    if (const auto dtype = types::find_dtype(word)) return *dtype;
    throw SyntaxError{"expected a dtype, found '" + std::string(word) + "'"};
  }

  Affine read_affine(Scanner& line) const {
    Affine sum;
    bool is_negative = line.accept("-");
    while (true) {
      Affine term;
      if (line.is_at_digit()) {
        const auto number = static_cast<std::int64_t>(line.read_unsigned());
        term = line.accept("*") ? Affine(read_value(line)) * number : Affine(number);
      } else {
        term = Affine(read_value(line));
      }
      sum += is_negative ? term * -1 : term;
      if (line.accept("+")) {
        is_negative = false;
      } else if (line.accept("-")) {
        is_negative = true;
      } else {
        return sum;
      }
    }
  }

  void parse_buffer(Scanner& line, bool is_local) {
    line.expect("b");
    const std::uint64_t number = line.read_unsigned();
    if (number != builder_.peek().buffers.size()) {
      throw SyntaxError{"buffers are numbered in order; found b" + std::to_string(number)};
    }
    const DType dtype = read_dtype(line);
    if (is_local) {
      builder_.add_local(dtype, static_cast<std::int64_t>(line.read_unsigned()));
      return;
    }
    const bool is_read = line.accept("read");
    const bool is_written = line.accept("write");
    if (!is_read && !is_written) line.fail("'read' or 'write'");
    const std::int64_t count = line.accept("?") ? -1 : static_cast<std::int64_t>(line.read_unsigned());
    builder_.add_buffer(dtype, is_read && is_written ? kReadWrite : is_read ? kRead : kWrite, count);
  }

  void parse_loop(Scanner& line, LoopKind kind) {
    const std::uint64_t name = read_name(line);
    line.expect("in");
    const Affine lower = read_affine(line);
    line.expect("..");
    const Affine upper = read_affine(line);
    const bool has_limit = line.accept("limit");
    const Affine limit = has_limit ? read_affine(line) : Affine();
    const std::int64_t step = line.accept("step") ? static_cast<std::int64_t>(line.read_unsigned()) : 1;
    int lanes = 0;
    int unroll = 0;
    if (line.accept("lanes")) {
      lanes = static_cast<int>(line.read_unsigned());
      line.expect("unroll");
      unroll = static_cast<int>(line.read_unsigned());
    }
    line.expect("{");
    if (kind == LoopKind::Parallel) {
      values_[name] = builder_.begin_parallel(upper);
    } else if (has_limit) {
      values_[name] = builder_.begin_loop_with_limit(kind, lower, upper, limit, step);
    } else {
      values_[name] = builder_.begin_loop(kind, lower, upper, step);
    }
    if (lanes != 0) builder_.set_lanes(lanes, unroll);
  }

  void parse_store(Scanner& line) {
    StoreMode mode = StoreMode::Set;
    for (const StoreMode other : {StoreMode::AddOrdered, StoreMode::AddAtomic}) {
      if (line.accept(get_text(other))) mode = other;
    }
    const BufferId buffer = read_buffer(line);
    line.expect("[");
    const Affine index = read_affine(line);
    line.expect("]");
    line.expect(",");
    const ValueId value = read_value(line);
    builder_.store(buffer, index, value, line.accept("if") ? read_value(line) : ValueId(), mode);
  }

  std::pair<MathFunction, Numerics> read_function(std::string_view word, Scanner& line) {
    const auto function =
        find_enum<MathFunction, kFunctionCount>(word, "an operation", [](MathFunction f) { return get_row(f).text; });
    line.expect(".");
    const auto numerics =
        find_enum<Numerics, kNumericsCount>(line.read_word(), "numerics", [](Numerics n) { return get_text(n); });
    return {function, numerics};
  }

  void parse_call(Scanner& line) {
    const BufferId result = read_buffer(line);
    line.expect(",");
    const auto [function, numerics] = read_function(line.read_word(), line);
    const BufferId operand = read_buffer(line);
    line.expect(",");
    builder_.vector_call(function, numerics, result, operand, read_affine(line));
  }

  ValueId parse_constant(Scanner& line) {
    const DType dtype = read_dtype(line);
    const std::string text(line.read_text());
    if (text == "true" || text == "false") return builder_.constant(dtype, std::int64_t{text == "true"});
    if (text.starts_with("bits:")) return builder_.constant_bits(dtype, std::strtoull(text.c_str() + 5, nullptr, 16));
    char* end = nullptr;
    ValueId value;
    if (dtype == DType::Float32) {  // not by way of double: one rounding
      value = builder_.constant(dtype, static_cast<double>(std::strtof(text.c_str(), &end)));
    } else if (types::is_float(dtype)) {
      value = builder_.constant(dtype, std::strtod(text.c_str(), &end));
    } else if (dtype == DType::UInt64) {
      value = builder_.constant_bits(dtype, std::strtoull(text.c_str(), &end, 10));
    } else {
      value = builder_.constant(dtype, static_cast<std::int64_t>(std::strtoll(text.c_str(), &end, 10)));
    }
    if (*end != 0) throw SyntaxError{"expected a number, found '" + text + "'"};
    return value;
  }

  ValueId parse_value(Scanner& line) {
    const std::string_view word = line.read_word();
    if (word == "const") return parse_constant(line);
    if (word == "index") return builder_.index(read_affine(line));
    if (word == "acc") {
      const auto combine = find_enum<Combine, kCombineCount>(line.read_word(), "a combine operation",
                                                             [](Combine c) { return get_text(c); });
      return builder_.accumulator(combine, read_dtype(line));
    }
    if (word == "load") {
      const BufferId buffer = read_buffer(line);
      line.expect("[");
      const Affine index = read_affine(line);
      line.expect("]");
      return builder_.load(buffer, index, line.accept("if") ? read_value(line) : ValueId());
    }
    const bool is_op = [&] {
      for (std::size_t i = 0; i < kOpCount; ++i) {
        if (get_row(static_cast<ScalarOp>(i)).text == word) return true;
      }
      return false;
    }();
    if (!is_op) {
      const auto [function, numerics] = read_function(word, line);
      const ValueId a = read_value(line);
      return builder_.math(function, numerics, a, line.accept(",") ? read_value(line) : ValueId());
    }
    const auto op = find_enum<ScalarOp, kOpCount>(word, "an operation", [](ScalarOp o) { return get_row(o).text; });
    ValueId operands[3];
    operands[0] = read_value(line);
    for (int i = 1; i < 3 && line.accept(","); ++i) operands[i] = read_value(line);
    switch (op) {
      case ScalarOp::Cast:
        line.expect("to");
        return builder_.cast(operands[0], read_dtype(line));
      case ScalarOp::Bitcast:
        line.expect("to");
        return builder_.bitcast(operands[0], read_dtype(line));
      case ScalarOp::Scan:
        return builder_.scan(operands[0], operands[1], operands[2]);
      case ScalarOp::Result:
        return builder_.result(operands[0]);
      case ScalarOp::ResultIndex:
        return builder_.result_index(operands[0]);
      default:
        return builder_.op(op, operands[0], operands[1], operands[2]);
    }
  }

  KernelBuilder builder_;
  std::unordered_map<std::uint64_t, ValueId> values_;  // by name; never iterated
};

}  // namespace

ParseResult parse(std::string_view text) {
  Parser parser;
  ParseResult result;
  int number = 0;
  try {
    while (!text.empty()) {
      ++number;
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
      line = line.substr(0, line.find('#'));
      Scanner scanner(line);
      if (scanner.is_at_end()) continue;
      parser.parse_line(scanner);
      if (!scanner.is_at_end()) scanner.fail("the end of the line");
    }
    result.kernel = parser.finish();
  } catch (const SyntaxError& error) {
    result.error = "line " + std::to_string(number) + ": " + error.text;
  } catch (const base::InternalError& error) {  // the builder refused
    const std::string_view what = error.what();
    const std::size_t start = what.find("check failed: ");  // behind our file and line
    result.error = "line " + std::to_string(number) + ": " + std::string(what.substr(start == what.npos ? 0 : start));
  }
  return result;
}

}  // namespace reprise::kernel
