#include "driver/aot_region.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "aot/traced_code.h"
#include "base/hash.h"
#include "base/log.h"
#include "driver/native_maker.h"
#include "driver/region_inputs.h"
#include "driver/region_nodes.h"
#include "guards/facts.h"
#include "host/torch/check_region.h"
#include "host/torch/region_node.h"
#include "host/torch/tensor.h"
#include "host/torch/trace_tensor.h"
#include "runtime/errors.h"
#include "runtime/statistics.h"

namespace reprise::driver {

namespace {

constexpr size_t kMaxVariants = 4;  // for one choice of sizes
constexpr size_t kMaxSizes = SizeKey::kMaxSizes;
constexpr size_t kMaxSeen = 4096;  // sizes that are remembered without code
constexpr int kMaxFailures = 3;

class AotRegion final : public entry::RegionRunner {
 public:
  AotRegion(runtime::CompileContext& context, const entry::Entry& entry, const entry::RegionStep& step,
            uint64_t size_choice)
      : context_(context), entry_(entry), step_(step), sizes_(entry, region()), size_choice_(size_choice) {}
  ~AotRegion() override {
    for (PyObject* number : numbers_) Py_DECREF(number);
  }

  bool run(PyObject* const* operands, PyObject** results) override {
    refused_guard_ = -1;
    if (is_given_up() || !take_numbers(operands)) return false;
    if (has_sizes() && !sizes_.make(operands)) {
      failures_ = kMaxFailures;
      failure_ = "a size that is no number";
      return false;
    }
    std::shared_ptr<Variant> variant = find_variant(operands);
    if (variant == nullptr) {
      if (can_wait()) return run_live(operands, results);
      const bool is_full = sizes_.depends_on_data() && variants_.size() >= SizeKey::kMaxDataSizes;
      const bool is_live = may_wait();
      if (is_full && is_live) return run_live(operands, results);
      if ((is_full || evicted_ >= kMaxSizes) && !is_live) {
        failures_ = kMaxFailures;
        failure_ = "it needs code for each size, and too many sizes came";
        return false;
      }
      // Once, not for good: the next run makes the code.
      if (host::is_traced_elsewhere()) return is_live && !region().has_writes && run_live(operands, results);
      variant = make_variant(operands);
    }
    if (variant != nullptr && variant->is_pending) {
      if (!variant->native->is_ready()) return run_nodes(*variant->nodes, variant->symbolic, operands, results);
      if (!finish(*variant)) {
        varying_ = symbolic_;
        return false;
      }
    }
    if (variant != nullptr && variant->refused_guard >= 0) {
      refused_guard_ = variant->refused_guard;
      return false;
    }
    if (variant == nullptr) {
      // Perhaps without the symbolic numbers: the entry is made again.
      varying_ = symbolic_;
      failures_ = kMaxFailures;
      return false;
    }
    if (auto wanted = variant->code->take_wanted_tangents())
      variant = specialise(variant, std::move(*wanted), operands);
    std::vector<PyObject*> inputs = std::exchange(inputs_, {}), outputs = std::exchange(outputs_, {});
    inputs.assign(operands, operands + tensor_count());
    for (int32_t i : variant->symbolic) inputs.push_back(operands[tensor_count() + static_cast<size_t>(i)]);
    if (needs_check(*variant) && !check(*variant, inputs)) {
      inputs_ = std::move(inputs);
      return false;
    }
    const bool ok = host::call_region(variant->code, inputs, outputs);  // another run may come here meanwhile
    inputs_ = std::move(inputs);
    if (!ok) {
      note_failure();
      note_python_error("raised");
      return false;
    }
    if (failures_ != 0) {  // what raises now and then raises in PyTorch, too
      failures_ = 0;
      failure_.clear();
    }
    std::copy(outputs.begin(), outputs.end(), results);
    outputs.clear();
    outputs_ = std::move(outputs);
    if (!variant->nodes->run_state_nodes()) PyErr_Clear();  // they ran when the region was recorded
    return true;
  }

