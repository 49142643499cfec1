// Code that outlives the process: a directory with one file a key.
//
// Files lie in <folder>/<build of this library>/<key>.code, so that another build never reads them. A file is a
// program::serialise()d Program that holds the Code and nothing else: magic, version, size, checksum, key. It is
// written under another name and renamed, so that readers, also those of other processes, see it whole or not at all.
// What cannot be read back is removed and is no answer. The checksum finds damage, not malice: whoever may write to the
// folder may run code in this process.
// A folder that cannot be made or written to is reported once, by write_message(), and then nothing is found or stored.
// Nothing is ever evicted. Any thread may call.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/export.h"
#include "base/hash.h"
#include "program/program.h"

namespace reprise::toolchain {

class REPRISE_EXPORT CodeCache {
 public:
  // Makes the folder (for this user alone) and tries to write to it. A relative path is one from here.
  explicit CodeCache(const std::string& folder);
  CodeCache(const CodeCache&) = delete;
  CodeCache& operator=(const CodeCache&) = delete;

  // `is_damaged`: there was a file, which is no more.
  std::optional<program::Code> find(const base::Hash128& key, bool& is_damaged);
  void store(const program::Code& code);
  bool is_usable() const { return is_usable_.load(std::memory_order_relaxed); }

 private:
  std::string get_path(const base::Hash128& key) const { return folder_ + "/" + key.get_text() + ".code"; }
  std::string write_aside(const void* bytes, std::size_t size_bytes, std::string& error);
  void give_up(const std::string& error);

  std::string folder_;
  std::atomic<bool> is_usable_ = false;
  std::atomic<bool> has_told_ = false;
};

// The linker's build id of this library; of its file's size and time where it has none.
REPRISE_EXPORT std::string get_build_identity();

}  // namespace reprise::toolchain
