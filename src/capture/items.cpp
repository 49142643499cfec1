// Length, containment and subscription: reads, stores and deletions of items.
#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "capture/type_names.h"
#include "host/torch/callables.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

Outcome Recorder::length(Operand v, Operand* out) {
  PyObject* o = v.object;
  if (!active_) {
    Py_ssize_t n = PyObject_Length(o);
    *out = {n < 0 ? nullptr : PyLong_FromSsize_t(n), kNoValue};
    return n < 0 ? Outcome::Raised : Outcome::Done;
  }
  if (v.id < 0) return stop("the length of a value of unknown origin");
  PyTypeObject* type = Py_TYPE(o);
  bool is_tensor = host::is_tensor(o);
  if (is_of_numpy(o) && !is_constant(v.id)) return call_builtin("builtins", "len", {v}, out);
  if (is_tensor && !know_tensor(v)) return Outcome::Stop;
  if (is_tensor && trace_->values[v.id].varies && !host::tensor_sizes(o).empty()) {
    *out = read_size(v, host::SizeRead::Size);
    return out->object != nullptr ? Outcome::Done : Outcome::Raised;
  }
  if (!is_tensor && !is_constant(v.id) && !know_type(v)) return Outcome::Stop;
  if (!is_tensor && !is_made_in_c(type)) {
    bool found;
    know_type_version(type);
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = call_special(names().len, v, {}, out, &found);
    if (found && outcome == Outcome::Done) return finish_length(out);
    if (found) return outcome;
  }
  Py_ssize_t n;
  {
    CCall bracket(*this);  // Tensor.__len__ is Python
    n = PyObject_Length(o);
  }
  if (n < 0) {
    lose("a length that raised");
    return Outcome::Raised;
  }
  PyObject* result = PyLong_FromSsize_t(n);
  HeapObject* object = facts_[v.id].heap;
  if (object == nullptr && !is_constant(v.id) && (PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o))) {
    object = heap_of(v);
    if (object == nullptr) return Outcome::Stop;
  }
  bool is_known = is_tensor || is_constant(v.id) || facts_[v.id].is_length_known;
  if (object != nullptr) {
    if (!object->is_created && !check_effects(object)) return Outcome::Stop;
    is_known |= object->has_elements || object->is_complete || object->is_view ||
                (object->is_created && !object->is_dirty && !PyDict_Check(o) && !PyList_Check(o));
  }
  if (is_known) {
    *out = new_constant(result);
    return Outcome::Done;
  }
  bool is_written = object != nullptr && (object->is_effect_target || object->is_dirty || object->is_append_only);
  if ((PyTuple_Check(o) || PyList_Check(o) || PyDict_Check(o)) && !is_written) {
    if (!know_length(v, n)) return Outcome::Stop;
    *out = new_constant(result);
    return Outcome::Done;
  }
  ValueId operands[] = {v.id};
  force_late_ = is_written;
  ValueId id = emit_typed(NodeKind::Length, operands, result);
  force_late_ = false;
  *out = {result, id};
  return Outcome::Done;
}

// What `__len__` gave, as len() gives it.
Outcome Recorder::finish_length(Operand* result) {
  const bool is_length = PyLong_CheckExact(result->object) && PyLong_AsSsize_t(result->object) >= 0;
  PyErr_Clear();
  if (is_length && active_ && result->id >= 0 && !is_constant(result->id)) {
    bool is_known = know_type(*result);
    if (is_known && !trace_->values[result->id].varies) {  // a size is no negative number
      PyObject* zero = PyLong_FromLong(0);
      const ValueId id = emit(NodeKind::Compare, {result->id, constant_id(zero)}, nullptr, Py_GE);
      Py_DECREF(zero);
      is_known = id >= 0 && guard(id, FactKind::Identity, Py_True);
    }
    if (!is_known) result->id = kNoValue;  // the recording has ended
  }
  if (is_length) return Outcome::Done;
  lose("a __len__ that gives no length");
  PyObject* given = result->object;
  PyObject* number = PyNumber_Index(given);
  Py_DECREF(given);
  const Py_ssize_t length = number != nullptr ? PyLong_AsSsize_t(number) : -1;
  Py_XDECREF(number);
  if (length < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "__len__() should return >= 0");
  if (length < 0) return Outcome::Raised;
  *result = {PyLong_FromSsize_t(length), kNoValue};
  return Outcome::Done;
}

