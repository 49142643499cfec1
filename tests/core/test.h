// The test runner of the C++ half: no dependency, one executable.
//
//   TEST("an unknown log word is refused") { EXPECT_EQ(a, b); }
//
// A test is a sentence. EXPECT* notes a failure with file:line and goes on; REQUIRE ends the test. An exception that
// leaves a test fails it. reprise_core_tests [part of a name]... runs the tests whose names contain one of the parts.
// Tests register themselves before main(); they run in the order of the link, on one thread.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace reprise::test {

struct Test {
  Test(std::string_view name, std::string_view file, int line, void (*body)());

  std::string_view name;
  std::string_view file;
  int line;
  void (*body)();
};

// Thrown by REQUIRE after the failure was noted.
struct TestEnded {};

void note_failure(const char* file, int line, const std::string& text);

template <class T>
std::string show(const T& value) {
  if constexpr (requires(std::ostream& out) { out << value; }) {
    std::ostringstream out;
    out << std::boolalpha << value;
    return out.str();
  } else {
    return "(a value that does not print)";
  }
}

template <class A, class B>
void expect_equal(const A& found, const B& expected, const char* text, const char* file, int line) {
  if (found == expected) return;
  note_failure(file, line, std::string(text) + "\n    found:    " + show(found) + "\n    expected: " + show(expected));
}

}  // namespace reprise::test

#define REPRISE_TEST_JOIN2(a, b) a##b
#define REPRISE_TEST_JOIN(a, b) REPRISE_TEST_JOIN2(a, b)
#define TEST(sentence) REPRISE_TEST_DEFINE(sentence, REPRISE_TEST_JOIN(test_body_, __LINE__))
#define REPRISE_TEST_DEFINE(sentence, body)                                                                      \
  static void body();                                                                                            \
  static const ::reprise::test::Test REPRISE_TEST_JOIN(test_row_, __LINE__)(sentence, __FILE__, __LINE__, body); \
  static void body()

#define EXPECT(condition)                                                                         \
  do {                                                                                            \
    if (!(condition)) ::reprise::test::note_failure(__FILE__, __LINE__, "not true: " #condition); \
  } while (false)

#define EXPECT_EQ(found, expected) ::reprise::test::expect_equal(found, expected, #found, __FILE__, __LINE__)

#define REQUIRE(condition)                                                        \
  do {                                                                            \
    if (!(condition)) {                                                           \
      ::reprise::test::note_failure(__FILE__, __LINE__, "not true: " #condition); \
      throw ::reprise::test::TestEnded();                                         \
    }                                                                             \
  } while (false)

// The expression must throw `type`, with `part` somewhere in what().
#define EXPECT_THROWS(expression, type, part)                                                              \
  do {                                                                                                     \
    try {                                                                                                  \
      (void)(expression);                                                                                  \
      ::reprise::test::note_failure(__FILE__, __LINE__, "no exception: " #expression);                     \
    } catch (const type& error) {                                                                          \
      if (std::string_view(error.what()).find(part) == std::string_view::npos)                             \
        ::reprise::test::note_failure(__FILE__, __LINE__, std::string("the message is: ") + error.what()); \
    }                                                                                                      \
  } while (false)