  bool is_given_up() const override { return failures_ >= kMaxFailures || !varying_.empty(); }
  std::vector<int32_t> list_varying_numbers() const override { return varying_; }
  int32_t refused_guard() const override { return refused_guard_; }
  int32_t blamed_item() const override { return blamed_item_; }
  std::vector<int32_t> list_refused_items() const override { return refused_items_; }
  bool is_asked_too_much() const override { return is_asked_too_much_; }
  bool has_raised_ahead() const override { return has_raised_ahead_; }

  std::string describe() const override {
    if (!varying_.empty()) return "a number that is a constant of it varies";
    if (!failure_.empty()) return failure_;
    if (variants_.empty()) return "not run yet";
    const auto ready = std::find_if(variants_.begin(), variants_.end(), [](const auto& v) { return !v->is_pending; });
    const Variant& shown = ready == variants_.end() ? *variants_.front() : **ready;
    std::string text = shown.text;
    uint64_t rerun_count = replaced_reruns_;
    for (const auto& variant : variants_) rerun_count += variant->code == nullptr ? 0 : variant->code->rerun_count();
    if (rerun_count > 0) text += "; backwards that PyTorch ran: " + std::to_string(rerun_count);
    return has_sizes() && variants_.size() > 1 ? text + ", for each of " + std::to_string(variants_.size()) + " sizes"
                                               : text;
  }

 private:
  struct Variant {
    bool is_checked = false;
    bool is_pending = false;        // its code is being compiled
    bool is_special = false;        // of what gradients came: it stays as it is
    std::vector<int32_t> symbolic;  // numbers that are inputs of it
    std::vector<int64_t> key;       // the sizes it is for: see SizeKey
    int32_t refused_guard = -1;     // there is no code: this fact does not hold for these sizes
    uint64_t last_used = 0;
    InputFacts facts;
    std::shared_ptr<RegionNodes> nodes;
    std::shared_ptr<NativeMaker> native;  // nullptr: not native
    std::shared_ptr<aot::TracedCode> code;
    std::string text;
  };

  const trace::Region& region() const { return entry_.region_plan().regions[step_.region]; }
  bool has_sizes() const { return sizes_.has_sizes(); }
  size_t tensor_count() const { return region().tensors.size(); }
  size_t number_count() const { return region().numbers.size(); }

  bool needs_check(const Variant& variant) const {
    if (variant.native == nullptr || context_.options.validate == base::Validate::Off) return false;
    return !variant.is_checked || context_.options.validate == base::Validate::Always;
  }

  // What raises ahead of a guard may be what the guard keeps from running.
  void note_failure() {
    has_raised_ahead_ = region().has_guards;
    failures_ = has_raised_ahead_ ? kMaxFailures : failures_ + 1;
  }

  // False: the code is not used now.
  bool check(Variant& variant, std::span<PyObject* const> inputs) {
    if (has_unknown_values(variant.code->functional_graph())) {
      variant.is_checked = true;
      ++context_.statistics.unchecked_regions;
      return true;
    }
    runtime::PhaseTimer timer(context_.statistics, runtime::Phase::Validate);
    const host::RegionCheck check = host::check_region(variant.code, inputs);
    switch (check.outcome) {
      case host::RegionCheck::Outcome::Agrees:
        if (!variant.is_checked) ++context_.statistics.checked_regions;
        break;
      case host::RegionCheck::Outcome::NotChecked:
        if (!variant.is_checked) ++context_.statistics.unchecked_regions;
        break;
      case host::RegionCheck::Outcome::Raised:
        note_failure();
        failure_ = "raised while it was checked";
        return false;
      case host::RegionCheck::Outcome::Differs:
        ++context_.statistics.failed_checks;
        failures_ = kMaxFailures;
        failure_ = "its code gave something else than PyTorch: " + check.text;
        base::write_message(context_.name + ": native code is not used, " + failure_ +
                            "; PyTorch's own kernels run instead (please report this)");
        return false;
    }
    variant.is_checked = true;
    return true;
  }