Outcome Recorder::contains(Act& act, Operand c, Operand k, bool* out) {
  PyObject* o = c.object;
  auto run = [&]() -> int {
    CCall bracket(*this);
    return PySequence_Contains(o, k.object);
  };
  auto finish = [&](int found) {
    *out = found > 0;
    if (found < 0) lose("a containment test that raised");
    return found < 0 ? Outcome::Raised : Outcome::Done;
  };
  // The answer is a fact of its own.
  auto ask = [&](bool is_late) {
    const int found = run();
    if (found < 0) return finish(found);
    ValueId operands[] = {c.id, k.id};
    force_late_ = is_late;
    ValueId id = emit(NodeKind::Contains, operands);
    force_late_ = false;
    if (id >= 0) guard(id, FactKind::Identity, found ? Py_True : Py_False);
    return finish(found);
  };
  if (!active_) return finish(run());
  if (c.id < 0 || k.id < 0) return stop("containment of a value of unknown origin");
  PyTypeObject* type = Py_TYPE(o);
  PyObject* method = find_in_class(type, names().contains);
  // torch's own, in Python, reads data: the answer is asked for as a whole.
  auto* tensor_type = reinterpret_cast<PyTypeObject*>(host::tensor_type());
  if (host::is_tensor(o) && method == find_in_class(tensor_type, names().contains)) method = nullptr;
  if (method != nullptr && PyFunction_Check(method)) {
    Operand result;
    bool found;
    {
      ModeScope mode(*this, ResumeMode::Never);
      Outcome outcome = call_special(names().contains, c, std::span<const Operand>(&k, 1), &result, &found);
      if (outcome != Outcome::Done) return outcome;
    }
    Outcome outcome = truth(act, result, out);
    if (outcome == Outcome::Stop) {
      *out = PyObject_IsTrue(result.object) > 0;
      outcome = Outcome::Done;
    }
    Py_DECREF(result.object);
    return outcome;
  }
  HeapObject* object = facts_[c.id].heap;
  if (PyDict_Check(o)) {
    if (!is_constant(c.id) && !know_type(c)) return Outcome::Stop;
    if (!host::is_tensor(k.object) && !make_key(k)) return stop("a dict key that is known late");
    object = heap_of(c);
    if (object == nullptr) return Outcome::Stop;
    Operand value;
    Outcome outcome = read_dict(o, object, k, &value);
    *out = value.object != nullptr;
    return outcome;
  }
  if (object != nullptr && object->is_view) {
    if (!make_key(k)) return stop("containment of a value that is known late");
    return finish(run());
  }
  if (host::is_tensor(o)) {
    if (!know_tensor(c) || !prepare_torch_argument(k, true)) return stop("containment in a tensor");
    return ask(true);
  }
  if (PyTuple_Check(o) || PyList_Check(o)) {
    bool is_fixed = is_constant(c.id);
    if (!is_fixed) {
      std::vector<ValueId> ids;
      if (!element_ids(c, &ids)) return stop("containment in a sequence of unknown contents");
      for (size_t i = 0; i < ids.size(); i++) {
        PyObject* element = PySequence_Fast_ITEMS(o)[i];
        if (ids[i] == k.id) continue;
        if (host::is_tensor(element) || !make_key({element, ids[i]}))
          return stop("containment in a sequence of values that are known late");
      }
    }
    if (!make_key(k)) return stop("containment of a value that is known late");
    return finish(run());
  }
  if (PyUnicode_Check(o) || PyAnySet_Check(o) || PyBytes_Check(o)) {
    bool is_tensor = PyAnySet_Check(o) && host::is_tensor(k.object);
    if (is_tensor && object != nullptr && note_identity(object, k)) return finish(run());
    if (is_tensor || (object != nullptr && object->is_created && object->is_dirty)) return ask(true);
    if (!make_key(k)) return stop("containment of a value that is known late");
    if (is_constant(c.id) || (object != nullptr && object->is_created && PyAnySet_Check(o)) ||
        (!PyAnySet_Check(o) && make_constant(c))) {
      return finish(run());
    }
    if (!PyAnySet_Check(o) || !know_type(c)) return stop("containment in " + type_name(type));
    return ask(facts_[c.id].heap != nullptr && facts_[c.id].heap->is_effect_target);
  }
  if (type == &PyDictProxy_Type && is_constant(c.id) && make_key(k)) return finish(run());
  if (PyType_Check(o) || PyRange_Check(o)) {
    if (!(know_identity(c) || is_constant(c.id)) || !make_constant(k)) return stop("containment in " + type_name(type));
    return finish(run());
  }
  return stop("containment in " + type_name(type));
}

