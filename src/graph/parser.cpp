#include "graph/parser.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "graph/rules.h"

namespace reprise::graph {

namespace {

// A line that cannot be read; never leaves this file.
struct Failure {
  std::string text;
};

// One name in front of "=" or behind "=>": an id of the text, or absent.
struct Name {
  std::uint32_t id = 0xffffffffu;
  bool is_absent = true;
};

// What stands behind the colon for one result; `storage` is the text's number.
struct Type {
  bool is_absent = true;
  ValueKind kind = ValueKind::Tensor;
  sym::Int number = 0;
  TensorMeta meta;
  std::optional<std::uint32_t> storage;
};

class Parser {
 public:
  Parser(std::string_view text, std::shared_ptr<Context> context)
      : text_(text), graph_(std::move(context)), context_(*graph_.context), rules_(context_, graph_.values) {}

  std::variant<Graph, ParseError> run() {
    try {
      reserve_storages();
      parse();
      expect(is_closed_, "the end of the text", "}");
      return std::move(graph_);
    } catch (const Failure& failure) {
      return ParseError{line_number_, failure.text};
    }
  }

 private:
  // --- characters and words ---

  [[noreturn]] void fail(const std::string& expected) {
    throw Failure{"found \"" + std::string(rest_.substr(0, 40)) + "\", expected " + expected};
  }
  void expect(bool condition, const std::string& found, const std::string& expected) {
    if (!condition) throw Failure{"found " + found + ", expected " + expected};
  }

  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  // A token that no name character follows.
  bool take_word(std::string_view word) {
    skip_blanks();
    if (!rest_.starts_with(word)) return false;
    if (rest_.size() > word.size() && is_name_char(rest_[word.size()])) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void need(std::string_view token) {
    if (!take(token)) fail("\"" + std::string(token) + "\"");
  }
  static bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  std::string_view take_name(std::string_view more = "") {
    skip_blanks();
    std::size_t length = 0;
    while (length < rest_.size() && (is_name_char(rest_[length]) || more.find(rest_[length]) != more.npos)) ++length;
    const std::string_view name = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return name;
  }

  std::uint32_t take_index(const char* what) {
    skip_blanks();
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc()) fail(what);
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return number;
  }

  sym::Int take_int() {
    skip_blanks();
    std::string_view text = rest_;
    const std::optional<sym::Int> number = context_.symbols().parse(text);
    if (!number) fail("an integer");
    rest_ = text;
    return *number;
  }

  std::int64_t take_constant() {
    const sym::Int number = take_int();
    if (!number.is_constant()) fail("a constant");
    return number.get_word();
  }

  // --- values ---

  // An absent name has a number that no value has.
  Name take_value_name() {
    if (take("%")) return {take_index("the number of a value"), false};
    if (!take_word("_")) fail("a value or _");
    return {};
  }

  bool is_known(const Name& name) const { return name.id < is_known_.size() && is_known_[name.id]; }

  ValueId find_value(const Name& name) {
    if (name.is_absent) return {};
    expect(is_known(name), "%" + std::to_string(name.id), "a value that was computed before");
    return ValueId(name.id);
  }

  ValueId take_value() {
    const Name name = take_value_name();
    expect(!name.is_absent, "_", "a value");
    return find_value(name);
  }

  ValueId define(const Name& name, const Type& type) {
    if (name.is_absent) return {};
    expect(!type.is_absent, "no type for %" + std::to_string(name.id), "one");
    expect(!is_known(name), "a second definition of %" + std::to_string(name.id), "one");
    // The text's numbers are kept: holes become values that nothing defines.
    expect(name.id < (1u << 24), "%" + std::to_string(name.id), "a smaller number");
    if (name.id >= graph_.values.size()) graph_.values.resize(name.id + 1);
    const ValueId id(name.id);
    Value& value = graph_.get_value(id);
    value.kind = type.kind;
    value.number = type.number;
    value.meta = type.meta;
    if (type.kind == ValueKind::Tensor && !value.meta.storage.is_valid())
      value.meta.storage = type.storage ? StorageId(*type.storage) : context_.make_storage();
    is_known_.resize(graph_.values.size(), false);
    is_known_[name.id] = true;
    return id;
  }

