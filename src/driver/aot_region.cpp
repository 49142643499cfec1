#include "driver/aot_region.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "aot/traced_code.h"
#include "base/log.h"
#include "driver/native_maker.h"
#include "driver/region_nodes.h"
#include "guards/facts.h"
#include "host/torch/region_node.h"
#include "runtime/statistics.h"

namespace reprise::driver {

namespace {

constexpr size_t kMaxVariants = 4;
constexpr int kMaxFailures = 3;

/// What the code relies on and no guard of the entry states.
struct InputFacts {
  std::vector<const void*> storages;  // as they were: equal where inputs share one
  std::vector<uint8_t> is_leaf;
  std::vector<uint8_t> is_view;
};

class AotRegion final : public entry::RegionRunner {
 public:
  AotRegion(runtime::CompileContext& context, const entry::Entry& entry, const entry::RegionStep& step)
      : context_(context), entry_(entry), step_(step) {}
  ~AotRegion() override {
    for (Variant& variant : variants_) {
      for (PyObject* number : variant.numbers) Py_DECREF(number);
    }
  }

  bool run(PyObject* const* operands, PyObject** results) override {
    if (is_given_up()) return false;
    if (!variants_.empty() && find_varying(operands)) return false;
    Variant* variant = find_variant(operands);
    if (variant == nullptr) variant = make_variant(operands);
    if (variant == nullptr) {
      failures_ = kMaxFailures;
      return false;
    }
    std::vector<PyObject*> outputs = std::exchange(outputs_, {});  // a run may come back here
    if (!host::call_region(variant->code, {operands, tensor_count()}, outputs)) {
      ++failures_;
      note_python_error("raised");
      return false;
    }
    std::copy(outputs.begin(), outputs.end(), results);
    outputs.clear();
    outputs_ = std::move(outputs);
    if (!variant->nodes->run_state_nodes()) PyErr_Clear();  // they ran when the region was recorded
    return true;
  }

  bool is_given_up() const override { return failures_ >= kMaxFailures || !varying_.empty(); }
  std::vector<int32_t> list_varying_numbers() const override { return varying_; }

  std::string describe() const override {
    if (!varying_.empty()) return "a number that is a constant of it varies";
    return !failure_.empty() ? failure_ : variants_.empty() ? "not run yet" : variants_.front().text;
  }

 private:
  struct Variant {
    std::vector<PyObject*> numbers;  // strong
    InputFacts facts;
    std::shared_ptr<RegionNodes> nodes;
    std::shared_ptr<NativeMaker> native;  // nullptr: not native
    std::shared_ptr<aot::TracedCode> code;
    std::string text;
  };

  const trace::Region& region() const { return entry_.region_plan().regions[step_.region]; }
  size_t tensor_count() const { return region().tensors.size(); }
  size_t number_count() const { return region().numbers.size(); }

  static InputFacts describe(std::span<const aot::RegionInput> inputs) {
    InputFacts facts;
    for (const aot::RegionInput& input : inputs) {
      facts.storages.push_back(input.like.storage);
      facts.is_leaf.push_back(input.like.is_leaf);
      facts.is_view.push_back(input.like.is_view);
    }
    return facts;
  }

  // Numbers are constants of the code: what takes another value will do so again, and runs outside from then on.
  bool find_varying(PyObject* const* operands) {
    const std::vector<PyObject*>& numbers = variants_.front().numbers;
    for (size_t i = 0; i < numbers.size(); i++) {
      if (!guards::equals_exactly(operands[tensor_count() + i], numbers[i]))
        varying_.push_back(static_cast<int32_t>(i));
    }
    return !varying_.empty();
  }

  Variant* find_variant(PyObject* const* operands) {
    for (Variant& variant : variants_) {
      if (fits_facts(variant, operands)) return &variant;
    }
    return nullptr;
  }

  // Only where an input is written to or returned as a view does it matter who shares a storage.
  bool fits_facts(const Variant& variant, PyObject* const* operands) const {
    const aot::AliasFacts& facts = variant.code->trace().alias_facts;
    if (!facts.needs_storage_identity && facts.no_views.empty()) return true;
    std::vector<aot::RegionInput> inputs = list_inputs(operands);
    const InputFacts now = describe(inputs);
    if (now.is_leaf != variant.facts.is_leaf) return false;
    for (uint32_t i : facts.no_views) {
      if (now.is_view[i]) return false;
    }
    for (size_t i = 0; i < now.storages.size(); i++) {
      for (size_t k = i + 1; k < now.storages.size(); k++) {
        const bool shared = now.storages[i] == now.storages[k];
        if (shared != (variant.facts.storages[i] == variant.facts.storages[k])) return false;
      }
    }
    return true;
  }

