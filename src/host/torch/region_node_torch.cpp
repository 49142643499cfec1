#include "host/torch/region_node.h"

#include <algorithm>
#include <unordered_map>

#include <ATen/ScalarOps.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "base/hash.h"
#include "host/torch/boxed_call_impl.h"
#include "host/torch/python_errors_impl.h"
#include "host/torch/result_node_impl.h"
#include "host/torch/scalar_values_impl.h"
#include "host/torch/tensor_fields_impl.h"
#include "host/torch/trace_tensor_impl.h"
#include "host/torch/version_autograd_impl.h"

namespace reprise::host {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(thread_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

bool has_strides(const at::Tensor& tensor, const std::vector<int64_t>& strides) {
  for (int64_t d = 0; d < tensor.dim(); d++) {
    if (tensor.size(d) > 1 && tensor.stride(d) != strides[static_cast<size_t>(d)]) return false;
  }
  return true;
}

at::Tensor with_strides(const at::Tensor& tensor, const std::vector<int64_t>& strides) {
  if (tensor.numel() <= 1 || has_strides(tensor, strides)) return tensor;
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor copy = at::empty_strided(tensor.sizes(), strides, tensor.options());
  return copy.copy_(tensor);
}

class RegionNode : public Node, public ResultOwner {
 public:
  explicit RegionNode(std::shared_ptr<RegionCode> code) : code_(std::move(code)) {}

  std::string name() const override { return "RepriseRegionBackward"; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    release();
  }

  void save(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
            const std::vector<c10::IValue>& results) {
    const RegionPlan& plan = code_->plan();
    saved_place_of_input_.assign(inputs.size(), -1);
    saved_.reserve(plan.saved.size());
    for (size_t k = 0; k < plan.saved.size(); k++) {
      const RegionSaved& source = plan.saved[k];
      switch (source.kind) {
        case RegionSaved::Kind::Input:
          if (source.index < inputs.size()) saved_place_of_input_[source.index] = static_cast<int32_t>(k);
          saved_.emplace_back(inputs[source.index], false);
          break;
        case RegionSaved::Kind::Output:
          saved_.emplace_back(outputs[source.index], true);
          break;
        case RegionSaved::Kind::Result: {
          const c10::IValue& value = results[source.index];
          saved_.emplace_back(value.isTensor() ? value.toTensor() : c10::scalar_to_tensor(value.toScalar()), false);
          break;
        }
      }
    }
    for (const at::Tensor& input : inputs) {
      requires_grad_.push_back(input.requires_grad());
      weak_inputs_.emplace_back(input.getIntrusivePtr());
      input_versions_.push_back(static_cast<uint32_t>(input._version()));
    }
    keep(inputs);
  }

  void keep_rng_state(at::Tensor state) { rng_state_ = std::move(state); }

  // In front of the forward program: what inputs were that it writes to.
  void keep_copies(const std::vector<at::Tensor>& inputs) {
    const RegionPlan& plan = code_->plan();
    const at::AutoDispatchBelowADInplaceOrView below;
    copies_.resize(inputs.size());
    for (const RegionEffect& effect : plan.effects) {
      if (plan.needs_copy[effect.input] != 0) copies_[effect.input] = inputs[effect.input].clone();
    }
  }

  variable_list apply(variable_list&& tangents) override {
    const std::lock_guard lock(mutex_);
    variable_list gradients = differentiate(std::move(tangents));
    if (const auto found = waiting_.find(torch::autograd::get_current_graph_task_id()); found != waiting_.end()) {
      const variable_list others = std::move(found->second);
      waiting_.erase(found);
      for (size_t i = 0; i < gradients.size(); i++) add_to(gradients[i], others[i]);
    }
    return gradients;
  }

  variable_list differentiate_up_to(uint32_t result, const at::Tensor& tangent, std::span<const uint32_t> cuts,
                                    bool needs_inputs) override {
    const std::lock_guard lock(mutex_);
    variable_list tangents(code_->plan().differentiable.size());
    tangents[result] = tangent;
    BackwardKey key = make_key(tangents, has_plain_memory(tangent));
    if (!needs_inputs) key.is_needed.assign(key.is_needed.size(), 0);
    if (is_released_) check_is_first(key);
    note_differentiated(key);
    variable_list of_cuts(cuts.size());
    const variable_list gradients = differentiate_again(key, tangents, cuts, &of_cuts);
    variable_list& waiting = waiting_[torch::autograd::get_current_graph_task_id()];
    waiting.resize(gradients.size());
    for (size_t i = 0; i < gradients.size(); i++) add_to(waiting[i], gradients[i]);
    return of_cuts;
  }

 private:
  static void add_to(at::Tensor& sum, const at::Tensor& gradient) {
    if (gradient.defined()) sum = sum.defined() ? at::add(sum, gradient) : gradient;
  }

  variable_list differentiate(variable_list&& tangents) {
    const bool are_plain = std::ranges::all_of(tangents, has_plain_memory);
    BackwardKey key = make_key(tangents, are_plain);
    variable_list gradients(code_->plan().input_count);
    bool any = false;
    for (const uint8_t is_defined : key.is_defined) any |= is_defined != 0;
    if (!any) return gradients;
    if (is_released_ && !needs_nothing_saved(key, are_plain)) return differentiate_others(key, tangents);
    note_differentiated(key);
    if (!are_plain || c10::GradMode::is_enabled() || !code_->prepare_backward(key))
      return differentiate_again(key, tangents);
    ValueList inputs, results;
    // What only other results' gradients need may have been written to.
    const std::vector<uint8_t>& is_read = code_->find_read(key);
    for (size_t k = 0; k < saved_.size(); k++) {
      inputs.values().list.push_back(is_read[k] != 0 ? c10::IValue(saved_[k].unpack(share(this))) : c10::IValue());
    }
    if (!torch::autograd::get_current_graph_task_keep_graph()) {
      // Each saved value dies at its last use, as it does node by node in eager.
      release();
    }
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      for (size_t i = 0; i < tangents.size(); i++) {
        if (tangents[i].defined()) inputs.values().list.emplace_back(coerce(tangents[i], i, key));
      }
      tangents.clear();
      code_->run_backward(key, std::move(inputs), results);
    }
    for (size_t i = 0; i < gradients.size(); i++) {
      c10::IValue& value = results.values().list[i];
      if (value.isTensor()) gradients[i] = std::move(value).toTensor();
    }
    return gradients;
  }

  // As in eager, where operations that save nothing are differentiated as often as one likes.
  bool needs_nothing_saved(const BackwardKey& key, bool are_plain) const {
    if (!are_plain || c10::GradMode::is_enabled() || !code_->prepare_backward(key)) return false;
    const std::vector<uint8_t>& is_read = code_->find_read(key);
    return std::ranges::none_of(is_read, [](uint8_t reads) { return reads != 0; });
  }

  // Eager frees the graph behind what was differentiated, and none of the graphs of the region's other results.
  variable_list differentiate_others(const BackwardKey& key, const variable_list& tangents) {
    check_is_first(key);
    note_differentiated(key);
    return differentiate_again(key, tangents);
  }

  void check_is_first(const BackwardKey& key) {
    bool is_twice = false;
    for (size_t i = 0; i < key.is_defined.size(); i++) {
      if (key.is_defined[i] == 0 || is_differentiated_[i] == 0) continue;
      BackwardKey alone = key;
      std::ranges::fill(alone.is_defined, 0);
      alone.is_defined[i] = 1;
      is_twice |= !needs_nothing_saved(alone, /*are_plain=*/true);
    }
    for (const RegionEffect& effect : code_->plan().effects) {
      is_twice |= code_->plan().needs_copy[effect.input] != 0 && copies_.empty();
    }
    TORCH_CHECK(!is_twice, torch::autograd::ERR_BACKWARD_TWICE);
  }

  void note_differentiated(const BackwardKey& key) {
    is_differentiated_.resize(key.is_defined.size(), 0);
    if (torch::autograd::get_current_graph_task_keep_graph()) return;
    for (size_t i = 0; i < key.is_defined.size(); i++) is_differentiated_[i] |= key.is_defined[i];
    // What a result follows from is behind it.
    const ResultOrder& results = code_->plan().result_order;
    for (size_t i = results.order.size(); i-- > 0;) {
      if (is_differentiated_[results.order[i]] == 0) continue;
      for (const uint32_t from : results.follows_from[results.order[i]]) is_differentiated_[from] = 1;
    }
  }

  // Results that were not differentiated yet may be, by the callables: their inputs stay.
  void release() {
    is_differentiated_.resize(code_->plan().differentiable.size(), 0);
    if (std::ranges::all_of(is_differentiated_, [](uint8_t is_done) { return is_done != 0; })) {
      copies_.clear();
      kept_.clear();
    } else if (!is_released_) {
      for (size_t i = 0; i < kept_.size(); i++) keep_saved(i);
    }
    for (SavedVariable& saved : saved_) saved.reset_data();
    is_released_ = true;
  }

  void keep_saved(size_t index) {
    if (saved_place_of_input_[index] < 0 || !code_->plan().uses[index].is_needed) return;
    try {
      const at::Tensor input = saved_[static_cast<size_t>(saved_place_of_input_[index])].unpack(share(this));
      if (input.requires_grad() && is_leaf_now(input)) return;
      kept_[index] = SavedVariable(input.tensor_data(), false);
      is_kept_[index] = 1;
    } catch (const c10::Error&) {  // it was written to
    }
  }

  // Inputs that are not saved are gone when nothing else holds them. Kept without history: an input that held itself,
  // once it is written to with a gradient of this node, would never be freed. Leaves are held by the graph.
  void keep(const std::vector<at::Tensor>& inputs) {
    const RegionPlan& plan = code_->plan();
    is_kept_.assign(inputs.size(), 0);
    for (size_t i = 0; i < inputs.size(); i++) {
      const bool is_held = inputs[i].requires_grad() && is_leaf_now(inputs[i]);
      is_kept_[i] = plan.uses[i].is_needed && !is_held && saved_place_of_input_[i] < 0;
    }
    for (const RegionEffect& effect : plan.effects) is_kept_[effect.input] = 0;
    kept_.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); i++) {
      if (is_kept_[i] != 0) kept_[i] = SavedVariable(inputs[i].tensor_data(), false);
    }
  }

  // Batches of torch.vmap (is_grads_batched=True), subclasses, sparse: what a program of numbers cannot read.
  static bool has_plain_memory(const at::Tensor& tangent) {
    return !tangent.defined() || (tangent.layout() == c10::kStrided && is_plain(tangent.key_set()));
  }

  BackwardKey make_key(const variable_list& tangents, bool are_plain) {
    const RegionPlan& plan = code_->plan();
    BackwardKey key;
    for (size_t i = 0; i < tangents.size(); i++) {
      const at::Tensor& tangent = tangents[i];
      key.is_defined.push_back(tangent.defined() ? 1 : 0);
      std::vector<int64_t>& strides = key.strides.emplace_back();
      // Another order of the elements gives kernels other layouts: part of the key. Gaps and repetitions are copied
      // away.
      if (are_plain && tangent.defined() && tangent.numel() > 1 &&
          !has_strides(tangent, plan.differentiable[i].strides) && tangent.is_non_overlapping_and_dense()) {
        strides = tangent.strides().vec();
      }
    }
    for (size_t i = 0; i < plan.input_count; i++) {
      key.is_needed.push_back(requires_grad_[i] != 0 && task_should_compute_output(i) ? 1 : 0);
    }
    return key;
  }

  at::Tensor coerce(const at::Tensor& tangent, size_t index, const BackwardKey& key) const {
    const std::vector<int64_t>& traced = code_->plan().differentiable[index].strides;
    return key.strides[index].empty() ? with_strides(tangent, traced) : tangent;
  }

  at::Tensor take_input(size_t index) {
    if (saved_place_of_input_[index] >= 0 && !is_released_) {
      return saved_[static_cast<size_t>(saved_place_of_input_[index])].unpack(share(this));
    }
    const RegionInputUse& use = code_->plan().uses[index];
    at::Tensor tensor;
    if (auto input = weak_inputs_[index].lock(); input.defined()) {
      tensor = at::Tensor(std::move(input));
      if (!use.is_needed) return tensor;
    } else {
      if (index < kept_.size() && is_kept_[index] != 0) {
        tensor = kept_[index].unpack(share(this)).tensor_data();
      } else {
        TORCH_CHECK(!use.is_needed || !is_released_, torch::autograd::ERR_BACKWARD_TWICE);
        TORCH_CHECK(!use.is_needed, "input ", index, " of a compiled region was freed; differentiating twice needs it");
        tensor = make_stand_in(use.meta);
      }
      set_history(tensor, index);
    }
    TORCH_CHECK(!use.is_needed || static_cast<uint32_t>(tensor._version()) == input_versions_[index], "input ", index,
                " of a compiled region has been modified by an inplace operation; differentiating twice needs it");
    return tensor;
  }

  static at::Tensor make_stand_in(const TraceValueMeta& meta) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Device device(static_cast<at::DeviceType>(meta.device_type), meta.device_index);
    const auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(meta.dtype)).device(device);
    return at::empty_strided(meta.sizes, meta.strides, options).zero_();
  }

  void set_history(at::Tensor& tensor, size_t index) const {
    if (requires_grad_[index] != 0 && next_edge(index).is_valid()) {
      torch::autograd::impl::set_gradient_edge(tensor, next_edge(index));
    }
  }

  // What an input that is written to was, with the history that it had: another tensor, since it is written to again.
  at::Tensor take_written_input(size_t index) {
    at::Tensor tensor;
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      if (index < copies_.size() && copies_[index].defined()) {
        tensor = copies_[index].clone();
      } else {
        const auto input = weak_inputs_[index].lock();
        TORCH_CHECK(input.defined(), "input ", index,
                    " of a compiled region was freed; differentiating twice needs it");
        tensor = at::Tensor(input).detach().clone();
      }
    }
    set_history(tensor, index);
    return tensor;
  }

  // By running the callables again under autograd; with create_graph=True, what eager would record now.
  // `cuts`: results that nothing flows through; `of_cuts` gets what flows into them.
  variable_list differentiate_again(const BackwardKey& key, const variable_list& tangents,
                                    std::span<const uint32_t> cuts = {}, variable_list* of_cuts = nullptr) {
    if (!c10::GradMode::is_enabled()) code_->note_rerun();
    const RegionPlan& plan = code_->plan();
    bool is_plain = plan.gradients.empty();
    std::vector<uint8_t> is_written(plan.input_count, 0);
    for (const RegionEffect& effect : plan.effects) {
      is_written[effect.input] = 1;
      is_plain = is_plain && effect.kind != RegionEffect::Kind::SetData;
    }
    TORCH_CHECK(is_plain, "a compiled region that gives its inputs other memory cannot be differentiated twice");
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < plan.input_count; i++) {
      inputs.push_back(is_written[i] != 0 ? take_written_input(i) : take_input(i));
    }
    std::vector<size_t> places;
    torch::autograd::edge_list leaves;  // taken now: what is written to gets another history
    for (size_t i = 0; i < inputs.size(); i++) {
      if (key.is_needed[i] == 0) continue;
      // Behind a node of its own: an input may be computed from another one, or be the same tensor, and what flows
      // through that one is none of this region's gradients.
      const at::AutoGradMode with_history(true);
      inputs[i] = is_written[i] != 0 ? inputs[i].clone() : inputs[i].view_as(inputs[i]);
      places.push_back(i);
      leaves.push_back(torch::autograd::impl::gradient_edge(inputs[i]));
    }
    std::vector<at::Tensor> outputs;
    run_again(inputs, outputs);
    const auto edge_of = [&](size_t i) {
      const RegionDifferentiable& result = plan.differentiable[i];
      return torch::autograd::impl::gradient_edge((result.is_input ? inputs : outputs)[result.index]);
    };
    std::vector<std::pair<size_t, std::unique_ptr<Cut>>> put;
    for (size_t i = 0; i < cuts.size(); i++) {
      const Edge edge = edge_of(cuts[i]);
      if (!edge.is_valid()) continue;
      put.emplace_back(i, std::make_unique<Cut>(edge));
      leaves.push_back(edge);
    }
    torch::autograd::edge_list roots;
    variable_list seeds;
    for (size_t i = 0; i < tangents.size(); i++) {
      if (!tangents[i].defined()) continue;
      roots.push_back(edge_of(i));
      seeds.push_back(tangents[i]);
    }
    variable_list gradients(plan.input_count);
    const variable_list found = torch::autograd::Engine::get_default_engine().execute(
        roots, seeds, /*keep_graph=*/true, c10::GradMode::is_enabled(), /*accumulate_grad=*/false, leaves);
    for (size_t i = 0; i < places.size(); i++) gradients[places[i]] = found[i];
    for (const auto& [i, cut] : put) (*of_cuts)[i] = cut->gradient();
    return gradients;
  }

  void run_again(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs) {
    const RegionPlan& plan = code_->plan();
    const at::Tensor now = plan.is_random ? get_rng_state() : at::Tensor();
    if (plan.is_random) set_rng_state(rng_state_);
    const WithGil gil;
    std::vector<PyObject*> objects, results;
    for (const at::Tensor& input : inputs) objects.push_back(THPVariable_Wrap(input));
    bool ok = false;
    {
      const EntryStateScope scope(plan.entry_state);
      ok = code_->call_again(objects, results);
    }
    for (PyObject* object : objects) Py_XDECREF(object);
    for (PyObject* object : results) {
      outputs.push_back(THPVariable_Unpack(object));
      Py_DECREF(object);
    }
    if (plan.is_random) set_rng_state(now);
    if (!ok) throw_python_error();
  }

  std::shared_ptr<RegionCode> code_;
  std::vector<SavedVariable> saved_;
  std::vector<int32_t> saved_place_of_input_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> weak_inputs_;
  std::vector<uint32_t> input_versions_;
  std::vector<uint8_t> requires_grad_;
  std::vector<at::Tensor> copies_;   // of inputs that are written to
  std::vector<SavedVariable> kept_;  // inputs that are not saved, without history
  std::vector<uint8_t> is_kept_;
  at::Tensor rng_state_;
  std::vector<uint8_t> is_differentiated_;          // by result: a backward that frees the graph went through it
  std::unordered_map<int, variable_list> waiting_;  // by backward: gradients of inputs for the node's own turn
  bool is_released_ = false;
};

