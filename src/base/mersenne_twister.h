// The generator MT19937, many numbers at a time.
//
// M. Matsumoto, T. Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random number
// generator", ACM TOMACS 8 (1998). The numbers and their order are the definition's, as of std::mt19937; only the
// work is done a block at a time, in loops that compilers turn into vector code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/export.h"

namespace reprise::base {

struct MersenneTwister {
  static constexpr std::size_t kWords = 624;

  std::array<std::uint32_t, kWords> words;
  std::size_t next = kWords;  // the first word that no number was made of; kWords: all are used
};

/// The next `count` numbers.
REPRISE_EXPORT void draw(MersenneTwister& generator, std::uint32_t* numbers, std::size_t count);

/// `count` elements of `element_bytes` (1, 2, 4, 8), each of its own draw of 53 bits (the low 21 of a number, then the
/// next number): `one` where the draw is below `threshold`, else 0. How PyTorch draws bernoulli(p) on the CPU, with a
/// threshold of ceil(p * 2^53).
REPRISE_EXPORT void draw_bernoulli(MersenneTwister& generator, std::uint64_t threshold, std::uint64_t one,
                                   std::size_t element_bytes, void* elements, std::size_t count);

}  // namespace reprise::base
