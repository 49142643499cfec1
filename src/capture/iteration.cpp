// Iterators: we take the elements ourselves, so that every element has an id and generators stay recorded.
#include <cstring>

#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"
#include "host/cpython/iterator_over.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

namespace {

constexpr Py_ssize_t kError = -1, kUnknown = -2;

/// The name under which its class says in Python how long it is, or nullptr. PyTorch's tensors only look at their
/// sizes.
PyObject* find_length_method(PyObject* o) {
  if (host::is_tensor(o)) return nullptr;
  for (PyObject* name : {names().len, names().length_hint}) {
    PyObject* found = host::find_in_class(Py_TYPE(o), name);
    if (found != nullptr) return PyFunction_Check(found) ? name : nullptr;
  }
  return nullptr;
}

enum class LeftBy : uint8_t { Hint, HintOrRest, Rest, Source, Sources, Unknown };

// How it can be known how many elements an iterator has left, without taking any.
LeftBy left_by(PyTypeObject* type) {
  struct Row {
    const char* type;
    LeftBy by;
  };
  static constexpr Row kRows[] = {
      {"list_iterator", LeftBy::Hint},
      {"list_reverseiterator", LeftBy::Hint},
      {"tuple_iterator", LeftBy::Hint},
      {"range_iterator", LeftBy::Hint},
      {"str_iterator", LeftBy::Hint},
      {"str_ascii_iterator", LeftBy::Hint},
      // A hint of 0 may also say that the dict has another size by now.
      {"dict_keyiterator", LeftBy::HintOrRest},
      {"dict_valueiterator", LeftBy::HintOrRest},
      {"dict_itemiterator", LeftBy::HintOrRest},
      {"odict_iterator", LeftBy::Rest},
      {"enumerate", LeftBy::Source},
      {"zip", LeftBy::Sources},
  };
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) return LeftBy::Unknown;
  for (const Row& row : kRows) {
    if (strcmp(type->tp_name, row.type) == 0) return row.by;
  }
  return LeftBy::Unknown;
}

// `__reduce__` of an iterator: (callable, arguments, ...). Its arguments are a list of what is left, or its sources.
Py_ssize_t count_left(PyObject* iterator) {
  const LeftBy by = left_by(Py_TYPE(iterator));
  if (by == LeftBy::Unknown) return kUnknown;
  if (by == LeftBy::Hint || by == LeftBy::HintOrRest) {
    const Py_ssize_t hint = PyObject_LengthHint(iterator, 0);
    if (hint != 0 || by == LeftBy::Hint) return hint;
  }
  PyObject* parts = PyObject_CallMethod(iterator, "__reduce__", nullptr);
  if (parts == nullptr) return kError;
  Py_ssize_t left = kUnknown;
  PyObject* sources = PyTuple_Check(parts) && PyTuple_GET_SIZE(parts) == 2 ? PyTuple_GET_ITEM(parts, 1) : nullptr;
  if (sources != nullptr && PyTuple_Check(sources)) {
    const Py_ssize_t count = PyTuple_GET_SIZE(sources);
    if (by == LeftBy::Sources) {
      left = count == 0 ? 0 : PY_SSIZE_T_MAX;
      for (Py_ssize_t i = 0; i < count && left >= 0; i++) {
        const Py_ssize_t of_source = count_left(PyTuple_GET_ITEM(sources, i));
        left = of_source < 0 ? of_source : std::min(left, of_source);
      }
    } else if (by == LeftBy::Source) {
      left = count_left(PyTuple_GET_ITEM(sources, 0));
    } else if (count == 0) {
      left = 0;
    } else if (PyList_Check(PyTuple_GET_ITEM(sources, 0))) {
      left = PyList_GET_SIZE(PyTuple_GET_ITEM(sources, 0));
    }
  }
  Py_DECREF(parts);
  return left;
}

PyObject* elements_left(PyObject*, PyObject* iterator) {
  const Py_ssize_t left = count_left(iterator);
  if (left == kUnknown) PyErr_SetString(PyExc_TypeError, "an iterator of another kind than when it was recorded");
  return left < 0 ? nullptr : PyLong_FromSsize_t(left);
}

// count_left() as a callable that a trace can call; borrowed.
PyObject* elements_left_function() {
  static PyMethodDef kMethod = {"elements_left", elements_left, METH_O, nullptr};
  static PyObject* const kFunction = PyCFunction_New(&kMethod, nullptr);
  return kFunction;
}

}  // namespace