// One call of a region.
class RegionCall {
 public:
  RegionCall(const std::shared_ptr<RegionCode>& code, std::vector<at::Tensor> inputs)
      : code_(code), plan_(code->plan()), inputs_(std::move(inputs)), outputs_(plan_.outputs.size()) {}

  /// `random`: the generator's state now, where the region draws.
  std::vector<at::Tensor>& run(const at::Tensor& random) {
    const bool needs_node = find_need();
    NodePtr<RegionNode> node;
    if (needs_node) {
      node = make_node<RegionNode>(code_);
      torch::autograd::edge_list edges = torch::autograd::collect_next_edges(inputs_);
      for (size_t i = 0; i < edges.size(); i++) {
        if (plan_.has_gradient[i] == 0) edges[i] = Edge();  // only read, as by detach()
      }
      node->set_next_edges(std::move(edges));
      node->keep_rng_state(random);
      node->keep_copies(inputs_);
      make_result_nodes(node);
    }
    ValueList arguments;
    for (const at::Tensor& input : inputs_) arguments.values().list.emplace_back(input);
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      code_->run_forward(needs_node, std::move(arguments), results_);
    }
    for (size_t i = 0; i < plan_.outputs.size(); i++) {
      const RegionOutput& output = plan_.outputs[i];
      if (output.kind != RegionOutputKind::Value) continue;
      outputs_[i] = with_strides(result(output.result), output.strides);
      if (output.is_leaf && output.requires_grad) outputs_[i].set_requires_grad(true);
      if (output.version != 0) move_version(outputs_[i], output.version);
    }
    if (needs_node) {
      for (const RegionDifferentiable& differentiable : plan_.differentiable) {
        if (differentiable.is_input) continue;
        const at::Tensor& output = outputs_[differentiable.index];
        if (output.defined()) {
          torch::autograd::impl::set_gradient_edge(output, make_edge(output, node));
        } else {
          skip_result(node);
        }
      }
      node->save(inputs_, outputs_, results_.values().list);
    }
    for (const RegionEffect& effect : plan_.effects) apply_effect(effect, needs_node);
    if (needs_node) {
      for (const RegionDifferentiable& differentiable : plan_.differentiable) {
        if (!differentiable.is_input) continue;
        const at::Tensor& input = inputs_[differentiable.index];
        torch::autograd::impl::rebase_history(input, make_edge(input, node));
      }
    }
    make_views();
    for (const RegionGradient& gradient : plan_.gradients) {
      at::Tensor& place = inputs_[gradient.input].mutable_grad();
      place = gradient.output < 0 ? at::Tensor() : outputs_[static_cast<size_t>(gradient.output)];
    }
    outputs_.resize(plan_.output_count);
    return outputs_;
  }

 private:
  void make_result_nodes(const NodePtr<RegionNode>& node) {
    if (plan_.differentiable.size() == 1) return;
    result_nodes_.resize(plan_.differentiable.size());
    for (const uint32_t i : plan_.result_order.order) {
      result_nodes_[i] = make_node<ResultNode>(*node, Edge(node, i));
      for (const uint32_t from : plan_.result_order.follows_from[i])
        result_nodes_[i]->add_next_edge(Edge(result_nodes_[from], 0));
    }
  }

  // A result that turned out to be a view of something else, and is made from that.
  void skip_result(const NodePtr<RegionNode>& node) const {
    const uint32_t number = node->add_input_metadata(Node::undefined_input());
    if (!result_nodes_.empty()) result_nodes_[number]->add_input_metadata(Node::undefined_input());
  }

  // Called in the order of the plan's results.
  Edge make_edge(const at::Tensor& result, const NodePtr<RegionNode>& node) const {
    const auto number = static_cast<uint32_t>(node->add_input_metadata(result));
    if (result_nodes_.empty()) return Edge(node, number);
    result_nodes_[number]->add_input_metadata(result);
    return Edge(result_nodes_[number], 0);
  }

  bool find_need() const {
    if (plan_.differentiable.empty() || (plan_.is_grad_mode && !c10::GradMode::is_enabled())) return false;
    for (const at::Tensor& input : inputs_) {
      if (input.requires_grad()) return true;
    }
    return false;
  }

  // In front of saving, which takes the version that it finds for that of the values.
  static void move_version(const at::Tensor& output, uint32_t version) {
    if (output.is_inference()) return;
    while (static_cast<uint32_t>(output._version()) < version) output.unsafeGetTensorImpl()->bump_version();
  }

  // The program wrote the input itself.
  bool is_done(const RegionEffect& effect) const {
    return results_.values().list[static_cast<size_t>(effect.result)].isNone();
  }

  at::Tensor result(int32_t index) const { return results_.values().list[static_cast<size_t>(index)].toTensor(); }

  bool is_differentiable(uint32_t input) const {
    for (const RegionDifferentiable& differentiable : plan_.differentiable) {
      if (differentiable.is_input && differentiable.index == input) return true;
    }
    return false;
  }

  void apply_effect(const RegionEffect& effect, bool needs_node) {
    const at::Tensor& input = inputs_[effect.input];
    switch (effect.kind) {
      case RegionEffect::Kind::Copy:
      case RegionEffect::Kind::Resize: {
        TORCH_CHECK(!(needs_node && is_differentiable(effect.input) && is_leaf_now(input) && input.requires_grad()),
                    "a leaf Variable that requires grad is being used in an in-place operation.");
        if (is_done(effect)) break;
        const at::AutoDispatchBelowADInplaceOrView below;
        const at::Tensor value = result(effect.result);
        if (effect.kind == RegionEffect::Kind::Resize) input.resize_(value.sizes());
        input.copy_(value);
        break;
      }
      case RegionEffect::Kind::SetData:
        input.set_data(result(effect.result));
        break;
      case RegionEffect::Kind::Bump:
        break;
    }
    for (uint32_t i = 0; i < plan_.version_bumps[effect.input]; i++) input.unsafeGetTensorImpl()->bump_version();
    renew_history(input);
  }

  // A view whose memory was written to gets another node when it is next used, as it was in the region; PyTorch crashes
  // where that use is the registration of a hook.
  static void renew_history(const at::Tensor& input) {
    if (!input.is_view() || !input.requires_grad()) return;
    try {
      (void)input.grad_fn();
    } catch (const c10::Error&) {  // nobody may use it any more: its next use says so
    }
  }

  // The region may begin without gradients and make views with them, and the other way round.
  at::Tensor view(const at::Tensor& base, const RegionOutput& output) const {
    const bool is_made_without = output.requires_grad && output.is_leaf;
    const at::AutoGradMode mode(!is_made_without && (c10::GradMode::is_enabled() || !plan_.is_grad_mode));
    if (output.view != nullptr && base.requires_grad() && c10::GradMode::is_enabled()) {
      ValueList bases, views;
      bases.values().list.emplace_back(base);
      output.view->run_with_autograd(std::move(bases), views);
      return views.values().list[0].toTensor();
    }
    at::Tensor result = base.as_strided(output.sizes, output.strides, base.storage_offset() + output.offset);
    return !output.requires_grad && result.requires_grad() ? result.detach() : result;
  }

  void make_views() {
    for (size_t i = 0; i < plan_.outputs.size(); i++) {
      const RegionOutput& output = plan_.outputs[i];
      if (output.kind == RegionOutputKind::Input) outputs_[i] = inputs_[output.index];
      if (output.kind == RegionOutputKind::ViewOfInput) outputs_[i] = view(inputs_[output.index], output);
      if (output.kind == RegionOutputKind::ViewOfOutput) outputs_[i] = view(outputs_[output.index], output);
    }
    for (size_t i = 0; i < plan_.outputs.size(); i++) {
      const RegionOutput& output = plan_.outputs[i];
      if (output.kind == RegionOutputKind::SameOutput) outputs_[i] = outputs_[output.index];
    }
  }

  const std::shared_ptr<RegionCode>& code_;
  const RegionPlan& plan_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::vector<NodePtr<ResultNode>> result_nodes_;  // where there are several
  ValueList results_;
};

}  // namespace

