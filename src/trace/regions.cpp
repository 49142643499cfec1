#include "trace/regions.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "host/torch/callables.h"
#include "host/torch/tensor.h"
#include "trace/region_gradients.h"

namespace reprise::trace {

namespace {

class Planner {
 public:
  Planner(const Trace& trace, const Liveness& liveness, const RegionOptions& options, std::vector<uint8_t>& may_join)
      : trace_(trace), liveness_(liveness), options_(options), may_join_(may_join) {}

  bool has_failed_to_join() const { return has_failed_to_join_; }

  RegionPlan run() {
    const size_t count = trace_.values.size();
    plan_.region_of.assign(trace_.items.size(), -1);
    plan_.deferred_of.assign(trace_.items.size(), -1);
    plan_.in_front_of.assign(trace_.items.size(), -1);
    is_excluded_.assign(trace_.items.size(), 0);
    for (int32_t item : options_.excluded) is_excluded_[item] = 1;
    is_varying_.assign(count, 0);
    for (ValueId id : options_.varying) is_varying_[id] = 1;
    find_constants();
    find_carriers();
    find_gathered();
    gradients_.emplace(trace_, liveness_, plan_);
    is_target_ = gradients_->find_targets(may_join_);
    find_data_sized();
    is_inside_.assign(count, 0);
    is_deferred_value_.assign(count, 0);
    input_of_.assign(count, -1);
    for (size_t i = 0; i < trace_.items.size(); i++) add_item(static_cast<int32_t>(i));
    close();
    return std::move(plan_);
  }

 private:
  bool is_live(ValueId id) const { return liveness_.is_live[id] != 0; }
  const Value& value_of(ValueId id) const { return trace_.values[id]; }
  bool is_tensor(ValueId id) const {
    return value_of(id).type == ValueType::Tensor || value_of(id).type == ValueType::LateTensor;
  }
  bool is_constant(ValueId id) const { return id >= 0 && plan_.constants[id] != nullptr; }

  void find_constants() {
    plan_.constants.assign(trace_.values.size(), nullptr);
    for (size_t id = 0; id < trace_.values.size(); id++) {
      if (trace_.values[id].kind == NodeKind::Const) plan_.constants[id] = trace_.values[id].object;
    }
    for (const Guard& guard : trace_.guards) {
      const bool is_fixed = guard.fact == FactKind::Identity || guard.fact == FactKind::Equal;
      if (is_fixed && value_of(guard.value).is_pre) plan_.constants[guard.value] = guard.object;
    }
  }

  static bool is_computed_of_sizes(const Value& value) {
    if (!value.varies || value.is_pre || value.type == ValueType::Tensor) return false;
    switch (value.kind) {
      case NodeKind::TensorSize:
      case NodeKind::Unary:
      case NodeKind::Binary:
      case NodeKind::Compare:
      case NodeKind::GetItem:
      case NodeKind::Call:
        return true;
      default:
        return false;
    }
  }

  // A tuple, list or slice that nobody changes, and what follows from sizes.
  void find_carriers() {
    is_carrier_.assign(trace_.values.size(), 0);
    for (const Item& item : trace_.items) {
      if (item.guard >= 0) continue;
      const Value& value = value_of(item.value);
      if (options_.takes_sizes && is_computed_of_sizes(value)) {
        is_carrier_[item.value] = 1;
        continue;
      }
      const bool is_kind =
          value.kind == NodeKind::Tuple || value.kind == NodeKind::List || value.kind == NodeKind::Slice;
      // A tuple may be a torch.Size; other classes of tuples are the program's.
      const bool is_shape =
          value.object != nullptr && value.kind == NodeKind::Tuple && host::is_size_type(value.object);
      if (!is_kind || (value.object != nullptr && !is_shape)) continue;
      is_carrier_[item.value] = liveness_.first_mutation[item.value] == liveness_.first_mutation[item.value + 1];
    }
  }

