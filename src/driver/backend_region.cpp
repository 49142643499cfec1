#include "driver/backend_region.h"

#include <algorithm>
#include <string>
#include <vector>

#include "aot/region.h"
#include "driver/region_inputs.h"
#include "driver/region_nodes.h"
#include "guards/facts.h"
#include "runtime/statistics.h"

namespace reprise::driver {

namespace {

PyObject* make_tuple(std::span<PyObject* const> objects) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(objects.size()));
  for (size_t i = 0; tuple != nullptr && i < objects.size(); i++) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), Py_NewRef(objects[i]));
  }
  return tuple;
}

PyObject* make_int_tuple(std::span<const int32_t> numbers) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(numbers.size()));
  for (size_t i = 0; tuple != nullptr && i < numbers.size(); i++) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLong(numbers[i]));
  }
  return tuple;
}

class BackendRegion final : public entry::RegionRunner {
 public:
  BackendRegion(runtime::CompileContext& context, const entry::Entry& entry, const entry::RegionStep& step)
      : context_(context), entry_(entry), step_(step), sizes_(entry, region()) {}
  ~BackendRegion() override {
    for (const Variant& variant : variants_) Py_XDECREF(variant.compiled);
    for (PyObject* number : numbers_) Py_DECREF(number);
  }

  bool run(PyObject* const* operands, PyObject** results) override {
    refused_guard_ = -1;
    if (is_given_up() || !take_numbers(operands)) return false;
    if (sizes_.has_sizes() && !sizes_.make(operands)) return give_up("a size that is no number");
    const Variant* variant = find_variant();
    const bool is_full = sizes_.depends_on_data() && variants_.size() >= SizeKey::kMaxDataSizes;
    if (variant == nullptr && is_full) return run_live(operands, results);
    if (variant == nullptr) variant = make_variant(operands);
    if (variant == nullptr) return false;
    refused_guard_ = variant->refused_guard;
    if (refused_guard_ >= 0) return false;
    PyObject* const compiled = Py_NewRef(variant->compiled);  // another run may come here meanwhile
    PyObject* value = PyObject_Vectorcall(compiled, operands, tensor_count(), nullptr);
    Py_DECREF(compiled);
    if (value == nullptr && region().has_guards) {
      has_raised_ahead_ = true;
      return give_up("raised ahead of a guard");
    }
    if (value == nullptr) return fail("what the backend made raised");
    const bool is_sequence = PyTuple_Check(value) || PyList_Check(value);
    const bool fits = is_sequence ? PySequence_Fast_GET_SIZE(value) == static_cast<Py_ssize_t>(step_.values.size())
                                  : step_.values.size() == 1;
    if (!fits) {
      Py_DECREF(value);
      PyErr_SetString(PyExc_TypeError, "another number of results than the graph has");
      return fail("what the backend made returned");
    }
    for (size_t i = 0; i < step_.values.size(); i++) {
      results[i] = Py_NewRef(is_sequence ? PySequence_Fast_ITEMS(value)[i] : value);
    }
    Py_DECREF(value);
    return true;
  }

  bool is_given_up() const override { return has_failed_ || !varying_.empty(); }
  std::vector<int32_t> list_varying_numbers() const override { return varying_; }
  int32_t refused_guard() const override { return refused_guard_; }
  int32_t blamed_item() const override { return blamed_item_; }
  std::vector<int32_t> list_refused_items() const override { return refused_items_; }
  bool is_asked_too_much() const override { return is_asked_too_much_; }
  bool has_raised_ahead() const override { return has_raised_ahead_; }
  std::string describe() const override {
    if (!varying_.empty()) return "a number that is a constant of it varies";
    if (has_failed_) return failure_;
    return variants_.size() > 1 ? "made by the backend, for each of " + std::to_string(variants_.size()) + " sizes"
                                : "made by the backend";
  }

 private:
  struct Variant {
    std::vector<int64_t> key;      // the sizes it is for
    PyObject* compiled = nullptr;  // strong
    int32_t refused_guard = -1;    // there is no code: this fact does not hold for these sizes
    uint64_t last_used = 0;
  };

  const trace::Region& region() const { return entry_.region_plan().regions[step_.region]; }
  size_t tensor_count() const { return region().tensors.size(); }

  // Numbers that are no sizes are constants of the graph.
  bool take_numbers(PyObject* const* operands) {
    PyObject* const* now = operands + tensor_count();
    const size_t count = region().numbers.size();
    for (size_t i = numbers_.size(); i < count; i++) numbers_.push_back(Py_NewRef(now[i]));
    for (size_t i = 0; i < count; i++) {
      if (!sizes_.is_size(i) && !guards::equals_exactly(now[i], numbers_[i]))
        varying_.push_back(static_cast<int32_t>(i));
    }
    return varying_.empty();
  }

  const Variant* find_variant() {
    for (Variant& variant : variants_) {
      if (sizes_.has_sizes() && variant.key != sizes_.values()) continue;
      variant.last_used = ++clock_;
      return &variant;
    }
    return nullptr;
  }

  const Variant* make_variant(PyObject* const* operands) {
    if (evicted_ >= SizeKey::kMaxSizes) {
      give_up("it needs code for each size, and too many sizes came");
      return nullptr;
    }
    if (variants_.size() >= SizeKey::kMaxSizes) {
      const auto oldest = std::min_element(variants_.begin(), variants_.end(),
                                           [](const auto& a, const auto& b) { return a.last_used < b.last_used; });
      Py_XDECREF(oldest->compiled);
      variants_.erase(oldest);
      ++context_.statistics.evicted_sizes;
      ++evicted_;
    }
    runtime::PhaseTimer timer(context_.statistics, runtime::Phase::Backend);
    Variant variant;
    variant.key = sizes_.values();
    const std::span<PyObject* const> numbers(operands + tensor_count(), region().numbers.size());
    if (!decide_guards(numbers, operands, &variant.refused_guard)) return nullptr;
    if (variant.refused_guard < 0) {
      variant.compiled = compile(RegionNodes(entry_, step_, numbers), operands);
      if (variant.compiled == nullptr) {
        fail("the backend raised");
        return nullptr;
      }
    }
    variant.last_used = ++clock_;
    variants_.push_back(std::move(variant));
    return &variants_.back();
  }

