// Models of the methods of list, dict and set.
#include <cstring>

#include "capture/models_impl.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

// ---- list

MODEL(list_append) {
  NO_KEYWORDS(2, 2)
  if (!PyList_Check(args[0].object)) return call_opaque(callable);
  Outcome outcome = list_append(*top_, args[0], args[1]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

MODEL(list_extend) {
  NO_KEYWORDS(2, 2)
  Outcome outcome = list_extend(*top_, args[0], args[1]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

// super().__init__(values) of a list that the trace has just made.
MODEL(list_init) {
  NO_KEYWORDS(1, 2)
  if (!PyList_Check(args[0].object) || PyList_GET_SIZE(args[0].object) != 0 || !is_created(args[0].id))
    return call_opaque(callable);
  Outcome outcome = Outcome::Done;
  if (n == 2) outcome = list_extend(*top_, args[0], args[1]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

MODEL(list_pop) {
  NO_KEYWORDS(1, 2)
  if (n == 2 && !make_constant(args[1])) return stop("list.pop at an index that is known late");
  HeapObject* list = list_of(args[0]);
  if (list == nullptr || list->elements.empty()) return stop("list.pop from a list of unknown contents");
  Py_ssize_t size = static_cast<Py_ssize_t>(list->elements.size());
  Py_ssize_t i = n == 2 ? PyLong_AsSsize_t(args[1].object) : size - 1;
  if (i < 0) i += size;
  if (i < 0 || i >= size) return stop("list.pop out of range");
  std::vector<ValueId> operands{args[0].id, callable.id, args[0].id};
  if (n == 2) operands.push_back(args[1].id);
  emit(NodeKind::MutatorCall, operands);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  if (!active_) {
    *out = {result, kNoValue};
    return Outcome::Done;
  }
  *out = {result, list->elements[i]};
  list->elements.erase(list->elements.begin() + i);
  note_list_written(args[0].object, list);
  facts_[args[0].id].is_length_known = facts_[args[0].id].is_truth_known = false;
  note_effect(list);
  return Outcome::Done;
}

MODEL(list_insert) {
  NO_KEYWORDS(3, 3)
  HeapObject* list = list_of(args[0]);
  if (list == nullptr || !make_constant(args[1])) return stop("list.insert into a list of unknown contents");
  emit(NodeKind::MutatorCall, {args[0].id, callable.id, args[0].id, args[1].id, args[2].id});
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  Py_ssize_t size = static_cast<Py_ssize_t>(list->elements.size());
  Py_ssize_t i = PyLong_AsSsize_t(args[1].object);
  if (i < 0) i += size;
  i = i < 0 ? 0 : i > size ? size : i;
  if (active_) {
    list->elements.insert(list->elements.begin() + i, args[2].id);
    note_list_written(args[0].object, list);
    facts_[args[0].id].is_length_known = facts_[args[0].id].is_truth_known = false;
    note_effect(list);
  }
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

MODEL(list_copy) {
  NO_KEYWORDS(1, 1)
  std::vector<ValueId> ids;
  if (!element_ids(args[0], &ids)) return stop("a copy of a list of unknown contents");
  PyObject* copy = PyList_GetSlice(args[0].object, 0, PyList_GET_SIZE(args[0].object));
  if (copy == nullptr) return Outcome::Raised;
  *out = new_list(copy, ids);
  return Outcome::Done;
}

MODEL(list_reverse) {
  NO_KEYWORDS(1, 1)
  HeapObject* list = list_of(args[0]);
  if (list == nullptr) return stop("list.reverse of a list of unknown contents");
  emit(NodeKind::MutatorCall, {args[0].id, callable.id, args[0].id});
  PyList_Reverse(args[0].object);
  std::vector<ValueId> reversed(list->elements.rbegin(), list->elements.rend());
  list->elements = std::move(reversed);
  note_list_written(args[0].object, list);
  if (active_) note_effect(list);
  *out = constant(Py_None);
  return Outcome::Done;
}

MODEL(list_clear) {
  NO_KEYWORDS(1, 1)
  HeapObject* list = list_of(args[0]);
  if (list == nullptr) return stop("list.clear of a list of unknown contents");
  emit(NodeKind::MutatorCall, {args[0].id, callable.id, args[0].id});
  PyList_SetSlice(args[0].object, 0, PyList_GET_SIZE(args[0].object), nullptr);
  list->elements.clear();
  list->witnesses.clear();
  if (active_) {
    facts_[args[0].id].is_length_known = facts_[args[0].id].is_truth_known = false;
    note_effect(list);
  }
  *out = constant(Py_None);
  return Outcome::Done;
}

// ---- dict

MODEL(dict_contains) {
  NO_KEYWORDS(2, 2)
  PAST_OVERRIDE(contains, base_contains)
  bool found = false;
  Outcome outcome = contains(*top_, args[0], args[1], &found);
  if (outcome == Outcome::Done) *out = bool_constant(found);
  return outcome;
}

MODEL(dict_get) {
  NO_KEYWORDS(2, 3)
  if (!PyDict_Check(args[0].object)) return call_opaque(callable);
  if (!is_constant(args[0].id) && !know_type(args[0])) return Outcome::Stop;
  if (!host::is_tensor(args[1].object) && !make_key(args[1])) return stop("a dict key that is known late");
  HeapObject* object = heap_of(args[0]);
  if (object == nullptr) return Outcome::Stop;
  Operand value;
  Outcome outcome = read_dict(args[0].object, object, args[1], &value);
  if (outcome != Outcome::Done) return outcome;
  if (value.object != nullptr)
    *out = {Py_NewRef(value.object), value.id};
  else if (n == 3)
    *out = {Py_NewRef(args[2].object), args[2].id};
  else
    *out = constant(Py_None);
  return Outcome::Done;
}

MODEL(dict_getitem) {
  NO_KEYWORDS(2, 2)
  if (!is_constant(args[0].id) && !know_type(args[0])) return Outcome::Stop;
  if (!host::is_tensor(args[1].object) && !make_key(args[1])) return stop("a dict key that is known late");
  HeapObject* object = heap_of(args[0]);
  if (object == nullptr) return Outcome::Stop;
  Operand value;
  Outcome outcome = read_dict(args[0].object, object, args[1], &value);
  if (outcome != Outcome::Done) return outcome;
  if (value.object == nullptr) return stop("a missing dict key");
  *out = {Py_NewRef(value.object), value.id};
  return Outcome::Done;
}

MODEL(dict_setitem) {
  NO_KEYWORDS(3, 3)
  if (!PyDict_Check(args[0].object) || !know_type(args[0])) return call_opaque(callable);
  bool by_identity = host::is_tensor(args[1].object);
  if (!by_identity && !make_key(args[1])) return stop("a dict key that is known late");
  HeapObject* object = heap_of(args[0]);
  if (object == nullptr) return Outcome::Stop;
  PyObject* canonical = key_of(args[1], &by_identity);
  if (canonical == nullptr) return stop("an unhashable dict key");
  // The base class's own store, called past an override: the same call again at replay.
  emit(NodeKind::MutatorCall, {args[0].id, callable.id, args[0].id, args[1].id, args[2].id});
  CCall bracket(*this);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  if (active_) {
    object->items.set(canonical, args[2].id);
    facts_[args[0].id].is_length_known = facts_[args[0].id].are_keys_known = facts_[args[0].id].is_truth_known = false;
    note_dict_written(args[0].object, object);
    note_effect(object);
  }
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

MODEL(dict_delitem) {
  NO_KEYWORDS(2, 2)
  if (active_ && PyDict_Check(args[0].object) && is_overridden(args[0].object, names().delitem)) {
    if (!know_type(args[0])) return Outcome::Stop;
    bool by_identity = host::is_tensor(args[1].object);
    if (!by_identity && !make_key(args[1])) return stop("a dict key that is known late");
    HeapObject* object = heap_of(args[0]);
    if (object == nullptr) return Outcome::Stop;
    Operand old;
    Outcome outcome = read_dict(args[0].object, object, args[1], &old);
    if (outcome != Outcome::Done) return outcome;
    if (old.object == nullptr) return stop("deletion of a missing dict key");
    PyObject* canonical = key_of(args[1], &by_identity);
    emit(NodeKind::MutatorCall, {args[0].id, callable.id, args[0].id, args[1].id});
    CCall bracket(*this);
    PyObject* result = call_live(callable.object, args, n, nullptr);
    if (result == nullptr) return Outcome::Raised;
    if (active_) {
      object->items.set(canonical, kNoValue);
      facts_[args[0].id].is_length_known = facts_[args[0].id].are_keys_known = facts_[args[0].id].is_truth_known =
          false;
      note_dict_written(args[0].object, object);
      note_effect(object);
    }
    *out = {result, constant_id(result)};
    return Outcome::Done;
  }
  Outcome outcome = remove_from_dict(args[0], args[1]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

// Keys and values of a constant mapping, as constants. False: one of them can't be one.
bool Recorder::mapping_constants(PyObject* mapping, std::vector<Operand>* keys, std::vector<ValueId>* values) {
  PyObject* items = PyMapping_Items(mapping);
  if (items == nullptr) {
    PyErr_Clear();
    return false;
  }
  bool ok = true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items) && ok; i++) {
    PyObject* pair = PyList_GET_ITEM(items, i);
    keys->push_back(constant(PyTuple_GET_ITEM(pair, 0)));
    values->push_back(constant_id(PyTuple_GET_ITEM(pair, 1)));
    ok = keys->back().id >= 0 && values->back() >= 0;
  }
  Py_DECREF(items);
  return ok;
}

MODEL(dict_view) {
  NO_KEYWORDS(1, 1)
  std::vector<Operand> keys;
  std::vector<ValueId> values;
  if (Py_TYPE(args[0].object) == &PyDictProxy_Type) {
    if (!is_constant(args[0].id)) return call_opaque(callable);
    if (!mapping_constants(args[0].object, &keys, &values)) return stop("a view of a mapping of tensors");
  } else {
    if (!PyDict_Check(args[0].object)) return call_opaque(callable);
    if (!is_constant(args[0].id) && !know_type(args[0])) return Outcome::Stop;
    const bool needs_keys = !callable_name(callable.object).ends_with(".values");
    if (!dict_ids(args[0], &keys, &values, needs_keys)) return stop("a view of a dict of unknown contents");
  }
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  ValueId operands[] = {callable.id, args[0].id};
  force_late_ = true;
  ValueId id = emit_typed(NodeKind::Object, operands, result, nullptr, 1);
  force_late_ = false;
  if (id >= 0) {
    HeapObject* view = new_object(id);
    view->is_view = true;
    const char* name = Py_TYPE(result)->tp_name;
    bool is_values = strstr(name, "values") != nullptr;
    bool is_items = strstr(name, "items") != nullptr;
    for (size_t i = 0; i < keys.size(); i++) {
      if (is_values) {
        view->view.push_back(values[i]);
      } else if (is_items) {
        ValueId pair[2] = {keys[i].id, values[i]};
        ValueId tuple = emit(NodeKind::Tuple, pair);
        if (tuple < 0) break;
        facts_[tuple].type = &PyTuple_Type;
        facts_[tuple].is_present = facts_[tuple].is_length_known = facts_[tuple].is_truth_known = true;
        HeapObject* object = new_object(tuple);
        object->elements.assign(pair, pair + 2);
        object->has_elements = true;
        view->view.push_back(tuple);
      } else {
        view->view.push_back(keys[i].id);
      }
    }
  }
  *out = {result, id};
  return Outcome::Done;
}

MODEL(dict_pop) {
  NO_KEYWORDS(2, 3)
  if (!PyDict_Check(args[0].object) || is_overridden(args[0].object, names().delitem)) return call_opaque(callable);
  if (!is_constant(args[0].id) && !know_type(args[0])) return Outcome::Stop;
  if (!host::is_tensor(args[1].object) && !make_key(args[1])) return stop("a dict key that is known late");
  HeapObject* object = heap_of(args[0]);
  if (object == nullptr) return Outcome::Stop;
  Operand value;
  Outcome outcome = read_dict(args[0].object, object, args[1], &value);
  if (outcome != Outcome::Done) return outcome;
  if (value.object == nullptr) {
    if (n == 3) {
      *out = {Py_NewRef(args[2].object), args[2].id};
      return Outcome::Done;
    }
    PyErr_SetObject(PyExc_KeyError, args[1].object);
    exception_is_recorded_ = true;
    return Outcome::Raised;
  }
  Py_INCREF(value.object);
  outcome = remove_from_dict(args[0], args[1]);
  if (outcome != Outcome::Done) {
    Py_DECREF(value.object);
    return outcome;
  }
  *out = value;
  return Outcome::Done;
}

// Key and value as dict.update takes them, a tuple or list of two; nullptr: what it raises.
static PyObject* split_pair(PyObject* pair, Py_ssize_t index) {
  PyObject* parts = PySequence_Fast(pair, "");
  if (parts == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError, "cannot convert dictionary update sequence element #%zd to a sequence", index);
    return nullptr;
  }
  if (PySequence_Fast_GET_SIZE(parts) == 2) return parts;
  PyErr_Format(PyExc_ValueError, "dictionary update sequence element #%zd has length %zd; 2 is required", index,
               PySequence_Fast_GET_SIZE(parts));
  Py_DECREF(parts);
  return nullptr;
}

MODEL(dict_update) {
  int positional = n - static_cast<int>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  if (positional < 1 || positional > 2 || !PyDict_Check(args[0].object)) return call_opaque(callable);
  // dict passes by an override, OrderedDict does not.
  const bool is_ordered = PyODict_Check(args[0].object);
  const bool passes_by = !is_ordered && is_overridden(args[0].object, names().setitem);
  if (is_ordered && is_overridden(args[0].object, names().setitem)) return call_opaque(callable);
  static PyObject* kDictUpdate = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyDict_Type), "update");
  static PyObject* kOrderedUpdate = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyODict_Type), "update");
  static PyObject* kSetItem = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyDict_Type), "__setitem__");
  bool has_started = false;
  auto finish_live = [&] {
    PyObject* result = call_live(is_ordered ? kOrderedUpdate : kDictUpdate, args, n, kwnames);
    *out = {result, kNoValue};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  };
  auto store_live = [&](PyObject* key, PyObject* value) {
    PyObject* dict = args[0].object;
    const int status = passes_by ? PyDict_SetItem(dict, key, value) : PyObject_SetItem(dict, key, value);
    return status < 0 ? Outcome::Raised : Outcome::Done;
  };
  auto store = [&](Operand key, Operand value) {
    Outcome outcome;
    if (passes_by) {
      const Operand all[3] = {args[0], key, value};
      Operand none;
      outcome = model_dict_setitem({kSetItem, constant_id(kSetItem)}, all, 3, nullptr, &none);
      if (outcome == Outcome::Done) Py_DECREF(none.object);
    } else {
      outcome = write_dict(args[0], key, value);
    }
    if (outcome == Outcome::Done) has_started = true;
    return outcome;
  };
  if (positional == 2) {
    Operand source = args[1];
    const bool has_own_protocol =
        is_ordered && !PyDict_CheckExact(source.object) && PyDict_Check(source.object) &&
        (is_overridden(source.object, names().keys) || is_overridden(source.object, names().getitem));
    if (reads_own_items(source.object) && !has_own_protocol) {
      std::vector<Operand> keys;
      std::vector<ValueId> values;
      if (!know_type(source) && !is_constant(source.id)) return Outcome::Stop;
      if (!dict_ids(source, &keys, &values)) return stop("an update from a dict of unknown contents");
      for (size_t i = 0; i < keys.size(); i++) {
        Operand value{PyDict_GetItemWithError(source.object, keys[i].object), values[i]};
        Outcome outcome = store(keys[i], value);
        if (outcome == Outcome::Stop && has_started) return finish_live();
        if (outcome != Outcome::Done) return outcome;
      }
    } else {
      PyObject* keys_method = PyObject_GetAttr(source.object, names().keys);
      PyErr_Clear();
      Py_XDECREF(keys_method);
      if (keys_method != nullptr) return stop("an update from a mapping that is no dict");
      std::vector<Operand> pairs;
      {
        ModeScope mode(*this, ResumeMode::Never);
        Outcome outcome = all_elements(source, &pairs);
        if (outcome != Outcome::Done) return outcome;
      }
      Outcome outcome = Outcome::Done;
      Py_ssize_t index = 0;
      for (Operand& pair : pairs) {
        std::vector<ValueId> ids;
        // Any iterable of two elements is a pair; those that are no tuple or list are taken apart unrecorded.
        const bool is_sequence = PyTuple_Check(pair.object) || PyList_Check(pair.object);
        if (active_ && (!is_sequence || pair.id < 0 || !element_ids(pair, &ids) || ids.size() != 2))
          lose("an update from pairs of unknown contents");
        PyObject* parts = nullptr;
        if (outcome == Outcome::Done) {
          parts = split_pair(pair.object, index);
          if (parts == nullptr) outcome = Outcome::Raised;
        }
        if (parts != nullptr) {
          PyObject** items = PySequence_Fast_ITEMS(parts);
          if (active_) outcome = store({items[0], ids[0]}, {items[1], ids[1]});
          if (!active_ && outcome != Outcome::Raised) outcome = store_live(items[0], items[1]);
          Py_DECREF(parts);
        }
        Py_DECREF(pair.object);
        index++;
      }
      if (outcome != Outcome::Done) return outcome;
    }
  }
  for (int i = positional; i < n; i++) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i - positional);
    if (!active_) {
      if (store_live(name, args[i].object) == Outcome::Raised) return Outcome::Raised;
      continue;
    }
    Outcome outcome = store({name, constant_id(name)}, args[i]);
    if (outcome == Outcome::Stop && has_started) {
      if (store_live(name, args[i].object) == Outcome::Raised) return Outcome::Raised;
      continue;
    }
    if (outcome != Outcome::Done) return outcome;
  }
  *out = constant(Py_None);
  return Outcome::Done;
}

