// A functional joint graph as graphs to run, over the same value ids (passes/partition.h does the work).
#pragma once

#include <span>

#include "base/result.h"
#include "graph/graph.h"
#include "passes/partition.h"

namespace reprise::aot {

/// The forward without what only the backward needs: outputs and effects. No saved values.
base::Result<graph::Graph> make_inference_graph(const graph::Graph& joint);

/// A backward from values that a forward saved: inputs are `saved`, all and in this order, then the tangents; gradients
/// as in the joint graph. Unsupported if they do not suffice.
base::Result<graph::Graph> make_backward_graph(const graph::Graph& joint, std::span<const graph::ValueId> saved);

}  // namespace reprise::aot
