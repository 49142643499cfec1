#include "trace/region_facts.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "host/torch/callables.h"
#include "host/torch/tensor.h"

namespace reprise::trace {

namespace {

constexpr int32_t kFirstInPlace = 13;  // NB_INPLACE_ADD

// Calls that draw numbers unless an argument says no: its position behind the callable and its keyword.
struct RandomSwitch {
  std::string_view name;
  size_t position;
  const char* keyword;
  bool is_off_by_default;
};
constexpr RandomSwitch kRandomSwitches[] = {
    {"dropout", 1, "p", false},         {"dropout", 2, "train", false},
    {"alpha_dropout", 1, "p", false},   {"alpha_dropout", 2, "train", false},
    {"feature_dropout", 1, "p", false}, {"feature_dropout", 2, "train", false},
    {"rrelu", 3, "training", true},     {"scaled_dot_product_attention", 4, "dropout_p", true},
};

bool has_keyword(const Value& call, const char* name) {
  for (Py_ssize_t i = 0; call.object != nullptr && i < PyTuple_GET_SIZE(call.object); i++) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call.object, i), name) == 0) return true;
  }
  return false;
}

std::string_view get_function_name(PyObject* function) {
  return reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
}

std::string_view base_of(std::string_view name) { return name.substr(name.find_last_of(".:") + 1); }

}  // namespace

RegionFacts::RegionFacts(const Trace& trace, const Liveness& liveness, const RegionOptions& options, RegionPlan& plan)
    : trace_(trace), liveness_(liveness), options_(options), plan_(plan) {
  is_excluded_.assign(trace_.items.size(), 0);
  for (int32_t item : options_.excluded) is_excluded_[item] = 1;
  is_cut_.assign(trace_.items.size(), 0);
  for (int32_t item : options_.cuts) is_cut_[item] = 1;
  is_varying_.assign(trace_.values.size(), 0);
  for (ValueId id : options_.varying) is_varying_[id] = 1;
  is_other_.assign(trace_.values.size(), 0);
  for (const Guard& guard : trace_.guards) {
    if (value_of(guard.value).is_pre) note_passed(guard);
  }
  find_constants();
  find_carriers();
  find_gathered();
  find_data_sized();
}

bool RegionFacts::reads_number(PyObject* callable) {
  for (const PyTypeObject* type : {&PyLong_Type, &PyFloat_Type, &PyBool_Type}) {
    if (callable == reinterpret_cast<const PyObject*>(type)) return true;
  }
  return host::only_reads_data(host::classify_torch_callable(callable));
}

void RegionFacts::note_passed(const Guard& guard) {
  if (guard.fact != FactKind::Type || !PyType_Check(guard.object)) return;
  auto* const type = reinterpret_cast<PyTypeObject*>(guard.object);
  PyTypeObject* const tensor = host::tensor_type();
  if (tensor == nullptr || (type != tensor->tp_base && !PyType_IsSubtype(type, tensor->tp_base)))
    is_other_[guard.value] = 1;
}

uint32_t RegionFacts::changes_of(ValueId id) const {
  const Value& value = value_of(id);
  switch (value.kind) {
    case NodeKind::SetCell:
      return kChangesCell;
    case NodeKind::SetAttribute: {
      const char* name = PyUnicode_AsUTF8(value.object);
      const bool is_special = name == nullptr || std::strncmp(name, "__", 2) == 0;
      return is_special ? kChangesName | kChangesFunction : kChangesName;
    }
    case NodeKind::ListAppend:
      return kChangesContainer;
    case NodeKind::SetItem:
      return kChangesContainer | (find_name(id) != nullptr ? kChangesName : kChangesOther);
    default:
      return kChangesCell | kChangesFunction | kChangesName | kChangesContainer | kChangesOther;
  }
}

uint32_t RegionFacts::changes_seen_by(NodeKind kind) {
  switch (kind) {
    case NodeKind::MethodField:
      return 0;
    case NodeKind::CellContents:
      return kChangesCell | kChangesOther;
    case NodeKind::FunctionField:
      return kChangesFunction | kChangesOther;
    case NodeKind::SequenceItem:
      return kChangesContainer | kChangesOther;
    case NodeKind::DictItem:  // and of its name
      return kChangesFunction | kChangesOther;
    case NodeKind::Slot:
      return kChangesFunction | kChangesOther;
    default:
      return ~uint32_t{0};
  }
}

