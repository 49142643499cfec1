// Gradients in regions: calls of the autograd engine, and what stands between them and the tensors they are of.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "trace/liveness.h"
#include "trace/regions.h"
#include "trace/trace.h"

namespace reprise::trace {

class RegionGradients {
 public:
  RegionGradients(const Trace& trace, const Liveness& liveness, const RegionPlan& plan);

  /// A call of the engine's run_backward.
  bool is_backward(ValueId id) const;

  /// By value: what the trace differentiates with respect to, for each call but those that may join a region, and what
  /// has hooks or keeps its gradient. A region has one autograd node, behind which its results no longer depend on each
  /// other; so what is computed from such a tensor belongs to another region than the tensor.
  std::vector<uint8_t> find_targets(const std::vector<uint8_t>& may_join) const;

  /// Can a call of run_backward be a node of the region that begins at `first_item` and has the values `is_inside`? All
  /// that lies between its tensors and its inputs must be in the region, and nothing may be left in `.grad`.
  bool can_join(ValueId id, const std::vector<uint8_t>& is_inside, int32_t first_item) const;

 private:
  bool may_follow_from(const std::vector<ValueId>& targets, int32_t first_target, ValueId id,
                       std::unordered_set<ValueId>& harmless) const;
  /// Does it give a tensor a hook, or say that its gradient is to be kept?
  bool asks_for_gradient(ValueId id) const;
  bool list_tensors(ValueId id, std::vector<ValueId>* out) const;
  void mark_tensors(ValueId id, int depth, std::vector<uint8_t>* marks) const;
  bool writes_data(ValueId id) const;

  const Trace& trace_;
  const Liveness& liveness_;
  const RegionPlan& plan_;        // its constants and gathered lists
  std::vector<uint8_t> is_leaf_;  // by value: no graph leads to it when the trace sees it
};

}  // namespace reprise::trace