  // Memory that nobody fills is different each time.
  static bool has_unknown_values(const graph::Graph& graph) {
    for (const graph::Node& node : graph.nodes) {
      if (graph::get_op_name(graph, node).find("empty") != std::string_view::npos) return true;
    }
    return false;
  }

  // Numbers are constants of the code at first, but for those that steps compute. One that takes another value becomes
  // an input of new code; one that cannot be one runs outside from then on.
  bool take_numbers(PyObject* const* operands) {
    PyObject* const* now = operands + tensor_count();
    if (numbers_.size() < number_count()) {
      const trace::Trace& trace = entry_.trace();
      for (size_t i = 0; i < number_count(); i++) {
        numbers_.push_back(Py_NewRef(now[i]));
        const bool is_late = !trace.values[region().numbers[i]].is_pre && !sizes_.is_size(i);
        is_symbolic_.push_back(is_late);
        if (is_late) symbolic_.push_back(static_cast<int32_t>(i));
        if (is_late && !can_be_symbolic(now[i])) varying_.push_back(static_cast<int32_t>(i));
      }
      return varying_.empty();
    }
    std::vector<int32_t> changed;
    bool can_follow = true;
    for (size_t i = 0; i < numbers_.size(); i++) {
      if (sizes_.is_size(i)) continue;  // in the key
      const bool is_same_type = Py_TYPE(now[i]) == Py_TYPE(numbers_[i]);
      const bool is_symbolic = is_symbolic_[i] != 0;
      if (is_symbolic ? is_same_type && can_be_symbolic(now[i]) : guards::equals_exactly(now[i], numbers_[i])) continue;
      changed.push_back(static_cast<int32_t>(i));
      can_follow = can_follow && !is_symbolic && is_same_type && can_be_symbolic(now[i]);
    }
    if (changed.empty()) return true;
    if (!can_follow) {
      varying_ = changed;
      return false;
    }
    for (int32_t i : changed) {
      is_symbolic_[static_cast<size_t>(i)] = 1;
      symbolic_.push_back(i);
    }
    std::sort(symbolic_.begin(), symbolic_.end());
    variants_.clear();
    return true;
  }

  std::shared_ptr<Variant> find_variant(PyObject* const* operands) {
    for (const std::shared_ptr<Variant>& variant : variants_) {
      if (has_sizes() && variant->key != sizes_.values()) continue;
      if (variant->refused_guard < 0 && !fits_facts(*variant, operands)) continue;
      variant->last_used = ++clock_;
      return variant;
    }
    return nullptr;
  }

  // PyTorch's kernels may run the region: nothing can go wrong half-way (no fact to decide, nothing written).
  bool can_run_live(const Variant& variant) const {
    return region().guards.empty() && variant.code != nullptr &&
           (!region().has_writes || !variant.code->trace().alias_facts.needs_storage_identity);
  }

  bool may_wait() const {
    return std::all_of(variants_.begin(), variants_.end(), [&](const auto& v) { return can_run_live(*v); }) &&
           region().guards.empty();
  }

  // Sizes that are seen for the first time may never come again: PyTorch's kernels serve them.
  bool can_wait() {
    if (!has_sizes() || variants_.empty() || !may_wait()) return false;
    if (seen_.size() >= kMaxSeen) seen_.clear();
    return seen_.insert(base::hash_bytes(sizes_.values().data(), sizes_.values().size() * sizeof(int64_t))).second;
  }

  bool run_live(PyObject* const* operands, PyObject** results) {
    const std::span<PyObject* const> numbers(operands + tensor_count(), number_count());
    RegionNodes nodes(entry_, step_, numbers, symbolic_);
    return run_nodes(nodes, std::vector<int32_t>(symbolic_), operands, results);
  }

  bool run_nodes(RegionNodes& nodes, const std::vector<int32_t>& symbolic, PyObject* const* operands,
                 PyObject** results) {
    std::vector<PyObject*> inputs(operands, operands + tensor_count()), outputs;
    for (int32_t i : symbolic) inputs.push_back(operands[tensor_count() + static_cast<size_t>(i)]);
    if (!nodes.call(inputs, nullptr, outputs)) {
      PyErr_Clear();  // it raises again where the frames go on
      return false;
    }
    ++context_.statistics.live_regions;
    std::copy(outputs.begin(), outputs.end(), results);
    return true;
  }