MODEL(dict_init) {
  if (n == 1) {
    *out = constant(Py_None);
    return Outcome::Done;
  }
  return model_dict_update(callable, args, n, kwnames, out);
}

MODEL(dict_fromkeys) {
  NO_KEYWORDS(2, 3)
  const bool is_plain = args[0].object == reinterpret_cast<PyObject*>(&PyDict_Type) && !PyIter_Check(args[1].object);
  if (!is_plain) return call_opaque(callable);
  std::vector<Operand> elements;
  {
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = all_elements(args[1], &elements);
    if (outcome != Outcome::Done) return outcome;
  }
  const Operand value = n == 3 ? args[2] : Operand{Py_None, constant_id(Py_None)};
  PyObject* result = PyDict_New();
  std::vector<ValueId> pairs;
  std::vector<PyObject*> keys;
  bool ok = result != nullptr;
  for (Operand& element : elements) {
    ok = ok && !host::is_tensor(element.object) && make_key(element);
    if (ok && PyDict_Contains(result, element.object) == 0) {
      pairs.insert(pairs.end(), {element.id, value.id});
      keys.push_back(element.object);
      ok = PyDict_SetItem(result, element.object, value.object) == 0;
    }
    Py_DECREF(element.object);  // the dict holds it
  }
  if (!ok) {
    PyErr_Clear();
    Py_XDECREF(result);
    return stop("dict.fromkeys of values that are known late");
  }
  *out = new_dict(result, pairs, keys.data());
  return Outcome::Done;
}

