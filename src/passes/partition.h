// From a joint graph to a forward and a backward graph.
//
// The joint graph is functional: nodes of phase Forward and Backward, tangents among the inputs, gradients. The forward
// computes outputs, effects and `saved`; the backward has the saved values (InputKind::Saved, in the same order) and
// the tangents as inputs and computes the gradients. Ids of values are those of the joint graph in both. Default: what
// the backward needs is saved. MinCut: as few bytes as possible are saved, and cheap ops are computed again where they
// are first needed. In both: a view is never saved but its root; random ops are never computed again; constants stand
// in both graphs; phase-Backward nodes are never moved to the forward. Near-linear in practice; no recursion.
#pragma once

#include <cstdint>
#include <span>

#include "base/export.h"
#include "graph/graph.h"

namespace reprise::passes {

enum class PartitionMode : std::uint8_t { Default, MinCut };

struct PartitionOptions {
  PartitionMode mode = PartitionMode::Default;
  // A backward for other tangents of a forward that exists: only these values and the inputs can be saved (ids as in
  // that trace). Empty: free choice.
  std::span<const graph::ValueId> available;
};

struct Partition {
  graph::Graph forward;
  graph::Graph backward;
  std::int64_t saved_bytes = 0;  // without inputs; symbolic sizes count by their hints
};

REPRISE_EXPORT Partition partition_graph(const graph::Graph& joint, const PartitionOptions& options = {});

}  // namespace reprise::passes
