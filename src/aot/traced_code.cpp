#include "aot/traced_code.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "aot/functional.h"
#include "aot/program.h"
#include "aot/recording.h"
#include "aot/split.h"
#include "base/check.h"
#include "base/log.h"
#include "passes/pipeline.h"

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

// Of the float types in the graph, that of fewest digits.
types::DType find_coarsest(const graph::Graph& graph) {
  static constexpr types::DType kByDigits[] = {types::DType::BFloat16, types::DType::Float16, types::DType::Float32};
  for (const types::DType dtype : kByDigits) {
    const auto is_of_it = [&](const graph::Value& value) { return value.meta.dtype == dtype; };
    if (std::ranges::any_of(graph.values, is_of_it)) return dtype;
  }
  return types::DType::Float64;
}

struct KeyHash {
  size_t operator()(const host::BackwardKey& key) const { return key.hash(); }
};

class TracedCodeImpl final : public TracedCode {
 public:
  TracedCodeImpl(std::shared_ptr<host::TraceContext> trace_context, std::shared_ptr<RegionCallables> callables,
                 std::span<const RegionInput> inputs, RegionTrace trace, std::shared_ptr<graph::Context> context,
                 const host::EntryState& entry_state, const TracedOptions& options, FunctionalRegion functional,
                 std::shared_ptr<ProgramMaker> maker, const ExpectedTangents* expected)
      : trace_context_(std::move(trace_context)),
        callables_(std::move(callables)),
        inputs_(inputs.begin(), inputs.end()),
        trace_(std::move(trace)),
        context_(std::move(context)),
        maker_(std::move(maker)),
        functional_(std::move(functional)),
        graphs_(passes::partition_graph(functional_.graph, {options.partition, {}})) {
    plan_.entry_state = entry_state;
    plan_.result_order = trace_.result_order;
    plan_.is_expected.assign(trace_.differentiable.size(), 1);
    if (expected == nullptr) return;
    tangent_strides_ = expected->tangents.strides;
    is_general_ = false;
    for (size_t i = 0; i < trace_.differentiable.size(); i++) plan_.is_expected[i] = expected->tangents.defines(i);
    if (expected->general != nullptr) {
      plan_.has_gradient = expected->general->plan().has_gradient;
      plan_.uses = expected->general->plan().uses;
    } else {
      plan_.has_gradient.assign(inputs_.size(), 1);
      plan_.uses.resize(inputs_.size());
    }
  }

  ~TracedCodeImpl() override {
    // Constants and callables own Python objects.
    const PyGILState_STATE gil = PyGILState_Ensure();
    trace_.constants = host::TraceConstants();
    callables_.reset();
    PyGILState_Release(gil);
  }

  base::Result<bool> make_programs(bool is_grad_mode) {
    auto inference_graph = make_inference_graph(functional_.graph);
    if (!inference_graph) return inference_graph.unsupported();
    auto inference = maker_->make(inference_graph.value(), trace_.constants);
    if (!inference) return inference.unsupported();
    inference_ = std::move(inference).value();
    if (!trace_.differentiable.empty()) {
      auto forward = maker_->make(graphs_.forward, trace_.constants);
      if (!forward) return forward.unsupported();
      forward_ = std::move(forward).value();
    }
    if (std::ranges::any_of(plan_.is_expected, [](uint8_t is_expected) { return is_expected != 0; })) {
      auto backward = maker_->make(graphs_.backward, trace_.constants);
      if (!backward) return backward.unsupported();
      backwards_.emplace(full_key(), Backward{std::move(backward).value(), find_read(graphs_.backward)});
    }
    make_plan(is_grad_mode);
    return true;
  }

  void run_forward(bool is_training, host::ValueList&& inputs, host::ValueList& results) override {
    host::append_constants(inputs, trace_.constants, trace_.captured);
    (is_training ? forward_ : inference_)->run(std::move(inputs), results);
  }