// The bounds of a slice of a Python sequence.
bool Recorder::fix_slice(Operand k) {
  if (is_constant(k.id)) return true;
  if (!prepare_slice(k)) return false;
  auto* live = reinterpret_cast<PySliceObject*>(k.object);
  const std::vector<ValueId> ids = facts_[k.id].heap->elements;
  return make_constant({live->start, ids[0]}) && make_constant({live->stop, ids[1]}) &&
         make_constant({live->step, ids[2]});
}

// list[slice] = a sequence, or del list[slice] (value.object nullptr).
Outcome Recorder::replace_slice(Operand c, Operand k, Operand value) {
  if (!fix_slice(k)) return stop("a slice that is known late");
  HeapObject* list = list_of(c);
  std::vector<ValueId> ids;
  const bool is_deletion = value.object == nullptr;
  const bool is_sequence = is_deletion || PyTuple_Check(value.object) || PyList_CheckExact(value.object);
  if (list == nullptr || !is_sequence || (!is_deletion && !element_ids(value, &ids)))
    return stop("a slice of a list of unknown contents is replaced");
  Py_ssize_t start, end, step;
  if (PySlice_Unpack(k.object, &start, &end, &step) < 0) {
    PyErr_Clear();
    return stop("an unusual slice");
  }
  const auto size = static_cast<Py_ssize_t>(list->elements.size());
  const Py_ssize_t count = PySlice_AdjustIndices(size, &start, &end, step);
  if (step != 1) return stop("a slice with steps is replaced");
  if (is_deletion) {
    emit(NodeKind::DeleteItem, {c.id, k.id});
  } else {
    emit(NodeKind::SetItem, {c.id, k.id, value.id});
  }
  const int status =
      is_deletion ? PyObject_DelItem(c.object, k.object) : PyObject_SetItem(c.object, k.object, value.object);
  if (status < 0) return Outcome::Raised;
  if (!active_) return Outcome::Done;
  const auto first = list->elements.begin() + start;
  list->elements.insert(list->elements.erase(first, first + count), ids.begin(), ids.end());
  note_list_written(c.object, list);
  facts_[c.id].is_length_known = facts_[c.id].is_truth_known = false;
  note_effect(list);
  return Outcome::Done;
}

// An element of a list or tuple at a constant index, whatever its class says about subscription.
Outcome Recorder::get_element(Operand c, Operand k, Operand* out) {
  PyObject* o = c.object;
  Py_ssize_t i = PyNumber_AsSsize_t(k.object, PyExc_IndexError);
  if (HeapObject* list = heap_of(c); list != nullptr && list->is_append_only && i < 0) {
    const auto count = static_cast<Py_ssize_t>(list->elements.size());
    if (!check_effects(list)) return Outcome::Stop;
    if (-i <= count) {
      *out = {Py_NewRef(PySequence_Fast_ITEMS(o)[PyList_GET_SIZE(o) + i]), list->elements[count + i]};
      return Outcome::Done;
    }
  }
  std::vector<ValueId> ids;
  if (!element_ids(c, &ids)) return stop("an element of a sequence of unknown contents");
  Py_ssize_t n = static_cast<Py_ssize_t>(ids.size());
  if (i < 0) i += n;
  if (i < 0 || i >= n) {
    PyErr_SetString(PyExc_IndexError, PyTuple_Check(o) ? "tuple index out of range" : "list index out of range");
    exception_is_recorded_ = true;
    return Outcome::Raised;
  }
  *out = {Py_NewRef(PySequence_Fast_ITEMS(o)[i]), ids[i]};
  return Outcome::Done;
}