Operand Recorder::new_iterator(PyObject* stolen, std::span<const ValueId> sources, PyObject* type,
                               std::unique_ptr<IteratorState> state) {
  ValueId id = emit_typed(NodeKind::Iterator, sources, stolen, type);
  if (id >= 0) new_object(id)->iterator = std::move(state);
  return {stolen, id};
}

ValueId Recorder::range_id(Py_ssize_t value) {
  PyObject* number = PyLong_FromSsize_t(value);
  ValueId id = kNoValue;
  // Small ints are singletons; others get one constant a value, through the key table.
  if (PyObject* canonical = heap_.canonical_key(number); canonical != nullptr && PyLong_CheckExact(canonical)) {
    id = constant_id(canonical);
  } else {
    id = constant_id(number);
  }
  Py_DECREF(number);
  return id;
}

Outcome Recorder::make_iterator(Operand o, Operand* out, PyObject* base) {
  auto get_iterator = [&] {
    return base != nullptr ? PyObject_CallOneArg(base, o.object) : PyObject_GetIter(o.object);
  };
  auto plain = [&] {
    PyObject* iterator = get_iterator();
    *out = {iterator, kNoValue};
    return iterator != nullptr ? Outcome::Done : Outcome::Raised;
  };
  if (!active_) return plain();
  if (o.id < 0) return stop("iteration over a value of unknown origin");
  PyObject* x = o.object;
  PyTypeObject* type = Py_TYPE(x);
  HeapObject* object = facts_[o.id].heap;
  if (PyGen_CheckExact(x) || (object != nullptr && object->iterator != nullptr)) {
    *out = {Py_NewRef(x), o.id};
    return Outcome::Done;
  }
  ValueId sources[] = {o.id};
  auto state = std::make_unique<IteratorState>();
  const bool is_base = base != nullptr;
  bool is_list_like = (PyTuple_Check(x) && (is_base || type->tp_iter == PyTuple_Type.tp_iter)) ||
                      (PyList_Check(x) && (is_base || type->tp_iter == PyList_Type.tp_iter));
  if (is_list_like) {
    std::vector<ValueId> ids;
    if (!element_ids(o, &ids)) return stop("iteration over a sequence of unknown contents");
    state->kind = IteratorKind::Sequence;
    if (PyTuple_Check(x)) {
      state->kind = IteratorKind::Fixed;
      state->ids = std::move(ids);
    } else {
      state->sequence = heap_of(o);
    }
  } else if (PyDict_Check(x) &&
             (is_base || type->tp_iter == PyDict_Type.tp_iter || type->tp_iter == PyODict_Type.tp_iter)) {
    if (!is_constant(o.id) && !know_type(o)) return Outcome::Stop;
    std::vector<Operand> keys;
    std::vector<ValueId> values;
    if (!dict_ids(o, &keys, &values)) return stop("iteration over a dict of unknown contents");
    for (Operand& key : keys) state->ids.push_back(key.id);
  } else if (is_base) {
    return stop("iteration over " + type_name(type) + " past an override");
  } else if (PyRange_Check(x)) {
    if (!is_constant(o.id)) return stop("iteration over a range that is known late");
    state->kind = IteratorKind::Range;
    state->length = PyObject_Length(x);
    PyObject* start = PyObject_GetAttrString(x, "start");
    PyObject* step = PyObject_GetAttrString(x, "step");
    state->start = PyLong_AsSsize_t(start);
    state->step = PyLong_AsSsize_t(step);
    Py_XDECREF(start);
    Py_XDECREF(step);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return stop("iteration over a range of large numbers");
    }
  } else if (!strcmp(type->tp_name, "numpy.ndarray") && PySequence_Check(x) && PyObject_Size(x) >= 0) {
    Operand count;
    const Outcome outcome = length(o, &count);
    if (outcome != Outcome::Done) return outcome;
    state->length = PyLong_AsSsize_t(count.object);
    const bool is_fixed = active_ && (is_constant(count.id) || make_constant(count));
    Py_DECREF(count.object);
    if (!is_fixed) return stop("iteration over an array of a size that is known late");
    state->kind = IteratorKind::Items;
    state->ids = {o.id};
    state->sources.push_back({Py_NewRef(x), object});
  } else if (deque_of(o) != nullptr) {
    state->ids = object->elements;
  } else if (object != nullptr && object->is_view) {
    state->ids = object->view;
  } else if (PyUnicode_CheckExact(x) && make_constant(o)) {
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(x); i++) {
      PyObject* character = PySequence_GetItem(x, i);
      state->ids.push_back(constant_id(character));
      Py_DECREF(character);
    }
  } else if (PyAnySet_Check(x) && (is_constant(o.id) || (object != nullptr && object->is_created))) {
    PyObject* list = PySequence_List(x);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) state->ids.push_back(constant_id(PyList_GET_ITEM(list, i)));
    Py_DECREF(list);
    for (ValueId id : state->ids) {
      if (id < 0) return stop("iteration over a set of tensors");
    }
  } else if (!strcmp(type->tp_name, "mappingproxy") && is_constant(o.id)) {
    PyObject* list = PySequence_List(x);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) state->ids.push_back(constant_id(PyList_GET_ITEM(list, i)));
    Py_DECREF(list);
  } else {
    bool found;
    Outcome outcome = call_special(names().iter, o, {}, out, &found);
    if (found && outcome == Outcome::Done && !PyIter_Check(out->object)) {
      lose("an __iter__ that gives no iterator");
      PyErr_Format(PyExc_TypeError, "iter() returned non-iterator of type '%.100s'", Py_TYPE(out->object)->tp_name);
      Py_CLEAR(out->object);
      return Outcome::Raised;
    }
    if (found) return outcome;
    if (host::is_tensor(x)) {
      static PyObject* tensor_iter = PyObject_GetAttr(reinterpret_cast<PyObject*>(host::tensor_type()), names().iter);
      if (tensor_iter != nullptr && PyFunction_Check(tensor_iter)) {
        return call_function({tensor_iter, constant_id(tensor_iter)}, &o, 1, nullptr, out);
      }
      PyErr_Clear();
    }
    PyErr_Clear();  // an array without dimensions
    // An iterator that existed before: taking from it is an effect (Next).
    if (PyIter_Check(x) && is_pre(o.id) && know_type(o)) {
      *out = {Py_NewRef(x), o.id};
      return Outcome::Done;
    }
    return stop("iteration over " + type_name(type));
  }
  PyObject* iterator = get_iterator();
  if (iterator == nullptr) {
    lose("an iteration that raised");
    return Outcome::Raised;
  }
  *out = new_iterator(iterator, sources, base, std::move(state));
  // What the dict is that it goes through, for keep_dict_iterators.
  PyObject* dict = PyDict_Check(x) ? x : nullptr;
  if (PyDictViewSet_Check(x) || PyDictValues_Check(x)) dict = host::find_dict_of_view(x);
  if (dict != nullptr && active_ && out->id >= 0) dict_iterators_.push_back({dict, facts_[out->id].heap});
  return Outcome::Done;
}

