#include "program/program.h"

#include <cstring>
#include <random>

#include "base/hash.h"
#include "test.h"

using namespace reprise::program;
using reprise::types::DType;

namespace {

Slot make_tensor(SlotKind kind, std::vector<Size> sizes, std::vector<Size> strides, std::int64_t size_bytes) {
  Slot slot;
  slot.kind = kind;
  slot.sizes = std::move(sizes);
  slot.strides = std::move(strides);
  slot.size_bytes = size_bytes;
  return slot;
}

// relu(x @ w) with the product in the arena; the result, and a row of it, are returned.
Program make_program() {
  Program program;
  program.inputs = 2;
  program.arena_bytes = 128;
  program.slots = {make_tensor(SlotKind::Input, {4, 8}, {8, 1}, 128),
                   make_tensor(SlotKind::Input, {8, 8}, {8, 1}, 256),
                   make_tensor(SlotKind::Temporary, {4, 8}, {8, 1}, 128),
                   make_tensor(SlotKind::Output, {4, 8}, {8, 1}, 128),
                   make_tensor(SlotKind::View, {8}, {1}, 128),
                   make_tensor(SlotKind::Constant, {1}, {1}, 4)};
  program.slots[2].arena_offset = 0;
  program.slots[4].storage_offset = 8;
  program.constants.push_back({SlotId(5), {0, 0, 128, 63}});
  program.codes.push_back({{77, 0}, CodeKind::Object, {"reprise_kernel_4d"}, {1, 2, 3}});

  Step product;
  product.kind = StepKind::Extern;
  product.op = "aten::mm.out";
  Argument x;
  x.kind = ArgumentKind::Slot;
  Argument w = x;
  w.number = 1;
  Argument list;
  list.kind = ArgumentKind::List;
  list.elements = {x, w};
  product.arguments = {x, w, list};
  product.outs = {SlotId(2)};
  Step allocate;
  allocate.kind = StepKind::Allocate;
  allocate.slot = SlotId(3);
  Step launch;
  launch.kind = StepKind::Launch;
  launch.code = CodeId(0);
  launch.buffers = {{SlotId(2), 0}, {SlotId(3), 0}, {SlotId(5), 0}};
  launch.words = {{32, SlotId(), -1}};
  launch.units = 1;
  launch.unit_work = 32;
  Step view;
  view.kind = StepKind::View;
  view.slot = SlotId(4);
  view.source = SlotId(3);
  Step free;
  free.kind = StepKind::Free;
  free.slot = SlotId(0);
  Step back;
  back.kind = StepKind::Return;
  back.results = {SlotId(3), SlotId(), SlotId(4)};
  program.steps = {product, allocate, launch, view, free, back};
  return program;
}

}  // namespace

TEST("a program prints its slots, code and steps") {
  EXPECT_EQ(verify(make_program()), "");
  const std::string text = print(make_program());
  EXPECT_EQ(text.substr(0, text.find("constant")),
            "program, 2 inputs, arena of 128 bytes\n"
            "%0 input float32[4, 8] strides [8, 1] on cpu, 128 bytes\n"
            "%1 input float32[8, 8] strides [8, 1] on cpu, 256 bytes\n"
            "%2 temporary float32[4, 8] strides [8, 1] on cpu, 128 bytes at 0\n"
            "%3 output float32[4, 8] strides [8, 1] on cpu, 128 bytes\n"
            "%4 view float32[8] strides [1] on cpu offset 8, 128 bytes\n"
            "%5 ");
  EXPECT_EQ(text.substr(text.find("0: ")),
            "0: aten::mm.out(%0, %1, [%0, %1]) out %2\n"
            "1: allocate %3\n"
            "2: launch @0.0(%2, %3, %5; 32) over 1 units of 32, grain 1\n"
            "3: %4 = view of %3\n"
            "4: free %0\n"
            "5: return %3, none, %4\n");
}

TEST("the verifier of programs finds what no run could do") {
  Program program = make_program();
  program.steps.erase(program.steps.begin() + 1);
  EXPECT_EQ(verify(program), "step 1: slot 3 is read before it is filled");
  program = make_program();
  program.steps[5].results[0] = SlotId(0);
  EXPECT_EQ(verify(program), "step 5: slot 0 is read after it was freed");
  program = make_program();
  program.steps[5].results[0] = SlotId(2);
  EXPECT_EQ(verify(program), "step 5: slot 2 lies in the arena and is returned");
  program = make_program();
  program.arena_bytes = 100;
  EXPECT_EQ(verify(program), "slot 2: sticks out of the arena of 100 bytes");
  program = make_program();
  program.steps[2].symbol = 1;
  EXPECT_EQ(verify(program), "step 2: no such function in the code");
  program = make_program();
  program.steps.pop_back();
  EXPECT_EQ(verify(program), "step 4: a program ends with its only return");
  program = make_program();
  program.steps[0].arguments[2].elements[1].number = 9;
  EXPECT_EQ(verify(program), "step 0: no such slot");
}

