#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <span>

#include "base/log.h"

namespace reprise::base {
namespace {

template <class T>
struct ChoiceRow {
  T value;
  std::string_view word;
};

// get_choices<T>(): the words of each choice type, by specialisation.
template <class T>
std::span<const ChoiceRow<T>> get_choices();

#define CHOICE_BEGIN(type)                               \
  template <>                                            \
  std::span<const ChoiceRow<type>> get_choices<type>() { \
    static constexpr ChoiceRow<type> kRows[] = {
#define CHOICE(type, name, word) {type::name, word},
#define CHOICE_END(type) \
  }                      \
  ;                      \
  return kRows;          \
  }
#include "base/choices.def"
#undef CHOICE_BEGIN
#undef CHOICE
#undef CHOICE_END

constexpr PartInfo kParts[] = {
#define X(name, word, doc) {Part::name, word, doc},
#include "base/parts.def"
#undef X
};
static_assert(std::size(kParts) <= 32, "PartSet has 32 bits");

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Per type: the values allowed, reading and printing one. read_value() is false when the text is not allowed.

template <class T>
std::string describe_allowed(const T*) {
  std::string text;
  for (const auto& row : get_choices<T>()) text += (text.empty() ? "" : "|") + std::string(row.word);
  return text;
}
std::string describe_allowed(const bool*) { return "true|false"; }
std::string describe_allowed(const Count*) { return "a whole number >= 1"; }
std::string describe_allowed(const PathOrOff*) { return "off or a directory"; }
std::string describe_allowed(const PartSet*) {
  std::string text = "none or words of ";
  for (const PartInfo& part : get_parts()) text += (&part == get_parts().data() ? "" : ",") + std::string(part.word);
  return text;
}

template <class T>
bool read_value(std::string_view text, T& value) {
  const std::string word = to_lower(text);
  for (const auto& row : get_choices<T>()) {
    if (row.word == word) {
      value = row.value;
      return true;
    }
  }
  return false;
}
bool read_value(std::string_view text, bool& value) {
  const std::string word = to_lower(text);
  const bool is_true = word == "true" || word == "1" || word == "on" || word == "yes";
  const bool is_false = word == "false" || word == "0" || word == "off" || word == "no";
  if (is_true || is_false) value = is_true;
  return is_true || is_false;
}
bool read_value(std::string_view text, Count& value) {
  Count number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return false;
  value = number;
  return true;
}
bool read_value(std::string_view text, PathOrOff& value) {
  if (text.empty()) return false;
  value.path = to_lower(text) == "off" ? std::string() : std::string(text);
  return true;
}
bool read_value(std::string_view text, PartSet& value) {
  if (text.empty()) return false;
  PartSet found;
  std::string words = to_lower(text);
  if (words == "none") words.clear();
  for (std::size_t start = 0; start < words.size();) {
    const std::size_t end = std::min(words.find(',', start), words.size());
    const PartInfo* part = find_part(std::string_view(words).substr(start, end - start));
    if (part == nullptr) return false;
    found.add(part->part);
    start = end + 1;
  }
  value = found;
  return true;
}

template <class T>
std::string print_value(const T& value) {
  for (const auto& row : get_choices<T>()) {
    if (row.value == value) return std::string(row.word);
  }
  return "?";
}
std::string print_value(const bool& value) { return value ? "true" : "false"; }
std::string print_value(const Count& value) { return std::to_string(value); }
std::string print_value(const PathOrOff& value) { return value.is_off() ? "off" : value.path; }
std::string print_value(const PartSet& value) {
  std::string text;
  for (const PartInfo& part : get_parts()) {
    if (value.has(part.part)) text += (text.empty() ? "" : ",") + std::string(part.word);
  }
  return text.empty() ? "none" : text;
}

struct OptionRow {
  std::string_view name;
  std::string_view doc;
  std::string (*describe_allowed)();
  bool (*read)(std::string_view text, Options& options);
  std::string (*print)(const Options& options);
};

const OptionRow kOptions[] = {
#define X(type, name, default_value, doc)                                                  \
  {#name, doc, [] { return describe_allowed(static_cast<const type*>(nullptr)); },         \
   [](std::string_view text, Options& options) { return read_value(text, options.name); }, \
   [](const Options& options) { return print_value(options.name); }},
#include "base/flags.def"
#undef X
};

const OptionRow* find_row(std::string_view name) {
  const auto* row = std::find_if(std::begin(kOptions), std::end(kOptions),
                                 [name](const OptionRow& candidate) { return candidate.name == name; });
  return row == std::end(kOptions) ? nullptr : row;
}

void pad_to(std::string& text, std::size_t line_start, std::size_t column) {
  const std::size_t width = text.size() - line_start;
  text.append(width < column ? column - width : 1, ' ');
}

}  // namespace

std::span<const PartInfo> get_parts() { return kParts; }

const PartInfo* find_part(std::string_view word) {
  const auto* part = std::find_if(std::begin(kParts), std::end(kParts),
                                  [word](const PartInfo& candidate) { return candidate.word == word; });
  return part == std::end(kParts) ? nullptr : part;
}

std::string set_option(Options& options, std::string_view name, std::string_view text) {
  const OptionRow* row = find_row(name);
  if (row == nullptr) {
    std::string error = "unknown option '" + std::string(name) + "'; expected one of";
    const char* separator = " ";
    for (const OptionRow& known : kOptions) {
      error += separator + std::string(known.name);
      separator = ", ";
    }
    return error;
  }
  if (row->read(text, options)) return {};
  return "option " + std::string(name) + " is '" + std::string(text) + "'; expected " + row->describe_allowed();
}

Options make_options_from_environment(std::string* errors) {
  Options options;
  for (const OptionRow& row : kOptions) {
    std::string variable = "REPRISE_";
    for (const char c : row.name) variable += (c >= 'a' && c <= 'z') ? static_cast<char>(c - 'a' + 'A') : c;
    const char* text = std::getenv(variable.c_str());
    if (text == nullptr || row.read(text, options)) continue;
    const std::string error = variable + " is '" + text + "'; expected " + row.describe_allowed();
    if (errors == nullptr) {
      write_message(error);
    } else {
      *errors += error + "\n";
    }
  }
  return options;
}

std::optional<std::string> find_option_text(const Options& options, std::string_view name) {
  const OptionRow* row = find_row(name);
  if (row == nullptr) return std::nullopt;
  return row->print(options);
}

std::vector<std::string_view> list_option_names() {
  std::vector<std::string_view> names;
  for (const OptionRow& row : kOptions) names.push_back(row.name);
  return names;
}

std::string describe_options(const Options& options) {
  std::string text;
  for (const OptionRow& row : kOptions) {
    const std::size_t line_start = text.size();
    text += row.name;
    pad_to(text, line_start, 17);
    text += row.print(options);
    pad_to(text, line_start, 26);
    text += row.describe_allowed();
    pad_to(text, line_start, 48);
    text += row.doc;
    text += '\n';
  }
  return text;
}

}  // namespace reprise::base