// In front of a change of the keys of a dict that existed before: an iterator that goes through it must notice at its
// next step, so it has to be the one that was there in front of the change, not one that an exit makes behind it.
void Recorder::keep_dict_iterators(PyObject* dict, HeapObject* object) {
  if (object->is_created) return;
  static PyMethodDef kMethod = {"keep", [](PyObject*, PyObject*) -> PyObject* { return Py_NewRef(Py_None); }, METH_O,
                                nullptr};
  static PyObject* const kKeep = PyCFunction_New(&kMethod, nullptr);
  for (const DictIterator& each : dict_iterators_) {
    if (each.dict != dict || each.iterator->iterator->has_ended) continue;
    emit(NodeKind::MutatorCall, {object->id, constant_id(kKeep), each.iterator->id});
  }
}

bool Recorder::predict_next(HeapObject* iterator, ValueId* id, bool* is_known) {
  *is_known = true;
  IteratorState& state = *iterator->iterator;
  switch (state.kind) {
    case IteratorKind::Sequence: {
      if (state.has_ended) return false;  // for good, whatever is appended
      std::vector<ValueId>& elements = state.sequence->elements;
      if (!state.sequence->has_elements) {  // unrecorded code has run: they are read again
        PyObject* list = state.sequence->object;
        std::vector<ValueId> ids;
        if (list == nullptr || !element_ids({list, state.sequence->id}, &ids)) {
          *is_known = false;
          return false;
        }
      }
      Py_ssize_t n = static_cast<Py_ssize_t>(elements.size());
      Py_ssize_t i = state.is_reversed ? state.start - 1 - state.index : state.index;
      state.has_ended = i < 0 || i >= n;
      if (state.has_ended) return false;
      *id = elements[i];
      break;
    }
    case IteratorKind::Fixed:
      for (const IteratorState::Watched& watched : state.lists) {
        *is_known = *is_known && watched.list->has_elements && watched.list->elements == watched.ids;
      }
      if (!*is_known) return false;
      if (state.is_cyclic && !state.ids.empty()) {
        *id = state.ids[state.index % static_cast<Py_ssize_t>(state.ids.size())];
        break;
      }
      state.has_ended = state.index >= static_cast<Py_ssize_t>(state.ids.size());
      if (state.has_ended) return false;
      *id = state.ids[state.index];
      break;
    case IteratorKind::Range:
      if (state.index >= state.length) return false;
      *id = range_id(state.start + state.index * state.step);
      break;
    case IteratorKind::Map:
    case IteratorKind::Filter:
    case IteratorKind::Chain:
      *is_known = false;
      return false;
    case IteratorKind::Zip: {
      if (state.sources.empty()) return false;
      std::vector<ValueId> ids;
      for (IteratorState::Source& source : state.sources) {
        ValueId part;
        if (source.heap == nullptr || source.heap->iterator == nullptr) {
          *is_known = false;
          return false;
        }
        if (!predict_next(source.heap, &part, is_known)) return false;
        ids.push_back(part);
      }
      ValueId tuple = emit(NodeKind::Tuple, ids);
      if (tuple < 0) return false;
      facts_[tuple].type = &PyTuple_Type;
      facts_[tuple].is_present = facts_[tuple].is_length_known = facts_[tuple].is_truth_known = true;
      HeapObject* object = new_object(tuple);
      object->elements = ids;
      object->has_elements = true;
      *id = tuple;
      return true;  // its sources carry the position
    }
    case IteratorKind::Enumerate: {
      ValueId element;
      IteratorState::Source& source = state.sources[0];
      if (source.heap == nullptr || source.heap->iterator == nullptr) {
        *is_known = false;
        return false;
      }
      if (!predict_next(source.heap, &element, is_known)) return false;
      ValueId ids[2] = {range_id(state.start + state.index), element};
      ValueId tuple = emit(NodeKind::Tuple, ids);
      if (tuple < 0) return false;
      facts_[tuple].type = &PyTuple_Type;
      facts_[tuple].is_present = facts_[tuple].is_length_known = facts_[tuple].is_truth_known = true;
      HeapObject* object = new_object(tuple);
      object->elements.assign(ids, ids + 2);
      object->has_elements = true;
      *id = tuple;
      break;
    }
    case IteratorKind::EnumerateOpaque:
    case IteratorKind::Items:
      *is_known = false;
      return false;
  }
  state.index++;
  emit(NodeKind::Advance, {iterator->id});
  return true;
}