  void make_room() {
    if (!has_sizes() || variants_.size() < kMaxSizes) return;
    variants_.erase(std::min_element(variants_.begin(), variants_.end(),
                                     [](const auto& a, const auto& b) { return a->last_used < b->last_used; }));
    ++context_.statistics.evicted_sizes;
    ++evicted_;
  }

  // Only where an input is written to or returned as a view does it matter who shares a storage.
  bool fits_facts(const Variant& variant, PyObject* const* operands) {
    const aot::AliasFacts& facts = variant.code->trace().alias_facts;
    if (has_hooks(facts, operands)) return false;
    if (!facts.needs_storage_identity && facts.no_views.empty()) return true;
    const InputFacts& now = facts_.find(operands, tensor_count());
    for (uint32_t i : facts.no_views) {
      if (now.is_view[i]) return false;
    }
    return now.is_leaf == variant.facts.is_leaf && now.first_of == variant.facts.first_of &&
           now.distances == variant.facts.distances;
  }

  // Made for gradients of other results than all of them; once, since they may be others in turn. What is compiled in
  // the background stays as it is: its code would come some calls later.
  std::shared_ptr<Variant> specialise(const std::shared_ptr<Variant>& general, aot::TangentSpec tangents,
                                      PyObject* const* operands) {
    if (general->is_special || context_.options.async_compile) return general;
    general->is_special = true;
    const std::string failure = failure_;
    const aot::ExpectedTangents expected{std::move(tangents), general->code.get()};
    const std::shared_ptr<Variant> made = make_variant(operands, &expected);
    if (made == nullptr || made->code == nullptr) {
      failure_ = failure;
      failures_ = 0;
      return general;
    }
    made->is_special = true;
    replaced_reruns_ += general->code->rerun_count();
    std::erase(variants_, general);
    return made;
  }

  // Hooks of what the region differentiates with respect to would not run, nor see all what it computes from what it
  // wrote.
  static bool has_hooks(const aot::AliasFacts& facts, PyObject* const* operands) {
    return std::ranges::any_of(facts.no_hooks, [&](uint32_t i) { return host::has_gradient_hooks(operands[i]); }) ||
           std::ranges::any_of(facts.no_kept_gradients, [&](uint32_t i) { return host::keeps_gradient(operands[i]); });
  }

  // Gradients that joined the region are steps of their own in the next plan.
  void ask_for_less() {
    if (!region().has_gradients) return;
    context_.takes_gradients = false;
    is_asked_too_much_ = true;
  }

