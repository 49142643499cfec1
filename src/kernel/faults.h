// Deliberate mistakes in kernels, for tests of what must find them (REPRISE_TEST_FAULT). Never on otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

enum class Fault : std::uint8_t {
#define X(name, text, doc) name,
#include "kernel/faults.def"
#undef X
};

REPRISE_EXPORT std::optional<Fault> find_fault(std::string_view text);

// Makes the mistake at the last place where it fits; false: the kernel has no such place. The kernel stays one that
// verifies and reads and writes no memory that it did not before.
REPRISE_EXPORT bool inject(Kernel& kernel, Fault fault);

}  // namespace reprise::kernel
