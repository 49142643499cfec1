// A region as aot sees it: callables that can be called again, their inputs, and what tracing them gives.
//
// The region itself stays with the caller (a run of tensor and state nodes of a trace): aot calls it through
// RegionCallables, once for each graph, and again to differentiate twice. So a region can be filled from anything that
// can run recorded calls on new operands. PyObject arguments are borrowed; the GIL is held in every call here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "host/torch/result_order.h"
#include "host/torch/trace_tensor.h"

namespace reprise::aot {

class RegionCallables {
 public:
  virtual ~RegionCallables() = default;
  /// Runs the recorded calls with these tensors as the region's inputs and appends new references to its outputs
  /// (tensors). `run` is the trace run that it happens under, for models such as item(); nullptr: live, under autograd.
  /// False with a Python exception set on failure; then `outputs` is unchanged.
  virtual bool call(std::span<PyObject* const> inputs, host::TraceRun* run, std::vector<PyObject*>& outputs) = 0;
  /// The run that call() was given is over: hooks in the backward were under it too.
  virtual void end_run() {}
  /// This output is why the region cannot be traced.
  virtual void refuse_output(size_t index) { (void)index; }
};

/// One input; everything is guarded by the entry. All inputs of a region are described together.
struct RegionInput {
  host::TraceInput like;
  graph::InputKind kind = graph::InputKind::Plain;
  int32_t gradient_of = -1;  // it is the `.grad` of that input, a leaf; inputs without one have None there
  /// A number that differs from run to run (`like` says nothing). Numbers stand behind all tensors.
  std::optional<host::TraceValueKind> number;
};

/// The callables left another tensor in `.grad` of an input: an output of the graph behind those of the callables.
struct GradientOutput {
  uint32_t input = 0;
  int32_t output = -1;  // -1: None was left
};

/// Which of the differentiable results have a tangent, and its strides where they are not the traced ones. Empty: none.
struct TangentSpec {
  std::vector<uint8_t> is_defined;
  std::vector<std::vector<int64_t>> strides;  // empty: as traced

  bool defines(size_t result) const { return result < is_defined.size() && is_defined[result] != 0; }
  bool operator==(const TangentSpec&) const = default;
};

/// A result that gradients flow from: an output of kind Value, or an input that the region writes to.
struct DifferentiableResult {
  bool is_input = false;
  uint32_t index = 0;
  std::vector<int64_t> strides;  // of its tangent as traced
};

/// What the entry has to guard because of aliasing; "storage identity": which inputs share a storage.
struct AliasFacts {
  bool needs_storage_identity = false;        // an input is written to or returned as a view
  std::vector<std::vector<uint32_t>> groups;  // inputs over one storage, as traced; all others differ
  std::vector<uint32_t> no_hooks;  // inputs that must have no hooks: the callables differentiate with respect to them
  // Inputs that must not keep their gradient: written to, and what else is computed of them then is inside.
  std::vector<uint32_t> no_kept_gradients;
  std::vector<uint32_t> no_views;  // inputs that must not be views: written to, and they need a gradient
};

struct RegionTrace {
  explicit RegionTrace(std::shared_ptr<graph::Context> context) : graph(std::move(context)) {}

  graph::Graph graph;  // recorded form; joint if there is a differentiable result, with a gradient for each input
  size_t forward_node_count = 0;
  size_t forward_value_count = 0;
  bool is_grad_mode = true;  // at entry
  size_t input_count = 0;    // Graph::inputs[0 ... input_count) are the region's, in order
  host::TraceConstants constants;
  std::vector<int32_t> captured;  // constants behind the captured inputs, in order of Graph::inputs
  size_t output_count = 0;        // outputs of the callables; more follow for `.grad` of inputs
  std::vector<GradientOutput> gradient_outputs;
  std::vector<graph::ValueId> output_values;  // of each of Graph::outputs, whatever its kind
  std::vector<uint8_t> output_is_leaf;        // made by the callables: nothing flows back from it
  bool makes_subclass = false;  // an output that is no input was of a subclass (Parameter); code gives plain tensors
  std::vector<uint8_t> output_requires_grad;  // of each of Graph::outputs
  std::vector<uint32_t> output_version;       // of each of Graph::outputs
  std::vector<DifferentiableResult> differentiable;
  host::ResultOrder result_order;
  std::vector<graph::ValueId> tangents;  // of each differentiable result; invalid: undefined
  std::vector<uint32_t> version_bumps;   // of each input: how often eager bumps its version
  AliasFacts alias_facts;
};

/// Calls the callables with trace tensors: the forward, then the engine if something can be differentiated.
/// Graphs of one `context` share metadata; the same callables give the same value ids for the forward every time.
/// `tangents`: nullptr: all are defined and as traced. A Python exception is never left set.
base::Result<RegionTrace> trace_region(host::TraceContext& trace_context, std::shared_ptr<graph::Context> context,
                                       RegionCallables& callables, std::span<const RegionInput> inputs,
                                       const host::EntryState& entry_state, const TangentSpec* tangents = nullptr);

}  // namespace reprise::aot
