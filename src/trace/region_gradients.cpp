#include "trace/region_gradients.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "host/torch/callables.h"
#include "trace/region_facts.h"

namespace reprise::trace {

namespace {

// run_backward(engine, tensors, gradients, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad)
constexpr size_t kTensors = 2, kInputs = 6, kAccumulates = 8;

bool has_keyword(PyObject* names, const char* name) {
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); i++) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name) == 0) return true;
  }
  return false;
}

bool is_made(const Value& value) { return value.kind == NodeKind::Tuple || value.kind == NodeKind::List; }

}  // namespace

RegionGradients::RegionGradients(const Trace& trace, const Liveness& liveness, const RegionPlan& plan)
    : trace_(trace), liveness_(liveness), plan_(plan), is_leaf_(trace.values.size(), 0) {
  for (const Guard& guard : trace.guards) {
    if (has_meta(guard.fact) && trace.tensor_metas[guard.n]->is_leaf()) is_leaf_[guard.value] = 1;
  }
}

bool RegionGradients::is_backward(ValueId id) const {
  if (trace_.values[id].kind != NodeKind::TensorCall) return false;
  const host::TorchCallable kind = host::classify_torch_callable(plan_.constants[trace_.operands(id)[0]]);
  return kind.is_torch && kind.kind == host::TorchCallableKind::Backward;
}

std::vector<uint8_t> RegionGradients::find_targets(const std::vector<uint8_t>& may_join) const {
  std::vector<uint8_t> is_target(trace_.values.size(), 0);
  for (size_t i = 0; i < trace_.values.size(); i++) {
    const auto id = static_cast<ValueId>(i);
    if (asks_for_gradient(id)) is_target[trace_.operands(id)[trace_.values[i].kind == NodeKind::TensorCall]] = 1;
    if (trace_.values[i].kind != NodeKind::TensorCall || trace_.operands(id).size() <= kInputs) continue;
    if (is_backward(id) && may_join[i] == 0) mark_tensors(trace_.operands(id)[kInputs], 0, &is_target);
  }
  return is_target;
}

// Tensor.register_hook gives the tensor a dict of hooks.
bool RegionGradients::asks_for_gradient(ValueId id) const {
  const Value& value = trace_.values[id];
  const std::span<const ValueId> operands = trace_.operands(id);
  if (value.kind == NodeKind::TensorSetAttribute)
    return PyUnicode_CompareWithASCIIString(value.object, "_backward_hooks") == 0;
  if (value.kind != NodeKind::TensorCall || operands.size() < 2 || operands[1] == kNoValue) return false;
  const host::TorchCallable kind = host::classify_torch_callable(plan_.constants[operands[0]]);
  return kind.is_torch && std::string_view(kind.name).ends_with("retain_grad");
}

void RegionGradients::mark_tensors(ValueId id, int depth, std::vector<uint8_t>* marks) const {
  if (id == kNoValue || depth > 8) return;
  (*marks)[id] = trace_.values[id].type == ValueType::Tensor;
  if (!is_made(trace_.values[id])) return;
  for (ValueId element : trace_.operands(id)) mark_tensors(element, depth + 1, marks);
}

bool RegionGradients::can_join(ValueId id, const std::vector<uint8_t>& is_inside, int32_t first_item) const {
  const std::span<const ValueId> operands = trace_.operands(id);
  if (operands.size() != kAccumulates + 1 || operands[kAccumulates] == kNoValue) return false;
  if (plan_.constants[operands[kAccumulates]] != Py_False) return false;
  std::vector<ValueId> targets, pending;
  if (!list_tensors(operands[kInputs], &targets) || !list_tensors(operands[kTensors], &pending) || targets.empty() ||
      pending.empty())
    return false;
  if (std::ranges::any_of(pending, [&](ValueId tensor) { return is_inside[tensor] == 0; })) return false;
  // A write since then may have put something that follows from an input into another tensor.
  int32_t first_target = first_item;
  for (ValueId target : targets) {
    first_target = std::min(first_target, trace_.values[target].is_pre ? 0 : trace_.values[target].item);
  }
  for (int32_t item = first_target; item < trace_.values[id].item; item++) {
    if (trace_.items[item].guard >= 0) continue;
    const ValueId value = trace_.items[item].value;
    if ((item < first_item || is_inside[value] == 0) && writes_data(value)) return false;
  }
  std::unordered_set<ValueId> harmless;
  std::unordered_set<ValueId> seen(targets.begin(), targets.end());
  while (!pending.empty()) {
    const ValueId value = pending.back();
    pending.pop_back();
    if (value == kNoValue || plan_.constants[value] != nullptr || !seen.insert(value).second) continue;
    const Value& made = trace_.values[value];
    if (is_inside[value] != 0) {
      const auto gathered = plan_.gathered.find(value);
      const std::span<const ValueId> of = gathered == plan_.gathered.end()
                                              ? trace_.operands(value)
                                              : std::span<const ValueId>(gathered->second.elements);
      pending.insert(pending.end(), of.begin(), of.end());
    } else if (made.type == ValueType::Tensor || made.type == ValueType::LateTensor) {
      if (may_follow_from(targets, first_target, value, harmless)) return false;
    }
  }
  return true;
}