  std::vector<sym::Int> take_ints(std::string_view ends) {
    std::vector<sym::Int> numbers;
    skip_blanks();
    while (!rest_.empty() && ends.find(rest_.front()) == ends.npos) {
      numbers.push_back(take_int());
      skip_blanks();
      if (!take(",")) break;
    }
    return numbers;
  }

  Type take_type() {
    Type type;
    if (take_word("_")) return type;
    type.is_absent = false;
    const std::string_view before = rest_;
    const std::string_view name = take_name();
    if (!take("[")) return take_number_type(name);
    const std::optional<types::DType> dtype = types::find_dtype(name);
    if (!dtype) {
      rest_ = before;
      fail("a dtype");
    }
    const std::vector<sym::Int> sizes = take_ints(";]");
    if (take(";")) {
      const std::vector<sym::Int> strides = take_ints("]");
      expect(strides.size() == sizes.size(), std::to_string(strides.size()) + " strides", std::to_string(sizes.size()));
      type.meta = context_.make_meta(sizes, strides, *dtype, {}, 0, StorageId(0));
    } else {
      type.meta = context_.make_meta(sizes, *dtype);
    }
    type.meta.storage = StorageId();
    need("]");
    if (take("@")) type.meta.offset = take_int();
    if (take_word("storage")) type.storage = take_index("the number of a storage");
    take_device_and_flags(type.meta);
    return type;
  }

  Type take_number_type(std::string_view name) {
    Type type;
    type.is_absent = false;
    if (name == "int") {
      type.kind = ValueKind::Int;
      if (take("{")) {
        type.number = take_int();
        need("}");
      }
    } else if (name == "float") {
      type.kind = ValueKind::Float;
    } else if (name == "bool") {
      type.kind = ValueKind::Bool;
    } else if (name == "complex") {
      type.kind = ValueKind::Complex;
    } else if (name == "rng") {
      type.kind = ValueKind::RandomState;
    } else {
      fail("a type");
    }
    return type;
  }

  void take_device_and_flags(TensorMeta& meta) {
    const std::string_view before = rest_;
    if (const std::string_view word = take_name(":"); const auto device = types::find_device(word)) {
      meta.device = *device;
    } else {
      rest_ = before;
    }
    if (take_word("conj")) meta.flags |= kConjugate;
    if (take_word("neg")) meta.flags |= kNegative;
  }

  // --- arguments ---

  Arg take_arg() {
    if (take_word("wrapped")) return take_arg().as_wrapped();
    skip_blanks();
    if (rest_.empty()) fail("an argument");
    const char first = rest_.front();
    if (first == '%') return Arg::make_value(take_value());
    if (first == '[') return take_list();
    if (first == '"') return take_string();
    if (first == '{') {
      take("{");
      const Arg arg = Arg::make_int(take_int());
      need("}");
      return arg;
    }
    if (first == '-' || std::isdigit(static_cast<unsigned char>(first))) return take_number();
    return take_named();
  }

  Arg take_list() {
    need("[");
    std::vector<Arg> elements;
    while (!take("]")) {
      if (!elements.empty()) need(",");
      elements.push_back(take_arg());
    }
    return context_.make_list(elements);
  }

  Arg take_string() {
    need("\"");
    std::string text;
    while (!rest_.empty() && rest_.front() != '"') {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '\\' && !rest_.empty()) {
        c = rest_.front() == 'n' ? '\n' : rest_.front();
        rest_.remove_prefix(1);
      }
      text += c;
    }
    need("\"");
    return context_.make_string(text);
  }

  double take_float() {
    const bool is_negative = take("-");
    double number = 0;
    if (take_word("nan")) {
      number = std::numeric_limits<double>::quiet_NaN();
    } else if (take_word("inf")) {
      number = std::numeric_limits<double>::infinity();
    } else {
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
      if (error != std::errc()) fail("a number");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    }
    return is_negative ? -number : number;
  }

