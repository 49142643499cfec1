// A region at run time as autograd sees it: one node with eager's semantics.
//
// call_region() runs a region's forward program and makes its outputs what eager would have made them: a node behind
// the differentiable ones, effects on inputs with their version bumps, outputs that are views of inputs or of each
// other. The node saves values as SavedVariables (hooks, version checks and texts are torch's own), asks for the
// backward program of what is defined and needed, and differentiates twice by running the callables again. A RegionCode
// is immutable after make but for programs it builds on demand, which it guards itself. Implemented above this folder.
// Python objects are borrowed; results are new references. The GIL is held where PyObject stands.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/torch/boxed_call.h"
#include "host/torch/op_sink.h"
#include "host/torch/result_order.h"
#include "host/torch/trace_tensor.h"
#include "types/dtype.h"

namespace reprise::host {

enum class RegionOutputKind : uint8_t { Value, ViewOfInput, ViewOfOutput, Input, SameOutput, None };

struct RegionOutput {
  RegionOutputKind kind = RegionOutputKind::Value;
  uint32_t index = 0;  // of the input or output
  bool requires_grad = false;
  bool is_leaf = false;  // with requires_grad: a new leaf, or a view that was made without gradients
  uint32_t version = 0;  // of kind Value: how often the callables wrote to it, or to a view of it
  int32_t result = -1;   // of kind Value: among the forward program's results
  // As eager's: of views, and of a Value, which may be computed with other strides.
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;  // of views: behind the beginning of what they are a view of, which may begin elsewhere now
  // Of a view that gradients flow through: eager's calls, so that its history, and the gradient's strides, are eager's.
  // Without it, as_strided makes the view.
  std::shared_ptr<const BoxedProgram> view;
};

struct RegionEffect {
  enum class Kind : uint8_t { Copy, SetData, Resize, Bump };
  Kind kind = Kind::Copy;
  uint32_t input = 0;
  int32_t result = -1;  // among the forward program's results; None there: the program wrote the input itself
};

/// Where a saved value comes from.
struct RegionSaved {
  enum class Kind : uint8_t { Input, Output, Result };
  Kind kind = Kind::Result;
  uint32_t index = 0;  // of the input, the output, or the forward program's result
};

/// A result that gradients flow from, in the order of the node's gradients.
struct RegionDifferentiable {
  bool is_input = false;         // an input that the region writes to
  uint32_t index = 0;            // of the input or output
  std::vector<int64_t> strides;  // of its tangent as traced
};

/// What the second derivative takes of an input that is neither saved nor written to.
struct RegionInputUse {
  bool is_needed = true;  // gradients depend on its elements; else any elements do
  TraceValueMeta meta;    // of one whose elements are not needed
};

/// `.grad` of an input becomes that output; -1: None.
struct RegionGradient {
  uint32_t input = 0;
  int32_t output = -1;
};

struct RegionPlan {
  size_t input_count = 0;
  size_t output_count = 0;  // what the caller gets; outputs behind are for `gradients`
  std::vector<RegionGradient> gradients;
  bool is_grad_mode = true;  // at entry
  bool is_random = false;
  types::DType coarsest = types::DType::Float64;  // the float type of fewest digits that it computes in
  std::vector<RegionOutput> outputs;
  std::vector<RegionEffect> effects;
  std::vector<RegionDifferentiable> differentiable;
  ResultOrder result_order;             // of the differentiable
  std::vector<uint8_t> is_expected;     // of each differentiable: its gradient is what the code was made for
  std::vector<RegionSaved> saved;       // in the order of the backward program's inputs
  std::vector<uint32_t> version_bumps;  // of each input
  std::vector<uint8_t> has_gradient;    // of each input: gradients can flow to it at all
  std::vector<RegionInputUse> uses;     // of each input
  std::vector<uint8_t> needs_copy;      // of each input: it is written to, and differentiating twice needs what it was
  EntryState entry_state;
};

/// Which backward program: what is defined and needed, and tangents whose elements stand in another order than traced.
struct BackwardKey {
  std::vector<uint8_t> is_defined;            // of each tangent
  std::vector<uint8_t> is_needed;             // of each input
  std::vector<std::vector<int64_t>> strides;  // of each tangent; empty: as traced

  bool operator==(const BackwardKey&) const = default;
  uint64_t hash() const;
};

class RegionCode {
 public:
  virtual ~RegionCode() = default;
  const RegionPlan& plan() const { return plan_; }
  /// How many backwards ran the callables again, but for those with create_graph=True, which are to.
  uint64_t rerun_count() const { return rerun_count_.load(std::memory_order_relaxed); }
  void note_rerun() { rerun_count_.fetch_add(1, std::memory_order_relaxed); }

  /// `is_training`: the results that are saved are wanted too. May be called without the GIL.
  virtual void run_forward(bool is_training, ValueList&& inputs, ValueList& results) = 0;
  /// Makes the backward program of this key if there is none yet. False: it cannot be made; the node then runs the
  /// callables again and differentiates those. May be called without the GIL.
  virtual bool prepare_backward(const BackwardKey& key) = 0;
  /// Which of the saved values the program of a prepared key reads; run_backward() takes None for the others.
  virtual const std::vector<uint8_t>& find_read(const BackwardKey& key) const = 0;
  /// Of a prepared key. `inputs`: the saved values, then the defined tangents. A gradient for each input of the region,
  /// None where there is none. May be called without the GIL.
  virtual void run_backward(const BackwardKey& key, ValueList&& inputs, ValueList& gradients) = 0;
  /// The callables again, live, on these tensors. False with a Python exception set. GIL held.
  virtual bool call_again(std::span<PyObject* const> inputs, std::vector<PyObject*>& outputs) = 0;

 protected:
  RegionPlan plan_;
  std::atomic<uint64_t> rerun_count_{0};
};

/// Is it PyTorch's error of a backward through what another one has freed?
bool says_graph_is_freed(const std::string& text);

/// Runs the region. Inputs: tensors, and floats and ints where the code has numbers. False with a Python exception set.
bool call_region(const std::shared_ptr<RegionCode>& code, std::span<PyObject* const> inputs,
                 std::vector<PyObject*>& outputs);

}  // namespace reprise::host
