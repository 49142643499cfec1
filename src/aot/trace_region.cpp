#include <algorithm>
#include <unordered_map>

#include "aot/output_aliases.h"
#include "aot/recording.h"
#include "aot/region.h"
#include "base/log.h"
#include "graph/printer.h"
#include "host/torch/leaves.h"

namespace reprise::aot {

using graph::OutputKind;
using graph::ValueId;

namespace {

// New references to Python objects, given back at the end of the scope.
struct Owned {
  std::vector<PyObject*> objects;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    for (PyObject* object : objects) Py_XDECREF(object);
  }
};

std::string take_python_error() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  std::string text = type == nullptr ? "no exception" : reinterpret_cast<PyTypeObject*>(type)->tp_name;
  if (PyObject* shown = value == nullptr ? nullptr : PyObject_Str(value)) {
    if (const char* utf8 = PyUnicode_AsUTF8(shown)) text += std::string(": ") + utf8;
    Py_DECREF(shown);
  }
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return text;
}

class RegionTracer {
 public:
  RegionTracer(host::TraceContext& trace_context, std::shared_ptr<graph::Context> context, RegionCallables& callables,
               std::span<const RegionInput> inputs, const host::EntryState& entry_state, const TangentSpec* tangents)
      : trace_(context),
        recording_(std::move(context)),
        run_(trace_context, recording_, entry_state),
        callables_(callables),
        inputs_(inputs),
        tangents_(tangents) {}
  ~RegionTracer() { callables_.end_run(); }
  RegionTracer(const RegionTracer&) = delete;
  RegionTracer& operator=(const RegionTracer&) = delete;

  base::Result<RegionTrace> trace() {
    if (!add_inputs()) return fail();
    if (!callables_.call(input_objects_.objects, &run_, outputs_.objects)) return fail();
    if (!recording_.failure().empty()) return fail(recording_.failure());
    if (const graph::Node* node = find_write_to_captured()) {
      return fail(std::string(graph::get_op_name(recording_.graph(), *node)) +
                  " writes to a tensor that came from outside of the region");
    }
    trace_.forward_node_count = recording_.graph().nodes.size();
    trace_.forward_value_count = recording_.graph().values.size();
    note_mutations();
    take_gradients();
    if (std::string problem = describe_outputs(); !problem.empty()) return fail(problem);
    for (const uint32_t i : differentiable_inputs_) {
      if (inputs_[i].like.is_view) return fail("an input that is a view and needs a gradient is written to");
    }
    collect_roots();
    trace_.result_order = host::find_result_order(roots_);
    for (PyObject* root : roots_) {
      if (reaches_made_leaf(root))
        return fail("a leaf that is made here and given out gets gradients of other results");
    }
    if (!trace_.differentiable.empty() && !differentiate()) return fail();
    if (!recording_.failure().empty()) return fail(recording_.failure());
    finish();
    if (base::is_log_enabled(base::LogWord::Aot)) {
      base::write_log(base::LogWord::Aot, graph::print_graph(trace_.graph));
    }
    return std::move(trace_);
  }

 private:
  base::Unsupported fail(std::string text = {}) {
    if (text.empty()) {
      text = PyErr_Occurred() ? take_python_error() : "the callables failed";
      if (!run_.failure().empty()) text = run_.failure();
    }
    PyErr_Clear();
    return {base::UnsupportedCode::UntraceableRegion, text};
  }

  bool add_inputs() {
    entry_gradients_.assign(inputs_.size(), nullptr);
    for (const RegionInput& input : inputs_) {
      if (input.number) {
        host::TraceValueId value;
        PyObject* number = run_.add_number(*input.number, value);
        if (number == nullptr) return false;
        input_objects_.objects.push_back(number);
        recording_.set_input(value, input.kind);
        continue;
      }
      ++tensor_count_;
      PyObject* tensor = run_.add_input(input.like);
      if (tensor == nullptr) return false;
      input_objects_.objects.push_back(tensor);
      const host::TracedTensor traced = run_.describe(tensor);
      entry_inputs_.push_back(traced);
      recording_.set_input(traced.value, input.kind);
    }
    for (size_t i = 0; i < tensor_count_; i++) {
      const int32_t leaf = inputs_[i].gradient_of;
      if (leaf < 0) continue;
      entry_gradients_[static_cast<size_t>(leaf)] = input_objects_.objects[i];
      run_.set_gradient(input_objects_.objects[static_cast<size_t>(leaf)], input_objects_.objects[i]);
    }
    trace_.input_count = inputs_.size();
    trace_.is_grad_mode = run_.is_grad_mode();
    return true;
  }

