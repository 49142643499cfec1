// Options of one reprise.compile: what the user may choose. The rows of flags.def are the truth.
//
// A plain value: copy it, compare it, pass it down by const reference. Texts come from the environment
// (REPRISE_<NAME>) and from Python (options={...}); messages say what was found and what is allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"

namespace reprise::base {

#define CHOICE_BEGIN(type) enum class type : std::uint8_t {
#define CHOICE(type, name, word) name,
#define CHOICE_END(type) \
  }                      \
  ;
#include "base/choices.def"
#undef CHOICE_BEGIN
#undef CHOICE
#undef CHOICE_END

// A whole number, at least 1.
using Count = std::int64_t;

// A directory, or off when empty.
struct PathOrOff {
  std::string path;

  bool is_off() const { return path.empty(); }
  bool operator==(const PathOrOff&) const = default;
};

enum class Part : std::uint8_t {
#define X(name, word, doc) name,
#include "base/parts.def"
#undef X
};

// Some of the rows of parts.def.
struct PartSet {
  std::uint32_t bits = 0;

  bool has(Part part) const { return (bits >> static_cast<unsigned>(part) & 1u) != 0; }
  void add(Part part) { bits |= 1u << static_cast<unsigned>(part); }
  bool operator==(const PartSet&) const = default;
};

struct PartInfo {
  Part part;
  std::string_view word;
  std::string_view doc;
};

// In order of parts.def.
REPRISE_EXPORT std::span<const PartInfo> get_parts();
// Null when there is no part of that word.
REPRISE_EXPORT const PartInfo* find_part(std::string_view word);

struct Options {
#define X(type, name, default_value, doc) type name = default_value;
#include "base/flags.def"
#undef X

  bool operator==(const Options&) const = default;
};

// The defaults, changed by every REPRISE_<NAME> that is set. A text that is refused leaves the default and is
// appended to `errors` (one line each), or reported by write_message() when `errors` is null.
REPRISE_EXPORT Options make_options_from_environment(std::string* errors = nullptr);

// Sets one option from text (case does not matter). Returns an empty string, or what was wrong; then nothing changed.
REPRISE_EXPORT std::string set_option(Options& options, std::string_view name, std::string_view text);

// The text that set_option() would take, or nothing when there is no such option.
REPRISE_EXPORT std::optional<std::string> find_option_text(const Options& options, std::string_view name);

// The names in the order of flags.def.
REPRISE_EXPORT std::vector<std::string_view> list_option_names();

// A table of name, value, allowed values and meaning; one line an option.
REPRISE_EXPORT std::string describe_options(const Options& options = {});

}  // namespace reprise::base