  bool prepare_backward(const host::BackwardKey& key) override {
    if (find_backward(key) != nullptr) return true;
    const host::BackwardKey full = full_key();
    const bool is_traced = key.is_defined == full.is_defined && key.strides == full.strides;
    const PyGILState_STATE gil = PyGILState_Ensure();
    base::Result<Backward> program = base::Unsupported{base::UnsupportedCode::UntraceableRegion, "internal error"};
    try {
      program = is_traced ? make_backward_of(functional_.graph, trace_.constants, graphs_.forward.saved, key)
                          : trace_again(key);
    } catch (const base::InternalError&) {  // the callables are run again instead
    }
    PyGILState_Release(gil);
    if (!program) {
      if (base::is_log_enabled(base::LogWord::Aot)) {
        base::write_log(base::LogWord::Aot, "no program of these gradients, PyTorch differentiates the calls again: " +
                                                program.unsupported().text);
      }
      const std::lock_guard lock(mutex_);
      wanted_ = TangentSpec{key.is_defined, key.strides};
      has_wanted_.store(true, std::memory_order_release);
      return false;
    }
    const std::lock_guard lock(mutex_);
    backwards_.emplace(key, std::move(program).value());
    return true;
  }

  const std::vector<uint8_t>& find_read(const host::BackwardKey& key) const override {
    return get_backward(key).is_read;
  }

  void run_backward(const host::BackwardKey& key, host::ValueList&& inputs, host::ValueList& gradients) override {
    get_backward(key).program->run(std::move(inputs), gradients);
  }

  bool call_again(std::span<PyObject* const> inputs, std::vector<PyObject*>& outputs) override {
    return callables_->call(inputs, nullptr, outputs);
  }

  std::optional<TangentSpec> take_wanted_tangents() override {
    if (!has_wanted_.load(std::memory_order_acquire)) return std::nullopt;
    const std::lock_guard lock(mutex_);
    has_wanted_.store(false, std::memory_order_relaxed);
    return std::exchange(wanted_, std::nullopt);
  }

  const RegionTrace& trace() const override { return trace_; }
  const graph::Graph& functional_graph() const override { return functional_.graph; }
  const graph::Graph& forward_graph() const override { return graphs_.forward; }
  const graph::Graph& backward_graph() const override { return graphs_.backward; }
  Counts counts() const override {
    Counts counts{inference_->instruction_count(), 0, 0, {}};
    if (forward_ != nullptr) {
      counts.forward_instructions = forward_->instruction_count();
      counts.forward_clones = forward_->clone_count();
    }
    for (const auto& [key, backward] : backwards_) {
      counts.backward_instructions.push_back(backward.program->instruction_count());
    }
    return counts;
  }

 private:
  host::BackwardKey full_key() const {
    host::BackwardKey key;
    key.is_defined = plan_.is_expected;
    key.strides = tangent_strides_;
    key.strides.resize(trace_.differentiable.size());
    key.is_needed.assign(inputs_.size(), 0);
    for (size_t i = 0; i < inputs_.size(); i++) key.is_needed[i] = inputs_[i].like.requires_grad ? 1 : 0;
    return key;
  }

  void make_plan(bool is_grad_mode) {
    plan_.input_count = inputs_.size();
    plan_.is_grad_mode = is_grad_mode;
    plan_.is_random = is_random(functional_.graph);
    plan_.coarsest = find_coarsest(functional_.graph);
    plan_.version_bumps = trace_.version_bumps;
    if (is_general_) {
      plan_.has_gradient.assign(inputs_.size(), 0);
      for (const graph::Gradient& gradient : functional_.graph.gradients) {
        if (gradient.value.is_valid()) plan_.has_gradient[gradient.input] = 1;
      }
      plan_.uses = find_uses();
    }
    plan_.needs_copy.assign(inputs_.size(), 0);
    for (const graph::Effect& effect : functional_.graph.effects) {
      plan_.needs_copy[effect.input] = is_read_by_results(effect.input) ? 1 : 0;
    }
    plan_.output_count = trace_.output_count;
    for (const GradientOutput& gradient : trace_.gradient_outputs) {
      plan_.gradients.push_back({gradient.input, gradient.output});
    }
    int32_t result = 0;
    for (size_t i = 0; i < functional_.graph.outputs.size(); i++) {
      const graph::Output& output = functional_.graph.outputs[i];
      host::RegionOutput& made = plan_.outputs.emplace_back();
      made.kind = to_host_kind(output.kind);
      made.index = output.index;
      made.requires_grad = trace_.output_requires_grad[i] != 0;
      made.is_leaf = trace_.output_is_leaf[i] != 0;
      made.version = trace_.output_version[i];
      made.result = result++;
      if (output.kind != OutputKind::None && output.kind != OutputKind::SameOutput) {
        const host::TraceValueMeta meta = to_host_meta(output.meta);
        made.sizes = meta.sizes;
        made.strides = meta.strides;
        made.offset = meta.offset - base_offset(output);
        made.view = make_view(i);
      }
    }
    for (const graph::Effect& effect : functional_.graph.effects) {
      plan_.effects.push_back({to_host_kind(effect.kind), effect.input, result++});
    }
    for (const DifferentiableResult& differentiable : trace_.differentiable) {
      plan_.differentiable.push_back({differentiable.is_input, differentiable.index, differentiable.strides});
    }
    for (const ValueId saved : graphs_.forward.saved) plan_.saved.push_back(find_source(saved, result++));
  }

