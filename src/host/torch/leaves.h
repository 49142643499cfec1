// Which leaves a call of backward writes: those of the graph behind its roots whose `.grad` is another one afterwards.
//
// Made in front of the call, asked behind it, with the GIL. Holds the leaves meanwhile, not their gradients.
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
  /// tensor_impl() of each leaf whose gradient was made or written since.
  void add_written(std::unordered_set<void*>* written) const;

 private:
  struct Leaves;
  std::shared_ptr<const Leaves> leaves_;
};

}  // namespace reprise::host