PyObject* RegionFacts::find_name(ValueId id) const {
  const Value& value = value_of(id);
  PyObject* name = nullptr;
  switch (value.kind) {
    case NodeKind::SetAttribute:
    case NodeKind::DictItem:
      name = value.object;
      break;
    case NodeKind::SetItem: {
      const ValueId key = trace_.operands(id)[1];
      name = is_constant(key) ? plan_.constants[key] : nullptr;
      break;
    }
    case NodeKind::Slot:
      if (value.object != nullptr &&
          (Py_IS_TYPE(value.object, &PyMemberDescr_Type) || Py_IS_TYPE(value.object, &PyGetSetDescr_Type))) {
        name = PyDescr_NAME(value.object);
      }
      break;
    default:
      break;
  }
  return name != nullptr && PyUnicode_CheckExact(name) ? name : nullptr;
}

// A call of a method of str that takes text only: it looks at no tensor.
bool RegionFacts::is_call_on_text(ValueId id) const {
  if (value_of(id).kind != NodeKind::Call || !is_constant(trace_.operands(id)[0])) return false;
  PyObject* callable = plan_.constants[trace_.operands(id)[0]];
  if (!Py_IS_TYPE(callable, &PyMethodDescr_Type) || PyDescr_TYPE(callable) != &PyUnicode_Type) return false;
  for (const char* name : {"encode", "startswith", "endswith", "lower", "upper", "strip", "split", "replace"}) {
    if (PyUnicode_CompareWithASCIIString(PyDescr_NAME(callable), name) == 0) return true;
  }
  return false;
}

bool RegionFacts::is_bookkeeping(ValueId id) const {
  const std::span<const ValueId> operands = trace_.operands(id);
  if (value_of(id).kind != NodeKind::StateCall || operands.empty() || !is_constant(operands[0])) return false;
  const host::TorchCallable callable = host::classify_torch_callable(plan_.constants[operands[0]]);
  if (!callable.is_torch) return false;
  const std::string_view base = base_of(callable.name);
  return base == "autocast_increment_nesting" || base == "autocast_decrement_nesting";
}

void RegionFacts::find_constants() {
  plan_.constants.assign(trace_.values.size(), nullptr);
  for (size_t id = 0; id < trace_.values.size(); id++) {
    if (trace_.values[id].kind == NodeKind::Const) plan_.constants[id] = trace_.values[id].object;
  }
  for (const Guard& guard : trace_.guards) {
    const bool is_fixed = guard.fact == FactKind::Identity || guard.fact == FactKind::Equal;
    if (is_fixed && value_of(guard.value).is_pre) plan_.constants[guard.value] = guard.object;
  }
}