  // Where no gradient depends on the elements of an input, neither does a gradient of the gradients.
  std::vector<host::RegionInputUse> find_uses() const {
    const graph::Graph& graph = functional_.graph;
    std::vector<host::RegionInputUse> uses(inputs_.size());
    std::vector<uint8_t> is_needed(graph.values.size(), 0);
    for (const graph::Gradient& gradient : graph.gradients) {
      if (gradient.value.is_valid()) is_needed[gradient.value.index()] = 1;
    }
    for (size_t i = graph.nodes.size(); i-- > 0;) {
      bool is_live = false;
      graph::for_each_result(graph.nodes[i], [&](ValueId id) { is_live = is_live || is_needed[id.index()] != 0; });
      if (is_live) graph::for_each_use(graph.nodes[i], [&](ValueId id) { is_needed[id.index()] = 1; });
    }
    for (size_t i = 0; i < inputs_.size(); i++) {
      const graph::Value& value = graph.get_value(graph.inputs[i].value);
      const bool is_number = inputs_[i].number.has_value();
      uses[i].is_needed = is_number || (value.meta.flags & (graph::kConjugate | graph::kNegative)) != 0 ||
                          is_needed[graph.inputs[i].value.index()] != 0;
      if (!uses[i].is_needed) uses[i].meta = to_host_meta(value.meta);
    }
    return uses;
  }

  // Do results that gradients flow from depend on what an input that is written to was? Statistics of a batch norm: no.
  bool is_read_by_results(uint32_t input) const {
    const graph::Graph& graph = functional_.graph;
    std::vector<uint8_t> depends(graph.values.size(), 0);
    depends[graph.inputs[input].value.index()] = 1;
    for (const graph::Node& node : graph.nodes) {
      bool is_used = false;
      graph::for_each_use(node, [&](ValueId id) { is_used = is_used || depends[id.index()] != 0; });
      if (is_used) graph::for_each_result(node, [&](ValueId id) { depends[id.index()] = 1; });
    }
    for (const DifferentiableResult& result : trace_.differentiable) {
      if (result.is_input) {
        if (result.index == input) return true;
        for (const graph::Effect& effect : graph.effects) {
          if (effect.input == result.index && effect.value.is_valid() && depends[effect.value.index()] != 0)
            return true;
        }
      } else if (const ValueId value = graph.outputs[result.index].value;
                 value.is_valid() && depends[value.index()] != 0) {
        return true;
      }
    }
    return false;
  }

  // Where the memory began, when it was traced, of what an output is a view of.
  int64_t base_offset(const graph::Output& output) const {
    if (output.kind == OutputKind::ViewOfInput) {
      const graph::Value& input = trace_.graph.get_value(trace_.graph.inputs[output.index].value);
      return input.meta.offset.get_constant();
    }
    return output.kind == OutputKind::ViewOfOutput ? to_host_meta(functional_.graph.outputs[output.index].meta).offset
                                                   : 0;
  }

