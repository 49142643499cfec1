// A functional joint graph as a forward and a backward graph over the same value ids.
//
// Saves what the backward needs (never a view: its root, and the view is made again); everything else of the forward
// stays there. With `available` values given, the backward is made for exactly those and recomputes the rest.
// Linear in the size of the graph.
#pragma once

#include <span>

#include "base/result.h"
#include "graph/graph.h"

namespace reprise::aot {

/// The forward without what only the backward needs: outputs and effects. No saved values.
graph::Graph make_inference_graph(const graph::Graph& joint);

struct SplitGraphs {
  graph::Graph forward;   // `saved` are the backward's Saved inputs
  graph::Graph backward;  // inputs: saved, then tangents; gradients as in the joint graph
};
SplitGraphs split_joint_graph(const graph::Graph& joint);

/// Only the backward, from values that a forward saved. Unsupported if they do not suffice.
base::Result<graph::Graph> make_backward_graph(const graph::Graph& joint, std::span<const graph::ValueId> available);

}  // namespace reprise::aot