  // Guards say of which type and length it is, and name all its elements; nobody changes it.
  void find_gathered() {
    std::unordered_map<ValueId, Gathered> found;
    std::unordered_map<ValueId, int64_t> lengths;
    for (const Guard& guard : trace_.guards) {
      if (!value_of(guard.value).is_pre) continue;
      if (guard.fact == FactKind::Length) lengths[guard.value] = guard.n;
      if (guard.fact != FactKind::Type) continue;
      if (guard.object == reinterpret_cast<PyObject*>(&PyTuple_Type)) found[guard.value].kind = NodeKind::Tuple;
      if (guard.object == reinterpret_cast<PyObject*>(&PyList_Type)) found[guard.value].kind = NodeKind::List;
    }
    for (const auto& [id, length] : lengths) {
      const auto place = found.find(id);
      if (place != found.end()) place->second.elements.assign(static_cast<size_t>(length), kNoValue);
    }
    for (size_t id = 0; id < trace_.values.size(); id++) {
      const Value& value = trace_.values[id];
      if (value.kind != NodeKind::SequenceItem || !value.is_pre) continue;
      const auto place = found.find(trace_.operands(static_cast<ValueId>(id))[0]);
      if (place == found.end() || value.n < 0) continue;
      std::vector<ValueId>& elements = place->second.elements;
      if (static_cast<size_t>(value.n) < elements.size()) elements[value.n] = static_cast<ValueId>(id);
    }
    for (auto& [id, gathered] : found) {
      const bool is_changed = liveness_.first_mutation[id] != liveness_.first_mutation[id + 1];
      const bool is_known =
          std::find(gathered.elements.begin(), gathered.elements.end(), kNoValue) == gathered.elements.end();
      if (!is_changed && is_known && !gathered.elements.empty()) plan_.gathered.emplace(id, std::move(gathered));
    }
    std::erase_if(plan_.gathered,
                  [&](const auto& row) { return row.second.kind == NodeKind::Tuple && !has_tensors(row.first); });
  }

  // Tuples of numbers are taken as they are.
  bool has_tensors(ValueId id, int depth = 0) const {
    if (value_of(id).type == ValueType::Tensor) return true;
    const auto place = plan_.gathered.find(id);
    if (place == plan_.gathered.end() || depth > 8) return false;
    for (ValueId element : place->second.elements) {
      if (has_tensors(element, depth + 1)) return true;
    }
    return false;
  }

  // Results whose sizes depend on data, and elements of those.
  void find_data_sized() {
    is_data_sized_.assign(trace_.values.size(), 0);
    for (size_t id = 0; id < trace_.values.size(); id++) {
      const Value& value = trace_.values[id];
      const bool is_element =
          value.kind == NodeKind::SequenceItem && is_data_sized_[trace_.operands(static_cast<ValueId>(id))[0]] != 0;
      is_data_sized_[id] = value.is_data_sized || is_element;
    }
  }

  // Is it computed from a result of the current region that `is_end` names?
  bool uses_end(ValueId id, const std::vector<uint8_t>& is_end, int depth = 0) const {
    for (ValueId operand : trace_.operands(id)) {
      if (operand == kNoValue) continue;
      if (is_inside_[operand] == 1 && is_end[operand]) return true;
      if (is_carrier_[operand] && depth < 8 && uses_end(operand, is_end, depth + 1)) return true;
    }
    return false;
  }

  // What is computed from it belongs to another region: a tensor that the trace differentiates with respect to, or one
  // whose sizes depend on data (code is made for given sizes of what goes in).
  bool uses_end(ValueId id) const { return uses_end(id, is_target_) || uses_end(id, is_data_sized_); }

  // Can a torch node of the current region take it as an operand?
  bool is_operand(ValueId id, int depth = 0) const {
    if (id == kNoValue || depth > 16) return false;
    if (is_constant(id)) return true;
    const Value& value = value_of(id);
    if (is_inside_[id]) return is_data_sized_[id] == 0;
    if (is_deferred_value_[id] && !is_carrier_[id]) return false;
    if (is_carrier_[id]) {
      for (ValueId operand : trace_.operands(id)) {
        if (!is_operand(operand, depth + 1)) return false;
      }
      return true;
    }
    if (const auto place = plan_.gathered.find(id); place != plan_.gathered.end()) {
      for (ValueId element : place->second.elements) {
        if (!is_operand(element, depth + 1)) return false;
      }
      return true;
    }
    if (value.type == ValueType::Tensor) return true;
    if (is_varying_[id] != 0) return false;
    if (value.is_pre) return value.type == ValueType::Number || value.type == ValueType::Plain || value.varies;
    // Read of an object: it is seldom another one. Computed: code takes it as an input, a custom backend can't.
    const bool is_taken =
        options_.takes_late_numbers || (options_.takes_sizes && category_of(value.kind) == Category::Read);
    return is_taken && value.type == ValueType::Number && depth == 0 && is_outside(id);
  }

