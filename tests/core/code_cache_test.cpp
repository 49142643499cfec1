// Code in a directory: found again, never trusted.
#include "toolchain/code_cache.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/log.h"
#include "test.h"
#include "toolchain/folders.h"

using namespace reprise;
namespace fs = std::filesystem;

namespace {

fs::path make_folder(const std::string& name) {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path() / "code_cache" / name;
  fs::remove_all(folder);
  return folder;
}

program::Code make_code(std::uint64_t number, std::size_t size_bytes = 1000) {
  program::Code code{{number, 7}, program::CodeKind::Object, {"kernel"}, {}};
  for (std::size_t i = 0; i < size_bytes; ++i) code.bytes.push_back(static_cast<std::uint8_t>(i * 31 + number));
  return code;
}

fs::path get_file(const fs::path& folder, const program::Code& code) {
  return folder / toolchain::get_build_identity() / (code.key.get_text() + ".code");
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

}  // namespace

TEST("what one cache stores another finds") {
  const fs::path folder = make_folder("found");
  const program::Code code = make_code(1);
  bool is_damaged = true;
  {
    toolchain::CodeCache cache(folder.string());
    EXPECT(!cache.find(code.key, is_damaged).has_value());
    EXPECT(!is_damaged);
    cache.store(code);
  }
  toolchain::CodeCache cache(folder.string());
  const auto found = cache.find(code.key, is_damaged);
  REQUIRE(found.has_value());
  EXPECT(*found == code);
  EXPECT(!cache.find({2, 7}, is_damaged).has_value());
  EXPECT_EQ(toolchain::get_build_identity(), toolchain::get_build_identity());
  EXPECT_EQ(std::distance(fs::directory_iterator(get_file(folder, code).parent_path()), {}), 1);
}

TEST("a relative path stays where it was") {
  const fs::path folder = make_folder("relative"), old = fs::current_path();
  fs::create_directories(folder);
  fs::current_path(folder);
  toolchain::CodeCache cache("below");
  fs::current_path(old);
  cache.store(make_code(1));
  EXPECT(fs::exists(get_file(folder / "below", make_code(1))));
}

TEST("damaged, truncated and foreign files are no answer, and are removed") {
  const fs::path folder = make_folder("damaged");
  toolchain::CodeCache cache(folder.string());
  const program::Code code = make_code(1), other = make_code(2);
  const fs::path path = get_file(folder, code);
  cache.store(code);
  cache.store(other);
  const std::string good = read(path), foreign = read(get_file(folder, other));
  std::vector<std::string> cases = {"", "x", foreign, good + "x", std::string(5000, '\0')};
  for (std::size_t i = 0; i < good.size(); i += good.size() / 97) {
    cases.push_back(good.substr(0, i));
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    cases.push_back(flipped);
  }
  for (const std::string& bytes : cases) {
    write(path, bytes);
    bool is_damaged = false;
    EXPECT(!cache.find(code.key, is_damaged).has_value());
    EXPECT(is_damaged);
    EXPECT(!fs::exists(path));
  }
  cache.store(code);
  bool is_damaged = false;
  EXPECT(cache.find(code.key, is_damaged).has_value());
}

TEST("a directory that cannot be written is told once, and is no cache") {
  const fs::path folder = make_folder("refused");
  fs::create_directories(folder);
  write(folder / "file", "");
  std::string lines;
  base::set_log_sink([&](std::string_view text) { lines += text; });
  toolchain::CodeCache cache((folder / "file" / "below").string());
  cache.store(make_code(1));
  bool is_damaged = true;
  EXPECT(!cache.find(make_code(1).key, is_damaged).has_value());
  base::set_log_sink({});
  EXPECT(!cache.is_usable());
  EXPECT(lines.find("cannot write to") != std::string::npos);
  EXPECT_EQ(lines.find("cannot write to"), lines.rfind("cannot write to"));
}

TEST("writers and readers at once see whole files") {
  const fs::path folder = make_folder("threads");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      toolchain::CodeCache cache(folder.string());
      for (std::uint64_t i = 0; i < 200; ++i) {
        const program::Code code = make_code(i % 3, 20000);
        cache.store(code);
        bool is_damaged = false;
        const auto found = cache.find(code.key, is_damaged);
        if (is_damaged || !found.has_value() || !(*found == code)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST("folders are made with those above them, and removed with their files") {
  const std::string folder = make_folder("folders").string();
  EXPECT_EQ(toolchain::make_folders(folder + "/a/b"), "");
  EXPECT_EQ(toolchain::make_folders(folder + "/a/b"), "");
  EXPECT(fs::is_directory(folder + "/a/b"));
  write(folder + "/a/b/file", "x");
  EXPECT(toolchain::make_folders(folder + "/a/b/file/c") != "");
  EXPECT(toolchain::make_folders(folder + "/a/b/file") != "");
  toolchain::remove_folder(folder + "/a");  // holds a folder
  EXPECT(fs::exists(folder + "/a/b/file"));
  toolchain::remove_folder(folder + "/a/b");
  EXPECT(!fs::exists(folder + "/a/b"));
  toolchain::remove_folder(folder + "/missing");
  EXPECT_EQ(toolchain::get_absolute_path("/x/y"), "/x/y");
  EXPECT_EQ(toolchain::get_absolute_path("x"), (fs::current_path() / "x").string());
}
