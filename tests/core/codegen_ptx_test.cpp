// The text of kernels for a GPU; nothing runs here.
#include <set>
#include <string>

#include "codegen/cpu.h"
#include "codegen/nvptx.h"
#include "kernel/text.h"
#include "kernel_samples.h"
#include "test.h"

using namespace reprise;

namespace {

std::string get_text(const base::Result<program::Code>& code) {
  if (!code.is_ok()) return code.unsupported().text;
  return {code.value().bytes.begin(), code.value().bytes.end()};
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST("the sample kernels become PTX") {
  if (!codegen::has_code_generator()) return;
  const std::set<std::string> reduced = {
      "layer_norm",           "rms_norm", "softmax", "cross_entropy", "sum_rows", "sum_all", "embedding_layer_norm",
      "batch_norm_statistics"};
  for (const test::KernelSample& sample : test::make_kernel_samples(64, 256)) {
    const auto code = codegen::compile_ptx(sample.kernel, {});
    const std::string text = get_text(code);
    if (!code.is_ok()) test::note_failure(__FILE__, __LINE__, sample.name + ": " + text);
    if (!code.is_ok()) continue;
    EXPECT(code.value().kind == program::CodeKind::Ptx);
    EXPECT_EQ(count(text, ".visible .entry " + code.value().symbols[0]), 1);
    EXPECT(text.find(".target sm_80") != std::string::npos);
    EXPECT(text.find("ld.global") != std::string::npos);
    EXPECT(text.find("st.global") != std::string::npos);
    EXPECT_EQ(text.find("shfl.sync.bfly") != std::string::npos, reduced.contains(sample.name));
    EXPECT(text.find("fma.rn.f32") == std::string::npos || sample.name != "add_relu");
  }
}

TEST("a row sum is shuffles in warps, a slot a warp, and shuffles again; nothing is contracted") {
  if (!codegen::has_code_generator()) return;
  const kernel::ParseResult parsed = kernel::parse(R"(kernel
  buffer b0 float32 read 4096
  buffer b1 float32 write 4
parallel %0 in 0 .. 4 {
  %1 = acc sum float32
  vector %2 in 0 .. 1024 {
    %3 = load b0[1024*%0 + %2]
    %4 = mul %3, %3
    reduce %1, %4
  }
  %5 = result %1
  store b1[%0], %5
}
)");
  REQUIRE(parsed.error.empty());
  const std::string text = get_text(codegen::compile_ptx(parsed.kernel, {"sm_90", "+ptx80"}));
  EXPECT(text.find(".target sm_90") != std::string::npos);
  EXPECT_EQ(count(text, "shfl.sync.bfly.b32"), 10);
  EXPECT_EQ(count(text, "fma.rn.f32"), 0);
  EXPECT(count(text, "bar") >= 2);
  EXPECT_EQ(count(text, "st.global"), 1);
  EXPECT_EQ(get_text(codegen::compile_ptx(parsed.kernel, {"sm_90", "+ptx80"})), text);
}

TEST("what has no GPU code yet is said") {
  if (!codegen::has_code_generator()) return;
  const kernel::ParseResult parsed = kernel::parse(R"(kernel
  buffer b0 float32 read write 64
  local b1 float32 64
parallel %0 in 0 .. 64 {
  %1 = load b0[%0]
  store b1[%0], %1
}
)");
  REQUIRE(parsed.error.empty());
  EXPECT_EQ(get_text(codegen::compile_ptx(parsed.kernel, {})), "no GPU code for local arrays");
}