  bool can_run_inside(ValueId id) const {
    const Value& value = value_of(id);
    // Code is made for the metadata that it was traced with.
    if (value.runs_python || (value.is_tainted && !(options_.takes_data_sizes && value.is_data_sized))) return false;
    const std::span<const ValueId> operands = trace_.operands(id);
    size_t first = 0;
    switch (value.kind) {
      case NodeKind::TensorCall:
      case NodeKind::StateCall: {
        if (!is_constant(operands[0]) || is_unseen_state(id)) return false;
        const host::TorchCallable callable = host::classify_torch_callable(plan_.constants[operands[0]]);
        if (!callable.is_torch) return false;
        using Kind = host::TorchCallableKind;
        if (callable.kind == Kind::Opaque || callable.kind == Kind::Sync) return false;
        const bool is_gradient = callable.kind == Kind::Backward;
        if (is_gradient && (may_join_[id] == 0 || !gradients_->can_join(id, is_inside_, current_.first_item)))
          return false;
        // Metadata: t.type(dtype), which gives a tensor.
        const bool is_tensor_call = callable.kind == Kind::Tensor || callable.kind == Kind::DataDependent ||
                                    callable.kind == Kind::Metadata || is_gradient;
        if (value.kind == NodeKind::TensorCall && !is_tensor_call) return false;
        first = 1;
        break;
      }
      case NodeKind::TensorUnary:
      case NodeKind::TensorBinary:
      case NodeKind::TensorCompare:
      case NodeKind::TensorGetItem:
      case NodeKind::TensorSetItem:
        break;
      case NodeKind::TensorGetAttribute: {
        // .T, .mT, .real; not .grad, which is state, and not .data, which is memory behind autograd's back.
        const bool is_view = host::classify_tensor_attribute(value.object).read == host::TensorAttributeKind::Tensor;
        if (!is_view || value.type != ValueType::Tensor || PyUnicode_CompareWithASCIIString(value.object, "data") == 0)
          return false;
        break;
      }
      case NodeKind::SequenceItem:
        return is_inside_[operands[0]] && is_tensor(id);
      default:
        return false;
    }
    // State nodes are run by themselves when native code stands for the region.
    const bool is_state = value.kind == NodeKind::StateCall;
    for (size_t i = first; i < operands.size(); i++) {
      if (!is_operand(operands[i])) return false;
      if (is_state && !is_constant(operands[i]) && value_of(operands[i]).kind != NodeKind::StateCall) return false;
    }
    return true;
  }

  // Code is made for given sizes; one whose sizes depend on data is served by PyTorch's kernels at first, but not where
  // something is written, which could not be taken back.
  bool is_write_of_data_sizes(ValueId id) const {
    const Value& value = value_of(id);
    if (options_.takes_data_sizes || !may_write(id)) return false;
    if (value.kind == NodeKind::TensorCall && value.object != nullptr && !has_out(value.object)) return false;
    return std::ranges::any_of(trace_.operands(id),
                               [&](ValueId operand) { return operand != kNoValue && varies_with_data(operand, 0); });
  }

  bool varies_with_data(ValueId id, int depth) const {
    if (value_of(id).varies_with_data || !is_carrier_[id] || depth > 8) return value_of(id).varies_with_data;
    return std::ranges::any_of(trace_.operands(id), [&](ValueId operand) {
      return operand != kNoValue && varies_with_data(operand, depth + 1);
    });
  }