// next() has to raise it again, with what a generator returned; loops and the like have no use for it.
static void clear_stop(PyObject** stop_value) {
  PyObject *type, *exception, *traceback;
  PyErr_Fetch(&type, &exception, &traceback);
  if (type == nullptr) return;
  PyErr_NormalizeException(&type, &exception, &traceback);
  if (exception != nullptr && PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    PyObject* value = reinterpret_cast<PyStopIterationObject*>(exception)->value;
    if (stop_value != nullptr && value != nullptr && value != Py_None) Py_XSETREF(*stop_value, Py_NewRef(value));
  }
  Py_DECREF(type);
  Py_XDECREF(exception);
  Py_XDECREF(traceback);
}

Outcome Recorder::next_of_generator(Operand generator, Operand* out, PyObject** stop_value) {
  ModeScope mode(*this, ResumeMode::Never);
  return_id_ = kNoValue;
  bool was_recorded = active_ && generator.id >= 0 && facts_[generator.id].heap != nullptr &&
                      facts_[generator.id].heap->generator != nullptr;
  if (active_ && !was_recorded) {
    if (generator.id < 0 || !know_type(generator)) return stop("a generator of unknown origin");
  }
  PyObject* value;
  bool saw_callback = false;
  if (was_recorded || !active_) {
    value = Py_TYPE(generator.object)->tp_iternext(generator.object);
  } else {
    CCall bracket(*this);
    value = Py_TYPE(generator.object)->tp_iternext(generator.object);
    saw_callback = bracket.saw_callback();
  }
  if (value == nullptr && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_StopIteration)) {
    if (active_) lose("a generator that raised");
    return Outcome::Raised;
  }
  clear_stop(stop_value);
  *out = {value, kNoValue};
  if (!active_) return Outcome::Done;
  if (was_recorded) {
    if (value == nullptr) return Outcome::Done;
    out->id = return_id_;
    if (out->id < 0) lose("a generator's value of unknown origin");
    return Outcome::Done;
  }
  ValueId id = emit(NodeKind::Next, {generator.id});
  if (saw_callback) forget_after_callback();
  if (id >= 0 && !(value != nullptr ? guard(id, FactKind::Present) : guard(id, FactKind::Absent))) return Outcome::Done;
  if (id >= 0) facts_[id].is_present = value != nullptr;
  out->id = id;
  return Outcome::Done;
}