bool RegionFacts::is_computed_of_sizes(const Value& value) {
  if (!value.varies || value.is_pre || value.type == ValueType::Tensor || value.type == ValueType::LateTensor)
    return false;
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
void RegionFacts::find_carriers() {
  is_carrier_.assign(trace_.values.size(), 0);
  for (const Item& item : trace_.items) {
    if (item.guard >= 0) continue;
    const Value& value = value_of(item.value);
    if (options_.takes_sizes && is_computed_of_sizes(value) && !value.is_late_size) {
      is_carrier_[item.value] = 1;
      continue;
    }
    const bool is_kind = value.kind == NodeKind::Tuple || value.kind == NodeKind::List || value.kind == NodeKind::Slice;
    // A tuple may be a torch.Size; other classes of tuples are the program's.
    const bool is_shape = value.object != nullptr && value.kind == NodeKind::Tuple && host::is_size_type(value.object);
    if (!is_kind || (value.object != nullptr && !is_shape)) continue;
    is_carrier_[item.value] = liveness_.first_mutation[item.value] == liveness_.first_mutation[item.value + 1];
  }
}

// Guards say of which type and length it is, and name all its elements; nobody changes it.
void RegionFacts::find_gathered() {
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
bool RegionFacts::has_tensors(ValueId id, int depth) const {
  if (is_tensor(id)) return true;
  const auto place = plan_.gathered.find(id);
  if (place == plan_.gathered.end() || depth > 8) return false;
  for (ValueId element : place->second.elements) {
    if (has_tensors(element, depth + 1)) return true;
  }
  return false;
}

void RegionFacts::find_data_sized() {
  is_data_sized_.assign(trace_.values.size(), 0);
  for (size_t id = 0; id < trace_.values.size(); id++) {
    const Value& value = trace_.values[id];
    const bool is_element =
        value.kind == NodeKind::SequenceItem && is_data_sized_[trace_.operands(static_cast<ValueId>(id))[0]] != 0;
    is_data_sized_[id] = value.is_data_sized || is_element;
  }
}

bool RegionFacts::is_write_of_data_sizes(ValueId id) const {
  if (options_.takes_data_sizes || category_of(value_of(id).kind) != Category::Tensor) return false;
  const bool varies = std::ranges::any_of(
      trace_.operands(id), [&](ValueId operand) { return operand != kNoValue && varies_with_data(operand, 0); });
  if (!varies) return false;
  const NodeEffects effects = effects_of(id);
  return !effects.is_known || effects.writes_first;
}

bool RegionFacts::varies_with_data(ValueId id, int depth) const {
  if (value_of(id).varies_with_data || !is_carrier(id) || depth > 8) return value_of(id).varies_with_data;
  return std::ranges::any_of(trace_.operands(id), [&](ValueId operand) {
    return operand != kNoValue && varies_with_data(operand, depth + 1);
  });
}

bool RegionFacts::is_region_node(ValueId id) const {
  const Value& value = value_of(id);
  // Code is made for the metadata that it was traced with.
  if (value.runs_python || (value.is_tainted && !(options_.takes_data_sizes && value.is_data_sized))) return false;
  const std::span<const ValueId> operands = trace_.operands(id);
  switch (value.kind) {
    case NodeKind::TensorCall:
    case NodeKind::StateCall: {
      if (!is_constant(operands[0]) || is_unseen_state(id)) return false;
      const host::TorchCallable callable = host::classify_torch_callable(plan_.constants[operands[0]]);
      if (!callable.is_torch) return false;
      using Kind = host::TorchCallableKind;
      if (callable.kind == Kind::Opaque || callable.kind == Kind::Sync) return false;
      // Metadata: t.type(dtype), which gives a tensor.
      const bool is_tensor_call = callable.kind == Kind::Tensor || callable.kind == Kind::DataDependent ||
                                  callable.kind == Kind::Metadata || callable.kind == Kind::Backward;
      return value.kind == NodeKind::StateCall || is_tensor_call || is_wrapped_leaf(id);
    }
    case NodeKind::TensorUnary:
    case NodeKind::TensorBinary:
    case NodeKind::TensorCompare:
    case NodeKind::TensorGetItem:
    case NodeKind::TensorSetItem:
      return true;
    case NodeKind::TensorGetAttribute: {
      // .T, .mT, .real; not .grad, which is state, and not .data, which is memory behind autograd's back.
      const bool is_view = host::classify_tensor_attribute(value.object).read == host::TensorAttributeKind::Tensor;
      return is_view && value.type == ValueType::Tensor && PyUnicode_CompareWithASCIIString(value.object, "data") != 0;
    }
    default:
      return false;
  }
}

// `requires_grad_()` of what a level of torch.func has wrapped.
bool RegionFacts::is_wrapped_leaf(ValueId id) const {
  if (trace_.find_transform(value_of(id).item) == nullptr) return false;
  const host::TorchCallable callable = host::classify_torch_callable(plan_.constants[trace_.operands(id)[0]]);
  return callable.is_torch && std::string_view(callable.name).ends_with(".requires_grad_");
}

// Python's own state: PyTorch calls don't see it. What is stashed for the engine's threads is for Python that they run.
bool RegionFacts::is_unseen_state(ValueId id) const {
  const std::span<const ValueId> operands = trace_.operands(id);
  if (value_of(id).kind != NodeKind::StateCall || operands.empty() || !is_constant(operands[0])) return false;
  PyObject* callable = plan_.constants[operands[0]];
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type) && PyDescr_TYPE(callable) == &PyContextVar_Type) return true;
  const std::string_view name = PyCFunction_Check(callable) ? get_function_name(callable) : "";
  return name == "_stash_obj_in_tls" || name == "_remove_obj_from_tls";
}

bool RegionFacts::is_copy_of_context(ValueId id) const {
  const std::span<const ValueId> operands = trace_.operands(id);
  return value_of(id).kind == NodeKind::Call && operands.size() == 1 && is_constant(operands[0]) &&
         PyCFunction_Check(plan_.constants[operands[0]]) &&
         get_function_name(plan_.constants[operands[0]]) == "copy_context";
}

bool RegionFacts::can_be_deferred(ValueId id) const {
  const Value& value = value_of(id);
  if ((is_carrier(id) && is_computed_of_sizes(value)) || is_copy_of_context(id)) return true;
  if (value.kind == NodeKind::InstanceDict) return true;
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

// kNoValue: it is not given.
ValueId RegionFacts::find_argument(ValueId call, size_t position, const char* name) const {
  const std::span<const ValueId> operands = trace_.operands(call).subspan(1);
  PyObject* names = value_of(call).object;
  const size_t named = names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  const size_t positional = operands.size() - named;
  ValueId found = position < positional ? operands[position] : kNoValue;
  for (size_t i = 0; i < named; i++) {
    PyObject* keyword = PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i));
    if (PyUnicode_CompareWithASCIIString(keyword, name) == 0) found = operands[positional + i];
  }
  return found;
}