namespace {

// The launch may set two flags.
Program make_checked_program() {
  Program program = make_program();
  Slot flags;
  flags.kind = SlotKind::Flags;
  flags.dtype = reprise::types::DType::Int32;
  flags.sizes = {2};
  flags.strides = {1};
  flags.size_bytes = 8;
  const SlotId slot(static_cast<std::uint32_t>(program.slots.size()));
  program.slots.push_back(flags);
  program.checks = {{true, "index out of range in self"}, {false, "all elements should be between 0 and 1"}};
  program.steps[2].buffers.push_back({slot, 0});
  Step check;
  check.kind = StepKind::Check;
  check.slot = slot;
  check.check_count = 2;
  program.steps.insert(program.steps.begin() + 3, check);
  return program;
}

}  // namespace

TEST("a check stands behind the launch that sets its flags") {
  EXPECT_EQ(verify(make_checked_program()), "");
  const std::string text = print(make_checked_program());
  EXPECT(text.find("%6 flags int32[2] strides [1] on cpu, 8 bytes\n") != std::string::npos);
  EXPECT(text.find("check 0: IndexError: index out of range in self\n"
                   "check 1: RuntimeError: all elements should be between 0 and 1\n") != std::string::npos);
  EXPECT(text.find("3: check %6[0 .. 2]\n") != std::string::npos);
  Program program = make_checked_program();
  std::swap(program.steps[3], program.steps[4]);
  EXPECT_EQ(verify(program), "step 2: no check behind a launch that may set flags");
  program = make_checked_program();
  program.steps[2].buffers.pop_back();
  EXPECT_EQ(verify(program), "step 2: a check behind a launch that has no flags, or has them twice");
  program = make_checked_program();
  program.steps[3].first_check = 1;
  EXPECT_EQ(verify(program), "step 2: the check behind it is of other flags");
  program = make_checked_program();
  program.steps[2].buffers.back().offset = program.steps[3].first_check = 1;
  EXPECT_EQ(verify(program), "step 3: no such checks");
  program = make_checked_program();
  program.steps.back().results[0] = program.steps[3].slot;
  EXPECT_EQ(verify(program), "step 6: flags are for launches and checks");
  program = make_checked_program();
  program.checks.pop_back();
  EXPECT_EQ(verify(program), "slot 6: flags that are no int32 words, one for each check");
}

TEST("a program that was serialised comes back the same") {
  const Program program = make_checked_program();
  const auto bytes = serialise(program);
  EXPECT(serialise(program) == bytes);
  const auto back = deserialise(bytes.data(), bytes.size());
  REQUIRE(back.is_ok());
  EXPECT(back.value() == program);
  EXPECT_EQ(print(back.value()), print(program));
}

TEST("damaged bytes are refused and never crash") {
  const auto bytes = serialise(make_checked_program());
  const auto refuse = [](const std::vector<std::uint8_t>& damaged) {
    const auto result = deserialise(damaged.data(), damaged.size());
    return result.is_ok() ? "accepted" : result.unsupported().text;
  };
  EXPECT_EQ(refuse({}), "0 bytes are no program");
  auto other = bytes;
  other[8] = 9;
  EXPECT_EQ(refuse(other), "version 9, expected 2");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT(refuse({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}) != "accepted");
  }
  constexpr std::uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 2000; ++i) {
    auto damaged = bytes;
    damaged[random() % damaged.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
    EXPECT(refuse(damaged) != "accepted");
  }
}

TEST("damaged fields behind a hash that fits are read without harm") {
  constexpr std::size_t kHash = 20;  // its place in the header
  constexpr std::size_t kBody = 28;
  const auto bytes = serialise(make_checked_program());
  constexpr std::uint32_t kSeed = 8;
  std::mt19937 random(kSeed);
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    auto damaged = bytes;
    for (std::uint32_t k = random() % 3; k < 3; ++k) {
      damaged[kBody + random() % (damaged.size() - kBody)] = static_cast<std::uint8_t>(random());
    }
    const std::uint64_t hash = reprise::base::hash_bytes(damaged.data() + kBody, damaged.size() - kBody);
    std::memcpy(damaged.data() + kHash, &hash, sizeof hash);
    const auto result = deserialise(damaged.data(), damaged.size());
    if (!result.is_ok()) continue;
    ++accepted;
    EXPECT_EQ(verify(result.value()), "");
    EXPECT(serialise(result.value()).size() == damaged.size());
  }
  EXPECT(accepted > 0 && accepted < 4000);
}
