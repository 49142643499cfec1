// Where versions of torch differ in how autograd nodes are owned. Private to host/torch.
//
// Up to 2.12 a Node is held by std::shared_ptr, from 2.13 by c10::intrusive_ptr; callers name neither.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <utility>

#include "host/torch/version_torch.h"

namespace reprise::host {

#if REPRISE_TORCH_AT_LEAST(2, 13)
template <typename T>
using NodePtr = c10::intrusive_ptr<T>;

template <typename T, typename... Args>
NodePtr<T> make_node(Args&&... args) {
  return c10::make_intrusive<T>(std::forward<Args>(args)...);
}
/// An owning pointer from inside a method of the node.
inline NodePtr<torch::autograd::Node> share(torch::autograd::Node* node) {
  return NodePtr<torch::autograd::Node>::reclaim_copy(node);
}
#else
template <typename T>
using NodePtr = std::shared_ptr<T>;

template <typename T, typename... Args>
NodePtr<T> make_node(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), torch::autograd::deleteNode);
}
inline NodePtr<torch::autograd::Node> share(torch::autograd::Node* node) { return node->shared_from_this(); }
#endif

}  // namespace reprise::host