// How many elements are left is asked in front of the step that takes one: a late fact, with an exit there.
Outcome Recorder::next_of_builtin(Operand iterator, bool has_next, Operand* out) {
  PyObject* function = elements_left_function();
  force_late_ = true;
  ValueId operands[] = {constant_id(function), iterator.id};
  ValueId id = emit(NodeKind::Call, operands);
  force_late_ = false;
  if (id >= 0) {
    facts_[id].type = &PyLong_Type;
    facts_[id].is_present = true;
  }
  if (id < 0 || !guard(id, FactKind::Truth, nullptr, has_next)) return stop("an iterator inside a C call");
  // zip takes from its first sources before it finds that a later one has ended.
  if (has_next || left_by(Py_TYPE(iterator.object)) == LeftBy::Sources) id = emit(NodeKind::Next, {iterator.id});
  PyObject* value = Py_TYPE(iterator.object)->tp_iternext(iterator.object);
  if (!has_next) {
    Py_XDECREF(value);
    PyErr_Clear();
    *out = {};
    return Outcome::Done;
  }
  if (value == nullptr) {
    lose("an iterator that raised");
    return PyErr_Occurred() ? Outcome::Raised : Outcome::Done;
  }
  if (id >= 0) facts_[id].is_present = true;
  *out = {value, id};
  return Outcome::Done;
}

// Its only state is its source: we take from that, and ask, as it does.
Outcome Recorder::next_of_filter(Operand iterator, const IteratorState& state, Operand* out, PyObject** stop_value) {
  const IteratorState::Source& source = state.sources[0];
  const ValueId source_id = source.heap != nullptr ? source.heap->id : kNoValue;
  const Operand function{state.function, state.function_id};
  ModeScope mode(*this, ResumeMode::Never);
  for (;;) {
    Operand element;
    Outcome outcome = next_element({source.object, source_id}, &element, stop_value);
    if (outcome != Outcome::Done || element.object == nullptr) {
      *out = {};
      return outcome;
    }
    Operand answer{Py_NewRef(element.object), element.id};
    if (function.object != Py_None) {
      Py_CLEAR(answer.object);
      outcome = call_any(function, &element, 1, nullptr, &answer);
      if (outcome == Outcome::Stop) {  // the element has been taken: the call itself is not recorded
        answer = {call_live(function.object, &element, 1, nullptr), kNoValue};
        outcome = answer.object != nullptr ? Outcome::Done : Outcome::Raised;
      }
    }
    bool is_taken = false;
    if (outcome == Outcome::Done) outcome = truth(*top_, answer, &is_taken);
    if (outcome == Outcome::Stop) outcome = truth(*top_, answer, &is_taken);  // ended: unrecorded now
    Py_XDECREF(answer.object);
    if (outcome == Outcome::Done && is_taken != state.is_negated) {
      *out = {element.object, active_ ? element.id : kNoValue};
      return Outcome::Done;
    }
    Py_DECREF(element.object);
    if (outcome != Outcome::Done) return outcome;
    if (!active_) return next_element(iterator, out, stop_value);
  }
}