  Arg take_number() {
    std::size_t length = rest_.starts_with("-") ? 1 : 0;
    while (length < rest_.size() && std::isdigit(static_cast<unsigned char>(rest_[length]))) ++length;
    const bool is_float =
        length < rest_.size() && std::string_view(".ein").find(rest_[length]) != std::string_view::npos;
    if (is_float) return Arg::make_float(take_float());
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + length, number);
    if (error != std::errc()) fail("an integer of 64 bits");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return Arg::make_int64(number);
  }

  Arg take_named() {
    const std::string_view before = rest_;
    const std::string_view word = take_name(":");
    if (word == "none") return Arg::make_none();
    if (word == "true") return Arg::make_bool(true);
    if (word == "false") return Arg::make_bool(false);
    if (word == "nan") return Arg::make_float(std::numeric_limits<double>::quiet_NaN());
    if (word == "inf") return Arg::make_float(std::numeric_limits<double>::infinity());
    if (word == "complex") {
      need("(");
      skip_blanks();
      const double real = take_float();
      need(",");
      skip_blanks();
      const double imaginary = take_float();
      need(")");
      return context_.make_complex({real, imaginary});
    }
    if (const auto dtype = types::find_dtype(word)) return Arg::make_dtype(*dtype);
    if (const auto device = types::find_device(word)) return Arg::make_device(*device);
#define X(name, text) \
  if (word == text) return Arg::make_layout(Layout::name);
#include "graph/layouts.def"
#undef X
#define X(name, text) \
  if (word == text) return Arg::make_memory_format(MemoryFormat::name);
#include "graph/memory_formats.def"
#undef X
    rest_ = before;
    fail("an argument");
  }

  // --- lines ---

  // Storages that the text names must not be given to others.
  void reserve_storages() {
    std::uint32_t count = context_.get_storage_count();
    constexpr std::string_view kWord = " storage ";
    for (std::size_t at = text_.find(kWord); at != text_.npos; at = text_.find(kWord, at + 1)) {
      std::uint32_t number = 0;
      const char* start = text_.data() + at + kWord.size();
      if (std::from_chars(start, text_.data() + text_.size(), number).ec == std::errc()) {
        expect(number < (1u << 28), "storage " + std::to_string(number), "a smaller number");
        count = std::max(count, number + 1);
      }
    }
    context_.reserve_storages(count);
  }