MODEL(dict_setdefault) {
  NO_KEYWORDS(2, 3)
  if (!PyDict_Check(args[0].object) || is_overridden(args[0].object, names().setitem)) return call_opaque(callable);
  if (!is_constant(args[0].id) && !know_type(args[0])) return Outcome::Stop;
  if (!host::is_tensor(args[1].object) && !make_key(args[1])) return stop("a dict key that is known late");
  HeapObject* object = heap_of(args[0]);
  if (object == nullptr) return Outcome::Stop;
  Operand value;
  Outcome outcome = read_dict(args[0].object, object, args[1], &value);
  if (outcome != Outcome::Done) return outcome;
  if (value.object != nullptr) {
    *out = {Py_NewRef(value.object), value.id};
    return Outcome::Done;
  }
  Operand fallback = n == 3 ? Operand{Py_NewRef(args[2].object), args[2].id} : constant(Py_None);
  outcome = write_dict(args[0], args[1], fallback);
  if (outcome != Outcome::Done) {
    Py_DECREF(fallback.object);
    return outcome;
  }
  *out = fallback;
  return Outcome::Done;
}

MODEL(dict_copy) {
  NO_KEYWORDS(1, 1)
  if (!PyDict_CheckExact(args[0].object)) return call_opaque(callable);
  if (!is_constant(args[0].id) && !know_type(args[0])) return Outcome::Stop;
  std::vector<Operand> keys;
  std::vector<ValueId> values, pairs;
  std::vector<PyObject*> key_objects;
  if (!dict_ids(args[0], &keys, &values)) return stop("a copy of a dict of unknown contents");
  for (size_t i = 0; i < keys.size(); i++) {
    pairs.push_back(keys[i].id);
    pairs.push_back(values[i]);
    key_objects.push_back(keys[i].object);
  }
  PyObject* copy = PyDict_Copy(args[0].object);
  if (copy == nullptr) return Outcome::Raised;
  *out = new_dict(copy, pairs, key_objects.data());
  return Outcome::Done;
}