// A slice of a list or tuple, whatever its class says about subscription.
Outcome Recorder::get_slice(Operand c, Operand k, Operand* out) {
  std::vector<ValueId> ids, selected;
  if (!fix_slice(k)) return stop("a slice that is known late");
  if (!element_ids(c, &ids)) return stop("a slice of a sequence of unknown contents");
  PyTypeObject* base = Py_TYPE(c.object);
  while (PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE)) base = base->tp_base;
  PyObject* result = base->tp_as_mapping->mp_subscript(c.object, k.object);
  if (result == nullptr) {
    lose("a subscription that raised");
    return Outcome::Raised;
  }
  Py_ssize_t start, stop_, step;
  PySlice_Unpack(k.object, &start, &stop_, &step);
  Py_ssize_t n = PySlice_AdjustIndices(static_cast<Py_ssize_t>(ids.size()), &start, &stop_, step);
  for (Py_ssize_t i = 0; i < n; i++) selected.push_back(ids[start + i * step]);
  if (PyTuple_Check(result)) {
    PyObject* subclass = PyTuple_CheckExact(result) ? nullptr : reinterpret_cast<PyObject*>(Py_TYPE(result));
    *out = new_tuple(result, selected, subclass);
  } else {
    *out = new_list(result, selected);
  }
  return Outcome::Done;
}

