#include <random>
#include <string>

#include "kernel/builder.h"
#include "kernel/family.h"
#include "kernel/interpret.h"
#include "kernel/text.h"
#include "kernel/verify.h"
#include "kernel_fuzz.h"
#include "kernel_samples.h"
#include "test.h"

using namespace reprise;

namespace {

kernel::Kernel make_rows(std::int64_t rows, std::int64_t columns, float scale) {
  kernel::KernelBuilder b;
  const kernel::BufferId x = b.add_buffer(types::DType::Float32, kernel::kRead, rows * columns);
  const kernel::BufferId y = b.add_buffer(types::DType::Float32, kernel::kWrite, rows * columns);
  const kernel::ValueId i = b.begin_parallel(rows);
  const kernel::ValueId j = b.begin_loop(kernel::LoopKind::Vector, 0, columns);
  const kernel::Affine index = kernel::Affine(i) * columns + j;
  b.store(y, index, b.op(kernel::ScalarOp::Mul, b.load(x, index), b.constant(types::DType::Float32, scale)));
  b.end_loop();
  b.end_loop();
  return std::move(b).finish();
}

void check_same(const test::KernelSample& sample, const kernel::KernelFamily::Member& member) {
  EXPECT_EQ(kernel::verify(member.kernel), "");
  std::mt19937 random(3);
  test::KernelData data;
  for (const kernel::Buffer& buffer : sample.kernel.buffers) {
    data.buffers.push_back(
        test::make_random_elements(random, buffer.dtype, buffer.count, sample.index_limits[data.buffers.size()]));
  }
  test::KernelData expected = data, found = data;
  const std::int64_t units = kernel::count_units(sample.kernel, nullptr);
  EXPECT_EQ(kernel::count_units(member.kernel, member.words.data()), units);
  kernel::interpret(sample.kernel, expected.get_pointers().data(), nullptr, 0, units, test::evaluate_reference);
  kernel::interpret(member.kernel, found.get_pointers().data(), member.words.data(), 0, units,
                    test::evaluate_reference);
  const std::string difference = test::compare_buffers(sample.kernel, found, expected);
  if (!difference.empty()) {
    test::note_failure(__FILE__, __LINE__, sample.name + ": " + difference + "\n" + print(member.kernel));
  }
}

}  // namespace

TEST("a kernel family: numbers that vary become parameters") {
  kernel::KernelFamily family;
  const auto first = family.adapt(make_rows(2, 100, 0.5f), 1, true);
  EXPECT(first.words.empty() && kernel::are_equal(first.kernel, make_rows(2, 100, 0.5f)));
  const auto second = family.adapt(make_rows(3, 100, 0.25f), 2, true);
  EXPECT_EQ(print(second.kernel), R"(kernel
  buffer b0 float32 read ?
  buffer b1 float32 write ?
  param %0 float64
  param %1 int64
  %2 = cast %0 to float32
parallel %3 in 0 .. %1 {
  vector %4 in 0 .. 100 {
    %5 = load b0[100*%3 + %4]
    %6 = mul %5, %2
    store b1[100*%3 + %4], %6
  }
}
)");
  const auto third = family.adapt(make_rows(7, 100, 0.125f), 3, true);
  EXPECT(kernel::are_equal(third.kernel, second.kernel));
  EXPECT_EQ(third.words.size(), 2u);
  EXPECT_EQ(third.words[1], 7);
  // A row's length is a coefficient, too: of the rows' variable, in a loop that is no vector loop.
  const auto longer = family.adapt(make_rows(7, 60, 0.125f), 4, true);
  EXPECT_EQ(longer.words.size(), 3u);
  EXPECT_EQ(kernel::verify(longer.kernel), "");
}

TEST("a kernel family: one choice of sizes joins nothing") {
  kernel::KernelFamily family;
  family.adapt(make_rows(2, 100, 1), 1, true);
  EXPECT(family.adapt(make_rows(2, 200, 1), 1, true).words.empty());
  // The nearest one: that with as long rows.
  const auto found = family.adapt(make_rows(5, 200, 1), 2, true);
  REQUIRE(found.words.size() == 1);
  EXPECT_EQ(found.words[0], 5);
}

TEST("a kernel family: numbers that change alike and then do not") {
  kernel::KernelFamily family;
  family.adapt(make_rows(10, 10, 1), 1, true);
  EXPECT_EQ(family.adapt(make_rows(20, 20, 1), 2, true).words.size(), 1u);
  EXPECT_EQ(family.adapt(make_rows(30, 30, 1), 3, true).words.size(), 1u);
  const auto found = family.adapt(make_rows(30, 40, 1), 4, true);
  REQUIRE(found.words.size() == 2);
  EXPECT_EQ(found.words[0], 30);
  EXPECT_EQ(found.words[1], 40);
}

TEST("a kernel family: samples at other sizes") {
  kernel::KernelFamily family;
  const std::int64_t sizes[][2] = {{8, 40}, {24, 40}, {16, 72}, {40, 136}, {9, 33}};
  std::uint64_t choice = 0;
  std::size_t general = 0;
  for (const auto& [rows, columns] : sizes) {
    ++choice;
    for (const test::KernelSample& sample : test::make_kernel_samples(rows, columns)) {
      const auto member = family.adapt(sample.kernel, choice, true);
      general += member.words.empty() ? 0 : 1;
      check_same(sample, member);
    }
  }
  EXPECT(general >= 60);
}

TEST("a kernel family: strips that end where their loop ends are as those that do not") {
  const auto make = [](std::int64_t count) {
    auto parsed = kernel::parse("kernel\n  buffer b0 float32 read " + std::to_string(count) +
                                "\n  buffer b1 float32 write " + std::to_string(count) + "\nparallel %0 in 0 .. " +
                                std::to_string((count + 63) / 64) + " {\n  vector %1 in 64*%0 .. 64*%0 + 64" +
                                (count % 64 == 0 ? "" : " limit " + std::to_string(count)) +
                                " {\n    %2 = load b0[%1]\n    store b1[%1], %2\n  }\n}\n");
    EXPECT_EQ(parsed.error, "");
    return std::move(parsed.kernel);
  };
  kernel::KernelFamily family;
  family.adapt(make(640), 1, true);
  const auto second = family.adapt(make(1000), 2, true);
  EXPECT_EQ(second.words.size(), 2u);
  for (const std::int64_t count : {256, 130}) {
    const auto other = family.adapt(make(count), static_cast<std::uint64_t>(count), true);
    EXPECT(kernel::are_equal(other.kernel, second.kernel));
    check_same({"strips", make(count), {-1, -1}}, other);
  }
}