  std::shared_ptr<Variant> make_variant(PyObject* const* operands, const aot::ExpectedTangents* expected = nullptr) {
    make_room();
    const auto count = std::count_if(variants_.begin(), variants_.end(), [&](const auto& variant) {
      return !has_sizes() || variant->key == sizes_.values();
    });
    if (static_cast<size_t>(count) >= kMaxVariants) {
      failure_ = "inputs that share storages in too many ways";
      return nullptr;
    }
    runtime::PhaseTimer timer(context_.statistics, runtime::Phase::Aot);
    auto made = std::make_shared<Variant>();
    Variant& variant = *made;
    const std::span<PyObject* const> numbers(operands + tensor_count(), number_count());
    variant.symbolic = symbolic_;
    variant.nodes = std::make_shared<RegionNodes>(entry_, step_, numbers, symbolic_);
    std::vector<aot::RegionInput> inputs = list_region_inputs(operands, tensor_count());
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
    variant.facts = facts_.find(operands, tensor_count());
    for (int32_t i : symbolic_) {
      aot::RegionInput& input = inputs.emplace_back();
      input.number =
          PyFloat_CheckExact(numbers[static_cast<size_t>(i)]) ? host::TraceValueKind::Float : host::TraceValueKind::Int;
    }
    variant.last_used = ++clock_;
    if (has_sizes()) variant.key = sizes_.values();
    auto code = make_code_or_report(variant, inputs, expected);
    if (!code && region().has_gradients && expected == nullptr && host::says_graph_is_freed(code.unsupported().text)) {
      // By a gradient that joined, behind a result that requires more: whoever differentiates that will be told.
      PyErr_Clear();
      static const aot::ExpectedTangents kNone;
      code = make_code_or_report(variant, inputs, &kNone);
    }
    if (!code && (variant.refused_guard = variant.nodes->take_refused_guard()) >= 0) {
      PyErr_Clear();
      keep(made);
      return made;
    }
    if (!code) {
      failure_ = code.unsupported().text;
      blamed_item_ = variant.nodes->failed_item();
      refused_items_ = variant.nodes->refused_items();
      PyErr_Clear();
      if (base::is_log_enabled(base::LogWord::Aot)) {
        base::write_log(base::LogWord::Aot, context_.name + ": region not compiled: " + failure_);
      }
      if (expected == nullptr) ask_for_less();
      return nullptr;
    }
    if (code.value()->trace().makes_subclass) {
      failure_ = "it makes a parameter";
      return nullptr;
    }
    if (has_hooks(code.value()->trace().alias_facts, operands)) {
      failure_ = "hooks on what it differentiates with respect to, or a kept gradient of what it writes to";
      if (expected == nullptr) ask_for_less();
      return nullptr;
    }
    variant.code = std::move(code).value();
    if (variant.native == nullptr) {
      variant.text = describe(variant.code->counts());
    } else if (context_.options.async_compile && can_run_live(variant)) {
      variant.native->start();
      variant.is_pending = true;
      variant.text = "is being compiled";
      ++context_.statistics.background_regions;
    } else if (!finish(variant)) {
      return nullptr;
    }
    keep(made);
    return made;
  }

  // Another thread may have seen a number vary while this one traced: then the code is for this run alone.
  void keep(const std::shared_ptr<Variant>& variant) {
    if (variant->symbolic == symbolic_) variants_.push_back(variant);
  }

  // Programs from what was compiled, here or in the background. False: the region is given up.
  bool finish(Variant& variant) {
    const bool was_pending = std::exchange(variant.is_pending, false);
    base::Result<bool> made = true;
    try {
      made = variant.native->finish();
    } catch (const base::InternalError& error) {
      if (runtime::is_strict()) throw;
      runtime::report_bug(error);
      made =
          base::Unsupported{base::UnsupportedCode::UntraceableRegion, std::string("internal error: ") + error.what()};
    }
    count(variant.native->counts(), was_pending);
    variant.text = describe(variant.native->counts());
    if (made) return true;
    failures_ = kMaxFailures;
    failure_ = made.unsupported().text;
    return false;
  }

  void count(const NativeCounts& counts, bool is_from_background) {
    runtime::Statistics& statistics = context_.statistics;
    add_seconds(runtime::Phase::Schedule, counts.schedule_ns, is_from_background);
    add_seconds(runtime::Phase::Codegen, counts.codegen_ns, is_from_background);
    if (counts.failed_kernels > 0 && statistics.failed_kernels == 0) {
      base::write_message(context_.name + ": a kernel could not be compiled, PyTorch's run instead: " + counts.failure);
    }
    statistics.failed_kernels += counts.failed_kernels;
    statistics.planned_bytes += static_cast<uint64_t>(counts.arena_bytes);
    statistics.compiled_kernels += counts.code.compiled;
    statistics.cached_kernels += counts.code.cached;
    statistics.cache_misses += counts.code.cache_misses;
    statistics.damaged_cache_files += counts.code.damaged_files;
  }

  // Out of the phase that is being timed, unless another thread spent them.
  void add_seconds(runtime::Phase phase, uint64_t time_ns, bool is_from_background) {
    const double seconds = static_cast<double>(time_ns) * 1e-9;
    context_.statistics.seconds(phase) += seconds;
    if (!is_from_background) context_.statistics.seconds(runtime::Phase::Aot) -= seconds;
  }