  const graph::Node* find_write_to_captured() {
    const graph::Graph& graph = recording_.graph();
    if (graph.inputs.size() == inputs_.size()) return nullptr;
    std::vector<graph::StorageId> captured;
    for (size_t i = inputs_.size(); i < graph.inputs.size(); i++) {
      captured.push_back(graph.get_meta(graph.inputs[i].value).storage);
    }
    for (const graph::Node& node : graph.nodes) {
      bool writes = false;
      for (size_t i = 0; i < node.args.size() && node.mut != 0; i++) {
        if (((node.mut >> i) & 1) == 0) continue;
        graph::for_each_value(node.args[i], [&](ValueId id) {
          writes |= std::find(captured.begin(), captured.end(), graph.get_meta(id).storage) != captured.end();
        });
      }
      if (writes) return &node;
    }
    return nullptr;
  }

  // Writes move the version; `.data =` and set_() move the value or the storage.
  void note_mutations() {
    graph::Graph& graph = recording_.graph();
    trace_.version_bumps.assign(inputs_.size(), 0);
    for (size_t i = 0; i < tensor_count_; i++) {
      const host::TracedTensor before = entry_inputs_[i];
      const host::TracedTensor now = run_.describe(input_objects_.objects[i]);
      const uint32_t bumps = now.version - before.version;
      trace_.version_bumps[i] = bumps;
      if (now.value != before.value) {
        graph.inputs[i].is_mutated = true;
        graph.effects.push_back({graph::EffectKind::SetData, static_cast<uint32_t>(i), to_id(now.value)});
      } else if (bumps != 0 && now.has_new_history) {
        differentiable_inputs_.push_back(static_cast<uint32_t>(i));
      }
    }
  }

  // loss.backward() among the callables leaves tensors in `.grad` of leaves.
  void take_gradients() {
    for (size_t i = 0; i < tensor_count_; i++) {
      if (run_.input_gradient(i) != host::kNoTraceValue)
        trace_.alias_facts.no_hooks.push_back(static_cast<uint32_t>(i));
    }
    trace_.output_count = outputs_.objects.size();
    for (size_t i = 0; i < tensor_count_; i++) {
      if (!inputs_[i].like.requires_grad || !inputs_[i].like.is_leaf) continue;
      PyObject* gradient = run_.get_gradient(input_objects_.objects[i]);
      if (gradient == entry_gradients_[i]) {
        Py_XDECREF(gradient);
        continue;
      }
      const int32_t output = gradient == nullptr ? -1 : static_cast<int32_t>(outputs_.objects.size());
      if (gradient != nullptr) outputs_.objects.push_back(gradient);
      trace_.gradient_outputs.push_back({static_cast<uint32_t>(i), output});
    }
  }

  bool reaches_made_leaf(PyObject* root) const {
    if (made_leaves_.empty()) return false;
    const host::LeavesOfGraph leaves(root);
    return std::any_of(made_leaves_.begin(), made_leaves_.end(), [&](PyObject* leaf) { return leaves.has(leaf); });
  }

  static ValueId to_id(host::TraceValueId value) { return ValueId(static_cast<uint32_t>(value)); }

  bool is_input_object(PyObject* object) const {
    const std::vector<PyObject*>& inputs = input_objects_.objects;
    return std::find(inputs.begin(), inputs.end(), object) != inputs.end();
  }

