#include "base/check.h"

namespace reprise::base {

InternalError::InternalError(const char* file, int line, const std::string& message)
    : std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + message), file_(file), line_(line) {}

// Out of line: the type information then lives in this library alone.
InternalError::~InternalError() = default;

void fail_check(const char* file, int line, const char* condition, std::string_view text) {
  throw InternalError(file, line, std::string("check failed: ") + condition + ": " + std::string(text));
}

void fail_unreachable(const char* file, int line, std::string_view text) {
  throw InternalError(file, line, "unreachable: " + std::string(text));
}

}  // namespace reprise::base