  std::vector<aot::RegionInput> list_inputs(PyObject* const* operands) const {
    std::vector<aot::RegionInput> inputs;
    for (size_t i = 0; i < tensor_count(); i++) {
      inputs.push_back({host::describe_input(operands[i]), graph::InputKind::Plain});
    }
    return inputs;
  }

  Variant* make_variant(PyObject* const* operands) {
    if (variants_.size() >= kMaxVariants) {
      failure_ = "inputs that share storages in too many ways";
      return nullptr;
    }
    runtime::PhaseTimer timer(context_.statistics, runtime::Phase::Aot);
    Variant variant;
    const std::span<PyObject* const> numbers(operands + tensor_count(), number_count());
    variant.nodes = std::make_shared<RegionNodes>(entry_, step_, numbers);
    const std::vector<aot::RegionInput> inputs = list_inputs(operands);
    for (PyObject* number : numbers) {
      bool may_change = false;
      if (guards::is_plain(number, &may_change) && !may_change) continue;
      failure_ = "a tuple of what is no number";
      return nullptr;
    }
    for (const aot::RegionInput& input : inputs) {
      if (!input.like.is_supported) {
        failure_ = "an input that is no plain strided tensor";
        return nullptr;
      }
    }
    variant.facts = describe(inputs);
    auto code = make_code(variant, inputs);
    if (!code) {
      failure_ = code.unsupported().text;
      PyErr_Clear();
      if (base::is_log_enabled(base::LogWord::Aot)) {
        base::write_log(base::LogWord::Aot, context_.name + ": region not compiled: " + failure_);
      }
      return nullptr;
    }
    if (!code.value()->trace().alias_facts.no_hooks.empty()) {
      failure_ = "it differentiates with respect to its inputs";
      return nullptr;
    }
    variant.code = std::move(code).value();
    const aot::TracedCode::Counts counts = variant.code->counts();
    variant.text = variant.native != nullptr
                       ? describe(variant.native->counts())
                       : "a graph of " + std::to_string(counts.inference_instructions) + " operations";
    for (PyObject* number : numbers) variant.numbers.push_back(Py_NewRef(number));
    variants_.push_back(std::move(variant));
    return &variants_.back();
  }

  base::Result<std::shared_ptr<aot::TracedCode>> make_code(Variant& variant, std::span<const aot::RegionInput> inputs) {
    const host::EntryState state = host::EntryState::capture();
    if (!context_.is_native()) {
      return aot::make_traced_code(context_.trace_context(), variant.nodes, inputs, state,
                                   std::make_shared<aot::BoxedMaker>());
    }
    auto engine = find_native_engine();
    variant.native = std::make_shared<NativeMaker>(engine ? engine.value() : nullptr, context_.options);
    aot::TracedOptions options;
    options.partition = passes::PartitionMode::MinCut;
    options.is_simplified = options.is_decomposed = true;
    auto code = aot::make_traced_code(context_.trace_context(), variant.nodes, inputs, state, variant.native, options);
    const NativeCounts& counts = variant.native->counts();
    move_seconds(runtime::Phase::Schedule, counts.schedule_ns);
    move_seconds(runtime::Phase::Codegen, counts.codegen_ns);
    return code;
  }

  // Out of the phase that is being timed.
  void move_seconds(runtime::Phase phase, uint64_t time_ns) {
    const double seconds = static_cast<double>(time_ns) * 1e-9;
    context_.statistics.seconds(phase) += seconds;
    context_.statistics.seconds(runtime::Phase::Aot) -= seconds;
  }

  static std::string describe(const NativeCounts& counts) {
    std::string text = "native code: " + std::to_string(counts.native_ops) + " operations in " +
                       std::to_string(counts.kernels) + " kernels, " + std::to_string(counts.extern_ops) +
                       " library calls, in " + std::to_string(counts.programs) +
                       (counts.programs == 1 ? " program" : " programs");
    if (counts.failed_kernels > 0) text += "; a kernel could not be compiled: " + counts.failure;
    return text;
  }

  void note_python_error(const char* what) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    failure_ = std::string(what) + " " + (type == nullptr ? "?" : reinterpret_cast<PyTypeObject*>(type)->tp_name);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }

  runtime::CompileContext& context_;
  const entry::Entry& entry_;
  const entry::RegionStep& step_;
  std::vector<Variant> variants_;
  std::vector<PyObject*> outputs_;  // between two runs: its memory
  std::string failure_;
  std::vector<int32_t> varying_;
  int failures_ = 0;
};

}  // namespace

void add_aot_runners(runtime::CompileContext& context, entry::Entry& entry) {
  for (entry::RegionStep& step : entry.regions()) {
    step.runner = std::make_unique<AotRegion>(context, entry, step);
  }
}

}  // namespace reprise::driver
