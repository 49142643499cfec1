// A region compiled to boxed ATen calls (backend="aot_eager"), and the reference for native code.
//
// make_eager_code() traces the region, makes it functional, splits it, and gives code that host::call_region() runs.
// Backward programs of other keys (undefined or transposed tangents, fewer needed gradients) are made at first use:
// fewer needed gradients by dropping nodes, other tangents by calling the callables again.
// `callables` live as long as the code (Region keeps its callables: differentiating twice runs them).
#pragma once

#include <memory>
#include <span>

#include "aot/region.h"
#include "base/result.h"
#include "host/torch/region_node.h"

namespace reprise::aot {

class EagerCode : public host::RegionCode {
 public:
  virtual const RegionTrace& trace() const = 0;
  virtual const graph::Graph& functional_graph() const = 0;
  virtual const graph::Graph& forward_graph() const = 0;   // the one that saves
  virtual const graph::Graph& backward_graph() const = 0;  // of the full key
  struct Counts {
    size_t inference_instructions = 0;
    size_t forward_instructions = 0;
    size_t forward_clones = 0;
    std::vector<size_t> backward_instructions;  // of every key so far
  };
  virtual Counts counts() const = 0;
};

base::Result<std::shared_ptr<EagerCode>> make_eager_code(host::TraceContext& trace_context,
                                                         std::shared_ptr<RegionCallables> callables,
                                                         std::span<const RegionInput> inputs,
                                                         const host::EntryState& entry_state);

}  // namespace reprise::aot