// Could a gradient flow from it to one of the targets? `harmless`: values that are known to have no such way.
bool RegionGradients::may_follow_from(const std::vector<ValueId>& targets, int32_t first_target, ValueId id,
                                      std::unordered_set<ValueId>& harmless) const {
  std::vector<ValueId> pending{id};
  while (!pending.empty()) {
    const ValueId value = pending.back();
    pending.pop_back();
    if (value == kNoValue || plan_.constants[value] != nullptr || is_leaf_[value] != 0) continue;
    if (std::ranges::find(targets, value) != targets.end()) return true;
    const Value& made = trace_.values[value];
    const bool is_older = !made.is_pre && made.item < first_target;
    if (is_older || made.type == ValueType::Number || !harmless.insert(value).second) continue;
    if ((made.is_pre && !is_made(made)) || made.runs_python) return true;
    const ValueId first = trace_.operands(value).empty() ? kNoValue : trace_.operands(value)[0];
    const bool is_element = made.kind == NodeKind::SequenceItem && first != kNoValue &&
                            category_of(trace_.values[first].kind) == Category::Tensor;
    if (category_of(made.kind) != Category::Tensor && !is_element && !is_made(made)) return true;
    for (ValueId operand : trace_.operands(value)) pending.push_back(operand);
  }
  return false;
}

bool RegionGradients::list_tensors(ValueId id, std::vector<ValueId>* out) const {
  if (id == kNoValue) return false;
  const auto place = plan_.gathered.find(id);
  if (!is_made(trace_.values[id]) && place == plan_.gathered.end()) return false;
  const std::span<const ValueId> elements =
      place == plan_.gathered.end() ? trace_.operands(id) : std::span<const ValueId>(place->second.elements);
  out->assign(elements.begin(), elements.end());
  return std::ranges::all_of(
      *out, [&](ValueId element) { return element != kNoValue && trace_.values[element].type == ValueType::Tensor; });
}

// Any item of the trace: may it write to tensors that are no results of its own?
bool RegionGradients::writes_data(ValueId id) const {
  constexpr int32_t kFirstInPlace = 13;  // NB_INPLACE_ADD
  const Value& value = trace_.values[id];
  if (value.is_pre || liveness_.is_live[id] == 0) return false;
  if (value.runs_python) return true;
  switch (value.kind) {
    case NodeKind::TensorSetItem:
    case NodeKind::TensorSetAttribute:
      return true;
    case NodeKind::TensorBinary:
      return value.n >= kFirstInPlace;
    case NodeKind::TensorCall:
    case NodeKind::SyncCall: {
      PyObject* callable = plan_.constants[trace_.operands(id)[0]];
      if (callable != nullptr && RegionFacts::reads_number(callable)) return false;
      const host::TorchCallable kind = host::classify_torch_callable(callable);
      if (!kind.is_torch || kind.kind == host::TorchCallableKind::Foreign) return true;
      const std::string_view name = kind.name;
      if (name.ends_with("requires_grad_") || name.ends_with("__")) return false;
      return name.ends_with('_') || name.find("_.") != std::string_view::npos || has_keyword(value.object, "out");
    }
    default:
      return false;
  }
}

}  // namespace reprise::trace
