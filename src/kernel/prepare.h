// Rewrites that a finished kernel goes through before code is generated. Each keeps the meaning but for the order in
// which a reduction adds up; each is a plain function from IR to IR, in the order of prepare().
//
//  block_reductions  float sums and products over more than kBlockLength iterations of one vector loop are done in
//                    blocks: the loop is split and each block has an accumulator of its own, whose result is combined
//                    into the old one; a third level above kBlocksPerGroup blocks. Errors then grow with the length
//                    of a block. Unknown trip counts are split too.
//  strip_mine_math   a vector loop with functions of the numerics Mkl runs in strips of kStripLength: up to the
//                    function's argument, one call for the strip over a Local array, and on from there.
//  choose_lanes      lanes and unrolling of every vector loop that has none: 8 lanes, 16 where all data is of 16 bits
//                    or less or vector registers have 64 bytes (not in tiles, nor in loops shorter than that); the
//                    unrolling is the largest of 4 (2 of 64 bytes), 2, 1 whose weight stays within `budget`.
//
// Deterministic, linear in the size of the kernel. Threads: no shared state.
#pragma once

#include <cstdint>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

inline constexpr std::int64_t kBlockLength = 4096;
inline constexpr std::int64_t kBlocksPerGroup = 128;
inline constexpr std::int64_t kStripLength = 512;
inline constexpr int kLeastRegisterBytes = 32;  // AVX2

REPRISE_EXPORT void block_reductions(Kernel& kernel);
REPRISE_EXPORT void strip_mine_math(Kernel& kernel);
REPRISE_EXPORT void choose_lanes(Kernel& kernel, int budget = 64, int register_bytes = kLeastRegisterBytes);

// All of them.
REPRISE_EXPORT void prepare(Kernel& kernel, int register_bytes = kLeastRegisterBytes);

}  // namespace reprise::kernel
