// Runs the text tests of tests/ir/kernel: kernel in, rewrite named, kernel (or an error) out.
//
// A file holds cases between lines "====". A case: "# test: <sentence>", "# run: <rewrite>...", the kernel, a line
// "----", and the expected text. Rewrites are those of kernel/prepare.h; "verify" gives the verifier's words. BLESS=1
// writes what was found into the file.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "kernel/prepare.h"
#include "kernel/text.h"
#include "kernel/verify.h"
#include "test.h"

using namespace reprise;

namespace {

constexpr const char* kFolder = "tests/ir/kernel";

std::string run_case(const std::string& input) {
  const std::size_t run = input.find("# run: ");
  if (run == std::string::npos) return "no line '# run:'\n";
  std::istringstream words(input.substr(run + 7, input.find('\n', run) - run - 7));
  kernel::ParseResult parsed = kernel::parse(input);
  if (!parsed.error.empty()) return parsed.error + "\n";
  for (std::string word; words >> word;) {
    const std::string error = kernel::verify(parsed.kernel);
    if (word == "verify") return (error.empty() ? "fine" : error) + "\n";
    if (!error.empty()) return "before " + word + ": " + error + "\n";
    if (word == "print") {
    } else if (word == "block_reductions") {
      kernel::block_reductions(parsed.kernel);
    } else if (word == "strip_mine_math") {
      kernel::strip_mine_math(parsed.kernel);
    } else if (word == "choose_lanes") {
      kernel::choose_lanes(parsed.kernel);
    } else if (word == "prepare") {
      kernel::prepare(parsed.kernel);
    } else {
      return "no rewrite '" + word + "'\n";
    }
  }
  const std::string error = kernel::verify(parsed.kernel);
  const std::string text = kernel::print(parsed.kernel);
  return error.empty() ? text : error + "\n" + text;
}

std::vector<std::string> split(const std::string& text, const std::string& line) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (std::size_t at; (at = text.find(line + "\n", start)) != std::string::npos; start = at + line.size() + 1) {
    parts.push_back(text.substr(start, at - start));
  }
  parts.push_back(text.substr(start));
  return parts;
}

}  // namespace

TEST("the text tests of kernels give what they say") {
  REQUIRE(std::filesystem::is_directory(kFolder));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".kir") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(!files.empty());
  const bool blesses = std::getenv("BLESS") != nullptr;
  for (const std::filesystem::path& file : files) {
    std::stringstream content;
    content << std::ifstream(file).rdbuf();
    std::string blessed;
    for (const std::string& text : split(content.str(), "====")) {
      const std::vector<std::string> parts = split(text, "----");
      const std::string found = run_case(parts[0]);
      blessed += (blessed.empty() ? "" : "====\n") + parts[0] + "----\n" + found;
      if (blesses || (parts.size() == 2 && parts[1] == found)) continue;
      test::note_failure(file.c_str(), 1, parts[0].substr(0, parts[0].find('\n')) + "\n" + found);
    }
    if (blesses) std::ofstream(file) << blessed;
  }
}
