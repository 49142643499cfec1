// The autograd node of one of several results of a region. Private to host/torch.
//
// In eager each result has a node of its own: its hooks run where it is differentiated, and a write to it finds a kept
// gradient at the number that every operation's result has. So the nodes of results stand between what uses them and
// the region's node, which computes the gradients of all inputs at once. A result that others were computed from gets
// nothing from those then, which nobody sees, but for hooks on it, a kept gradient, and backwards that ask for its
// gradient. Therefore the nodes of the others have an edge to it: where it is looked at, gradients are computed up to
// it first, by the owner, and what other ways give to the inputs waits with the owner.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include "host/torch/version_autograd_impl.h"

namespace reprise::host {

/// The node of the region, which all nodes of results have as their first edge.
class ResultOwner {
 public:
  virtual ~ResultOwner() = default;
  /// The gradients that results in `cuts` get from this result alone, and on no way through each other. What reaches
  /// the inputs of the region past them is kept for the node's own turn, if `needs_inputs`.
  virtual torch::autograd::variable_list differentiate_up_to(uint32_t result, const at::Tensor& tangent,
                                                             std::span<const uint32_t> cuts, bool needs_inputs) = 0;
};

class ResultNode : public torch::autograd::Node {
 public:
  /// `edge`: to the owner, whose number is the result's. The results that it follows from are added as further edges.
  ResultNode(ResultOwner& owner, torch::autograd::Edge edge);
  std::string name() const override { return "RepriseResultBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;

 private:
  bool is_looked_at() const;

  ResultOwner& owner_;
  uint32_t result_;
};

/// Takes what flows into a result, and lets nothing through, as long as it lives: what it is put on may live longer, in
/// the graph of a gradient that is differentiated again.
class Cut {
 public:
  explicit Cut(const torch::autograd::Edge& edge);
  ~Cut() { state_->is_open = true; }
  Cut(Cut&&) = delete;

  const at::Tensor& gradient() const { return state_->gradient; }

 private:
  struct State {
    at::Tensor gradient;
    bool is_open = false;
  };
  class Hook;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace reprise::host