  std::string describe_outputs() {
    graph::Graph& graph = recording_.graph();
    std::vector<OutputTensor> tensors;
    for (PyObject* output : outputs_.objects) {
      const host::TracedTensor traced = run_.describe(output);
      if (traced.value == host::kNoTraceValue) return "an output that is no traced tensor";
      trace_.makes_subclass = trace_.makes_subclass || (!traced.is_plain && !is_input_object(output));
      if (traced.is_leaf && traced.requires_grad && !is_input_object(output)) made_leaves_.push_back(output);
      tensors.push_back({output, traced.value, traced.storage, traced.requires_grad});
      trace_.output_requires_grad.push_back(traced.requires_grad);
      trace_.output_is_leaf.push_back(traced.is_leaf);
      trace_.output_version.push_back(traced.version);
    }
    std::vector<OutputTensor> inputs;
    for (PyObject* input : std::span(input_objects_.objects).first(tensor_count_)) {
      const host::TracedTensor traced = run_.describe(input);
      inputs.push_back({input, traced.value, traced.storage, traced.requires_grad});
    }
    std::vector<uint32_t> refused;
    std::string problem = find_output_aliases(graph, inputs, tensors, graph.outputs, refused);
    for (const uint32_t i : refused) callables_.refuse_output(i);
    find_views_made_without();
    return problem;
  }

  void find_views_made_without() {
    for (size_t i = 0; i < outputs_.objects.size(); i++) {
      const graph::Output& output = recording_.graph().outputs[i];
      if (!trace_.output_requires_grad[i] || trace_.output_is_leaf[i]) continue;
      PyObject* base = nullptr;
      if (output.kind == OutputKind::ViewOfInput) base = input_objects_.objects[output.index];
      if (output.kind == OutputKind::ViewOfOutput) base = outputs_.objects[output.index];
      if (base == nullptr || !run_.describe(base).requires_grad) continue;
      if (host::has_way_to(outputs_.objects[i], base)) continue;
      // It may be of another view of the same memory: then its gradients flow somewhere, too.
      const auto is_reached = [&](size_t input) {
        return inputs_[input].like.requires_grad &&
               host::has_way_to(outputs_.objects[i], input_objects_.objects[input]);
      };
      bool has_way = false;
      for (size_t input = 0; input < tensor_count_ && !has_way; input++) has_way = is_reached(input);
      if (!has_way) trace_.output_is_leaf[i] = 1;
    }
  }

  void collect_roots() {
    const graph::Graph& graph = recording_.graph();
    for (size_t i = 0; i < graph.outputs.size(); i++) {
      if (graph.outputs[i].kind != OutputKind::Value || !trace_.output_requires_grad[i]) continue;
      if (trace_.output_is_leaf[i]) continue;
      add_root({false, static_cast<uint32_t>(i), {}}, graph.outputs[i].value, outputs_.objects[i]);
    }
    for (const uint32_t i : differentiable_inputs_) {
      add_root({true, i, {}}, to_id(run_.describe(input_objects_.objects[i]).value), input_objects_.objects[i]);
    }
  }

  void add_root(DifferentiableResult result, ValueId value, PyObject* tensor) {
    // A gradient has an element for each of a tensor that repeats some.
    const graph::TensorMeta& meta = recording_.graph().get_meta(value);
    int64_t step = 1;
    bool repeats = false;
    std::vector<int64_t> plain(meta.rank);
    for (size_t i = meta.rank; i-- > 0;) {
      const int64_t size = meta.sizes()[i].get_constant();
      plain[i] = step;
      step *= std::max<int64_t>(size, 1);
      repeats |= size > 1 && meta.strides()[i].get_constant() == 0;
    }
    if (repeats) {
      result.strides = std::move(plain);
    } else {
      for (const sym::Int stride : meta.strides()) result.strides.push_back(stride.get_constant());
    }
    trace_.differentiable.push_back(std::move(result));
    roots_.push_back(tensor);
  }

