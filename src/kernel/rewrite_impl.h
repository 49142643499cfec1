// Steps that the rewrites of prepare.h share. Private to kernel/.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "base/check.h"
#include "kernel/analysis.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

// Adds to a kernel's tables; the caller puts nodes into regions.
class Rewriter {
 public:
  explicit Rewriter(Kernel& kernel) : kernel_(kernel) {}

  NodeId add_node(ScalarOp op, DType dtype, std::initializer_list<ValueId> operands, std::uint64_t payload = 0);
  IndexId add_index(const Affine& affine);
  RegionId add_region();
  // A loop and its variable; the node that stands for it is added by the caller.
  LoopId add_loop(Loop loop);
  NodeId add_loop_node(LoopId loop) { return add_node(ScalarOp::Loop, DType::Int64, {}, loop.index()); }
  BufferId add_local(DType dtype, std::int64_t count);
  // A constant of the prologue, the one that is there if there is one.
  ValueId add_constant(DType dtype, std::uint64_t bits);
  // An int64 value for the expression: a node that is appended to `nodes`, unless it is a value already.
  ValueId add_value(const Affine& affine, std::vector<NodeId>& nodes);

  // for (i = lower; i < upper; i += s)  ->  for (b = lower; b < upper; b += s * length) for (i = b; i < b + s * length;
  // ..) The loop node at regions[region][position] becomes the outer loop; gives the region that holds the inner one
  // alone.
  RegionId strip_loop(RegionId region, std::size_t position, std::int64_t length);

 private:
  Kernel& kernel_;
};

// At most so many iterations; nothing: not known.
std::optional<std::int64_t> find_most_trips(const Kernel& kernel, const Loop& loop);

}  // namespace reprise::kernel