MODEL(dict_clear) {
  NO_KEYWORDS(1, 1)
  HeapObject* object = heap_of(args[0]);
  if (object == nullptr || !know_type(args[0])) return Outcome::Stop;
  emit(NodeKind::MutatorCall, {args[0].id, callable.id, args[0].id});
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  if (active_) {
    object->items.clear();
    object->is_complete = true;
    facts_[args[0].id].is_length_known = facts_[args[0].id].are_keys_known = facts_[args[0].id].is_truth_known = false;
    note_dict_written(args[0].object, object);
    note_effect(object);
  }
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

MODEL(dict_move) {
  HeapObject* object = heap_of(args[0]);
  if (object == nullptr || !know_type(args[0])) return Outcome::Stop;
  std::vector<ValueId> operands{args[0].id, callable.id};
  for (int i = 0; i < n; i++) {
    if (i > 0 && !make_key(args[i])) return stop("a dict key that is known late");
    operands.push_back(args[i].id);
  }
  emit(NodeKind::MutatorCall, operands, kwnames);
  PyObject* result = call_live(callable.object, args, n, kwnames);
  if (result == nullptr) {
    lose("a move of a dict key that raised");
    return Outcome::Raised;
  }
  if (active_) {
    facts_[args[0].id].are_keys_known = false;
    note_dict_written(args[0].object, object);
    note_effect(object);
  }
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

// ---- set

MODEL(set_add) {
  NO_KEYWORDS(2, 2)
  if (!is_created(args[0].id)) return call_opaque(callable);
  Outcome outcome = set_add(*top_, args[0], args[1]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

MODEL(set_remove) {
  NO_KEYWORDS(2, 2)
  if (!is_created(args[0].id) || !make_key(args[1])) return call_opaque(callable);
  emit(NodeKind::MutatorCall, {args[0].id, callable.id, args[0].id, args[1].id});
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) {
    lose("a removal of a missing set element");
    return Outcome::Raised;
  }
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

MODEL(set_update) {
  NO_KEYWORDS(2, 2)
  if (!is_created(args[0].id)) return call_opaque(callable);
  Outcome outcome = set_update(*top_, args[0], args[1]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

}  // namespace reprise::capture
