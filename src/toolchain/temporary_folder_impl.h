// A directory of our own below $TMPDIR (else /tmp) that only this user may enter; it goes with the object.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "toolchain/folders.h"

namespace reprise::toolchain {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* base = ::getenv("TMPDIR");
    std::string name = std::string(base == nullptr || *base == 0 ? "/tmp" : base) + "/reprise-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    if (!path_.empty()) remove_folder(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // Empty: it could not be made.
  const std::string& get_path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace reprise::toolchain
