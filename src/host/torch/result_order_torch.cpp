#include "host/torch/result_order.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

namespace reprise::host {

using torch::autograd::Edge;
using torch::autograd::Node;

bool has_way_to(PyObject* tensor, PyObject* base) {
  const Edge end = torch::autograd::impl::gradient_edge(THPVariable_Unpack(base));
  const Edge start = torch::autograd::impl::gradient_edge(THPVariable_Unpack(tensor));
  if (!end.is_valid() || !start.is_valid() || start == end) return start == end;
  std::vector<Node*> pending{start.function.get()};
  std::unordered_set<const Node*> seen(pending.begin(), pending.end());
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    for (const Edge& edge : node->next_edges()) {
      if (edge == end) return true;
      if (edge.is_valid() && seen.insert(edge.function.get()).second) pending.push_back(edge.function.get());
    }
  }
  return false;
}

ResultOrder find_result_order(std::span<PyObject* const> tensors) {
  ResultOrder found;
  found.follows_from.resize(tensors.size());
  found.order.resize(tensors.size());
  std::iota(found.order.begin(), found.order.end(), 0);
  if (tensors.size() < 2) return found;
  std::unordered_map<Edge, uint32_t> result_of;
  std::vector<Edge> edges;
  for (PyObject* tensor : tensors) {
    edges.push_back(torch::autograd::impl::gradient_edge(THPVariable_Unpack(tensor)));
    result_of.emplace(edges.back(), static_cast<uint32_t>(edges.size() - 1));
  }
  for (uint32_t i = 0; i < edges.size(); i++) {
    std::vector<Node*> pending{edges[i].function.get()};
    std::unordered_set<const Node*> seen(pending.begin(), pending.end());
    std::unordered_set<uint32_t> others;
    while (!pending.empty()) {
      const Node* node = pending.back();
      pending.pop_back();
      for (const Edge& edge : node->next_edges()) {
        if (!edge.is_valid()) continue;
        if (const auto other = result_of.find(edge); other != result_of.end()) {
          if (others.insert(other->second).second) found.follows_from[i].push_back(other->second);
        } else if (seen.insert(edge.function.get()).second) {
          pending.push_back(edge.function.get());
        }
      }
    }
  }
  std::ranges::stable_sort(found.order, {}, [&](uint32_t i) { return edges[i].function->topological_nr(); });
  return found;
}

}  // namespace reprise::host
