#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "base/mersenne_twister.h"
#include "host/torch/random_fill_impl.h"

namespace reprise::host {

namespace {

using base::MersenneTwister;

// The bits of 1; 0: not a dtype of ours.
uint64_t one_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return 0x3f800000;
    case c10::ScalarType::Double:
      return 0x3ff0000000000000;
    case c10::ScalarType::BFloat16:
      return 0x3f80;
    case c10::ScalarType::Half:
      return 0x3c00;
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
      return 1;
    default:
      return 0;
  }
}

// What the engine would give next: it counts the words that are left, and one more.
MersenneTwister take_words(const at::mt19937_data_pod& data) {
  static_assert(sizeof(data.state_) == sizeof(MersenneTwister::words));
  MersenneTwister words;
  std::memcpy(words.words.data(), data.state_.data(), sizeof(data.state_));
  words.next = MersenneTwister::kWords + 1 - static_cast<size_t>(data.left_);
  return words;
}

void give_words(at::mt19937_data_pod& data, const MersenneTwister& words) {
  std::memcpy(data.state_.data(), words.words.data(), sizeof(data.state_));
  data.next_ = static_cast<uint32_t>(words.next);
  data.left_ = static_cast<int>(MersenneTwister::kWords + 1 - words.next);
}

// bernoulli_(self, p, generator)
bool fill_bernoulli(torch::jit::Stack& stack) {
  const at::Tensor& self = stack[0].toTensor();
  const double p = stack[1].toDouble();
  const uint64_t one = one_of(self.scalar_type());
  if (!(p >= 0 && p <= 1) || one == 0 || !self.is_cpu() || !self.is_non_overlapping_and_dense()) return false;
  const at::Generator given = stack[2].isNone() ? at::detail::getDefaultCPUGenerator() : stack[2].toGenerator();
  if (given.device().type() != c10::DeviceType::CPU) return false;
  if (self.numel() > 0) {
    auto* generator = given.get<at::CPUGeneratorImpl>();
    const std::lock_guard lock(generator->mutex_);
    at::mt19937 engine = generator->engine();
    at::mt19937_data_pod data = engine.data();
    MersenneTwister words = take_words(data);
    base::draw_bernoulli(words, static_cast<uint64_t>(std::ceil(std::ldexp(p, 53))), one, self.element_size(),
                         self.mutable_data_ptr(), static_cast<size_t>(self.numel()));
    give_words(data, words);
    engine.set_data(data);
    generator->set_engine(engine);
  }
  stack.resize(1);
  return true;
}

// Whether `fill` gives what PyTorch gives, in elements and in the generator's state: from a fresh one, from the middle
// of its words, and over their end.
bool agrees_with_bernoulli() {
  try {
    at::Generator theirs = at::detail::createCPUGenerator(20261130), ours = theirs.clone();
    for (const int64_t count : {1, 311, 700, 40}) {
      const at::Tensor want = at::empty({count}), got = at::empty({count});
      want.bernoulli_(0.3, theirs);
      torch::jit::Stack stack{got, 0.3, ours};
      if (!fill_bernoulli(stack) || !want.equal(got)) return false;
      const at::mt19937_data_pod a = theirs.get<at::CPUGeneratorImpl>()->engine().data();
      const at::mt19937_data_pod b = ours.get<at::CPUGeneratorImpl>()->engine().data();
      if (a.left_ != b.left_ || a.next_ != b.next_ || a.state_ != b.state_) return false;
    }
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

bool draws_many_at_a_time() {
  static const bool agrees = agrees_with_bernoulli();
  return agrees;
}

FillFunction find_random_fill(std::string_view op) {
  return op == "aten::bernoulli_.float" && draws_many_at_a_time() ? fill_bernoulli : nullptr;
}

}  // namespace reprise::host
