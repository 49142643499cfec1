// Invariants of our own code.
//
// A failed check is a bug of Reprise, never of the user: it throws InternalError, and the driver falls back to live
// running for the entry at hand (DESIGN section 8). Checks stay on in every build, so keep them out of inner loops.
// The text is evaluated only when the check fails; it may be any expression that converts to std::string_view.
// Safe on every thread.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "base/export.h"

namespace reprise::base {

class REPRISE_EXPORT InternalError : public std::runtime_error {
 public:
  InternalError(const char* file, int line, const std::string& message);
  ~InternalError() override;

  const char* file() const noexcept { return file_; }
  int line() const noexcept { return line_; }

 private:
  const char* file_;  // a string literal (__FILE__)
  int line_;
};

// Throw InternalError with "file:line: check failed: condition: text" or "file:line: unreachable: text".
[[noreturn]] REPRISE_EXPORT void fail_check(const char* file, int line, const char* condition, std::string_view text);
[[noreturn]] REPRISE_EXPORT void fail_unreachable(const char* file, int line, std::string_view text);

}  // namespace reprise::base

#define REPRISE_CHECK(condition, text)                                     \
  do {                                                                     \
    if (!(condition)) [[unlikely]] {                                       \
      ::reprise::base::fail_check(__FILE__, __LINE__, #condition, (text)); \
    }                                                                      \
  } while (false)

#define REPRISE_UNREACHABLE(text) ::reprise::base::fail_unreachable(__FILE__, __LINE__, (text))
