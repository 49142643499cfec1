#include "base/mersenne_twister.h"

#include <algorithm>
#include <cstring>

// One function for each vector width; the loader takes the widest that the processor has.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define REPRISE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define REPRISE_CLONES
#endif

namespace reprise::base {

namespace {

constexpr std::size_t kWords = MersenneTwister::kWords;
constexpr std::size_t kFar = 397;  // the word that takes part in the new value of a word
constexpr std::uint32_t kUpperBit = 0x80000000, kMatrix = 0x9908b0df;
constexpr std::uint64_t kDrawMask = (std::uint64_t{1} << 53) - 1;
constexpr std::size_t kDraws = 512;  // at a time

inline std::uint32_t mix(std::uint32_t word, std::uint32_t following, std::uint32_t far) {
  const std::uint32_t joined = (word & kUpperBit) | (following & ~kUpperBit);
  return far ^ (joined >> 1) ^ (-(following & 1) & kMatrix);
}

// No iteration reads what one less than 227 before it wrote.
REPRISE_CLONES void make_words(std::uint32_t* words) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < kWords - kFar; ++i) words[i] = mix(words[i], words[i + 1], words[i + kFar]);
  for (std::size_t begin = kWords - kFar; begin < kWords - 1; begin += kWords - kFar) {
    const std::size_t end = std::min(begin + kWords - kFar, kWords - 1);
#pragma GCC ivdep
    for (std::size_t i = begin; i < end; ++i) words[i] = mix(words[i], words[i + 1], words[i + kFar - kWords]);
  }
  words[kWords - 1] = mix(words[kWords - 1], words[0], words[kFar - 1]);
}

REPRISE_CLONES void temper(const std::uint32_t* words, std::uint32_t* numbers, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t y = words[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    numbers[i] = y ^ (y >> 18);
  }
}

inline std::uint64_t join(std::uint32_t high, std::uint32_t low) {
  return ((static_cast<std::uint64_t>(high) << 32) | low) & kDrawMask;
}

#define REPRISE_CHOOSE(name, type)                                                                          \
  REPRISE_CLONES void name(const std::uint32_t* numbers, std::uint64_t threshold, type one, type* elements, \
                           std::size_t count) {                                                             \
    _Pragma("GCC ivdep") for (std::size_t i = 0; i < count; ++i) elements[i] =                              \
        join(numbers[2 * i], numbers[2 * i + 1]) < threshold ? one : type{0};                               \
  }
REPRISE_CHOOSE(choose_bytes, std::uint8_t)
REPRISE_CHOOSE(choose_halves, std::uint16_t)
REPRISE_CHOOSE(choose_words, std::uint32_t)
REPRISE_CHOOSE(choose_doubles, std::uint64_t)
#undef REPRISE_CHOOSE

}  // namespace

void draw(MersenneTwister& generator, std::uint32_t* numbers, std::size_t count) {
  while (count > 0) {
    if (generator.next == kWords) {
      make_words(generator.words.data());
      generator.next = 0;
    }
    const std::size_t part = std::min(count, kWords - generator.next);
    temper(generator.words.data() + generator.next, numbers, part);
    generator.next += part;
    numbers += part;
    count -= part;
  }
}

void draw_bernoulli(MersenneTwister& generator, std::uint64_t threshold, std::uint64_t one, std::size_t element_bytes,
                    void* elements, std::size_t count) {
  std::array<std::uint32_t, 2 * kDraws> numbers;
  auto* place = static_cast<char*>(elements);
  while (count > 0) {
    const std::size_t part = std::min(count, kDraws);
    draw(generator, numbers.data(), 2 * part);
    switch (element_bytes) {
      case 1:
        choose_bytes(numbers.data(), threshold, static_cast<std::uint8_t>(one), reinterpret_cast<std::uint8_t*>(place),
                     part);
        break;
      case 2:
        choose_halves(numbers.data(), threshold, static_cast<std::uint16_t>(one),
                      reinterpret_cast<std::uint16_t*>(place), part);
        break;
      case 4:
        choose_words(numbers.data(), threshold, static_cast<std::uint32_t>(one),
                     reinterpret_cast<std::uint32_t*>(place), part);
        break;
      default:
        choose_doubles(numbers.data(), threshold, one, reinterpret_cast<std::uint64_t*>(place), part);
    }
    place += part * element_bytes;
    count -= part;
  }
}

}  // namespace reprise::base
