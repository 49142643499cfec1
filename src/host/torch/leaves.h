// The leaves of an autograd graph: which ones it has, and which a call of backward has written, whose `.grad` is
// another one than when this was made.
//
// With the GIL. Holds the leaves, not their gradients.
#pragma once

#include <Python.h>

#include <memory>
#include <unordered_set>

namespace reprise::host {

class LeavesOfGraph {
 public:
  LeavesOfGraph() = default;
  /// `roots`: a tensor, or a tuple or list of them; anything else has no leaves.
  explicit LeavesOfGraph(PyObject* roots);

  bool is_empty() const { return leaves_ == nullptr; }
  bool has(PyObject* tensor) const;
  /// tensor_impl() of each leaf whose gradient was made or written since.
  void add_written(std::unordered_set<void*>* written) const;

 private:
  struct Leaves;
  std::shared_ptr<const Leaves> leaves_;
};

}  // namespace reprise::host