Outcome Recorder::get_item(Act& act, Operand c, Operand k, Operand* out) {
  PyObject* o = c.object;
  auto run = [&]() -> PyObject* {
    PyObject* result;
    bool saw_callback;
    {
      CCall bracket(*this);
      result = PyObject_GetItem(o, k.object);
      saw_callback = bracket.saw_callback();
    }
    if (saw_callback) forget_after_callback();  // __index__, __torch_function__
    return result;
  };
  auto raised = [&] {
    lose("a subscription that raised");
    return Outcome::Raised;
  };
  if (!active_) {
    PyObject* result = run();
    *out = {result, kNoValue};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  }
  if (c.id < 0 || k.id < 0) return stop("subscription of a value of unknown origin");
  PyTypeObject* type = Py_TYPE(o);
  if (host::is_tensor(o)) {
    if (!know_tensor(c) || !prepare_torch_argument(k, false)) return stop("a tensor index that is known late");
    const bool is_late = is_meta_tainted(c) || is_meta_tainted(k) || !host::is_plain_tensor(o);
    const bool is_tainted = is_late || host::has_data_dependent_result(k.object);
    const ValueId index = fix_lists(k);
    PyObject* result = run();
    if (result == nullptr) return raised();
    ValueId operands[] = {c.id, index};
    const Outcome outcome = finish_torch_result(NodeKind::TensorGetItem, operands, nullptr, 0, result, is_tainted, out);
    if (out->id >= 0) trace_->values[out->id].is_data_sized = is_tainted && !is_late;
    return outcome;
  }
  if (is_of_numpy(o)) return call_builtin("_operator", "getitem", {c, k}, out);
  if (HeapObject* deque = deque_of(c); deque != nullptr && PyLong_CheckExact(k.object) && make_constant(k)) {
    const Py_ssize_t size = static_cast<Py_ssize_t>(deque->elements.size());
    Py_ssize_t i = PyLong_AsSsize_t(k.object);
    PyErr_Clear();
    if (i < 0) i += size;
    if (i < 0 || i >= size) return stop("a deque index out of range");
    *out = {run(), deque->elements[i]};
    return out->object != nullptr ? Outcome::Done : raised();
  }
  PyObject* method = find_in_class(type, names().getitem);
  if (PyDict_Check(o) && !(method != nullptr && PyFunction_Check(method))) {
    if (!is_constant(c.id) && !know_type(c)) return Outcome::Stop;
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) know_type_version(type);
    if (!host::is_tensor(k.object) && !make_key(k)) return stop("a dict key that is known late");
    HeapObject* object = heap_of(c);
    if (object == nullptr) return Outcome::Stop;
    Operand value;
    Outcome outcome = read_dict(o, object, k, &value);
    if (outcome != Outcome::Done) return outcome;
    if (value.object != nullptr) {
      *out = {Py_NewRef(value.object), value.id};
      return Outcome::Done;
    }
    PyObject* missing = find_in_class(type, names().missing);
    if (missing != nullptr && PyFunction_Check(missing)) {
      Operand args[2] = {c, k};
      return call_function({missing, constant_id(missing)}, args, 2, nullptr, out);
    }
    if (missing != nullptr) {  // defaultdict
      PyObject* factory = PyObject_GetAttr(o, names().default_factory);
      if (factory == nullptr) return raised();
      Operand callable{factory, constant_id(factory)};
      if (object->is_created) callable.id = object->function;
      if (factory != Py_None) {
        if (callable.id < 0) {
          Py_DECREF(factory);
          return stop("a default factory of unknown origin");
        }
        Operand made;
        {
          ModeScope mode(*this, ResumeMode::Never);
          outcome = call_any(callable, nullptr, 0, nullptr, &made);
        }
        Py_DECREF(factory);
        if (outcome != Outcome::Done) return outcome;
        outcome = write_dict(c, k, made);
        if (outcome == Outcome::Stop)
          outcome = PyObject_SetItem(o, k.object, made.object) < 0 ? Outcome::Raised : Outcome::Done;
        *out = made;
        return outcome;
      }
      Py_DECREF(factory);
    }
    PyErr_SetObject(PyExc_KeyError, k.object);
    exception_is_recorded_ = true;
    return Outcome::Raised;
  }
  bool is_plain_sequence = (PyTuple_Check(o) || PyList_Check(o)) && !(method != nullptr && PyFunction_Check(method));
  if (is_plain_sequence && PyIndex_Check(k.object)) {
    if (!make_constant(k)) {
      // A late index into a sequence: a late element.
      if (!know_type(c) || !know_type(k)) return Outcome::Stop;
      PyObject* result = run();
      if (result == nullptr) return raised();
      ValueId operands[] = {c.id, k.id};
      *out = {result, emit(NodeKind::GetItem, operands)};
      return Outcome::Done;
    }
    return get_element(c, k, out);
  }
  if (is_plain_sequence && PySlice_Check(k.object)) return get_slice(c, k, out);
  if (is_plain_sequence) return stop("a subscription by " + type_name(Py_TYPE(k.object)));
  if (PyType_Check(o)) {  // list[int], Generic[T], Enum['name']
    if (!know_identity(c) || !make_class_key(k)) return stop("a subscripted class that is known late");
    PyObject* result = run();
    if (result == nullptr) return raised();
    *out = new_constant(result);
    return Outcome::Done;
  }
  if (method != nullptr && PyFunction_Check(method)) {
    bool found;
    return call_special(names().getitem, c, std::span<const Operand>(&k, 1), out, &found);
  }
  if (PyUnicode_CheckExact(o) || PyBytes_CheckExact(o) || PyRange_Check(o)) {
    bool is_fixed = is_constant(k.id) || make_constant(k);
    if (!is_fixed && PySlice_Check(k.object)) {
      HeapObject* slice = facts_[k.id].heap;
      is_fixed = slice != nullptr && slice->elements.size() == 3 && is_constant(slice->elements[0]) &&
                 is_constant(slice->elements[1]) && is_constant(slice->elements[2]);
    }
    if (!is_fixed || !make_constant(c)) return stop("a subscription of " + type_name(type));
    PyObject* result = run();
    if (result == nullptr) return raised();
    *out = new_constant(result);
    return Outcome::Done;
  }
  if (method != nullptr) {
    Operand args[2] = {c, k};
    return call_any({method, constant_id(method)}, args, 2, nullptr, out);
  }
  (void)act;
  return stop("a subscription of " + type_name(type));
}