Outcome Recorder::next_element(Operand iterator, Operand* out, PyObject** stop_value) {
  PyObject* x = iterator.object;
  auto take = [&]() -> PyObject* {
    PyObject* value = Py_TYPE(x)->tp_iternext(x);
    if (value == nullptr && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) clear_stop(stop_value);
    return value;
  };
  if (!active_) {
    PyObject* value = take();
    *out = {value, kNoValue};
    return value == nullptr && PyErr_Occurred() ? Outcome::Raised : Outcome::Done;
  }
  if (iterator.id < 0) return stop("an iterator of unknown origin");
  if (PyGen_CheckExact(x)) return next_of_generator(iterator, out, stop_value);
  HeapObject* object = facts_[iterator.id].heap;
  if (object == nullptr || object->iterator == nullptr) {
    bool found;
    PyObject* method = find_in_class(Py_TYPE(x), names().next);
    if (method != nullptr && PyFunction_Check(method)) {
      ModeScope mode(*this, ResumeMode::Never);
      Outcome outcome = call_special(names().next, iterator, {}, out, &found);
      if (outcome == Outcome::Raised && PyErr_ExceptionMatches(PyExc_StopIteration)) {
        // The end of the iteration, recorded or not.
        if (active_ && !exception_is_recorded_) lose("an iterator that raised");
        clear_stop(stop_value);
        exception_is_recorded_ = false;
        *out = {};
        return Outcome::Done;
      }
      return outcome;
    }
    if (!is_pre(iterator.id) || !know_type(iterator)) return stop("next() of " + type_name(Py_TYPE(x)));
    if (Py_TYPE(x)->tp_flags & Py_TPFLAGS_HEAPTYPE) return stop("next() of " + type_name(Py_TYPE(x)));
    const Py_ssize_t left = count_left(x);
    if (left == kError) {  // a dict that has changed
      PyErr_Clear();
      return stop("an iterator that raises");
    }
    if (left != kUnknown) return next_of_builtin(iterator, left != 0, out);
    // Whether another iterator has ended is only known behind the effect, where no boundary is.
    PyObject* value;
    bool saw_callback;
    {
      CCall bracket(*this);
      value = take();
      saw_callback = bracket.saw_callback();
    }
    if (value == nullptr && PyErr_Occurred()) {
      lose("an iterator that raised");
      return Outcome::Raised;
    }
    lose(saw_callback ? "an iterator that runs Python code" : "an iterator that existed before the recording");
    *out = {value, kNoValue};
    return Outcome::Done;
  }
  IteratorState& state = *object->iterator;
  if (state.kind == IteratorKind::Filter) return next_of_filter(iterator, state, out, stop_value);
  if (state.kind == IteratorKind::Chain) {
    // Where the live chain stands follows from its sources: those that have ended stay so.
    for (; state.index < static_cast<Py_ssize_t>(state.sources.size()); state.index++) {
      const IteratorState::Source& source = state.sources[state.index];
      ModeScope mode(*this, ResumeMode::Never);
      const ValueId source_id = source.heap != nullptr ? source.heap->id : kNoValue;
      const Outcome outcome = next_element({source.object, source_id}, out, stop_value);
      if (outcome != Outcome::Done || out->object != nullptr) return outcome;
    }
    *out = {};
    return Outcome::Done;
  }
  if (state.kind == IteratorKind::Zip || state.kind == IteratorKind::Map) {
    // Their only state is their sources: we take from them, one by one, as they do.
    std::vector<Operand> parts;
    for (IteratorState::Source& source : state.sources) {
      Operand part;
      ValueId source_id = source.heap != nullptr ? source.heap->id : kNoValue;
      Outcome outcome;
      {
        ModeScope mode(*this, ResumeMode::Never);
        outcome = next_element({source.object, source_id}, &part, stop_value);
      }
      if (outcome == Outcome::Stop) {
        PyObject* value = Py_TYPE(source.object)->tp_iternext(source.object);
        if (value == nullptr && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) clear_stop(stop_value);
        part = {value, kNoValue};
        outcome = value == nullptr && PyErr_Occurred() ? Outcome::Raised : Outcome::Done;
      }
      if (outcome != Outcome::Done || part.object == nullptr) {
        for (Operand& taken : parts) Py_DECREF(taken.object);
        *out = {};
        return outcome;
      }
      parts.push_back(part);
    }
    if (parts.empty()) {
      *out = {};
      return Outcome::Done;
    }
    if (state.kind == IteratorKind::Map) {
      ModeScope mode(*this, ResumeMode::Never);
      if (state.unpacks) {
        const Operand pack = parts[0];
        parts.clear();
        Outcome unpacked = all_elements(pack, &parts);
        if (unpacked == Outcome::Stop) unpacked = all_elements({pack.object, kNoValue}, &parts);  // unrecorded now
        Py_DECREF(pack.object);
        if (unpacked != Outcome::Done) return unpacked;
      }
      const int n = static_cast<int>(parts.size());
      const Operand function{state.function, state.function_id};
      Outcome outcome = call_any(function, parts.data(), n, nullptr, out);
      if (outcome == Outcome::Stop) {  // the elements have been taken: the call itself is not recorded
        PyObject* value = call_live(function.object, parts.data(), n, nullptr);
        *out = {value, kNoValue};
        outcome = value != nullptr ? Outcome::Done : Outcome::Raised;
      }
      for (Operand& taken : parts) Py_DECREF(taken.object);
      return outcome;
    }
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(parts.size()));
    std::vector<ValueId> ids;
    for (size_t i = 0; i < parts.size(); i++) {
      PyTuple_SET_ITEM(tuple, i, parts[i].object);
      ids.push_back(parts[i].id);
    }
    *out = new_tuple(tuple, ids);
    return Outcome::Done;
  }
  if (state.kind == IteratorKind::Items) {
    PyObject* array = state.sources[0].object;
    if (state.index < state.length) {
      PyObject* number = PyLong_FromSsize_t(state.index);
      const Outcome outcome = get_item(*top_, {array, state.ids[0]}, {number, range_id(state.index)}, out);
      Py_DECREF(number);
      if (outcome != Outcome::Done) return outcome;
      state.index++;
      emit(NodeKind::Advance, {object->id});
    }
    PyObject* value = take();
    const bool has_next = value != nullptr;
    Py_XDECREF(value);
    if (!has_next && PyErr_Occurred()) return Outcome::Raised;
    if (active_ && has_next != (out->object != nullptr)) lose("an array that changed its size");
    return Outcome::Done;
  }
  if (state.kind == IteratorKind::EnumerateOpaque) {
    return_id_ = kNoValue;
    ModeScope mode(*this, ResumeMode::Never);
    PyObject* value = take();
    *out = {value, kNoValue};
    if (value == nullptr) return PyErr_Occurred() ? Outcome::Raised : Outcome::Done;
    if (!active_) return Outcome::Done;
    if (return_id_ < 0) {
      lose("enumerate over an iterator of unknown origin");
      return Outcome::Done;
    }
    ValueId ids[2] = {range_id(state.start + state.index++), return_id_};
    emit(NodeKind::Advance, {object->id});
    *out = new_tuple(value, ids);
    return Outcome::Done;
  }
  ValueId id = kNoValue;
  bool is_known;
  bool has_next = predict_next(object, &id, &is_known);
  if (active_ && !is_known) return stop("an iterator whose elements have no known origin");
  PyObject* value = take();
  if (value == nullptr && PyErr_Occurred()) {
    lose("an iteration that raised");
    return Outcome::Raised;
  }
  *out = {value, id};
  if (!active_) {
    out->id = kNoValue;
    return Outcome::Done;
  }
  if (has_next != (value != nullptr)) lose("an iterator that unrecorded code has changed");
  return Outcome::Done;
}