uint64_t BackwardKey::hash() const {
  base::Hasher hasher;
  for (const uint8_t flag : is_defined) hasher.add(flag);
  for (const uint8_t flag : is_needed) hasher.add(flag);
  for (const std::vector<int64_t>& dims : strides) {
    hasher.add(dims.size());
    for (const int64_t stride : dims) hasher.add(stride);
  }
  return hasher.finish();
}

bool says_graph_is_freed(const std::string& text) {
  return text.find(torch::autograd::ERR_BACKWARD_TWICE) != std::string::npos;
}

bool call_region(const std::shared_ptr<RegionCode>& code, std::span<PyObject* const> inputs,
                 std::vector<PyObject*>& outputs) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(inputs.size());
  for (PyObject* input : inputs) {
    if (PyFloat_CheckExact(input)) {
      tensors.push_back(c10::scalar_to_tensor(PyFloat_AS_DOUBLE(input)));
    } else if (PyLong_CheckExact(input)) {
      tensors.push_back(c10::scalar_to_tensor(static_cast<int64_t>(PyLong_AsLongLong(input))));
    } else {
      tensors.push_back(THPVariable_Unpack(input));
    }
  }
  std::vector<at::Tensor> results;
  // A region that raises is run again call by call, from its start: numbers are drawn once.
  at::Tensor random;
  const bool ok = run_guarded([&] {
    const WithoutGil no_gil;
    if (code->plan().is_random) random = get_rng_state();
    RegionCall call(code, std::move(tensors));
    results = std::move(call.run(random));
  });
  if (!ok) {
    if (random.defined()) set_rng_state(random);
    return false;
  }
  for (at::Tensor& result : results) outputs.push_back(THPVariable_Wrap(std::move(result)));
  return true;
}

}  // namespace reprise::host
