// A group as kernel IR: loop order, collapsing, the choice of the vector loop, phases of reductions.
//
// - Variables that every access runs through alike (stride of the outer = stride of the inner * its size) become one.
// - Order: by stride in the largest result (rows, then columns).
// - The vector loop is the variable with most accesses of stride 1, results counting double. If it is a column, units
//   are rows, and each phase is a pass over the columns. If it is a row, units are blocks of rows, and the columns are
//   serial loops inside of the vector loop (sums over the outer dimensions).
// - A pointwise group that reads or writes along another variable is cut into tiles of both, transposed in registers.
// - What does not depend on a loop is computed in front of it.
// - A full value that a later phase needs again is read back if it was stored, kept in a scratch row if it is dear and
//   the row is short enough, and computed again otherwise.
// - A check is a masked store of 1 to its flag, as far outside as what it looks at allows: once for each row index, not
//   once for each element.
// Plain functions; deterministic.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "kernel/kernel.h"
#include "schedule/group.h"

namespace reprise::schedule {

struct EmittedBuffer {
  TensorId root;
  bool is_written = false;
};

struct Emitted {
  kernel::Kernel kernel;
  std::vector<EmittedBuffer> buffers;   // in the kernel's order
  std::vector<graph::ValueId> numbers;  // the graph's numbers that are its parameters
  std::vector<std::uint32_t> checks;    // of Lowered::checks; if there are any, the kernel's last argument is an int32
                                        // array of flags, and flag i becomes 1 where check i fails
  std::int64_t units = 0;
  std::int64_t unit_work = 1;
};

// Without `keep_rounding`, a value that is cast to a half type and back inside of the kernel stays what it was.
Emitted emit_group(const Lowered& lowered, const graph::Graph& graph, const Group& group, bool keep_rounding);

}  // namespace reprise::schedule
