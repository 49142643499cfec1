#include <random>

#include "sym/context.h"
#include "test.h"

using reprise::sym::Answer;
using reprise::sym::Context;
using reprise::sym::Int;
using reprise::sym::Range;
using reprise::sym::SymbolId;

namespace {

struct Symbols {
  Context ctx;
  Int s0 = ctx.get_int(ctx.make_symbol("s0", {2, 4096}, 8));
  Int s1 = ctx.get_int(ctx.make_symbol("s1", {1, Range::kNoMost}, 3));
  Int u = ctx.get_int(ctx.make_symbol("u"));

  std::string text(Int a) { return ctx.print(a); }
  Int parse(std::string_view text) {
    const auto result = ctx.parse(text);
    REQUIRE(result.has_value());
    EXPECT_EQ(text, "");
    return *result;
  }
};

}  // namespace

TEST("constant integers need no context and no memory") {
  Context ctx;
  EXPECT(ctx.add(2, 3) == Int(5));
  EXPECT(ctx.multiply(-2, 3) == Int(-6));
  EXPECT(ctx.floor_divide(-7, 2) == Int(-4));
  EXPECT(ctx.modulo(-7, 2) == Int(1));
  EXPECT(ctx.ceil_divide(7, 2) == Int(4));
  EXPECT(ctx.is_less(1, 2) == Answer::Yes);
  EXPECT(!Int::make_expression(0).is_constant());
  EXPECT_EQ(Int::make_expression(77).get_expression(), 77u);
  EXPECT_THROWS(ctx.multiply(std::int64_t{1} << 62, 4), reprise::base::InternalError, "does not fit");
}

TEST("symbolic expressions that are equal are the same word") {
  Symbols s;
  Context& ctx = s.ctx;
  EXPECT(ctx.add(s.s0, s.s1) == ctx.add(s.s1, s.s0));
  EXPECT(ctx.subtract(ctx.add(s.s0, 3), s.s0) == Int(3));
  EXPECT(ctx.multiply(ctx.add(s.s0, 1), ctx.add(s.s0, -1)) == ctx.subtract(ctx.multiply(s.s0, s.s0), 1));
  EXPECT(ctx.floor_divide(ctx.multiply(ctx.multiply(s.s0, s.s1), 64), s.s1) == ctx.multiply(s.s0, 64));
  EXPECT(ctx.floor_divide(ctx.add(ctx.multiply(s.s0, 8), 5), 8) == s.s0);
  EXPECT(ctx.modulo(ctx.multiply(s.s0, 8), 4) == Int(0));
  EXPECT(ctx.floor_divide(ctx.floor_divide(s.u, 2), 3) == ctx.floor_divide(s.u, 6));
  EXPECT(ctx.max(s.s0, 1) == s.s0);
  EXPECT(ctx.min(s.s0, s.s0) == s.s0);
  EXPECT(ctx.modulo(s.s0, 8192) == s.s0);
}

TEST("symbolic text reads back as the same expression") {
  Symbols s;
  for (const char* text : {"s0*s1*4 + 3", "s0//2", "(s0//2)*3 - 1", "min(s1, 7)*s0", "(s0 + 5)%7", "-s0 + s1",
                           "max(u, s0 - 1)", "s0%s1", "s0*s0 - 12"}) {
    const Int number = s.parse(text);
    EXPECT(s.parse(s.text(number)) == number);
  }
  EXPECT_EQ(s.text(s.parse("3 + 4*s1*s0")), "s0*s1*4 + 3");
  EXPECT_EQ(s.text(s.parse("2*(s0//2)")), "(s0//2)*2");
  std::string_view partly = "s0 + 1, 5";
  EXPECT(s.ctx.parse(partly).has_value());
  EXPECT_EQ(partly, ", 5");
  std::string_view unknown = "s9";
  EXPECT(!s.ctx.parse(unknown).has_value());
}

TEST("symbolic questions are answered by ranges, then by facts that are marked used") {
  Symbols s;
  Context& ctx = s.ctx;
  EXPECT(ctx.is_less(0, s.s0) == Answer::Yes);
  EXPECT(ctx.is_equal(s.s0, 1) == Answer::No);
  EXPECT(ctx.is_less(s.s0, s.s1) == Answer::Unknown);
  ctx.assume_less_equal(ctx.add(s.s0, 1), s.s1);
  ctx.assume_equal(s.u, 5);
  EXPECT(!ctx.get_facts()[0].used);
  EXPECT(ctx.is_less(s.s0, s.s1) == Answer::Yes);
  EXPECT(ctx.get_facts()[0].used);
  EXPECT(!ctx.get_facts()[1].used);
  EXPECT(ctx.is_equal(s.u, 5) == Answer::Yes);
  EXPECT(ctx.get_facts()[1].used);
  EXPECT(ctx.get_range(ctx.floor_divide(s.s0, 2)) == (Range{1, 2048}));
  EXPECT_EQ(*ctx.evaluate_hint(ctx.multiply(s.s0, s.s1)), 24);
  EXPECT(!ctx.evaluate_hint(s.u).has_value());
}

// Random expressions: simplified or not, the value is the same.
TEST("simplified symbolic expressions have the value of the written ones") {
  const unsigned seed = 20240607;
  std::mt19937 random(seed);
  Context ctx;
  std::vector<Int> pool;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t least = static_cast<std::int64_t>(random() % 3);
    const std::int64_t most = least + static_cast<std::int64_t>(random() % 40);
    values.push_back(least + static_cast<std::int64_t>(random() % (most - least + 1)));
    pool.push_back(ctx.get_int(ctx.make_symbol("s" + std::to_string(i), {least, most})));
  }
  std::vector<std::int64_t> expected = values;
  for (int step = 0; step < 3000; ++step) {
    const std::size_t i = random() % pool.size();
    const std::size_t k = random() % pool.size();
    Int a = pool[i], b = pool[k];
    std::int64_t x = expected[i], y = expected[k];
    if (random() % 2 == 0) b = y = static_cast<std::int64_t>(random() % 9) - 2;
    Int result;
    std::int64_t value = 0;
    const auto floor = [](std::int64_t p, std::int64_t q) { return p / q - (p % q != 0 && (p < 0) != (q < 0)); };
    switch (random() % 7) {
      case 0:
        result = ctx.add(a, b), value = x + y;
        break;
      case 1:
        result = ctx.subtract(a, b), value = x - y;
        break;
      case 2:
        result = ctx.multiply(a, b), value = x * y;
        break;
      case 3:
        if (y == 0 || b == Int(0)) continue;
        result = ctx.floor_divide(a, b), value = floor(x, y);
        break;
      case 4:
        if (y == 0 || b == Int(0)) continue;
        result = ctx.modulo(a, b), value = x - floor(x, y) * y;
        break;
      case 5:
        result = ctx.min(a, b), value = std::min(x, y);
        break;
      case 6:
        result = ctx.max(a, b), value = std::max(x, y);
        break;
    }
    const auto found = ctx.evaluate(result, values);
    if (!found || *found != value) {
      EXPECT_EQ("seed " + std::to_string(seed) + " step " + std::to_string(step) + ": " + ctx.print(result), "");
      return;
    }
    const Range range = ctx.get_range(result);
    EXPECT(range.least <= value && value <= range.most);
    if (std::abs(value) < 1000 && ctx.print(result).size() < 60) {
      if (pool.size() < 60) {
        pool.push_back(result), expected.push_back(value);
      } else {
        const std::size_t place = 4 + random() % 50;
        pool[place] = result, expected[place] = value;
      }
    }
  }
}