  // The calls between an output and what it is a view of; nullptr where no gradient flows or they are no plain views.
  std::shared_ptr<const host::BoxedProgram> make_view(size_t index) const {
    const graph::Output& output = functional_.graph.outputs[index];
    ValueId base;
    if (output.kind == OutputKind::ViewOfInput) base = trace_.graph.inputs[output.index].value;
    if (output.kind == OutputKind::ViewOfOutput) base = trace_.output_values[output.index];
    if (!base.is_valid() || trace_.output_requires_grad[index] == 0) return nullptr;
    graph::Graph graph(context_);
    graph.form = graph::Form::Functional;
    graph.values = trace_.graph.values;
    for (ValueId at = trace_.output_values[index]; at != base;) {
      const graph::NodeId producer = trace_.graph.get_value(at).producer;
      if (!producer.is_valid()) return nullptr;
      const graph::Node& node = trace_.graph.get_node(producer);
      if (!is_plain_view(node)) return nullptr;
      graph.nodes.insert(graph.nodes.begin(), node);
      at = node.args[0].get_value();
    }
    if (graph.nodes.empty()) return nullptr;
    graph.inputs.push_back({base});
    graph.outputs.push_back({OutputKind::Value, trace_.output_values[index], 0, {}});
    auto program = make_boxed_program(graph, trace_.constants);
    return program ? std::make_shared<host::BoxedProgram>(std::move(program).value()) : nullptr;
  }

  // A call on one tensor that changes nothing, not even the tensor object.
  bool is_plain_view(const graph::Node& node) const {
    const std::string_view name = graph::get_op_name(trace_.graph, node);
    if (!graph::is_view(node.op) || node.mut != 0 || name.substr(0, name.find('.')).ends_with('_')) return false;
    size_t use_count = 0;
    graph::for_each_use(node, [&](ValueId) { use_count++; });
    return use_count == 1 && node.args[0].is_value();
  }

  host::RegionSaved find_source(ValueId saved, int32_t result) const {
    for (size_t i = 0; i < inputs_.size(); i++) {
      if (functional_.graph.inputs[i].value == saved && !functional_.graph.inputs[i].is_mutated) {
        return {host::RegionSaved::Kind::Input, static_cast<uint32_t>(i)};
      }
    }
    for (size_t i = 0; i < functional_.graph.outputs.size(); i++) {
      const graph::Output& output = functional_.graph.outputs[i];
      if (output.kind == OutputKind::Value && output.value == saved) {
        return {host::RegionSaved::Kind::Output, static_cast<uint32_t>(i)};
      }
    }
    return {host::RegionSaved::Kind::Result, static_cast<uint32_t>(result)};
  }

  struct Backward {
    std::unique_ptr<host::RegionProgram> program;
    std::vector<uint8_t> is_read;  // of each saved value
  };

  // Stays where it is, with its contents, as long as the code.
  const Backward* find_backward(const host::BackwardKey& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = backwards_.find(key);
    return found == backwards_.end() ? nullptr : &found->second;
  }

  const Backward& get_backward(const host::BackwardKey& key) const {
    const Backward* backward = find_backward(key);
    REPRISE_CHECK(backward != nullptr, "a backward that was not prepared");
    return *backward;
  }

  // Saved values are a backward's first inputs.
  static std::vector<uint8_t> find_read(const graph::Graph& backward) {
    std::vector<uint8_t> is_used(backward.values.size(), 0);
    const auto mark = [&](ValueId id) { is_used[id.index()] = 1; };
    for (const graph::Node& node : backward.nodes) graph::for_each_use(node, mark);
    for (const graph::Gradient& gradient : backward.gradients) {
      if (gradient.value.is_valid()) mark(gradient.value);
    }
    std::vector<uint8_t> is_read;
    for (const graph::Input& input : backward.inputs) {
      if (input.kind == graph::InputKind::Saved) is_read.push_back(is_used[input.value.index()]);
    }
    return is_read;
  }

  base::Result<Backward> make_backward_of(const graph::Graph& joint, const host::TraceConstants& constants,
                                          std::span<const ValueId> saved, const host::BackwardKey& key) const {
    graph::Graph needed = joint;
    for (graph::Gradient& gradient : needed.gradients) {
      if (!key.is_needed[gradient.input]) gradient.value = ValueId();
    }
    auto backward = make_backward_graph(needed, saved);
    if (!backward) return backward.unsupported();
    auto program = maker_->make(backward.value(), constants);
    if (!program) return program.unsupported();
    return Backward{std::move(program).value(), find_read(backward.value())};
  }

