// Which values the backward must find in memory of their own.
//
// Anybody may write to inputs and outputs of a region between its forward and its backward. PyTorch saves the tensor
// that an operation read or gave; where that is neither, the write is no error there, and a rewrite must not take an
// input or an output for it. For graphs with gradients; of others nothing is kept apart.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace reprise::passes {

class KeptCopies {
 public:
  KeptCopies(const graph::Graph& graph, std::span<const graph::Node> nodes);

  /// One is of an input or an output, the other is read by the backward, and they are tensors of their own.
  bool are_apart(const graph::TensorMeta& a, const graph::TensorMeta& b) const;
  /// `by` is used instead of `old` from now on.
  void note_replaced(const graph::TensorMeta& old, const graph::TensorMeta& by);

 private:
  std::vector<bool> is_shared_, is_for_backward_;  // by storage
};

}  // namespace reprise::passes
