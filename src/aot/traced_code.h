// A traced region as code that host::call_region() runs, whatever its graphs become.
//
// make_traced_code() traces the region, makes it functional, splits it, and gives each graph to a ProgramMaker: boxed
// ATen calls (BoxedMaker, the reference) or native code (driver/native_maker.h). Backward programs of other keys
// (undefined or transposed tangents, fewer needed gradients) are made at first use: fewer needed gradients by dropping
// nodes, other tangents by calling the callables again.
// `callables` live as long as the code (Region keeps its callables: differentiating twice runs them).
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "aot/region.h"
#include "base/options.h"
#include "base/result.h"
#include "host/torch/region_node.h"
#include "passes/partition.h"

namespace reprise::aot {

/// Turns functional graphs into programs. Called with the GIL held, perhaps from several threads.
class ProgramMaker {
 public:
  virtual ~ProgramMaker() = default;
  virtual base::Result<std::unique_ptr<host::RegionProgram>> make(const graph::Graph& graph,
                                                                  const host::TraceConstants& constants) = 0;
};

/// Programs of boxed ATen calls.
class BoxedMaker final : public ProgramMaker {
 public:
  base::Result<std::unique_ptr<host::RegionProgram>> make(const graph::Graph& graph,
                                                          const host::TraceConstants& constants) override;
};

struct TracedOptions {
  passes::PartitionMode partition = passes::PartitionMode::Default;
  /// The whole pipeline of passes/ runs; the reference runs what was recorded. Values that passes make have no
  /// counterpart in another trace: backwards of other tangents may then run the callables again.
  bool is_simplified = false;
  /// With is_simplified: decompositions too, as native code has them (their bits may differ).
  bool is_decomposed = false;
  bool is_verified = false;
  /// Passes that are left out, by the name of their part.
  base::PartSet without;
};

class TracedCode : public host::RegionCode {
 public:
  virtual const RegionTrace& trace() const = 0;
  /// Which gradients came last that no program could be made for; once. Code that is made for them has one.
  virtual std::optional<TangentSpec> take_wanted_tangents() = 0;
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

/// Code for gradients of some of the results only. Others are had by calling the callables again.
struct ExpectedTangents {
  TangentSpec tangents;
  const TracedCode* general = nullptr;  // code of the same callables for gradients of all; nullptr: there is none
};

/// `maker` lives as long as the code.
base::Result<std::shared_ptr<TracedCode>> make_traced_code(
    std::shared_ptr<host::TraceContext> trace_context, std::shared_ptr<RegionCallables> callables,
    std::span<const RegionInput> inputs, const host::EntryState& entry_state, std::shared_ptr<ProgramMaker> maker,
    const TracedOptions& options = {}, const ExpectedTangents* expected = nullptr);

}  // namespace reprise::aot
