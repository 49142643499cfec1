// CPython's binary operators as functions, for everyone who executes one.
#pragma once

#include <Python.h>

namespace reprise::host {

inline constexpr int kBinaryOperatorCount = 26;
/// By CPython's NB_* number: 0 ... 12, and in place from 13 on. Results are new references.
extern const binaryfunc kBinaryOperators[kBinaryOperatorCount];

}  // namespace reprise::host
