// The nodes of one region, cut out of their trace: what can be run again on other tensors, at any time.
//
// Owns its constants; outlives the entry it was made for, since autograd may differentiate twice long after. Threads:
// the GIL is held. Used for tracing (aot), for differentiating twice, and to give FX graphs to custom backends.
#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "aot/region.h"
#include "entry/entry.h"

namespace reprise::driver {

class RegionNodes final : public aot::RegionCallables {
 public:
  struct Node {
    trace::NodeKind kind;
    int32_t n = 0;
    PyObject* object = nullptr;  // strong
    uint32_t first_operand = 0;
    uint32_t operand_count = 0;
    int32_t slot = -1;  // of its value
    int32_t item = -1;  // of the trace
    bool is_level = false;
  };

  /// `numbers`: what the region's numbers are from now on; borrowed. Those of `symbolic` (places among the numbers) are
  /// inputs behind the tensors instead.
  RegionNodes(const entry::Entry& entry, const entry::RegionStep& step, std::span<PyObject* const> numbers,
              std::span<const int32_t> symbolic = {});
  ~RegionNodes() override;
  RegionNodes(const RegionNodes&) = delete;
  RegionNodes& operator=(const RegionNodes&) = delete;

  bool call(std::span<PyObject* const> inputs, host::TraceRun* run, std::vector<PyObject*>& outputs) override;
  /// The fact about sizes (into Trace::guards) that did not hold in the call that failed; -1: it failed otherwise.
  int32_t take_refused_guard() { return std::exchange(refused_guard_, -1); }
  /// The item of the trace that failed in the call that failed; -1: none did.
  int32_t failed_item() const { return failed_item_; }
  /// Items of the trace whose results cannot be outputs of a region.
  const std::vector<int32_t>& refused_items() const { return refused_items_; }
  void refuse_output(size_t index) override;
  /// Runs the torch-state nodes alone (not levels of transforms, which are undone again): native code leaves torch's
  /// state as it found it. False with an exception set.
  bool run_state_nodes();

  /// Drops all nodes that no fact about sizes needs, and the outputs.
  void keep_guarded();

  // Slots: inputs, constants, values.
  size_t input_count() const { return input_count_; }
  std::span<PyObject* const> constants() const { return constants_; }
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> operands(const Node& node) const {
    return {operands_.data() + node.first_operand, node.operand_count};
  }
  std::span<const int32_t> outputs() const { return outputs_; }

 private:
  PyObject* run_one(const Node& node, std::vector<PyObject*>& slots, std::vector<PyObject*>& gathered) const;

  struct SizeGuard {
    int32_t index;  // into Trace::guards
    trace::FactKind fact;
    PyObject* object;  // strong
    int64_t n;
    int32_t slot;
  };

  size_t input_count_ = 0;  // tensors, then symbolic numbers
  size_t tensor_count_ = 0;
  size_t slot_count_ = 0;
  bool has_state_nodes_ = false;
  bool has_levels_ = false;           // of torch.func's transforms: they are on the stack only while the nodes run
  std::vector<PyObject*> constants_;  // strong
  std::vector<Node> nodes_;
  std::vector<int32_t> operands_;
  std::vector<int32_t> outputs_;
  std::vector<SizeGuard> guards_;
  int32_t refused_guard_ = -1;
  int32_t failed_item_ = -1;
  std::vector<int32_t> refused_items_;
};

}  // namespace reprise::driver
