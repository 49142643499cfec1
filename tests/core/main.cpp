#include <chrono>
#include <cstdio>
#include <exception>
#include <vector>

#include "test.h"

namespace reprise::test {
namespace {

std::vector<const Test*>& get_tests() {
  static std::vector<const Test*> tests;
  return tests;
}

int failure_count = 0;

bool is_chosen(const Test& test, int part_count, char** parts) {
  for (int i = 0; i < part_count; ++i) {
    if (test.name.find(parts[i]) != std::string_view::npos || test.file.find(parts[i]) != std::string_view::npos)
      return true;
  }
  return part_count == 0;
}

void run_body(const Test& test) {
  try {
    test.body();
  } catch (const TestEnded&) {
  } catch (const std::exception& error) {
    note_failure(test.file.data(), test.line, std::string("exception left the test: ") + error.what());
  } catch (...) {
    note_failure(test.file.data(), test.line, "an unknown exception left the test");
  }
}

}  // namespace

Test::Test(std::string_view name, std::string_view file, int line, void (*body)())
    : name(name), file(file), line(line), body(body) {
  get_tests().push_back(this);
}

void note_failure(const char* file, int line, const std::string& text) {
  ++failure_count;
  std::printf("  %s:%d: %s\n", file, line, text.c_str());
}

}  // namespace reprise::test

int main(int argc, char** argv) {
  using namespace reprise::test;
  const auto start = std::chrono::steady_clock::now();
  int passed = 0;
  std::vector<const Test*> failed;
  for (const Test* test : get_tests()) {
    if (!is_chosen(*test, argc - 1, argv + 1)) continue;
    const int failures_before = failure_count;
    run_body(*test);
    if (failure_count == failures_before) {
      ++passed;
    } else {
      failed.push_back(test);
    }
  }
  for (const Test* test : failed) {
    std::printf("FAILED %.*s::%.*s\n", static_cast<int>(test->file.size()), test->file.data(),
                static_cast<int>(test->name.size()), test->name.data());
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (failed.empty()) {
    std::printf("core: %d passed in %.2fs\n", passed, seconds);
  } else {
    std::printf("core: %zu failed, %d passed in %.2fs\n", failed.size(), passed, seconds);
  }
  if (passed == 0 && failed.empty()) {
    std::printf("no test has that name\n");
    return 2;
  }
  return failed.empty() ? 0 : 1;
}