  bool next_line() {
    while (!text_.empty()) {
      ++line_number_;
      const std::size_t end = text_.find('\n');
      rest_ = text_.substr(0, end);
      text_ = end == text_.npos ? std::string_view() : text_.substr(end + 1);
      while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.back()))) rest_.remove_suffix(1);
      skip_blanks();
      if (!rest_.empty() && !rest_.starts_with("//")) return true;
    }
    return false;
  }

  void parse() {
    expect(next_line(), "no line", "\"graph {\"");
    need("graph");
    if (take_word("functional")) graph_.form = Form::Functional;
    need("{");
    while (!is_closed_) {
      if (!next_line()) return;
      parse_line();
      skip_blanks();
      if (!rest_.empty()) fail("the end of the line");
    }
  }

  void parse_line() {
    if (take("}")) {
      is_closed_ = true;
    } else if (take_word("symbol")) {
      parse_symbol();
    } else if (take("backward:")) {
      phase_ = Phase::Backward;
    } else if (take("forward:")) {
      phase_ = Phase::Forward;
    } else if (take_word("return")) {
      parse_return();
    } else if (take_word("effect")) {
      parse_effect();
    } else if (take_word("gradient")) {
      parse_gradient();
    } else if (take_word("save")) {
      do graph_.saved.push_back(take_value());
      while (take(","));
    } else {
      parse_definition();
    }
  }

  void parse_symbol() {
    const std::string_view name = take_name();
    if (name.empty()) fail("the name of a symbol");
    sym::Range range;
    if (take_word("in")) {
      need("[");
      if (!take("?")) range.least = take_constant();
      need(",");
      if (!take("?")) range.most = take_constant();
      need("]");
    }
    std::optional<std::int64_t> hint;
    if (take_word("hint")) hint = take_constant();
    if (!context_.symbols().find_symbol(name)) context_.symbols().make_symbol(name, range, hint);
  }

  // Everything that starts with names and "=", or is an op without results.
  void parse_definition() {
    std::vector<Return> returns;
    std::vector<Name> names;
    if (rest_.starts_with('%') || rest_.starts_with('[') || rest_.starts_with("_ ") || rest_.starts_with("_,")) {
      do {
        if (take("[")) {
          const std::size_t first = names.size();
          while (!take("]")) {
            if (names.size() > first) need(",");
            names.push_back(take_value_name());
          }
          returns.push_back(Return::make_list(static_cast<std::uint32_t>(names.size() - first)));
        } else {
          names.push_back(take_value_name());
          returns.push_back(Return::make_single());
        }
      } while (take(","));
      need("=");
    }
    const std::string_view word = take_name(":.");
    skip_blanks();
    if (word.find("::") == word.npos) {
      if (names.size() != 1 || returns[0].is_list()) fail("an op");
      parse_source(names[0], word);
    } else {
      parse_node(word, returns, names);
    }
  }

  void parse_source(const Name& name, std::string_view word) {
    if (word == "constant") {
      const std::uint32_t host_index = take_index("the number of a constant");
      need(":");
      const ValueId id = define(name, take_type());
      graph_.get_value(id).is_source = true;
      graph_.constants.push_back({id, host_index});
      return;
    }
    Input input;
    bool is_kind = false;
#define X(kind_name, text)             \
  if (word == text) {                  \
    input.kind = InputKind::kind_name; \
    is_kind = true;                    \
  }
#include "graph/input_kinds.def"
#undef X
    expect(is_kind, "\"" + std::string(word) + "\"", "an op, an input or a constant");
    input.is_mutated = take_word("mutated");
    need(":");
    input.value = define(name, take_type());
    expect(input.value.is_valid(), "_", "a value");
    graph_.get_value(input.value).is_source = true;
    graph_.inputs.push_back(input);
  }

  void parse_node(std::string_view word, const std::vector<Return>& returns, const std::vector<Name>& names) {
    Node node;
    node.op = context_.intern_op(word);
    node.phase = phase_;
    need("(");
    std::vector<Arg> args;
    std::vector<Name> new_names;
    while (!take(")")) {
      if (!args.empty()) need(",");
      if (take_word("mut")) node.mut |= std::uint64_t{1} << args.size();
      args.push_back(take_arg());
      if (take("=>")) {
        node.mut |= std::uint64_t{1} << (args.size() - 1);
        take_new_names(new_names);
      }
    }
    std::vector<Type> types(names.size() + new_names.size());
    if (take(":")) {
      take_types(returns, names.size(), types);
    } else {
      infer_types(node.op, node.mut, args, names, types);
    }
    std::vector<ValueId> outs;
    std::vector<ValueId> new_values;
    for (std::size_t i = 0; i < names.size(); ++i) {
      outs.push_back(is_known(names[i]) ? find_value(names[i]) : define(names[i], types[i]));
    }
    std::size_t next = names.size();
    for (const Name& name : new_names) new_values.push_back(define(name, types[next++]));
    if (take("!")) node.source = SourceId(take_index("the number of a source"));
    node.args = args;
    node.returns = returns;
    node.outs = outs;
    node.new_values = new_values;
    graph_.add_node(node);
  }

  void take_new_names(std::vector<Name>& names) {
    if (!take("[")) {
      names.push_back(take_value_name());
      return;
    }
    bool is_first = true;
    while (!take("]")) {
      if (!is_first) need(",");
      is_first = false;
      if (const Name name = take_value_name(); !name.is_absent) names.push_back(name);
    }
  }

  void take_types(const std::vector<Return>& returns, std::size_t out_count, std::vector<Type>& types) {
    std::size_t next = 0;
    for (const Return& result : returns) {
      if (next > 0 || &result != returns.data()) need(",");
      if (!result.is_list()) {
        types[next++] = take_type();
        continue;
      }
      need("[");
      for (std::uint32_t k = 0; k < result.get_count(); ++k) {
        if (k > 0) need(",");
        types[next++] = take_type();
      }
      need("]");
    }
    for (next = out_count; next < types.size(); ++next) {
      if (next > 0 || !returns.empty()) need(",");
      types[next] = take_type();
    }
  }

  // New values have the metadata of what they replace; results that of the rule.
  void infer_types(OpId op, std::uint64_t mut, const std::vector<Arg>& args, const std::vector<Name>& names,
                   std::vector<Type>& types) {
    bool needs_rule = false;
    for (const Name& name : names) needs_rule |= !name.is_absent && !is_known(name);
    if (needs_rule) {
      expect(infer(op, args, rules_), "no type", "one (the op has no rule for these arguments)");
      const std::span<const ResultMeta> results = rules_.results();
      expect(results.size() == names.size(), std::to_string(names.size()) + " results", std::to_string(results.size()));
      for (std::size_t i = 0; i < names.size(); ++i) {
        types[i].is_absent = results[i].kind == ResultKind::None;
        types[i].kind = results[i].kind == ResultKind::Number ? results[i].number : ValueKind::Tensor;
        types[i].meta = results[i].meta;
        if (results[i].kind == ResultKind::Argument) types[i].meta = graph_.get_meta(results[i].of);
      }
    }
    std::size_t next = names.size();
    for (std::size_t i = 0; i < args.size() && next < types.size(); ++i) {
      if (i < 64 && (mut >> i & 1) == 0) continue;
      for_each_value(args[i], [&](ValueId id) {
        Type& type = types[next++];
        type.is_absent = false;
        type.meta = graph_.get_meta(id);
        type.meta.storage = StorageId();
      });
    }
  }

  std::uint32_t take_input_index() {
    need("input");
    return take_index("the number of an input");
  }

  void parse_return() {
    skip_blanks();
    if (rest_.empty()) return;
    do {
      Output output;
      if (take_word("none")) {
        output.kind = OutputKind::None;
        graph_.outputs.push_back(output);
        continue;
      }
      const bool is_view = take_word("view");
      if (is_view && !take_word("of")) fail("\"of\"");
      if (take_word("input")) {
        output.kind = is_view ? OutputKind::ViewOfInput : OutputKind::Input;
        output.index = take_index("the number of an input");
      } else if (take_word("output")) {
        output.kind = is_view ? OutputKind::ViewOfOutput : OutputKind::SameOutput;
        output.index = take_index("the number of an output");
      }
      if (output.kind == OutputKind::Value) {
        output.value = take_value();
        output.meta = graph_.get_meta(output.value);
      }
      if (is_view && !take_word("as")) fail("\"as\"");
      if (is_view || take_word("as")) output.meta = take_type().meta;
      graph_.outputs.push_back(output);
    } while (take(","));
  }

  void parse_effect() {
    const std::string_view word = take_name();
    Effect effect{};
    bool is_kind = false;
#define X(name, text, doc)          \
  if (word == text) {               \
    effect.kind = EffectKind::name; \
    is_kind = true;                 \
  }
#include "graph/effects.def"
#undef X
    expect(is_kind, "\"" + std::string(word) + "\"", "an effect");
    effect.input = take_input_index();
    if (take("<-")) effect.value = take_value();
    graph_.effects.push_back(effect);
  }

  void parse_gradient() {
    need("of");
    Gradient gradient;
    gradient.input = take_input_index();
    need(":");
    gradient.value = find_value(take_value_name());
    graph_.gradients.push_back(gradient);
  }

  std::string_view text_;
  std::string_view rest_;  // of the line
  int line_number_ = 0;
  Graph graph_;
  Context& context_;
  RuleCall rules_;
  std::vector<bool> is_known_;  // by the number in the text
  Phase phase_ = Phase::Forward;
  bool is_closed_ = false;
};

}  // namespace

std::variant<Graph, ParseError> parse_graph(std::string_view text, std::shared_ptr<Context> context) {
  if (context == nullptr) context = std::make_shared<Context>();
  Parser parser(text, std::move(context));
  return parser.run();
}

}  // namespace reprise::graph
