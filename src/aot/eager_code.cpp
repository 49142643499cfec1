#include "aot/eager_code.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "aot/functional.h"
#include "aot/program.h"
#include "aot/recording.h"
#include "aot/split.h"
#include "base/check.h"

namespace reprise::aot {

using graph::OutputKind;
using graph::ValueId;

namespace {

host::RegionOutputKind to_host_kind(OutputKind kind) {
  switch (kind) {
    case OutputKind::Value:
      return host::RegionOutputKind::Value;
    case OutputKind::ViewOfInput:
      return host::RegionOutputKind::ViewOfInput;
    case OutputKind::ViewOfOutput:
      return host::RegionOutputKind::ViewOfOutput;
    case OutputKind::Input:
      return host::RegionOutputKind::Input;
    case OutputKind::SameOutput:
      return host::RegionOutputKind::SameOutput;
    case OutputKind::None:
      break;
  }
  return host::RegionOutputKind::None;
}

host::RegionEffect::Kind to_host_kind(graph::EffectKind kind) {
  switch (kind) {
    case graph::EffectKind::Copy:
      return host::RegionEffect::Kind::Copy;
    case graph::EffectKind::SetData:
      return host::RegionEffect::Kind::SetData;
    case graph::EffectKind::Resize:
      return host::RegionEffect::Kind::Resize;
    case graph::EffectKind::Bump:
    case graph::EffectKind::SetRng:
      break;
  }
  return host::RegionEffect::Kind::Bump;
}

bool is_random(const graph::Graph& graph) {
  for (const graph::Node& node : graph.nodes) {
    if (node.phase == graph::Phase::Forward && graph::is_random(node.op)) return true;
  }
  return false;
}

struct KeyHash {
  size_t operator()(const host::BackwardKey& key) const { return key.hash(); }
};

class EagerCodeImpl final : public EagerCode {
 public:
  EagerCodeImpl(host::TraceContext& trace_context, std::shared_ptr<RegionCallables> callables,
                std::span<const RegionInput> inputs, RegionTrace trace, std::shared_ptr<graph::Context> context,
                const host::EntryState& entry_state, graph::Graph functional)
      : trace_context_(trace_context),
        callables_(std::move(callables)),
        inputs_(inputs.begin(), inputs.end()),
        trace_(std::move(trace)),
        context_(std::move(context)),
        functional_(std::move(functional)),
        graphs_(split_joint_graph(functional_)) {
    plan_.entry_state = entry_state;
  }

  ~EagerCodeImpl() override {
    // Constants and callables own Python objects.
    const PyGILState_STATE gil = PyGILState_Ensure();
    trace_.constants = host::TraceConstants();
    callables_.reset();
    PyGILState_Release(gil);
  }

  base::Result<bool> make_programs(bool is_grad_mode) {
    auto inference = make_boxed_program(make_inference_graph(functional_), trace_.constants);
    if (!inference) return inference.unsupported();
    inference_ = std::move(inference).value();
    auto forward = make_boxed_program(graphs_.forward, trace_.constants);
    if (!forward) return forward.unsupported();
    forward_ = std::move(forward).value();
    if (!trace_.differentiable.empty()) {
      auto backward = make_boxed_program(graphs_.backward, trace_.constants);
      if (!backward) return backward.unsupported();
      backwards_.emplace(full_key(), std::make_shared<host::BoxedProgram>(std::move(backward).value()));
    }
    make_plan(is_grad_mode);
    return true;
  }

  void run_forward(bool is_training, const host::ValueList& inputs, host::ValueList& results) override {
    const host::BoxedProgram& program = is_training ? forward_ : inference_;
    if (trace_.captured.empty()) return program.run(inputs, results);
    program.run(host::append_constants(inputs, trace_.constants, trace_.captured), results);
  }

  void run_backward(const host::BackwardKey& key, const host::ValueList& inputs, host::ValueList& gradients) override {
    std::shared_ptr<host::BoxedProgram> program;
    {
      const std::lock_guard lock(mutex_);
      const auto found = backwards_.find(key);
      if (found != backwards_.end()) program = found->second;
    }
    if (program == nullptr) program = make_backward(key);
    program->run(inputs, gradients);
  }

  bool call_again(std::span<PyObject* const> inputs, std::vector<PyObject*>& outputs) override {
    return callables_->call(inputs, nullptr, outputs);
  }

  const RegionTrace& trace() const override { return trace_; }
  const graph::Graph& functional_graph() const override { return functional_; }
  const graph::Graph& forward_graph() const override { return graphs_.forward; }
  const graph::Graph& backward_graph() const override { return graphs_.backward; }
  Counts counts() const override {
    Counts counts{inference_.instruction_count(), forward_.instruction_count(), forward_.clone_count(), {}};
    for (const auto& [key, program] : backwards_) counts.backward_instructions.push_back(program->instruction_count());
    return counts;
  }

 private:
  host::BackwardKey full_key() const {
    host::BackwardKey key;
    key.is_defined.assign(trace_.differentiable.size(), 1);
    key.strides.resize(trace_.differentiable.size());
    key.is_needed.assign(inputs_.size(), 0);
    for (size_t i = 0; i < inputs_.size(); i++) key.is_needed[i] = inputs_[i].like.requires_grad ? 1 : 0;
    return key;
  }

