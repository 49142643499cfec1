// Making and removing folders, without std::filesystem.
//
// PyTorch's libraries export an old static copy of std::filesystem, and the dynamic linker may bind our calls to that
// (seen with 2.11: a call of a null pointer). So no file of ours uses it; tools/check_layers.py looks.
#pragma once

#include <string>

#include "base/export.h"

namespace reprise::toolchain {

// The folder and those above it that are missing. An empty text, or what went wrong.
REPRISE_EXPORT std::string make_folders(const std::string& path);
// The folder and the files in it; folders in it stay, and it with them. Errors are ignored.
REPRISE_EXPORT void remove_folder(const std::string& path);
REPRISE_EXPORT std::string get_absolute_path(const std::string& path);

}  // namespace reprise::toolchain