Outcome Recorder::set_item(Act&, Operand c, Operand k, Operand v) {
  bool saw_callback = false;
  auto run = [&]() -> int {
    CCall bracket(*this);
    const int status = PyObject_SetItem(c.object, k.object, v.object);
    saw_callback = bracket.saw_callback();
    return status;
  };
  if (!active_) return run() < 0 ? Outcome::Raised : Outcome::Done;
  if (c.id < 0 || k.id < 0 || v.id < 0) return stop("an item store with a value of unknown origin");
  PyTypeObject* type = Py_TYPE(c.object);
  if (host::is_tensor(c.object)) {
    if (!know_tensor(c) || !prepare_torch_argument(k, false)) return stop("a tensor index that is known late");
    bool is_number_value = is_number(v.object);
    if (is_number_value ? !know_type(v) : !prepare_torch_argument(v, true)) return stop("a tensor item store");
    const ValueId index = fix_lists(k);
    if (run() < 0) {
      lose("a tensor item store that raised");
      return Outcome::Raised;
    }
    emit(NodeKind::TensorSetItem, {c.id, index, v.id});
    note_written(c.object);
    if (saw_callback) forget_after_callback();
    return Outcome::Done;
  }
  if (is_of_numpy(c.object)) {
    Operand result;
    const Outcome outcome = call_builtin("_operator", "setitem", {c, k, v}, &result);
    if (outcome == Outcome::Done) Py_DECREF(result.object);
    return outcome;
  }
  PyObject* method = find_in_class(type, names().setitem);
  if (method != nullptr && PyFunction_Check(method)) {
    bool found;
    Operand result;
    Operand args[2] = {k, v};
    Outcome outcome = call_special(names().setitem, c, args, &result, &found);
    if (outcome == Outcome::Done) Py_DECREF(result.object);
    return outcome;
  }
  if (PyDict_Check(c.object)) {
    if (!know_type(c)) return Outcome::Stop;
    return write_dict(c, k, v);
  }
  if (PyList_CheckExact(c.object) && PyLong_CheckExact(k.object) && make_constant(k)) {
    HeapObject* list = list_of(c);
    if (list == nullptr) return stop("an item store into a list of unknown contents");
    Py_ssize_t i = PyLong_AsSsize_t(k.object);
    Py_ssize_t n = static_cast<Py_ssize_t>(list->elements.size());
    if (i < 0) i += n;
    if (i < 0 || i >= n) return stop("an item store out of range");
    emit(NodeKind::SetItem, {c.id, k.id, v.id});
    if (run() < 0) return Outcome::Raised;
    if (!active_) return Outcome::Done;
    list->elements[i] = v.id;
    note_list_written(c.object, list);
    note_effect(list);
    return Outcome::Done;
  }
  if (PyList_CheckExact(c.object) && PySlice_Check(k.object)) return replace_slice(c, k, v);
  return stop("an item store into " + type_name(type));
}

Outcome Recorder::delete_item(Act&, Operand c, Operand k) {
  if (!active_) return PyObject_DelItem(c.object, k.object) < 0 ? Outcome::Raised : Outcome::Done;
  if (c.id < 0 || k.id < 0) return stop("an item deletion with a value of unknown origin");
  PyTypeObject* type = Py_TYPE(c.object);
  PyObject* method = find_in_class(type, names().delitem);
  if (method != nullptr && PyFunction_Check(method)) {
    bool found;
    Operand result;
    Outcome outcome = call_special(names().delitem, c, std::span<const Operand>(&k, 1), &result, &found);
    if (outcome == Outcome::Done) Py_DECREF(result.object);
    return outcome;
  }
  if (PyDict_Check(c.object) && know_type(c)) return remove_from_dict(c, k);
  if (PyList_CheckExact(c.object) && PyLong_CheckExact(k.object) && make_constant(k)) {
    HeapObject* list = list_of(c);
    Py_ssize_t i = PyLong_AsSsize_t(k.object);
    if (list != nullptr && i < 0) i += static_cast<Py_ssize_t>(list->elements.size());
    if (list == nullptr || i < 0 || i >= static_cast<Py_ssize_t>(list->elements.size())) return stop("a list deletion");
    emit(NodeKind::DeleteItem, {c.id, k.id});
    if (PyObject_DelItem(c.object, k.object) < 0) return Outcome::Raised;
    if (!active_) return Outcome::Done;
    list->elements.erase(list->elements.begin() + i);
    note_list_written(c.object, list);
    note_effect(list);
    return Outcome::Done;
  }
  if (PyList_CheckExact(c.object) && PySlice_Check(k.object)) return replace_slice(c, k, {});
  return stop("an item deletion from " + type_name(type));
}

}  // namespace reprise::capture
