#include "driver/region_nodes.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "guards/facts.h"
#include "host/torch/tensor.h"
#include "host/torch/trace_tensor.h"
#include "runtime/run_node.h"

namespace reprise::driver {

using trace::Category;
using trace::ValueId;

RegionNodes::RegionNodes(const entry::Entry& entry, const entry::RegionStep& step, std::span<PyObject* const> numbers,
                         std::span<const int32_t> symbolic) {
  const trace::Trace& trace = entry.trace();
  const trace::RegionPlan& plan = entry.region_plan();
  const trace::Region& region = plan.regions[step.region];
  std::unordered_map<ValueId, int32_t> slots;
  for (ValueId id : region.tensors) slots[id] = static_cast<int32_t>(input_count_++);
  tensor_count_ = input_count_;
  for (int32_t i : symbolic) slots[region.numbers[i]] = static_cast<int32_t>(input_count_++);
  // Constants stand in front of the values, so they are found first.
  auto add_constant = [&](ValueId id, PyObject* object) {
    if (!slots.try_emplace(id, static_cast<int32_t>(input_count_ + constants_.size())).second) return;
    constants_.push_back(Py_NewRef(object));
  };
  for (size_t i = 0; i < region.numbers.size(); i++) add_constant(region.numbers[i], numbers[i]);
  const auto find_gathered = [&](ValueId id) {
    const auto place = plan.gathered.find(id);
    return place == plan.gathered.end() ? nullptr : &place->second;
  };
  const auto operands_of = [&](ValueId id) -> std::span<const ValueId> {
    if (const trace::Gathered* gathered = find_gathered(id)) return gathered->elements;
    return trace.operands(id);
  };
  for (int32_t item : region.items) {
    for (ValueId id : operands_of(trace.items[item].value)) {
      if (id >= 0 && plan.constants[id] != nullptr) add_constant(id, plan.constants[id]);
    }
  }
  slot_count_ = input_count_ + constants_.size();
  for (int32_t item : region.items) {
    const ValueId id = trace.items[item].value;
    const trace::Value& value = trace.values[id];
    const trace::Gathered* gathered = find_gathered(id);
    const std::span<const ValueId> operands = operands_of(id);
    Node node{gathered == nullptr ? value.kind : gathered->kind,
              gathered == nullptr ? value.n : 0,
              gathered == nullptr ? Py_XNewRef(value.object) : nullptr,
              static_cast<uint32_t>(operands_.size()),
              static_cast<uint32_t>(operands.size()),
              static_cast<int32_t>(slot_count_++),
              item};
    for (ValueId operand : operands) {
      const auto found = slots.find(operand);
      REPRISE_CHECK(found != slots.end(), "a region uses %" + std::to_string(operand) + ", which it does not have");
      operands_.push_back(found->second);
    }
    slots[id] = node.slot;
    node.is_level = value.is_level;
    has_levels_ = has_levels_ || node.is_level;
    has_state_nodes_ = has_state_nodes_ || (trace::category_of(value.kind) == Category::State && !node.is_level);
    nodes_.push_back(node);
  }
  for (ValueId id : step.values) outputs_.push_back(slots.at(id));
  for (int32_t item : region.guards) {
    const int32_t index = trace.items[item].guard;
    const trace::Guard& guard = trace.guards[index];
    guards_.push_back({index, guard.fact, Py_XNewRef(guard.object), guard.n, slots.at(guard.value)});
  }
}

RegionNodes::~RegionNodes() {
  for (const Node& node : nodes_) Py_XDECREF(node.object);
  for (PyObject* object : constants_) Py_DECREF(object);
  for (const SizeGuard& guard : guards_) Py_XDECREF(guard.object);
}

void RegionNodes::keep_guarded() {
  std::vector<uint8_t> is_needed(slot_count_, 0);
  for (const SizeGuard& guard : guards_) is_needed[guard.slot] = 1;
  for (size_t i = nodes_.size(); i-- > 0;) {
    if (trace::category_of(nodes_[i].kind) == Category::State) is_needed[nodes_[i].slot] = 1;
    if (is_needed[nodes_[i].slot] == 0) continue;
    for (int32_t slot : operands(nodes_[i])) is_needed[slot] = 1;
  }
  std::erase_if(nodes_, [&](const Node& node) {
    const bool is_dropped = is_needed[node.slot] == 0;
    if (is_dropped) Py_XDECREF(node.object);
    return is_dropped;
  });
  outputs_.clear();
}

void RegionNodes::refuse_output(size_t index) {
  if (index >= outputs_.size()) return;  // a gradient that the callables left
  const auto node = std::ranges::find(nodes_, outputs_[index], &Node::slot);
  if (node != nodes_.end()) refused_items_.push_back(node->item);
}

PyObject* RegionNodes::run_one(const Node& node, std::vector<PyObject*>& slots,
                               std::vector<PyObject*>& gathered) const {
  gathered.resize(node.operand_count + 1);
  const std::span<const int32_t> from = operands(node);
  for (size_t i = 0; i < from.size(); i++) gathered[i] = slots[from[i]];
  return runtime::run_node(node.kind, node.n, node.object, gathered.data(), from.size());
}

bool RegionNodes::call(std::span<PyObject* const> inputs, host::TraceRun*, std::vector<PyObject*>& outputs) {
  REPRISE_CHECK(inputs.size() == input_count_,
                "a region has " + std::to_string(input_count_) + " tensors, given " + std::to_string(inputs.size()));
  std::vector<PyObject*> slots(slot_count_), gathered;
  std::copy(inputs.begin(), inputs.end(), slots.begin());
  std::copy(constants_.begin(), constants_.end(), slots.begin() + static_cast<ptrdiff_t>(input_count_));
  bool ok = true;
  failed_item_ = -1;
  std::optional<host::UndoPoint> undo;
  if (has_levels_) undo.emplace();
  // Numbers that were kept as tensors, for a second differentiation.
  std::vector<PyObject*> numbers;
  for (size_t i = tensor_count_; i < input_count_ && ok; i++) {
    if (!host::is_plain_tensor(inputs[i])) continue;
    numbers.push_back(PyObject_CallMethod(inputs[i], "item", nullptr));
    slots[i] = numbers.back();
    ok = slots[i] != nullptr;
  }
  for (const Node& node : nodes_) {
    if (!ok) break;
    const std::span<const int32_t> from = operands(node);
    if (std::any_of(from.begin(), from.end(), [&](int32_t slot) { return slots[slot] == nullptr; })) {
      // An element of a sequence that is shorter now: the fact about its length says so below.
      PyErr_SetString(PyExc_RuntimeError, "the sizes take another way through the program");
      failed_item_ = node.item;
      ok = false;
      break;
    }
    slots[node.slot] = run_one(node, slots, gathered);
    if (slots[node.slot] == nullptr && PyErr_Occurred()) {
      failed_item_ = node.item;
      ok = false;
      break;
    }
  }
  for (const SizeGuard& guard : guards_) {
    PyObject* value = slots[guard.slot];
    if (value == nullptr || guards::check_fact(guard.fact, value, guard.object, guard.n, nullptr, nullptr)) continue;
    refused_guard_ = guard.index;
    if (ok) PyErr_SetString(PyExc_RuntimeError, "the sizes take another way through the program");
    ok = false;
    break;
  }
  if (!ok && undo) undo->restore();
  if (ok) {
    for (int32_t slot : outputs_) outputs.push_back(Py_NewRef(slots[slot]));
  }
  for (size_t i = input_count_ + constants_.size(); i < slot_count_; i++) Py_XDECREF(slots[i]);
  for (PyObject* number : numbers) Py_XDECREF(number);
  return ok;
}

bool RegionNodes::run_state_nodes() {
  if (!has_state_nodes_) return true;
  std::vector<PyObject*> slots(slot_count_), gathered;
  std::copy(constants_.begin(), constants_.end(), slots.begin() + static_cast<ptrdiff_t>(input_count_));
  bool ok = true;
  for (const Node& node : nodes_) {
    if (trace::category_of(node.kind) != Category::State || node.is_level) continue;
    slots[node.slot] = run_one(node, slots, gathered);
    ok = slots[node.slot] != nullptr || !PyErr_Occurred();
    if (!ok) break;
  }
  for (size_t i = input_count_ + constants_.size(); i < slot_count_; i++) Py_XDECREF(slots[i]);
  return ok;
}

}  // namespace reprise::driver
