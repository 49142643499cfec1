// Models of what puts lists in order by comparing their elements: heapq and bisect.
#include <algorithm>
#include <utility>

#include "capture/models_impl.h"
#include "capture/recorder.h"
#include "capture/type_names.h"

namespace reprise::capture {

namespace {

constexpr size_t kMostElements = 256;

}  // namespace

// The order of the elements is that of constants: numbers and strings, or tuples that differ in what comes first. True
// also makes them constants.
bool Recorder::are_ordered(std::span<const Operand> elements) {
  if (elements.size() > kMostElements) return false;
  std::vector<PyObject*> heads;  // owned
  std::vector<bool> are_whole;
  bool ok = true;
  for (const Operand& element : elements) {
    if (!PyTuple_CheckExact(element.object)) {
      ok = ok && (is_constant(element.id) || make_constant(element)) && can_be_constant(element.object);
      heads.push_back(PyTuple_Pack(1, element.object));
      are_whole.push_back(true);
      continue;
    }
    std::vector<ValueId> ids;
    ok = ok && element_ids(element, &ids);
    Py_ssize_t known = 0;
    while (ok && known < static_cast<Py_ssize_t>(ids.size())) {
      const Operand part{PyTuple_GET_ITEM(element.object, known), ids[known]};
      if (!can_be_constant(part.object) || !(is_constant(part.id) || make_constant(part))) break;
      known++;
    }
    heads.push_back(PyTuple_GetSlice(element.object, 0, known));
    are_whole.push_back(known == static_cast<Py_ssize_t>(ids.size()));
  }
  for (size_t i = 0; i < heads.size() && ok; i++) {
    for (size_t j = 0; j < i && ok; j++) {
      if (are_whole[i] && are_whole[j]) continue;
      const Py_ssize_t common = std::min(PyTuple_GET_SIZE(heads[i]), PyTuple_GET_SIZE(heads[j]));
      PyObject* a = PyTuple_GetSlice(heads[i], 0, common);
      PyObject* b = PyTuple_GetSlice(heads[j], 0, common);
      ok = PyObject_RichCompareBool(a, b, Py_NE) > 0;
      Py_XDECREF(a);
      Py_XDECREF(b);
    }
  }
  for (PyObject* head : heads) Py_XDECREF(head);
  PyErr_Clear();
  return ok;
}

// function(list) or function(list, item): changes the list as the order of its elements says.
MODEL(order_list) {
  NO_KEYWORDS(1, 2)
  HeapObject* list = PyList_CheckExact(args[0].object) ? list_of(args[0]) : nullptr;
  if (list == nullptr) return active_ ? stop("an ordered list of unknown contents") : Outcome::Stop;
  std::vector<Operand> before;
  for (size_t i = 0; i < list->elements.size(); i++) {
    before.push_back({PyList_GET_ITEM(args[0].object, static_cast<Py_ssize_t>(i)), list->elements[i]});
  }
  if (n == 2) before.push_back(args[1]);
  if (!are_ordered(before)) return stop("a list in an order that is known late");
  if (!active_) return Outcome::Stop;
  std::vector<ValueId> operands{args[0].id, callable.id};
  for (int i = 0; i < n; i++) operands.push_back(args[i].id);
  for (const Operand& element : before) Py_INCREF(element.object);
  emit(NodeKind::MutatorCall, operands);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) lose("a call of " + callable_name(callable.object) + " that raised");
  auto take_id = [&](PyObject* object) {
    for (Operand& element : before) {
      if (element.object == object && element.id >= 0) return std::exchange(element.id, kNoValue);
    }
    return kNoValue;
  };
  if (result != nullptr && active_) {
    const ValueId result_id = result == Py_None ? constant_id(Py_None) : take_id(result);
    list->elements.clear();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0].object); i++) {
      list->elements.push_back(take_id(PyList_GET_ITEM(args[0].object, i)));
    }
    note_list_written(args[0].object, list);
    facts_[args[0].id].is_length_known = facts_[args[0].id].is_truth_known = false;
    note_effect(list);
    *out = {result, result_id};
  } else {
    *out = {result, kNoValue};
  }
  for (const Operand& element : before) Py_DECREF(element.object);
  return result != nullptr ? Outcome::Done : Outcome::Raised;
}

// What a set of constants becomes with others: set.intersection_update(other) and the like.
MODEL(set_change) {
  if (kwnames != nullptr || !is_created(args[0].id) || !is_fixed_set(args[0])) return call_opaque(callable);
  for (int i = 1; i < n; i++) {
    if (!is_fixed_set(args[i])) return call_opaque(callable);
  }
  std::vector<ValueId> operands{args[0].id, callable.id};
  for (int i = 0; i < n; i++) operands.push_back(args[i].id);
  emit(NodeKind::MutatorCall, operands);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) {
    lose("a call of " + callable_name(callable.object) + " that raised");
    return Outcome::Raised;
  }
  if (active_) note_effect(facts_[args[0].id].heap);
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

MODEL(set_copy) {
  NO_KEYWORDS(1, 1)
  if (!PySet_CheckExact(args[0].object) || !is_fixed_set(args[0])) return call_opaque(callable);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  std::vector<ValueId> ids;
  PyObject* elements = PySequence_List(result);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(elements); i++) ids.push_back(constant_id(PyList_GET_ITEM(elements, i)));
  Py_DECREF(elements);
  const ValueId id = emit_typed(NodeKind::Set, ids, result);
  if (id >= 0) new_object(id)->elements = ids;
  *out = {result, id};
  return Outcome::Done;
}

// dict.popitem(): the last key, whose place in the order is known.
MODEL(dict_popitem) {
  NO_KEYWORDS(1, 1)
  PyObject* dict = args[0].object;
  std::vector<Operand> keys;
  std::vector<ValueId> values;
  const bool is_known = PyDict_Check(dict) && is_created(args[0].id) && dict_ids(args[0], &keys, &values);
  if (!is_known || keys.empty()) return call_opaque(callable);
  PyObject* value = PyDict_GetItemWithError(dict, keys.back().object);
  PyObject* pair = value != nullptr ? PyTuple_Pack(2, keys.back().object, value) : nullptr;
  if (pair == nullptr) return stop("a dict of unknown contents");
  const Outcome outcome = remove_from_dict(args[0], keys.back());
  if (outcome != Outcome::Done) {
    Py_DECREF(pair);
    return outcome;
  }
  const ValueId ids[] = {keys.back().id, values.back()};
  *out = new_tuple(pair, ids);
  return Outcome::Done;
}

}  // namespace reprise::capture