bool RegionFacts::is_off(ValueId argument) const {
  if (!is_constant(argument)) return false;
  PyObject* object = plan_.constants[argument];
  return object == Py_False || (PyFloat_CheckExact(object) && PyFloat_AS_DOUBLE(object) == 0.0);
}

// It could draw random numbers, but its arguments say that it does not.
bool RegionFacts::is_switched_off(ValueId id) const {
  const std::string_view base = base_of(host::classify_torch_callable(plan_.constants[trace_.operands(id)[0]]).name);
  for (const RandomSwitch& row : kRandomSwitches) {
    if (row.name != base) continue;
    const ValueId argument = find_argument(id, row.position, row.keyword);
    if (argument == kNoValue ? row.is_off_by_default : is_off(argument)) return true;
  }
  if (base != "lstm" && base != "gru" && base != "rnn_tanh" && base != "rnn_relu") return false;
  // (input, states, weights, has_biases, layers, dropout, train, ...) or, of packed sequences, one argument more.
  const ValueId has_biases = find_argument(id, 3, "has_biases");
  const bool is_plain = is_constant(has_biases) && PyBool_Check(plan_.constants[has_biases]);
  const size_t dropout = is_plain ? 5 : 6;
  return is_off(find_argument(id, dropout, "")) || is_off(find_argument(id, dropout + 1, ""));
}

// A normalisation by statistics that it is given and does not write.
bool RegionFacts::keeps_statistics(ValueId id) const {
  const std::string_view base = base_of(host::classify_torch_callable(plan_.constants[trace_.operands(id)[0]]).name);
  return (base == "batch_norm" && is_off(find_argument(id, 5, "training"))) ||
         (base == "instance_norm" && is_off(find_argument(id, 5, "use_input_stats")));
}

NodeEffects RegionFacts::effects_of(ValueId id) const {
  const Value& value = value_of(id);
  NodeEffects effects;
  switch (value.kind) {
    case NodeKind::TensorUnary:
      effects.makes_memory = value.n != static_cast<int32_t>(UnaryOp::Positive);
      break;
    case NodeKind::TensorCompare:
      effects.makes_memory = true;
      break;
    case NodeKind::TensorBinary:
      effects.writes_first = value.n >= kFirstInPlace;
      effects.makes_memory = !effects.writes_first;
      break;
    case NodeKind::TensorSetItem:
      effects.writes_first = true;
      break;
    case NodeKind::TensorGetItem:
    case NodeKind::TensorGetAttribute:
    case NodeKind::SequenceItem:
    case NodeKind::StateCall:
      break;
    case NodeKind::TensorCall: {
      if (!is_constant(trace_.operands(id)[0])) {  // a wrapper that the call made, such as what vmap returns
        effects.is_known = false;
        break;
      }
      if (is_wrapped_leaf(id)) break;
      const host::CallEffects found =
          host::find_effects(host::classify_torch_callable(plan_.constants[trace_.operands(id)[0]]));
      effects = {found.is_known || keeps_statistics(id), found.writes_first, found.draws, found.makes_memory};
      const bool writes_named = effects.writes_first && (has_keyword(value, "self") || has_keyword(value, "input"));
      if (writes_named || has_keyword(value, "out") || has_keyword(value, "generator")) effects.is_known = false;
      effects.draws = effects.draws && !is_switched_off(id);
      break;
    }
    default:
      effects.is_known = false;
      break;
  }
  return effects;
}

bool RegionFacts::is_free_step(ValueId id) const {
  const Value& value = value_of(id);
  if (value.runs_python) return false;
  const std::span<const ValueId> operands = trace_.operands(id);
  switch (category_of(value.kind)) {
    case Category::Sync:
      return value.kind == NodeKind::SyncTruth ||
             (is_constant(operands[0]) && reads_number(plan_.constants[operands[0]]));
    case Category::Py:
      return true;
    case Category::Read:
      return value.kind == NodeKind::SequenceItem || value.kind == NodeKind::Length ||
             value.kind == NodeKind::InstanceDict;
    case Category::State:
      return is_bookkeeping(id);
    case Category::Tensor: {
      if (value.kind == NodeKind::TensorSetAttribute) return false;
      if (value.kind == NodeKind::TensorGetAttribute) {
        return value.type == ValueType::Tensor &&
               host::classify_tensor_attribute(value.object).read == host::TensorAttributeKind::Tensor &&
               PyUnicode_CompareWithASCIIString(value.object, "data") != 0;
      }
      if (value.kind == NodeKind::TensorCall && !is_constant(operands[0])) return false;
      const NodeEffects effects = effects_of(id);
      return effects.is_known && !effects.draws;
    }
    default:
      return false;
  }
}

}  // namespace reprise::trace