  // A bug of ours costs the region, nothing else.
  base::Result<std::shared_ptr<aot::TracedCode>> make_code_or_report(Variant& variant,
                                                                     std::span<const aot::RegionInput> inputs,
                                                                     const aot::ExpectedTangents* expected) {
    try {
      return make_code(variant, inputs, expected);
    } catch (const base::InternalError& error) {
      if (runtime::is_strict()) throw;
      runtime::report_bug(error);
      return base::Unsupported{base::UnsupportedCode::UntraceableRegion,
                               std::string("internal error: ") + error.what()};
    }
  }

  base::Result<std::shared_ptr<aot::TracedCode>> make_code(Variant& variant, std::span<const aot::RegionInput> inputs,
                                                           const aot::ExpectedTangents* expected) {
    const host::EntryState state = host::EntryState::capture();
    const bool is_native = context_.is_native() && find_native_engine(context_.options);
    if (!is_native) {
      return aot::make_traced_code(context_.trace_context(), variant.nodes, inputs, state,
                                   std::make_shared<aot::BoxedMaker>(), {}, expected);
    }
    const uint64_t sizes = size_choice_ << 16 | (made_variants_++ & 0xffff);
    variant.native = std::make_shared<NativeMaker>(context_.options, context_.kernel_family(), sizes, has_sizes());
    aot::TracedOptions options;
    options.without = context_.options.without;
    options.partition =
        options.without.has(base::Part::MinCut) ? passes::PartitionMode::Default : passes::PartitionMode::MinCut;
    options.is_simplified = options.is_decomposed = true;
    if (context_.options.async_compile) variant.native->defer();
    return aot::make_traced_code(context_.trace_context(), variant.nodes, inputs, state, variant.native, options,
                                 expected);
  }

  std::string describe(const aot::TracedCode::Counts& counts) const {
    std::string text = "a graph of " + std::to_string(counts.inference_instructions) + " operations";
    if (context_.is_native()) text += " of PyTorch's: this build has no LLVM (cpu_codegen=cpp needs none)";
    return text;
  }

  static std::string describe(const NativeCounts& counts) {
    std::string text = "native code: " + std::to_string(counts.native_ops) + " operations in " +
                       std::to_string(counts.kernels) + " kernels, " + std::to_string(counts.extern_ops) +
                       " library calls" +
                       (counts.products > 0 ? " (" + std::to_string(counts.products) + " of oneDNN)" : "") + ", in " +
                       std::to_string(counts.programs) + (counts.programs == 1 ? " program" : " programs");
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
  std::vector<std::shared_ptr<Variant>> variants_;
  std::vector<PyObject*> inputs_, outputs_;  // between two runs: their memory
  FactsFinder facts_;                        // the same
  std::vector<PyObject*> numbers_;           // as they were first; strong
  std::vector<uint8_t> is_symbolic_;         // by number
  std::vector<int32_t> symbolic_;            // those that are inputs of the code
  size_t evicted_ = 0;                       // sizes whose code has gone
  SizeKey sizes_;                            // of this run; code is made for given sizes
  const uint64_t size_choice_;               // of the entry: kernels of one choice of sizes stay apart
  uint64_t made_variants_ = 0;
  uint64_t replaced_reruns_ = 0;       // backwards that code ran again of which there is other code now
  std::unordered_set<uint64_t> seen_;  // keys without code
  uint64_t clock_ = 0;
  int32_t refused_guard_ = -1;
  int32_t blamed_item_ = -1;
  std::vector<int32_t> refused_items_;
  bool has_raised_ahead_ = false;
  bool is_asked_too_much_ = false;
  std::string failure_;
  std::vector<int32_t> varying_;
  int failures_ = 0;
};

}  // namespace

void add_aot_runners(runtime::CompileContext& context, entry::Entry& entry) {
  const uint64_t size_choice = context.take_size_choice();
  for (entry::RegionStep& step : entry.regions()) {
    step.runner = std::make_unique<AotRegion>(context, entry, step, size_choice);
  }
}

}  // namespace reprise::driver
