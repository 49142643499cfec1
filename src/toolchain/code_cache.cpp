#include "toolchain/code_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdlib.h>

#include <cstring>
#include <vector>

#include "base/log.h"
#include "toolchain/folders.h"

namespace reprise::toolchain {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{1} << 30;

// Nothing where there is no such file.
std::optional<std::vector<std::uint8_t>> read_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    if (errno == ENOENT) return std::nullopt;
    return std::vector<std::uint8_t>();
  }
  std::vector<std::uint8_t> bytes;
  struct stat status;
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= kLargestFile) {
    bytes.resize(static_cast<std::size_t>(status.st_size));
    std::size_t count = 0;
    while (count < bytes.size()) {
      const ssize_t got = ::read(file, bytes.data() + count, bytes.size() - count);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      count += static_cast<std::size_t>(got);
    }
    bytes.resize(count);
  }
  ::close(file);
  return bytes;
}

}  // namespace

CodeCache::CodeCache(const std::string& given) {
  const std::string folder = get_absolute_path(given);
  folder_ = folder + "/" + get_build_identity();
  const bool is_new = ::access(folder.c_str(), F_OK) != 0;
  if (const std::string error = make_folders(folder_); !error.empty()) {
    give_up(error);
    return;
  }
  if (is_new) ::chmod(folder.c_str(), 0700);
  std::string text;
  const std::string path = write_aside("", 0, text);
  if (path.empty()) {
    give_up(text);
    return;
  }
  ::unlink(path.c_str());
  is_usable_ = true;
}

void CodeCache::give_up(const std::string& error) {
  is_usable_ = false;
  if (has_told_.exchange(true)) return;
  base::write_message("cache: cannot write to " + folder_ + ": " + error + "; code is not kept");
}

// The path of a new file, or nothing and an error.
std::string CodeCache::write_aside(const void* bytes, std::size_t size_bytes, std::string& error) {
  std::string path = folder_ + "/new-XXXXXX";
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) {
    error = std::strerror(errno);
    return {};
  }
  const auto* next = static_cast<const std::uint8_t*>(bytes);
  while (size_bytes > 0) {
    const ssize_t count = ::write(file, next, size_bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      error = std::strerror(errno);
      break;
    }
    next += count;
    size_bytes -= static_cast<std::size_t>(count);
  }
  if (::close(file) != 0 && error.empty()) error = std::strerror(errno);
  if (error.empty()) return path;
  ::unlink(path.c_str());
  return {};
}

std::optional<program::Code> CodeCache::find(const base::Hash128& key, bool& is_damaged) {
  is_damaged = false;
  if (!is_usable()) return std::nullopt;
  const std::string path = get_path(key);
  const std::optional<std::vector<std::uint8_t>> bytes = read_file(path);
  if (!bytes.has_value()) return std::nullopt;
  auto holder = program::deserialise(bytes->data(), bytes->size());
  if (holder && holder.value().codes.size() == 1 && holder.value().codes[0].key == key) {
    return std::move(holder.value().codes[0]);
  }
  is_damaged = true;
  ::unlink(path.c_str());
  return std::nullopt;
}

void CodeCache::store(const program::Code& code) {
  if (!is_usable()) return;
  program::Program holder;
  holder.codes.push_back(code);
  holder.steps.emplace_back().kind = program::StepKind::Return;  // a program ends so
  const std::vector<std::uint8_t> bytes = program::serialise(holder);
  std::string error;
  const std::string path = write_aside(bytes.data(), bytes.size(), error);
  if (path.empty()) return give_up(error);
  if (::rename(path.c_str(), get_path(code.key).c_str()) == 0) return;
  error = std::strerror(errno);
  ::unlink(path.c_str());
  give_up(error);
}

}  // namespace reprise::toolchain