  // Python's own state: PyTorch calls don't see it. What is stashed for the engine's threads is for Python that they
  // run.
  bool is_unseen_state(ValueId id) const {
    const std::span<const ValueId> operands = trace_.operands(id);
    if (value_of(id).kind != NodeKind::StateCall || operands.empty() || !is_constant(operands[0])) return false;
    PyObject* callable = plan_.constants[operands[0]];
    if (Py_IS_TYPE(callable, &PyMethodDescr_Type) && PyDescr_TYPE(callable) == &PyContextVar_Type) return true;
    const std::string_view name = PyCFunction_Check(callable) ? get_function_name(callable) : "";
    return name == "_stash_obj_in_tls" || name == "_remove_obj_from_tls";
  }

  bool is_copy_of_context(ValueId id) const {
    const std::span<const ValueId> operands = trace_.operands(id);
    return value_of(id).kind == NodeKind::Call && operands.size() == 1 && is_constant(operands[0]) &&
           PyCFunction_Check(plan_.constants[operands[0]]) &&
           get_function_name(plan_.constants[operands[0]]) == "copy_context";
  }

  static std::string_view get_function_name(PyObject* function) {
    return reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
  }

  bool is_change(ValueId id) const {
    const Category category = category_of(value_of(id).kind);
    return category == Category::Mutate || category == Category::State;
  }

  // Work that may wait until the region has run: it changes Python objects only.
  bool can_be_deferred(ValueId id) const {
    const Value& value = value_of(id);
    if ((is_carrier_[id] && is_computed_of_sizes(value)) || is_copy_of_context(id)) return true;
    if (value.kind == NodeKind::InstanceDict) return !can_run_in_front(id);
    switch (category_of(value.kind)) {
      case Category::Alloc:
        return value.kind != NodeKind::Iterator && value.kind != NodeKind::Generator &&
               !(value.kind == NodeKind::Object && value.n != 0);
      case Category::Mutate:
        // What the recorded call did to an object of its own it will do again.
        if (value.kind == NodeKind::MutatorCall || value.kind == NodeKind::DeleteItem ||
            value.kind == NodeKind::DeleteAttribute) {
          return find_allocation(trace_, trace_.operands(id)[0]) != kNoValue;
        }
        return value.kind == NodeKind::ListAppend || value.kind == NodeKind::SetAttribute ||
               value.kind == NodeKind::SetItem || value.kind == NodeKind::SetCell;
      case Category::State:
        return is_unseen_state(id);
      default:
        return false;
    }
  }

  // Python has it before the region runs.
  bool is_outside(ValueId id) const {
    return id == kNoValue || is_constant(id) || value_of(id).is_pre || (is_inside_[id] != 1 && !is_deferred_value_[id]);
  }

  bool can_run_in_front(ValueId id) const {
    const Value& value = value_of(id);
    const std::span<const ValueId> operands = trace_.operands(id);
    if (!std::ranges::all_of(operands, [&](ValueId operand) { return is_outside(operand); })) return false;
    switch (value.kind) {
      case NodeKind::InstanceDict:
      case NodeKind::Identical:
      case NodeKind::Distinct:
        return true;
      case NodeKind::Referent:  // dies with a tensor
      case NodeKind::TensorSize:
        return false;
      default:
        break;
    }
    const Category category = category_of(value.kind);
    if ((category != Category::Read && category != Category::Py) || current_.has_deferred_changes) return false;
    // Torch calls may change what is read of tensors.
    const bool may_ask_tensor = category == Category::Py || value.kind == NodeKind::Slot;
    return std::ranges::none_of(operands, [&](ValueId operand) {
      return operand != kNoValue &&
             (is_tensor(operand) || (may_ask_tensor && value_of(operand).type == ValueType::Unknown));
    });
  }

  bool can_run_in_front(const Guard& guard) const {
    switch (guard.fact) {
      case FactKind::Same:
      case FactKind::Different:
        return is_outside(guard.value) && is_outside(static_cast<ValueId>(guard.n));
      case FactKind::Type:
      case FactKind::Identity:
      case FactKind::Absent:
      case FactKind::Present:
      case FactKind::Equal:
        return is_outside(guard.value);
      case FactKind::Truth:
      case FactKind::Length:
      case FactKind::Keys:
      case FactKind::Code:
        return is_outside(guard.value) && !current_.has_deferred_changes && !is_tensor(guard.value);
      case FactKind::TensorMeta:
      case FactKind::TensorLike:
        // Writing in place may make a tensor require grad.
        return is_outside(guard.value) && !current_.has_writes;
    }
    return false;
  }