  void make_plan(bool is_grad_mode) {
    plan_.input_count = inputs_.size();
    plan_.is_grad_mode = is_grad_mode;
    plan_.is_random = is_random(functional_);
    plan_.version_bumps = trace_.version_bumps;
    int32_t result = 0;
    for (size_t i = 0; i < functional_.outputs.size(); i++) {
      const graph::Output& output = functional_.outputs[i];
      host::RegionOutput& made = plan_.outputs.emplace_back();
      made.kind = to_host_kind(output.kind);
      made.index = output.index;
      made.requires_grad = trace_.output_requires_grad[i] != 0;
      made.result = result++;
      const host::TraceValueMeta meta = to_meta(output.value);
      made.sizes = meta.sizes;
      made.strides = meta.strides;
      made.offset = meta.offset;
    }
    for (const graph::Effect& effect : functional_.effects) {
      plan_.effects.push_back({to_host_kind(effect.kind), effect.input, result++});
    }
    for (const DifferentiableResult& differentiable : trace_.differentiable) {
      plan_.differentiable.push_back({differentiable.is_input, differentiable.index, differentiable.strides});
    }
    for (const ValueId saved : graphs_.forward.saved) plan_.saved.push_back(find_source(saved, result++));
  }

  host::TraceValueMeta to_meta(ValueId id) const { return to_host_meta(functional_.get_meta(id)); }

  host::RegionSaved find_source(ValueId saved, int32_t result) const {
    for (size_t i = 0; i < inputs_.size(); i++) {
      if (functional_.inputs[i].value == saved) {
        return {host::RegionSaved::Kind::Input, static_cast<uint32_t>(i)};
      }
    }
    for (size_t i = 0; i < functional_.outputs.size(); i++) {
      const graph::Output& output = functional_.outputs[i];
      if (output.kind == OutputKind::Value && output.value == saved) {
        return {host::RegionSaved::Kind::Output, static_cast<uint32_t>(i)};
      }
    }
    return {host::RegionSaved::Kind::Result, static_cast<uint32_t>(result)};
  }

  // Inside of the engine: unsupported becomes an exception, as eager's own errors in a backward are.
  std::shared_ptr<host::BoxedProgram> make_backward(const host::BackwardKey& key) {
    const host::BackwardKey full = full_key();
    const bool is_traced = key.is_defined == full.is_defined && key.strides == full.strides;
    const PyGILState_STATE gil = PyGILState_Ensure();
    auto program = is_traced ? make_backward_of(functional_, trace_.constants, key) : trace_again(key);
    PyGILState_Release(gil);
    if (!program) throw std::runtime_error("reprise: no backward of a region: " + program.unsupported().text);
    const std::lock_guard lock(mutex_);
    return backwards_.emplace(key, std::make_shared<host::BoxedProgram>(std::move(program).value())).first->second;
  }

  base::Result<host::BoxedProgram> make_backward_of(const graph::Graph& joint, const host::TraceConstants& constants,
                                                    const host::BackwardKey& key) const {
    graph::Graph needed = joint;
    for (graph::Gradient& gradient : needed.gradients) {
      if (!key.is_needed[gradient.input]) gradient.value = ValueId();
    }
    auto backward = make_backward_graph(needed, graphs_.forward.saved);
    if (!backward) return backward.unsupported();
    return make_boxed_program(backward.value(), constants);
  }

  base::Result<host::BoxedProgram> trace_again(const host::BackwardKey& key) {
    const TangentSpec spec{key.is_defined, key.strides};
    auto traced = trace_region(trace_context_, context_, *callables_, inputs_, plan_.entry_state, &spec);
    if (!traced) return traced.unsupported();
    const RegionTrace again = std::move(traced).value();
    auto functional = make_functional(again);
    if (!functional) return functional.unsupported();
    return make_backward_of(functional.value(), again.constants, key);
  }

  host::TraceContext& trace_context_;
  std::shared_ptr<RegionCallables> callables_;
  std::vector<RegionInput> inputs_;
  RegionTrace trace_;
  std::shared_ptr<graph::Context> context_;
  graph::Graph functional_;
  SplitGraphs graphs_;
  host::BoxedProgram inference_;
  host::BoxedProgram forward_;
  mutable std::mutex mutex_;
  std::unordered_map<host::BackwardKey, std::shared_ptr<host::BoxedProgram>, KeyHash> backwards_;
};

}  // namespace

base::Result<std::shared_ptr<EagerCode>> make_eager_code(host::TraceContext& trace_context,
                                                         std::shared_ptr<RegionCallables> callables,
                                                         std::span<const RegionInput> inputs,
                                                         const host::EntryState& entry_state) {
  auto context = std::make_shared<graph::Context>();
  auto traced = trace_region(trace_context, context, *callables, inputs, entry_state);
  if (!traced) return traced.unsupported();
  RegionTrace trace = std::move(traced).value();
  auto functional = make_functional(trace);
  if (!functional) return functional.unsupported();
  const bool is_grad_mode = trace.is_grad_mode;
  auto code = std::make_shared<EagerCodeImpl>(trace_context, std::move(callables), inputs, std::move(trace),
                                              std::move(context), entry_state, std::move(functional).value());
  auto made = code->make_programs(is_grad_mode);
  if (!made) return made.unsupported();
  return std::shared_ptr<EagerCode>(std::move(code));
}

}  // namespace reprise::aot
