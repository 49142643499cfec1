// Result<T>: a value, or the reason why it is not supported.
//
// For what the rest of the system answers with an exit or an eager kernel (DESIGN section 8): not an error. The code
// is a row of unsupported.def; the text says what was found, lower-case, with numbers. Our own bugs are
// REPRISE_CHECK, errors of the user's program are Python exceptions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace reprise::base {

enum class UnsupportedCode : std::uint16_t {
#define X(name, code, hint) name,
#include "base/unsupported.def"
#undef X
};

constexpr std::string_view get_unsupported_code_name(UnsupportedCode code) {
  switch (code) {
#define X(name, code, hint)   \
  case UnsupportedCode::name: \
    return code;
#include "base/unsupported.def"
#undef X
  }
  return "?";
}

constexpr std::string_view get_unsupported_hint(UnsupportedCode code) {
  switch (code) {
#define X(name, code, hint)   \
  case UnsupportedCode::name: \
    return hint;
#include "base/unsupported.def"
#undef X
  }
  return "?";
}

struct Unsupported {
  UnsupportedCode code;
  std::string text;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}                        // NOLINT: implicit
  Result(Unsupported unsupported) : state_(std::in_place_index<1>, std::move(unsupported)) {}  // NOLINT: implicit

  bool is_ok() const { return state_.index() == 0; }
  explicit operator bool() const { return is_ok(); }

  T& value() & {
    require_value();
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    require_value();
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    require_value();
    return std::move(*std::get_if<0>(&state_));
  }

  const Unsupported& unsupported() const {
    REPRISE_CHECK(!is_ok(), "the result has a value");
    return *std::get_if<1>(&state_);
  }

 private:
  void require_value() const { REPRISE_CHECK(is_ok(), "no value: " + std::get_if<1>(&state_)->text); }

  std::variant<T, Unsupported> state_;
};

}  // namespace reprise::base