  // PyTorch's kernels serve sizes that depend on data when the backend has made enough graphs.
  bool run_live(PyObject* const* operands, PyObject** results) {
    if (region().has_writes && !region().guards.empty()) {
      return give_up("sizes depend on data, and too many came");
    }
    const std::span<PyObject* const> numbers(operands + tensor_count(), region().numbers.size());
    RegionNodes nodes(entry_, step_, numbers);
    std::vector<PyObject*> inputs(operands, operands + tensor_count()), outputs;
    if (!nodes.call(inputs, nullptr, outputs)) {
      PyErr_Clear();  // it raises again where the frames go on
      refused_guard_ = nodes.take_refused_guard();
      return false;
    }
    ++context_.statistics.live_regions;
    std::copy(outputs.begin(), outputs.end(), results);
    return true;
  }

  // Facts about sizes hold or not for given sizes: a trace with tensors that have no data tells.
  bool decide_guards(std::span<PyObject* const> numbers, PyObject* const* operands, int32_t* refused) {
    if (region().guards.empty()) return true;
    RegionNodes nodes(entry_, step_, numbers);
    nodes.keep_guarded();
    const std::vector<aot::RegionInput> inputs = list_region_inputs(operands, tensor_count());
    for (const aot::RegionInput& input : inputs) {
      if (!input.like.is_supported) return give_up("an input that is no plain strided tensor");
    }
    const host::EntryState state = host::EntryState::capture();
    auto traced =
        aot::trace_region(*context_.trace_context(), std::make_shared<graph::Context>(), nodes, inputs, state);
    *refused = nodes.take_refused_guard();
    PyErr_Clear();
    if (!traced && *refused < 0) blamed_item_ = nodes.failed_item();
    if (!traced) refused_items_ = nodes.refused_items();
    return traced || *refused >= 0 || give_up(traced.unsupported().text);
  }

  PyObject* compile(const RegionNodes& nodes, PyObject* const* operands) {
    PyObject* list = PyList_New(0);
    for (const RegionNodes::Node& node : nodes.nodes()) {
      PyObject* of = make_int_tuple(nodes.operands(node));
      PyObject* object = node.object == nullptr ? Py_None : node.object;
      PyObject* row = Py_BuildValue("(siOOi)", trace::text_of(node.kind), node.n, object, of, node.slot);
      Py_XDECREF(of);
      if (row == nullptr || PyList_Append(list, row) < 0) PyErr_Clear();
      Py_XDECREF(row);
    }
    PyObject* compiled = nullptr;
    PyObject* constants = make_tuple(nodes.constants());
    PyObject* inputs = make_tuple({operands, tensor_count()});
    PyObject* outputs = make_int_tuple(nodes.outputs());
    PyObject* module = PyImport_ImportModule("reprise._fx");
    if (module != nullptr) {
      compiled =
          PyObject_CallMethod(module, "compile_region", "OOOOO", context_.backend(), list, constants, inputs, outputs);
    }
    Py_XDECREF(module);
    Py_DECREF(list);
    Py_XDECREF(constants);
    Py_XDECREF(inputs);
    Py_XDECREF(outputs);
    return compiled;
  }

  bool give_up(const std::string& why) {
    has_failed_ = true;
    failure_ = why;
    return false;
  }

  // Told once; the region runs node by node from now on. What many backends do not take is left out first.
  bool fail(const char* what) {
    has_failed_ = true;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject* text = value == nullptr ? nullptr : PyObject_Str(value);
    const char* utf8 = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
    failure_ = std::string(what) + " " + (type == nullptr ? "?" : reinterpret_cast<PyTypeObject*>(type)->tp_name) +
               ": " + (utf8 == nullptr ? "" : utf8);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    if (region().has_data_sizes || region().has_gradients) {
      PyErr_Clear();
      context_.takes_data_sizes &= !region().has_data_sizes;
      context_.takes_gradients &= !region().has_gradients;
      is_asked_too_much_ = true;
      return false;
    }
    const std::string message = "reprise: " + context_.name + ": " + failure_ + "; PyTorch runs this part as it is";
    if (PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 1) < 0) PyErr_Clear();
    PyErr_Clear();
    return false;
  }

  runtime::CompileContext& context_;
  const entry::Entry& entry_;
  const entry::RegionStep& step_;
  SizeKey sizes_;  // of this run
  std::vector<Variant> variants_;
  std::vector<PyObject*> numbers_;  // as they were first; strong
  std::vector<int32_t> varying_;
  int32_t refused_guard_ = -1;
  int32_t blamed_item_ = -1;
  std::vector<int32_t> refused_items_;
  bool is_asked_too_much_ = false;
  size_t evicted_ = 0;  // sizes whose code has gone
  uint64_t clock_ = 0;
  bool has_failed_ = false, has_raised_ahead_ = false;
  std::string failure_;
};

}  // namespace

void add_backend_runners(runtime::CompileContext& context, entry::Entry& entry) {
  for (entry::RegionStep& step : entry.regions()) {
    step.runner = std::make_unique<BackendRegion>(context, entry, step);
  }
}

}  // namespace reprise::driver
