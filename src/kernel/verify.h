// verify(): an empty string, or the first thing that breaks the rules of kernel.h, with the text of the node.
//
// Run by tests and in debug; a kernel that fails is a bug of whoever made it.
#pragma once

#include <string>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

REPRISE_EXPORT std::string verify(const Kernel& kernel);

}  // namespace reprise::kernel
