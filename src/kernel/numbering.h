// Numbers of values in program order: what print() writes and get_hash() feeds.
//
// Independent of the order in which nodes were made. Values that no walk reaches have no number (kNone).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernel/kernel.h"

namespace reprise::kernel {

class Numbering {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  explicit Numbering(const Kernel& kernel) : kernel_(kernel), numbers_(kernel.nodes.size(), kNone) {
    for (const ValueId id : kernel.param_values) add(id);
    number_nodes(kernel.prologue);
    for (const LoopId body : kernel.bodies) number_loop(kernel.get(body));
  }

  std::uint32_t get(ValueId id) const { return id.index() < numbers_.size() ? numbers_[id.index()] : kNone; }

  std::vector<Term> get_sorted_terms(const Affine& affine) const {
    std::vector<Term> terms(affine.terms().begin(), affine.terms().end());
    std::sort(terms.begin(), terms.end(), [&](const Term& a, const Term& b) { return get(a.value) < get(b.value); });
    return terms;
  }

 private:
  void add(NodeId id) {
    if (numbers_[id.index()] == kNone) numbers_[id.index()] = next_++;
  }

  void number_loop(const Loop& loop) {
    add(loop.var);
    number_nodes(kernel_.get(loop.body));
  }

  void number_nodes(const std::vector<NodeId>& nodes) {
    for (const NodeId id : nodes) {
      const Node& node = kernel_.get(id);
      if (has_result(node.op)) add(id);
      if (node.op == ScalarOp::Loop) number_loop(kernel_.get_loop(node));
    }
  }

  const Kernel& kernel_;
  std::vector<std::uint32_t> numbers_;
  std::uint32_t next_ = 0;
};

}  // namespace reprise::kernel
