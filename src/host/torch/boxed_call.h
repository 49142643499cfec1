// Programs of boxed calls: a flat list of ATen operations on slots, run one by one with torch's own kernels.
//
// This is how `backend="aot_eager"` runs and what native code is compared with. Values live in slots and are dropped at
// their last use; an argument that an operation writes to is consumed in place or cloned first, as the builder says.
// Immutable once built; run() may be called by several threads at once. It runs below autograd and autocast and needs
// no GIL. C++ exceptions of torch pass through run().
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/torch/op_sink.h"
#include "host/torch/trace_tensor.h"

namespace reprise::host {

/// Tensors and numbers by position.
class ValueList {
 public:
  ValueList();
  ~ValueList();
  ValueList(ValueList&&) noexcept;
  ValueList& operator=(ValueList&&) noexcept;
  size_t size() const;
  void clear();
  void add_tensor(PyObject* tensor);
  /// New reference; None for what is no tensor or an undefined one. Needs the GIL.
  PyObject* get_object(size_t index) const;
  struct Values;
  Values& values() { return *values_; }
  const Values& values() const { return *values_; }

 private:
  std::unique_ptr<Values> values_;
};

/// Appends some of the constants.
void append_constants(ValueList& values, const TraceConstants& constants, std::span<const int32_t> indices);

struct BoxedInstruction {
  const OpInfo* op = nullptr;  // nullptr: scalar_op
  int64_t traced_offset = 0;   // of the first argument, a tensor, in its storage
  ScalarOp scalar_op = ScalarOp::Item;
  OpCall call;  // ids of values are slots; of a scalar operation only the pool
  uint64_t mut = 0;
  std::vector<std::vector<int32_t>> results;  // slots of each return; -1: not needed
  // For each tensor of each argument in `mut`, in order: the slot of its new contents (-1: not needed), and whether it
  // may be written to as it is.
  std::vector<int32_t> new_values;
  std::vector<uint8_t> is_consumed;
  std::vector<int32_t> frees;  // slots that are dead behind it
};

/// What a graph became: something to run.
class RegionProgram {
 public:
  virtual ~RegionProgram() = default;
  /// Numbers among the inputs may come as 0-dim tensors (saved for backward), inputs that nothing reads as None.
  /// `inputs` are taken: each is dropped at its last use. Results: outputs, effects' values, then saved values or
  /// gradients, in the order of the graph.
  virtual void run(ValueList&& inputs, ValueList& outputs) const = 0;
  virtual size_t instruction_count() const = 0;
  /// Written arguments that are cloned first.
  virtual size_t clone_count() const { return 0; }
};

class BoxedProgram final : public RegionProgram {
 public:
  BoxedProgram();
  ~BoxedProgram() override;
  BoxedProgram(BoxedProgram&&) noexcept;
  BoxedProgram& operator=(BoxedProgram&&) noexcept;

  int32_t add_slot();
  void add_input(int32_t slot, TraceValueKind kind);
  void add_constant(int32_t slot, const TraceConstants& constants, int32_t index);
  void add_instruction(BoxedInstruction instruction);
  /// -1: an output that is absent. `is_cloned`: it must not be the object in the slot (a constant).
  void add_output(int32_t slot, bool is_cloned);

  size_t instruction_count() const override;
  size_t clone_count() const override;
  void run(ValueList&& inputs, ValueList& outputs) const override;
  /// The same under autograd: results have the history that eager gives them.
  void run_with_autograd(ValueList&& inputs, ValueList& outputs) const;

 private:
  void run_calls(ValueList&& inputs, ValueList& outputs) const;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise::host