  bool differentiate() {
    recording_.set_phase(graph::Phase::Backward);
    const size_t count = trace_.differentiable.size();
    trace_.tangents.assign(count, ValueId());
    std::vector<PyObject*> defined;
    std::vector<size_t> places;
    std::vector<std::vector<int64_t>> strides;
    for (size_t i = 0; i < count; i++) {
      if (tangents_ != nullptr && !tangents_->defines(i)) continue;
      defined.push_back(roots_[i]);
      places.push_back(i);
      const bool is_given = tangents_ != nullptr && i < tangents_->strides.size() && !tangents_->strides[i].empty();
      strides.push_back(is_given ? tangents_->strides[i] : trace_.differentiable[i].strides);
    }
    std::vector<host::TraceValueId> tangents;
    if (defined.empty()) {
      for (size_t i = 0; i < inputs_.size(); i++)
        recording_.graph().gradients.push_back({ValueId(), static_cast<uint32_t>(i)});
      return true;
    }
    if (!run_.run_backward(defined, strides, tangents)) return false;
    for (size_t i = 0; i < tangents.size(); i++) {
      trace_.tangents[places[i]] = to_id(tangents[i]);
      recording_.set_input(tangents[i], graph::InputKind::Tangent);
    }
    for (size_t i = 0; i < inputs_.size(); i++) {
      const host::TraceValueId gradient = i < tensor_count_ ? run_.input_gradient(i) : host::kNoTraceValue;
      recording_.graph().gradients.push_back(
          {gradient == host::kNoTraceValue ? ValueId() : to_id(gradient), static_cast<uint32_t>(i)});
    }
    return true;
  }

  // Also where no version moves, as batch norm does.
  bool writes_to_inputs() {
    const graph::Graph& graph = recording_.graph();
    std::vector<uint8_t> is_input(graph.context->get_storage_count(), 0);
    for (size_t i = 0; i < tensor_count_; i++) is_input[graph.get_meta(graph.inputs[i].value).storage.index()] = 1;
    bool writes = false;
    for (const graph::Node& node : graph.nodes) {
      for (size_t i = 0; i < node.args.size() && node.mut != 0; i++) {
        if (((node.mut >> i) & 1) == 0) continue;
        graph::for_each_value(node.args[i], [&](ValueId id) {
          writes |=
              graph.get_value(id).kind == graph::ValueKind::Tensor && is_input[graph.get_meta(id).storage.index()] != 0;
        });
      }
    }
    return writes;
  }

  void finish() {
    graph::Graph& graph = recording_.graph();
    AliasFacts& facts = trace_.alias_facts;
    facts.groups = graph::find_aliased_inputs(graph);
    facts.no_views = differentiable_inputs_;
    facts.no_kept_gradients = differentiable_inputs_;
    std::erase_if(facts.groups, [&](const std::vector<uint32_t>& group) { return group.front() >= inputs_.size(); });
    facts.needs_storage_identity |= writes_to_inputs() || !graph.effects.empty();
    for (const graph::Output& output : graph.outputs) {
      facts.needs_storage_identity |= output.kind == OutputKind::ViewOfInput;
    }
    for (graph::Output& output : graph.outputs) {
      trace_.output_values.push_back(output.value);
      output.meta = graph.get_meta(output.value);
      if (output.kind != OutputKind::Value) output.value = ValueId();
    }
    trace_.captured.assign(recording_.captured().begin(), recording_.captured().end());
    trace_.constants = run_.take_constants();
    trace_.graph = std::move(graph);
  }

 private:
  RegionTrace trace_;
  Recording recording_;
  host::TraceRun run_;
  RegionCallables& callables_;
  std::span<const RegionInput> inputs_;
  size_t tensor_count_ = 0;  // the inputs in front of the numbers
  const TangentSpec* tangents_;
  Owned input_objects_;  // behind the run: gone before it
  Owned outputs_;
  std::vector<host::TracedTensor> entry_inputs_;
  std::vector<PyObject*> entry_gradients_;  // of each input; borrowed
  std::vector<uint32_t> differentiable_inputs_;
  std::vector<PyObject*> roots_;
  std::vector<PyObject*> made_leaves_;  // outputs that are no inputs and require gradients
};

}  // namespace

base::Result<RegionTrace> trace_region(host::TraceContext& trace_context, std::shared_ptr<graph::Context> context,
                                       RegionCallables& callables, std::span<const RegionInput> inputs,
                                       const host::EntryState& entry_state, const TangentSpec* tangents) {
  if (std::string obstacle = host::find_trace_obstacle(); !obstacle.empty()) {
    return base::Unsupported{base::UnsupportedCode::UntraceableRegion, std::move(obstacle)};
  }
  RegionTracer tracer(trace_context, std::move(context), callables, inputs, entry_state, tangents);
  return tracer.trace();
}

}  // namespace reprise::aot
