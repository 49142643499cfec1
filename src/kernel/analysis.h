// Facts about a kernel that verifier, rewrites and code generators ask for: where nodes stand, and what varies by lane.
//
// Computed once in program order, linear; valid until the kernel changes. Threads: no shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

class REPRISE_EXPORT Analysis {
 public:
  explicit Analysis(const Kernel& kernel);

  // The Vector loop that the node stands in (its own body for a loop variable), or an invalid id.
  LoopId get_vector_loop(NodeId id) const { return vector_loop_[id.index()]; }
  // Whether the value differs by lane of that loop. An accumulator: whether it is declared inside of the loop.
  bool is_varying(NodeId id) const { return varying_[id.index()]; }
  bool is_varying(const Affine& affine) const;
  bool is_reached(NodeId id) const { return reached_[id.index()]; }

 private:
  void visit_nodes(const std::vector<NodeId>& nodes, LoopId vector_loop);
  void visit_loop(LoopId id, LoopId vector_loop);

  const Kernel& kernel_;
  std::vector<LoopId> vector_loop_;
  std::vector<bool> varying_;
  std::vector<bool> reached_;
};

// The trip count of a loop if it is a constant.
REPRISE_EXPORT std::optional<std::int64_t> find_trip_count(const Kernel& kernel, const Loop& loop);

// A number that divides the trip count of the loop (step 1) whatever its values are; at least 1; 0 for no iterations.
REPRISE_EXPORT std::int64_t get_trip_divisor(const Kernel& kernel, const Loop& loop);

}  // namespace reprise::kernel
