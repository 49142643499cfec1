// Liveness: what an entry has to execute, and until when each value is needed.
//
// There is no escape analysis: "virtual until it escapes" is liveness over allocations and the mutations attached to
// them. Roots are torch, state and sync nodes, mutations of objects that existed before, late guards and the result.
// A value that only snapshots need is *sunk* if it is an allocation: it is no step, an exit builds it when it is taken.
// Other late values that snapshots need (results of Python operations) are executed.
//
// Plain data computed in one go; near-linear in items plus frame states. No Python is called.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "trace/trace.h"

namespace reprise::trace {

/// A position in Trace::items; kNeverUsed: nobody needs the value, kUsedAtEnd: the result or the end snapshot does.
inline constexpr int32_t kNeverUsed = -1;
inline constexpr int32_t kUsedAtEnd = std::numeric_limits<int32_t>::max();

struct Liveness {
  /// Late values: executed among the steps. Pre values: read at entry and kept for steps or exits.
  std::vector<uint8_t> is_live;
  /// The last item (a step, or the owner of a snapshot) that needs the value in a slot.
  std::vector<int32_t> last_use;

  /// Mutations of each allocation, in trace order: rows first_mutation[v] ... first_mutation[v + 1] of the two below.
  std::vector<uint32_t> first_mutation;
  std::vector<ValueId> mutations;
  /// The row of the later mutation that makes this one invisible for exits behind it, or -1: a store to the same cell,
  /// attribute or constant dict key, or a later state of a generator, while nothing looks at the object in between.
  std::vector<int32_t> overwritten_by;
};

struct RegionPlan;  // regions.h

/// With `regions`: their nodes are no steps of their own. A region needs what its nodes use from outside, and its one
/// snapshot; a node's value that has a last use leaves its region.
Liveness compute_liveness(const Trace& trace, const RegionPlan* regions = nullptr);

/// The allocation that a mutation's target belongs to (the instance dict of an object belongs to the object), or
/// kNoValue if the target existed before the trace.
ValueId find_allocation(const Trace& trace, ValueId target);

}  // namespace reprise::trace