Outcome Recorder::for_iter(Act&, Operand it, Operand* out) { return next_element(it, out); }

// For what goes on behind `__iter__` inside of a C call: a frame in it can't be resumed, what it returns is no result.
Outcome Recorder::make_source(Operand iterable, Operand* out) {
  ModeScope mode(*this, ResumeMode::Never);
  return make_iterator(iterable, out);
}

bool Recorder::can_be_iterated_again(PyObject* iterable) {
  return !PyIter_Check(iterable) && (Py_TYPE(iterable)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0;
}

// list(x) and the like ask how many there are once they have an iterator. The answer is a hint; asking may have
// effects.
Outcome Recorder::ask_length(Operand o) {
  PyObject* name = find_length_method(o.object);
  Operand answer;
  bool found = false;
  Outcome outcome = active_ ? call_special(name, o, {}, &answer, &found) : Outcome::Stop;
  if (outcome == Outcome::Stop) {
    CCall bracket(*this);
    return PyObject_LengthHint(o.object, 0) < 0 ? Outcome::Raised : Outcome::Done;
  }
  if (outcome == Outcome::Raised) {
    lose("a length that raised");
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return outcome;
    PyErr_Clear();
    return Outcome::Done;
  }
  int overflow = 0;
  const bool is_negative =
      PyLong_Check(answer.object) && PyLong_AsLongLongAndOverflow(answer.object, &overflow) < 0 && overflow <= 0;
  Py_DECREF(answer.object);
  if (!is_negative) return outcome;
  lose("a length below 0");
  PyErr_Format(PyExc_ValueError, "%U() should return >= 0", name);
  return Outcome::Raised;
}

Outcome Recorder::all_elements(Operand iterable, std::vector<Operand>* out, bool asks_length) {
  PyObject* x = iterable.object;
  asks_length = asks_length && find_length_method(x) != nullptr;
  if (active_ && !asks_length && (PyTuple_Check(x) || PyList_CheckExact(x)) &&
      Py_TYPE(x)->tp_iter == (PyTuple_Check(x) ? PyTuple_Type.tp_iter : PyList_Type.tp_iter)) {
    std::vector<ValueId> ids;
    if (!element_ids(iterable, &ids)) return stop("a sequence of unknown contents");
    for (size_t i = 0; i < ids.size(); i++) out->push_back({Py_NewRef(PySequence_Fast_ITEMS(x)[i]), ids[i]});
    return Outcome::Done;
  }
  ModeScope mode(*this, ResumeMode::Never);
  Operand iterator;
  Outcome outcome = make_iterator(iterable, &iterator);
  if (outcome != Outcome::Done) return outcome;
  if (asks_length) outcome = ask_length(iterable);
  while (outcome == Outcome::Done) {
    Operand element;
    outcome = next_element(iterator, &element);
    if (outcome == Outcome::Stop) {
      if (!asks_length && out->empty() && can_be_iterated_again(x)) break;
      outcome = next_element(iterator, &element);  // the recording has ended: go on unrecorded
    }
    if (outcome != Outcome::Done || element.object == nullptr) break;
    out->push_back(element);
  }
  Py_DECREF(iterator.object);
  if (outcome != Outcome::Done) {
    for (Operand& element : *out) Py_DECREF(element.object);
    out->clear();
  }
  return outcome;
}

Outcome Recorder::unpack_sequence(Act&, Operand s, int n, Operand* out) {
  std::vector<Operand> elements;
  if (!active_) return Outcome::Stop;
  Py_ssize_t known =
      PyTuple_CheckExact(s.object) || PyList_CheckExact(s.object) ? PySequence_Fast_GET_SIZE(s.object) : n;
  if (known != n) return stop("an unpacking of the wrong length");
  if (host::is_tensor(s.object)) {
    // Tensor.__iter__ is Python: unbind, then its elements.
    if (!know_tensor(s) || facts_[s.id].is_meta_tainted || !fix_size(s, 0))
      return stop("an unpacked tensor of unknown size");
  }
  ModeScope mode(*this, ResumeMode::Never);
  Outcome outcome = all_elements(s, &elements);
  if (outcome != Outcome::Done) return outcome;
  if (static_cast<int>(elements.size()) != n) {
    size_t found = elements.size();
    for (Operand& element : elements) Py_DECREF(element.object);
    lose("an unpacking of the wrong length");
    if (static_cast<int>(found) > n)
      PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", n);
    else
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %zd)", n,
                   static_cast<Py_ssize_t>(found));
    return Outcome::Raised;
  }
  for (int i = 0; i < n; i++) out[i] = elements[i];
  return Outcome::Done;
}