  static bool has_out(PyObject* keywords) {
    for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); i++) {
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, i), "out") == 0) return true;
    }
    return false;
  }

  // A torch node that may write to its operands.
  bool may_write(ValueId id) const {
    const Value& value = value_of(id);
    constexpr int32_t kFirstInPlace = 13;  // NB_INPLACE_ADD
    switch (value.kind) {
      case NodeKind::TensorSetItem:
        return true;
      case NodeKind::TensorBinary:
        return value.n >= kFirstInPlace;
      case NodeKind::TensorCall: {
        const std::string_view name = host::classify_torch_callable(plan_.constants[trace_.operands(id)[0]]).name;
        return name.ends_with('_') || name.find("_.") != std::string_view::npos || value.object != nullptr;
      }
      default:
        return false;
    }
  }

  bool add_in_front(int32_t index, bool can_run) {
    if (current_.tensor_node_count == 0 || !can_run) return false;
    current_.in_front.push_back(index);
    return true;
  }

  void add_item(int32_t index) {
    const Item& item = trace_.items[index];
    if (item.guard >= 0) {
      const Guard& guard = trace_.guards[item.guard];
      if (!value_of(guard.value).is_pre && !take_guard(index, guard) && !add_in_front(index, can_run_in_front(guard))) {
        close();
      }
      // The guard has passed where something behind it runs.
      const bool is_fixed = guard.fact == FactKind::Identity || guard.fact == FactKind::Equal;
      const Value& value = value_of(guard.value);
      if (is_fixed && !value.is_pre && !value.varies && is_inside_[guard.value] == 0)
        plan_.constants[guard.value] = guard.object;
      return;
    }
    const ValueId id = item.value;
    if (value_of(id).is_pre || !is_live(id)) return;
    const bool may_join = category_of(value_of(id).kind) == Category::Tensor;
    if (current_.tensor_node_count > 0 && may_join && uses_end(id)) close();
    if (is_excluded_[index] == 0 && can_run_inside(id) && !is_write_of_data_sizes(id)) {
      const bool is_start = current_.tensor_node_count == 0;
      if (is_start && !can_start_at(id)) {
        close();
        return;
      }
      add_inside(index);
      return;
    }
    if (current_.tensor_node_count > 0 && can_be_deferred(id)) {
      current_.deferred.push_back(index);
      current_.has_deferred_changes |= is_change(id);
      is_deferred_value_[id] = 1;
      deferred_.push_back(id);
      return;
    }
    if (may_join && may_join_[id] != 0 && gradients_->is_backward(id)) {
      may_join_[id] = 0;
      has_failed_to_join_ = true;
    }
    if (add_in_front(index, can_run_in_front(id))) return;
    close();
  }

  // A fact about sizes, or about how many results a call gave that depend on them.
  bool take_guard(int32_t index, const Guard& guard) {
    if (current_.tensor_node_count == 0 || !options_.takes_sizes || !value_of(guard.value).varies) return false;
    const bool is_value_fact = guard.fact == FactKind::Identity || guard.fact == FactKind::Equal ||
                               guard.fact == FactKind::Truth || guard.fact == FactKind::Type;
    const bool is_number = is_carrier_[guard.value] && is_computed_of_sizes(value_of(guard.value)) && is_value_fact &&
                           is_operand(guard.value);
    const bool is_sequence = is_inside_[guard.value] == 1 && guard.fact == FactKind::Length;
    if (!is_number && !is_sequence) return false;
    take_operand(guard.value);
    current_.guards.push_back(index);
    return true;
  }

  bool can_start_at(ValueId id) const {
    const int32_t snapshot = value_of(id).snapshot;
    return snapshot >= 0 && trace_.snapshots[snapshot].is_exact && value_of(id).kind != NodeKind::StateCall;
  }

  void add_inside(int32_t index) {
    const ValueId id = trace_.items[index].value;
    const Value& value = value_of(id);
    for (ValueId operand : trace_.operands(id)) take_operand(operand);
    current_.items.push_back(index);
    is_inside_[id] = 1;
    inside_.push_back(id);
    if (current_.first_item < 0) {
      current_.first_item = index;
      current_.snapshot = value.snapshot;
    }
    current_.last_item = index;
    current_.tensor_node_count += category_of(value.kind) == Category::Tensor;
    current_.has_writes |= may_write(id);
    current_.has_data_sizes |= value.is_data_sized;
    current_.has_gradients |= gradients_->is_backward(id);
  }

  void take_operand(ValueId id) {
    if (id == kNoValue || is_constant(id) || is_inside_[id]) return;
    if (is_carrier_[id]) {
      for (ValueId operand : trace_.operands(id)) take_operand(operand);
      current_.items.push_back(value_of(id).item);
      is_inside_[id] = 2;  // inside, but it stays what it is outside
      inside_.push_back(id);
      return;
    }
    if (const auto place = plan_.gathered.find(id); place != plan_.gathered.end()) {
      for (ValueId element : place->second.elements) take_operand(element);
      current_.items.push_back(value_of(id).item);
      is_inside_[id] = 2;
      inside_.push_back(id);
      return;
    }
    if (input_of_[id] == region_count_) return;
    input_of_[id] = region_count_;
    (value_of(id).type == ValueType::Tensor ? current_.tensors : current_.numbers).push_back(id);
  }

  void close() {
    if (current_.tensor_node_count >= options_.min_nodes) {
      const auto region = static_cast<int32_t>(plan_.regions.size());
      for (int32_t item : current_.items) {
        const ValueId id = trace_.items[item].value;
        if (!is_carrier_[id] && !plan_.gathered.contains(id)) plan_.region_of[item] = region;
      }
      // What was deferred behind the last node need not wait.
      std::erase_if(current_.deferred, [&](int32_t item) { return item > current_.last_item; });
      for (int32_t item : current_.deferred) plan_.deferred_of[item] = region;
      for (int32_t item : current_.guards) plan_.region_of[item] = region;
      // What stands behind the last node is not among its nodes.
      std::erase_if(current_.in_front, [&](int32_t item) { return item > current_.last_item; });
      for (int32_t item : current_.in_front) plan_.in_front_of[item] = region;
      plan_.regions.push_back(std::move(current_));
    }
    for (ValueId id : inside_) is_inside_[id] = 0;
    inside_.clear();
    for (ValueId id : deferred_) is_deferred_value_[id] = 0;
    deferred_.clear();
    current_ = Region();
    region_count_++;
  }

  const Trace& trace_;
  const Liveness& liveness_;
  const RegionOptions& options_;
  std::vector<uint8_t>& may_join_;  // by value: it may be a gradient in a region
  bool has_failed_to_join_ = false;
  std::optional<RegionGradients> gradients_;
  std::vector<uint8_t> is_excluded_;  // by item
  RegionPlan plan_;
  Region current_;
  std::vector<uint8_t> is_varying_, is_target_, is_data_sized_, is_carrier_, is_inside_,
      is_deferred_value_;          // by value
  std::vector<int32_t> input_of_;  // by value: of which try at a region it is an input
  std::vector<ValueId> inside_, deferred_;
  int32_t region_count_ = 0;
};

}  // namespace

// Gradients are taken to join the region of what they are computed from. Those that turn out not to are planned anew,
// as ends of regions.
RegionPlan plan_regions(const Trace& trace, const Liveness& liveness, const RegionOptions& options) {
  constexpr int kTries = 8;
  std::vector<uint8_t> may_join(trace.values.size(), options.takes_gradients);
  for (int i = 0; i < kTries; i++) {
    Planner planner(trace, liveness, options, may_join);
    RegionPlan plan = planner.run();
    if (!planner.has_failed_to_join()) return plan;
  }
  std::fill(may_join.begin(), may_join.end(), uint8_t{0});
  return Planner(trace, liveness, options, may_join).run();
}

}  // namespace reprise::trace
