#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/arena.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mersenne_twister.h"
#include "base/options.h"
#include "base/result.h"
#include "test.h"

using namespace reprise::base;

namespace {

// Collects log lines while it lives.
class LogCapture {
 public:
  LogCapture() {
    set_log_sink([this](std::string_view lines) { text_ += lines; });
  }
  ~LogCapture() {
    set_log_sink({});
    set_log_words("");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Result<int> halve(int number) {
  if (number % 2 != 0) return Unsupported{UnsupportedCode::OpaqueCall, std::to_string(number) + " is odd"};
  return number / 2;
}

}  // namespace

TEST("a check that holds does not evaluate its text") {
  bool evaluated = false;
  REPRISE_CHECK(1 + 1 == 2, (evaluated = true, "sums"));
  EXPECT(!evaluated);
}

TEST("a failed check throws with file, line, condition and text") {
  const auto fail = [] { REPRISE_CHECK(1 > 2, "found " + std::to_string(1)); };
  EXPECT_THROWS(fail(), InternalError, "tests/core/base_test.cpp:");
  EXPECT_THROWS(fail(), InternalError, "check failed: 1 > 2: found 1");
  EXPECT_THROWS(REPRISE_UNREACHABLE("here"), std::runtime_error, "unreachable: here");
}

TEST("only the words that were set are enabled") {
  EXPECT_EQ(set_log_words(" exits, guards"), "");
  EXPECT(is_log_enabled(LogWord::Exits));
  EXPECT(is_log_enabled(LogWord::Guards));
  EXPECT(!is_log_enabled(LogWord::Trace));
  EXPECT_EQ(set_log_words("all"), "");
  EXPECT(is_log_enabled(LogWord::Runtime));
  EXPECT_EQ(set_log_words(""), "");
  EXPECT(!is_log_enabled(LogWord::Exits));
}

TEST("an unknown log word is refused and changes nothing") {
  set_log_words("exits");
  const std::string error = set_log_words("guards,exit");
  EXPECT(error.starts_with("unknown log word 'exit'; expected all, trace, guards"));
  EXPECT(is_log_enabled(LogWord::Exits));
  EXPECT(!is_log_enabled(LogWord::Guards));
  set_log_words("");
}

TEST("every line of a log text carries the prefix") {
  LogCapture capture;
  write_log(LogWord::Exits, "one\ntwo\n");
  write_log(LogWord::Runtime, "");
  write_message("three");
  EXPECT_EQ(capture.text(), "[reprise:exits] one\n[reprise:exits] two\n[reprise:runtime] \nreprise: three\n");
}

TEST("options start at the defaults of flags.def") {
  const Options options;
  EXPECT(options.numerics == Numerics::Eager);
  EXPECT(options.validate == Validate::First);
  EXPECT_EQ(options.max_trace_items, 1'000'000);
  EXPECT(options.cache.is_off());
}

TEST("every option reads back the text that it prints") {
  for (const std::string_view name : list_option_names()) {
    Options options;
    const auto text = find_option_text(options, name);
    REQUIRE(text.has_value());
    EXPECT_EQ(set_option(options, name, *text), "");
    EXPECT(options == Options());
  }
  EXPECT(!find_option_text(Options(), "no_such_option").has_value());
}

TEST("an option is set from text whatever its case") {
  Options options;
  EXPECT_EQ(set_option(options, "numerics", "Fast"), "");
  EXPECT_EQ(set_option(options, "dynamic", "True"), "");
  EXPECT_EQ(set_option(options, "fullgraph", "1"), "");
  EXPECT_EQ(set_option(options, "cache", "/tmp/Cache"), "");
  EXPECT_EQ(set_option(options, "max_entries", "8"), "");
  EXPECT(options.numerics == Numerics::Fast);
  EXPECT(options.dynamic == Dynamic::True);
  EXPECT(options.fullgraph);
  EXPECT_EQ(options.cache.path, "/tmp/Cache");
  EXPECT_EQ(options.max_entries, 8);
  EXPECT_EQ(set_option(options, "cache", "OFF"), "");
  EXPECT(options.cache.is_off());
}

TEST("parts to do without are words in any order") {
  Options options;
  EXPECT_EQ(set_option(options, "without", "Simplify,fusion"), "");
  EXPECT(options.without.has(Part::Fusion) && options.without.has(Part::Simplify));
  EXPECT(!options.without.has(Part::MinCut));
  EXPECT_EQ(*find_option_text(options, "without"), "simplify,fusion");
  EXPECT(
      set_option(options, "without", "fusion,inlining")
          .starts_with("option without is 'fusion,inlining'; expected none or words of use_functional_ops,decompose,"));
  EXPECT(set_option(options, "without", "") != "");
  EXPECT(options.without.has(Part::Fusion));
  EXPECT_EQ(set_option(options, "without", "none"), "");
  EXPECT(options == Options());
}

TEST("a refused option says what was found and what is allowed") {
  Options options;
  EXPECT_EQ(set_option(options, "numerics", "exact"), "option numerics is 'exact'; expected eager|fast");
  EXPECT_EQ(set_option(options, "max_entries", "0"), "option max_entries is '0'; expected a whole number >= 1");
  EXPECT_EQ(set_option(options, "max_entries", "8x"), "option max_entries is '8x'; expected a whole number >= 1");
  EXPECT_EQ(set_option(options, "cache", ""), "option cache is ''; expected off or a directory");
  EXPECT(set_option(options, "numeric", "fast").starts_with("unknown option 'numeric'; expected one of numerics, "));
  EXPECT(options == Options());
}

TEST("options come from the environment and bad texts are reported") {
  setenv("REPRISE_VALIDATE", "always", 1);
  setenv("REPRISE_ASYNC_COMPILE", "maybe", 1);
  std::string errors;
  const Options options = make_options_from_environment(&errors);
  EXPECT(options.validate == Validate::Always);
  EXPECT(!options.async_compile);
  EXPECT_EQ(errors, "REPRISE_ASYNC_COMPILE is 'maybe'; expected true|false\n");
  LogCapture capture;
  make_options_from_environment();
  EXPECT_EQ(capture.text(), "reprise: REPRISE_ASYNC_COMPILE is 'maybe'; expected true|false\n");
  unsetenv("REPRISE_VALIDATE");
  unsetenv("REPRISE_ASYNC_COMPILE");
}

TEST("the description names every option and log word") {
  const std::string text = describe_options();
  for (const std::string_view name : list_option_names()) EXPECT(text.find(name) != std::string::npos);
  EXPECT(text.find("first|off|always") != std::string::npos);
  EXPECT(describe_log_words().find("exits       every side exit") != std::string::npos);
}

TEST("a result is a value or a reason") {
  EXPECT_EQ(halve(8).value(), 4);
  const Result<int> none = halve(3);
  EXPECT(!none);
  EXPECT(none.unsupported().code == UnsupportedCode::OpaqueCall);
  EXPECT_EQ(get_unsupported_code_name(none.unsupported().code), "opaque-call");
  EXPECT_EQ(none.unsupported().text, "3 is odd");
  EXPECT_THROWS(none.value(), InternalError, "no value: 3 is odd");
  EXPECT_THROWS(halve(2).unsupported(), InternalError, "the result has a value");
}

TEST("an arena gives aligned memory that does not overlap") {
  Arena arena;
  std::unordered_set<std::uintptr_t> seen;
  for (int i = 0; i < 3000; ++i) {
    auto* number = arena.make<std::uint64_t>(std::uint64_t(i));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(number) % alignof(std::uint64_t), 0u);
    EXPECT(seen.insert(reinterpret_cast<std::uintptr_t>(number)).second);
    EXPECT_EQ(*number, std::uint64_t(i));
    arena.allocate(1, 1);
  }
  const auto big = arena.make_array<char>(3 * Arena::kMaxBlockBytes);
  EXPECT_EQ(big.size(), 3 * Arena::kMaxBlockBytes);
  EXPECT_EQ(big.back(), '\0');
}

TEST("an arena copies texts and keeps its largest block at reset") {
  Arena arena;
  std::string text = "before";
  const std::string_view copy = arena.copy(std::string_view(text));
  text[0] = 'x';
  EXPECT_EQ(copy, "before");
  EXPECT_EQ(arena.copy(std::string_view()).size(), 0u);
  arena.allocate(100'000);
  arena.reset();
  const std::size_t kept_bytes = arena.reserved_bytes();
  EXPECT(kept_bytes >= 100'000);
  arena.allocate(90'000);
  EXPECT_EQ(arena.reserved_bytes(), kept_bytes);
}

TEST("hashes depend on every byte, on lengths and on order, and never change") {
  std::unordered_set<std::uint64_t> seen;
  for (std::size_t length = 0; length <= 64; ++length) {
    std::string text(length, 'a');
    EXPECT(seen.insert(hash_bytes(text.data(), length)).second);
    for (std::size_t i = 0; i < length; ++i) {
      text[i] = 'b';
      EXPECT(seen.insert(hash_bytes(text.data(), length)).second);
      text[i] = 'a';
    }
  }
  EXPECT(Hasher().add("ab").add("c").finish() != Hasher().add("a").add("bc").finish());
  EXPECT(Hasher().add(1).add(2).finish() != Hasher().add(2).add(1).finish());
  EXPECT_EQ(hash_bytes("reprise", 7), 17004602180248836305u);
}

TEST("a wide hash has two halves that do not follow from each other") {
  std::set<std::uint64_t> lows;
  std::set<std::uint64_t> highs;
  for (int i = 0; i < 1000; ++i) {
    const Hash128 hash = WideHasher().add(i).add("text").finish();
    lows.insert(hash.low);
    highs.insert(hash.high);
    EXPECT(hash.low != hash.high);
  }
  EXPECT_EQ(lows.size(), std::size_t{1000});
  EXPECT_EQ(highs.size(), std::size_t{1000});
  // What one half of the state loses, the other keeps.
  const std::uint64_t forgets = 0xe7037ed1a0b428dbull;
  EXPECT(Hasher().add(1).add(forgets).finish() == Hasher().add(2).add(forgets).finish());
  EXPECT(WideHasher().add(1).add(forgets).finish() != WideHasher().add(2).add(forgets).finish());
  EXPECT_EQ((Hash128{0xfeull, 0x12ull}.get_text()), "000000000000001200000000000000fe");
}

TEST("ids of one table are ordered and invalid by default") {
  struct ThingTag;
  using ThingId = Id<ThingTag>;
  EXPECT(!ThingId().is_valid());
  EXPECT(ThingId(3).is_valid());
  EXPECT(ThingId(3) < ThingId(4));
  EXPECT(ThingId(3) == ThingId(3));
  EXPECT_EQ(std::unordered_set<ThingId>({ThingId(1), ThingId(1), ThingId(2)}).size(), 2u);
}

namespace {

// The state that std::mt19937 has for this seed.
MersenneTwister make_twister(std::uint32_t seed) {
  MersenneTwister made;
  for (std::size_t i = 0; i < MersenneTwister::kWords; ++i) {
    made.words[i] = seed;
    seed = 1812433253u * (seed ^ (seed >> 30)) + static_cast<std::uint32_t>(i) + 1;
  }
  return made;
}

template <class T>
void check_bernoulli(T one) {
  MersenneTwister generator = make_twister(7);
  std::mt19937 reference(7);
  const double p = 0.3;
  const auto threshold = static_cast<std::uint64_t>(std::ceil(std::ldexp(p, 53)));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &one, sizeof(T));
  for (const std::size_t count : {1, 511, 512, 513, 2000, 0, 3}) {
    std::vector<T> elements(count, T{9});
    draw_bernoulli(generator, threshold, bits, sizeof(T), elements.data(), count);
    for (const T element : elements) {
      const std::uint64_t high = reference(), low = reference();
      const double draw = std::ldexp(static_cast<double>(((high << 32) | low) & ((std::uint64_t{1} << 53) - 1)), -53);
      EXPECT_EQ(element, draw < p ? one : T{0});
    }
  }
}

}  // namespace

TEST("the Mersenne twister's numbers are the standard library's, in parts of any length") {
  MersenneTwister generator = make_twister(5);
  std::mt19937 reference(5);
  for (const std::size_t count : {1, 3, 620, 1, 623, 624, 625, 0, 5000}) {
    std::vector<std::uint32_t> numbers(count);
    draw(generator, numbers.data(), count);
    for (const std::uint32_t number : numbers) EXPECT_EQ(number, static_cast<std::uint32_t>(reference()));
  }
}

TEST("bernoulli's draws take two numbers each, for elements of every width") {
  check_bernoulli<float>(1);
  check_bernoulli<double>(1);
  check_bernoulli<std::uint16_t>(0x3f80);
  check_bernoulli<std::uint8_t>(1);
}
