#include "ir_text.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "test.h"

namespace reprise::test {

namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    lines.push_back(line.substr(first, line.find_last_not_of(' ') + 1 - first));
  }
  return lines;
}

bool fits(const std::vector<std::string>& expected, std::size_t e, const std::vector<std::string>& found,
          std::size_t f) {
  for (; e < expected.size(); ++e, ++f) {
    if (expected[e] == "...") {
      for (std::size_t rest = f; rest <= found.size(); ++rest) {
        if (fits(expected, e + 1, found, rest)) return true;
      }
      return false;
    }
    if (f == found.size() || expected[e] != found[f]) return false;
  }
  return f == found.size();
}

void run_file(const std::filesystem::path& path, const std::string& keyword, const RunTextCase& run_case) {
  std::ifstream file(path);
  std::stringstream whole;
  whole << file.rdbuf();
  const std::string text = whole.str();
  const bool blesses = std::getenv("BLESS") != nullptr;
  std::string blessed;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = text.find("====\n", at);
    if (end == std::string::npos) end = text.size();
    const std::string one = text.substr(at, end - at);
    at = std::min(end + 5, text.size());
    const std::size_t words_at = one.find(keyword);
    if (words_at == std::string::npos) {
      if (!split_lines(one).empty()) note_failure(path.c_str(), 1, "a case without \"" + keyword + "\":\n" + one);
      continue;
    }
    const std::size_t first = words_at + keyword.size();
    const std::size_t line_end = one.find('\n', words_at);
    const std::size_t bar = one.find("----\n", line_end);
    const std::string head = one.substr(0, bar == std::string::npos ? one.size() : bar);
    const std::string expected = bar == std::string::npos ? "" : one.substr(bar + 5);
    const std::string found = run_case(one.substr(first, line_end - first), head.substr(line_end + 1));
    const bool is_right = fits(split_lines(expected), 0, split_lines(found), 0);
    blessed += head + (head.ends_with('\n') ? "" : "\n") + "----\n" + (is_right ? expected : found) + "====\n";
    if (!is_right && !blesses)
      note_failure(path.c_str(), 1, one.substr(0, words_at) + "found:\n" + found + "expected:\n" + expected);
  }
  if (blesses) std::ofstream(path) << blessed;
}

}  // namespace

void run_text_folder(const char* folder, const char* keyword, const RunTextCase& run_case) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gir") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  EXPECT(!paths.empty());
  for (const auto& path : paths) run_file(path, keyword, run_case);
}

}  // namespace reprise::test
