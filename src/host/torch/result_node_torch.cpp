#include <algorithm>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/graph_task.h>

#include "host/torch/result_node_impl.h"

namespace reprise::host {

using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

bool has_hooks(Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() || !node.pre_hooks().empty() ||
         !node.post_hooks().empty();
}

bool is_captured(Node* node) {
  const auto* tasks = torch::autograd::get_current_graph_task_exec_info();
  if (tasks == nullptr) return false;
  const auto found = tasks->find(node);
  return found != tasks->end() && found->second.captures_ != nullptr;
}

}  // namespace

ResultNode::ResultNode(ResultOwner& owner, torch::autograd::Edge edge) : owner_(owner), result_(edge.input_nr) {
  add_next_edge(std::move(edge));
}

// One of the results that it follows from, or that those follow from.
bool ResultNode::is_looked_at() const {
  std::vector<Node*> seen;
  std::vector<const ResultNode*> pending{this};
  while (!pending.empty()) {
    const ResultNode* node = pending.back();
    pending.pop_back();
    for (size_t i = 1; i < node->num_outputs(); i++) {
      auto* result = static_cast<ResultNode*>(node->next_edge(i).function.get());
      if (std::ranges::find(seen, result) != seen.end()) continue;
      if (has_hooks(*result) || is_captured(result)) return true;
      seen.push_back(result);
      pending.push_back(result);
    }
  }
  return false;
}

variable_list ResultNode::apply(variable_list&& tangents) {
  variable_list gradients(num_outputs());
  if (!tangents[0].defined() || num_outputs() == 1 || !is_looked_at()) {
    gradients[0] = std::move(tangents[0]);
    return gradients;
  }
  std::vector<uint32_t> cuts;
  for (size_t i = 1; i < num_outputs(); i++) {
    cuts.push_back(static_cast<const ResultNode*>(next_edge(i).function.get())->result_);
  }
  variable_list found = owner_.differentiate_up_to(result_, tangents[0], cuts, task_should_compute_output(0));
  for (size_t i = 0; i < found.size(); i++) gradients[i + 1] = std::move(found[i]);
  return gradients;
}

class Cut::Hook : public torch::autograd::FunctionPreHook {
 public:
  Hook(std::shared_ptr<State> state, uint32_t number) : state_(std::move(state)), number_(number) {}

  variable_list operator()(const variable_list& gradients) override {
    variable_list others = gradients;
    if (!state_->is_open) state_->gradient = std::exchange(others[number_], at::Tensor());
    return others;
  }

 private:
  std::shared_ptr<State> state_;
  uint32_t number_;
};

Cut::Cut(const torch::autograd::Edge& edge) {
  edge.function->add_tensor_pre_hook(std::make_unique<Hook>(state_, edge.input_nr));
}

}  // namespace reprise::host