Outcome Recorder::unpack_ex(Act&, Operand s, int before, int after, Operand* out) {
  if (!active_) return Outcome::Stop;
  const bool is_tuple = PyTuple_Check(s.object) && Py_TYPE(s.object)->tp_iter == PyTuple_Type.tp_iter;
  if (!is_tuple && !PyList_CheckExact(s.object)) return stop("a starred unpacking of " + type_name(Py_TYPE(s.object)));
  std::vector<Operand> elements;
  Outcome outcome = all_elements(s, &elements);
  if (outcome != Outcome::Done) return outcome;
  int n = static_cast<int>(elements.size());
  if (n < before + after) {
    for (Operand& element : elements) Py_DECREF(element.object);
    return stop("an unpacking of the wrong length");
  }
  PyObject* list = PyList_New(n - before - after);
  std::vector<ValueId> ids;
  for (int i = before; i < n - after; i++) {
    PyList_SET_ITEM(list, i - before, elements[i].object);
    ids.push_back(elements[i].id);
  }
  for (int i = 0; i < before; i++) out[i] = elements[i];
  out[before] = new_list(list, ids);
  for (int i = 0; i < after; i++) out[before + 1 + i] = elements[n - after + i];
  return Outcome::Done;
}

}  // namespace reprise::capture