  base::Result<Backward> trace_again(const host::BackwardKey& key) {
    const TangentSpec spec{key.is_defined, key.strides};
    auto traced = trace_region(*trace_context_, context_, *callables_, inputs_, plan_.entry_state, &spec);
    if (!traced) return traced.unsupported();
    const RegionTrace again = std::move(traced).value();
    auto functional = make_functional(again);
    if (!functional) return functional.unsupported();
    const auto saved = translate_values(graphs_.forward.saved, functional_, functional.value());
    if (!saved) return base::Unsupported{base::UnsupportedCode::UntraceableRegion, "another forward was traced"};
    return make_backward_of(functional.value().graph, again.constants, *saved, key);
  }

  std::shared_ptr<host::TraceContext> trace_context_;
  std::shared_ptr<RegionCallables> callables_;
  std::vector<RegionInput> inputs_;
  RegionTrace trace_;
  std::shared_ptr<graph::Context> context_;
  std::shared_ptr<ProgramMaker> maker_;
  FunctionalRegion functional_;
  passes::Partition graphs_;
  std::unique_ptr<host::RegionProgram> inference_;
  std::unique_ptr<host::RegionProgram> forward_;       // where something can be differentiated
  std::vector<std::vector<int64_t>> tangent_strides_;  // of the joint graph, where they are not as traced
  bool is_general_ = true;                             // the joint graph has gradients of all results
  std::atomic<bool> has_wanted_{false};
  std::optional<TangentSpec> wanted_;  // under the mutex
  mutable std::mutex mutex_;
  std::unordered_map<host::BackwardKey, Backward, KeyHash> backwards_;
};

}  // namespace

base::Result<std::unique_ptr<host::RegionProgram>> BoxedMaker::make(const graph::Graph& graph,
                                                                    const host::TraceConstants& constants) {
  auto program = make_boxed_program(graph, constants);
  if (!program) return program.unsupported();
  return std::unique_ptr<host::RegionProgram>(std::make_unique<host::BoxedProgram>(std::move(program).value()));
}

base::Result<std::shared_ptr<TracedCode>> make_traced_code(
    std::shared_ptr<host::TraceContext> trace_context, std::shared_ptr<RegionCallables> callables,
    std::span<const RegionInput> inputs, const host::EntryState& entry_state, std::shared_ptr<ProgramMaker> maker,
    const TracedOptions& options, const ExpectedTangents* expected) {
  auto context = std::make_shared<graph::Context>();
  auto traced = trace_region(*trace_context, context, *callables, inputs, entry_state,
                             expected == nullptr ? nullptr : &expected->tangents);
  if (!traced) return traced.unsupported();
  RegionTrace trace = std::move(traced).value();
  auto functional = make_functional(trace);
  if (!functional) return functional.unsupported();
  FunctionalRegion region = std::move(functional).value();
  if (options.is_simplified) {
    // Decompositions are for code generators; torch has kernels for what they take apart.
    base::PartSet without = options.without;
    if (!options.is_decomposed) without.add(base::Part::Decompose);
    std::vector<std::string_view> disabled;
    for (const base::PartInfo& part : base::get_parts()) {
      if (without.has(part.part)) disabled.push_back(part.word);
    }
    passes::PipelineResult result = passes::run_pipeline(region.graph, {disabled, options.is_verified, "joint"});
    if (result.unsupported) return *std::move(result.unsupported);
  }
  const bool is_grad_mode = trace.is_grad_mode;
  auto code = std::make_shared<TracedCodeImpl>(std::move(trace_context), std::move(callables), inputs, std::move(trace),
                                               std::move(context), entry_state, options, std::move(region),
                                               std::move(maker), expected);
  auto made = code->make_programs(is_grad_mode);
  if (!made) return made.unsupported();
  return std::shared_ptr<TracedCode>(std::move(code));
}

}  // namespace reprise::aot
