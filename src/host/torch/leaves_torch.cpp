#include "host/torch/leaves.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <vector>

namespace reprise::host {

namespace {

using torch::autograd::Node;

struct Gradient {
  const c10::TensorImpl* tensor = nullptr;
  int64_t version = 0;
  explicit Gradient(const at::Tensor& leaf) {
    const at::Tensor& gradient = leaf.grad();
    if (!gradient.defined()) return;
    tensor = gradient.unsafeGetTensorImpl();
    if (!gradient.is_inference()) version = gradient._version();
  }
  bool operator==(const Gradient&) const = default;
};

void add_root(PyObject* object, std::vector<Node*>* nodes) {
  if (!THPVariable_Check(object)) return;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (tensor.requires_grad()) nodes->push_back(torch::autograd::impl::gradient_edge(tensor).function.get());
}

}  // namespace

struct LeavesOfGraph::Leaves {
  struct Leaf {
    at::Tensor tensor;
    Gradient before;
  };
  std::vector<Leaf> leaves;
};

LeavesOfGraph::LeavesOfGraph(PyObject* roots) {
  std::vector<Node*> waiting;
  if (PyTuple_Check(roots) || PyList_Check(roots)) {
    PyObject** elements = PySequence_Fast_ITEMS(roots);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(roots); i++) add_root(elements[i], &waiting);
  } else {
    add_root(roots, &waiting);
  }
  if (waiting.empty()) return;
  auto found = std::make_shared<Leaves>();
  std::unordered_set<const Node*> seen(waiting.begin(), waiting.end());
  while (!waiting.empty()) {
    Node* node = waiting.back();
    waiting.pop_back();
    if (const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(node); end != nullptr) {
      found->leaves.push_back({end->variable, Gradient(end->variable)});
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid() && seen.insert(edge.function.get()).second) waiting.push_back(edge.function.get());
    }
  }
  leaves_ = std::move(found);
}

void LeavesOfGraph::add_written(std::unordered_set<void*>* written) const {
  if (leaves_ == nullptr) return;
  for (const Leaves::Leaf& leaf : leaves_->leaves) {
    if (!(Gradient(leaf.tensor) == leaf.before)) written->insert(leaf.tensor.unsafeGetTensorImpl());
  }
}

}  // namespace reprise::host
