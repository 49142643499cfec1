// Calls of classes: built-in types by their own models, others as type.__call__ does: __new__, then __init__.
#include <algorithm>
#include <cstring>

#include "capture/callables.h"
#include "capture/models_impl.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"
#include "host/cpython/iterator_over.h"
#include "host/torch/callables.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

namespace {

PyObject* object_of(PyTypeObject& type) { return reinterpret_cast<PyObject*>(&type); }

/// Of torch's own class, or of one that is read as it is.
bool is_module_list(PyObject* o) {
  PyObject* method = host::find_in_class(Py_TYPE(o), names().getitem);
  if (method == nullptr || !PyFunction_Check(method)) return false;
  PyObject* name = reinterpret_cast<PyFunctionObject*>(method)->func_qualname;
  PyObject* module = PyDict_GetItemString(PyFunction_GET_GLOBALS(method), "__name__");
  return PyUnicode_CompareWithASCIIString(name, "ModuleList.__getitem__") == 0 && module != nullptr &&
         PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "torch.nn.modules.container") == 0;
}

}  // namespace

// By the protocol of sequences: an index after the other. Theirs only read, so they are taken all at once.
Outcome Recorder::reverse_modules(Operand type, Operand modules, Operand* out) {
  ModeScope mode(*this, ResumeMode::Never);
  Operand length_now;
  Outcome outcome = length(modules, &length_now);
  if (outcome != Outcome::Done) return outcome;
  const Py_ssize_t count = PyLong_AsSsize_t(length_now.object);
  Py_DECREF(length_now.object);
  auto state = std::make_unique<IteratorState>();
  for (Py_ssize_t i = count - 1; i >= 0; i--) {
    PyObject* index = PyLong_FromSsize_t(i);
    Operand element;
    outcome = get_item(*top_, modules, {index, range_id(i)}, &element);
    Py_DECREF(index);
    if (outcome != Outcome::Done) return outcome;
    state->ids.push_back(element.id);
    Py_DECREF(element.object);
  }
  PyObject* result = PyObject_CallOneArg(type.object, modules.object);
  if (result == nullptr) return Outcome::Raised;
  ValueId operands[] = {modules.id};
  *out = new_iterator(result, operands, type.object, std::move(state));
  return Outcome::Done;
}

// type(function, source): an iterator that calls the function for each element. Takes the source's reference.
Outcome Recorder::make_lazy(Operand type, Operand function, Operand source, std::unique_ptr<IteratorState> state,
                            Operand* out) {
  PyObject* live_args[2] = {function.object, source.object};
  PyObject* result = host::make_iterator_over(type.object, live_args, 2, 1);
  state->function = Py_NewRef(function.object);
  state->function_id = function.id;
  state->sources.push_back({source.object, source.id >= 0 ? facts_[source.id].heap : nullptr});
  if (result == nullptr) {
    lose("a call of " + type_name(reinterpret_cast<PyTypeObject*>(type.object)) + " that raised");
    return Outcome::Raised;
  }
  state->leave_sources();
  const ValueId operands[] = {function.id, source.id};
  *out = new_iterator(result, operands, type.object, std::move(state));
  return Outcome::Done;
}

Operand Recorder::new_plain_object(PyObject* stolen, Operand type) {
  ValueId operands[] = {type.id};
  ValueId id = emit_typed(NodeKind::Object, operands, stolen);
  if (id < 0) return {stolen, kNoValue};
  HeapObject* object = new_object(id);
  if (PyDict_Check(stolen)) {
    object->is_complete = true;
    note_dict_written(stolen, object);
  }
  if (PyList_Check(stolen)) object->has_elements = true;
  if (has_instance_dict(Py_TYPE(stolen))) {
    PyObject* dict;
    if (instance_dict_of({stolen, id}, &dict) != nullptr) {
      object->instance_dict->is_complete = PyDict_GET_SIZE(dict) == 0;
      note_dict_written(dict, object->instance_dict);
    }
  }
  return {stolen, id};
}

Outcome Recorder::make_super(const Operand* args, int n, Operand* out) {
  PyTypeObject* type = nullptr;
  Operand self;
  if (n == 2) {
    if (!PyType_Check(args[0].object) || !make_constant(args[0])) return stop("super() of a class that is known late");
    type = reinterpret_cast<PyTypeObject*>(args[0].object);
    self = args[1];
  } else if (n == 0 && top_ != nullptr) {
    Act& act = *top_;
    PyCodeObject* code = act.code;
    self = {act.locals[0], act.ids[0]};
    if (self.object != nullptr && PyCell_Check(self.object)) {
      HeapObject* cell = self.id >= 0 ? heap_of(self) : nullptr;
      if (cell == nullptr || cell->contents < 0) return stop("super() with self in a cell of unknown contents");
      self = {PyCell_GET(self.object), cell->contents};
    }
    for (int i = code->co_nlocalsplus - code->co_nfreevars; i < code->co_nlocalsplus; i++) {
      PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
      if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0 && act.locals[i] != nullptr) {
        type = reinterpret_cast<PyTypeObject*>(PyCell_GET(act.locals[i]));
      }
    }
  }
  if (type == nullptr || self.object == nullptr || self.id < 0) return stop("super() of unknown origin");
  if (PyType_Check(self.object) ? !know_identity(self) : !know_type(self)) return Outcome::Stop;
  PyObject* live_args[2] = {reinterpret_cast<PyObject*>(type), self.object};
  PyObject* object = PyObject_Vectorcall(object_of(PySuper_Type), live_args, 2, nullptr);
  if (object == nullptr) {
    lose("super() that raised");
    return Outcome::Raised;
  }
  ValueId operands[] = {constant_id(live_args[0]), self.id};
  ValueId id = emit_typed(NodeKind::Super, operands, object);
  if (id >= 0) {
    HeapObject* heap = new_object(id);
    heap->super_type = type;
    heap->self = self.id;
  }
  *out = {object, id};
  return Outcome::Done;
}

Outcome Recorder::make_of_arguments(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  PyObject* object = call_live(type.object, args, n, kwnames);
  if (object == nullptr) {
    lose("an object that could not be made");
    return Outcome::Raised;
  }
  std::vector<ValueId> operands{type.id};
  for (int i = 0; i < n; i++) operands.push_back(args[i].id);
  ValueId id = emit_typed(NodeKind::Object, operands, object, kwnames, 1);
  if (id >= 0) new_object(id);
  *out = {object, id};
  return Outcome::Done;
}

Outcome Recorder::call_type(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  PyTypeObject* t = reinterpret_cast<PyTypeObject*>(type.object);
  auto live = [&] {
    CCall bracket(*this);
    return call_live(type.object, args, n, kwnames);
  };
  auto raised = [&] {
    lose("a call of " + type_name(t) + " that raised");
    return Outcome::Raised;
  };
  if (!active_) {
    PyObject* result = live();
    *out = {result, kNoValue};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  }
  int positional = n - static_cast<int>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  if (t == &PyType_Type && n == 1) {
    if (host::is_tensor(args[0].object) ? !know_type(args[0]) : !know_type(args[0])) return Outcome::Stop;
    *out = constant(reinterpret_cast<PyObject*>(Py_TYPE(args[0].object)));
    return Outcome::Done;
  }
  if ((t == &PyList_Type || t == &PyTuple_Type) && kwnames == nullptr && n <= 1) {
    if (n == 1 && t == &PyTuple_Type && PyTuple_CheckExact(args[0].object)) {
      *out = {Py_NewRef(args[0].object), args[0].id};
      return Outcome::Done;
    }
    std::vector<Operand> elements;
    if (n == 1) {
      ModeScope mode(*this, ResumeMode::Never);
      Outcome outcome = all_elements(args[0], &elements, true);
      if (outcome != Outcome::Done) return outcome;
    }
    Py_ssize_t count = static_cast<Py_ssize_t>(elements.size());
    PyObject* result = t == &PyList_Type ? PyList_New(count) : PyTuple_New(count);
    std::vector<ValueId> ids;
    bool all_known = true;
    for (Py_ssize_t i = 0; i < count; i++) {
      if (t == &PyList_Type)
        PyList_SET_ITEM(result, i, elements[i].object);
      else
        PyTuple_SET_ITEM(result, i, elements[i].object);
      ids.push_back(elements[i].id);
      all_known = all_known && elements[i].id >= 0;
    }
    if (active_ && !all_known) lose("elements of unknown origin");
    *out = t == &PyList_Type ? new_list(result, ids) : new_tuple(result, ids);
    return Outcome::Done;
  }
  bool is_ordered = !strcmp(t->tp_name, "collections.OrderedDict") && is_made_in_c(t);
  if (t == &PyDict_Type || is_ordered) {
    PyObject* dict = PyObject_CallNoArgs(type.object);
    if (dict == nullptr) return raised();
    Operand made = t == &PyDict_Type ? new_dict(dict, {}, nullptr) : new_plain_object(dict, type);
    if (n > 0) {
      std::vector<Operand> all{made};
      all.insert(all.end(), args, args + n);
      Operand none;
      ModeScope mode(*this, ResumeMode::Never);
      Outcome outcome = model_dict_update(made, all.data(), n + 1, kwnames, &none);
      if (outcome != Outcome::Done) {
        Py_DECREF(dict);
        return outcome;
      }
      Py_DECREF(none.object);
    }
    *out = made;
    return Outcome::Done;
  }
  if (t == &PyRange_Type) {
    for (int i = 0; i < n; i++) {
      if (!make_constant(args[i]))
        return stop(UnsupportedCode::DataDependentBranch, "a range of a number that is known late");
    }
    PyObject* result = live();
    if (result == nullptr) return raised();
    *out = new_constant(result);
    return Outcome::Done;
  }
  if (t == &PySlice_Type) {
    Operand none{Py_None, constant_id(Py_None)};
    if (n < 1 || n > 3) return stop("slice()");
    return build_slice(*top_, n == 1 ? none : args[0], n == 1 ? args[0] : args[1], n == 3 ? args[2] : Operand{}, out);
  }
  if (t == &PyEnum_Type && n >= 1 && (kwnames == nullptr || n == 2)) {
    Operand source;
    if (n == 2 && !make_constant(args[1])) return stop("enumerate from a number that is known late");
    Outcome outcome = make_source(args[0], &source);
    if (outcome != Outcome::Done) return outcome;
    PyObject* live_args[2] = {source.object, n == 2 ? args[1].object : nullptr};
    PyObject* result = host::make_iterator_over(type.object, live_args, n, 0);
    if (result == nullptr) return raised();
    if (!active_) {
      Py_DECREF(source.object);
      *out = {result, kNoValue};
      return Outcome::Done;
    }
    auto state = std::make_unique<IteratorState>();
    bool is_generator = PyGen_CheckExact(source.object);
    state->kind = is_generator ? IteratorKind::EnumerateOpaque : IteratorKind::Enumerate;
    state->start = n == 2 ? PyLong_AsSsize_t(args[1].object) : 0;
    state->sources.push_back({source.object, source.id >= 0 ? facts_[source.id].heap : nullptr});
    state->leave_sources();
    std::vector<ValueId> operands{source.id};
    if (n == 2) operands.push_back(args[1].id);
    *out = new_iterator(result, operands, type.object, std::move(state));
    return Outcome::Done;
  }
  if (t == &PyZip_Type || (t == &PyMap_Type && n >= 2 && kwnames == nullptr)) {
    const bool is_map = t == &PyMap_Type;
    bool is_strict = false;
    if (kwnames != nullptr) {
      if (PyTuple_GET_SIZE(kwnames) != 1 || !make_constant(args[n - 1])) return stop("an unusual call of zip");
      is_strict = args[n - 1].object == Py_True;
    }
    // Sequences of one length: strict changes nothing.
    for (int i = 0; is_strict && i < positional; i++) {
      PyObject* first = args[0].object;
      PyObject* other = args[i].object;
      bool is_sequence = PyList_CheckExact(other) || PyTuple_CheckExact(other);
      if (!is_sequence || PySequence_Fast_GET_SIZE(other) != PySequence_Fast_GET_SIZE(first))
        return stop("zip(strict=True)");
    }
    auto state = std::make_unique<IteratorState>();
    state->kind = is_map ? IteratorKind::Map : IteratorKind::Zip;
    std::vector<ValueId> operands;
    std::vector<PyObject*> sources;
    if (is_map) {
      state->function = Py_NewRef(args[0].object);
      state->function_id = args[0].id;
      operands.push_back(args[0].id);
      sources.push_back(args[0].object);
    }
    Outcome outcome = Outcome::Done;
    for (int i = is_map ? 1 : 0; i < positional && outcome == Outcome::Done; i++) {
      Operand source;
      outcome = make_source(args[i], &source);
      if (outcome != Outcome::Done) break;
      operands.push_back(source.id);
      sources.push_back(source.object);
      state->sources.push_back({source.object, source.id >= 0 ? facts_[source.id].heap : nullptr});
    }
    if (outcome != Outcome::Done) return outcome;
    PyObject* result = host::make_iterator_over(type.object, sources.data(), positional, is_map ? 1 : 0);
    if (result == nullptr) return raised();
    state->leave_sources();
    *out = new_iterator(result, operands, type.object, std::move(state));
    return Outcome::Done;
  }
  if (!strcmp(t->tp_name, "reversed") && n == 1) {
    // torch.Size, named tuples: as tuples, unless they say otherwise.
    static PyObject* kReversed = PyUnicode_InternFromString("__reversed__");
    const bool is_tuple = PyTuple_Check(args[0].object) && know_type(args[0]) &&
                          Py_TYPE(args[0].object)->tp_as_sequence->sq_item == PyTuple_Type.tp_as_sequence->sq_item &&
                          find_in_class(Py_TYPE(args[0].object), kReversed) == nullptr;
    if (!PyList_CheckExact(args[0].object) && !is_tuple && !PyRange_Check(args[0].object)) {
      const HeapObject* viewed = facts_[args[0].id].heap;
      const bool is_view = viewed != nullptr && viewed->is_view;
      if (is_view || PyDict_CheckExact(args[0].object)) {
        auto state = std::make_unique<IteratorState>();
        std::vector<Operand> keys;
        std::vector<ValueId> values;
        if (is_view) {
          state->ids.assign(viewed->view.rbegin(), viewed->view.rend());
        } else {
          if ((!is_constant(args[0].id) && !know_type(args[0])) || !dict_ids(args[0], &keys, &values))
            return stop("reversed() of a dict of unknown contents");
          for (auto key = keys.rbegin(); key != keys.rend(); ++key) state->ids.push_back(key->id);
        }
        PyObject* result = live();
        if (result == nullptr) return raised();
        const ValueId operands[] = {args[0].id};
        *out = new_iterator(result, operands, type.object, std::move(state));
        return Outcome::Done;
      }
      if (PyDict_Check(args[0].object)) return stop("reversed() of a dict");
      bool found;
      Outcome outcome = call_special(kReversed, args[0], {}, out, &found);
      if (found) return outcome;
      if (is_module_list(args[0].object)) return reverse_modules(type, args[0], out);
      return stop("reversed() of " + type_name(Py_TYPE(args[0].object)));
    }
    auto state = std::make_unique<IteratorState>();
    if (PyRange_Check(args[0].object)) {
      if (!is_constant(args[0].id)) return stop("a range that is known late");
      PyObject* list = PySequence_List(args[0].object);
      for (Py_ssize_t i = PyList_GET_SIZE(list) - 1; i >= 0; i--)
        state->ids.push_back(constant_id(PyList_GET_ITEM(list, i)));
      Py_DECREF(list);
    } else {
      std::vector<ValueId> ids;
      if (!element_ids(args[0], &ids)) return stop("reversed() of a sequence of unknown contents");
      state->ids.assign(ids.rbegin(), ids.rend());
    }
    PyObject* result = live();
    if (result == nullptr) return raised();
    ValueId operands[] = {args[0].id};
    *out = new_iterator(result, operands, type.object, std::move(state));
    return Outcome::Done;
  }
  if (!strncmp(t->tp_name, "itertools.", 10)) {
    bool is_handled = false;
    const Outcome outcome = make_combination(type, args, n, kwnames, out, &is_handled);
    if (is_handled) return outcome;
  }
  if (!strcmp(t->tp_name, "itertools.starmap") && n == 2 && kwnames == nullptr) {
    Operand source;
    const Outcome outcome = make_source(args[1], &source);
    if (outcome != Outcome::Done) return outcome;
    auto state = std::make_unique<IteratorState>();
    state->kind = IteratorKind::Map;
    state->unpacks = true;
    return make_lazy(type, args[0], source, std::move(state), out);
  }
  if (!strcmp(t->tp_name, "itertools.repeat") && n == 2 && kwnames == nullptr && PyLong_CheckExact(args[1].object)) {
    // A constant count; what is repeated may be anything.
    constexpr Py_ssize_t kMost = 1024;
    if (!make_constant(args[1])) return stop("itertools.repeat with a count that is known late");
    const Py_ssize_t count = PyLong_AsSsize_t(args[1].object);
    if (PyErr_Occurred() || count > kMost) {
      PyErr_Clear();
      return stop("itertools.repeat with a large count");
    }
    auto state = std::make_unique<IteratorState>();
    state->ids.assign(static_cast<size_t>(std::max<Py_ssize_t>(count, 0)), args[0].id);
    PyObject* result = live();
    if (result == nullptr) return raised();
    ValueId operands[] = {args[0].id, args[1].id};
    *out = new_iterator(result, operands, type.object, std::move(state));
    return Outcome::Done;
  }
  const bool is_negated = !strcmp(t->tp_name, "itertools.filterfalse");
  if ((t == &PyFilter_Type || is_negated) && n == 2 && kwnames == nullptr) {
    Operand source;
    Outcome outcome = make_source(args[1], &source);
    if (outcome != Outcome::Done) return outcome;
    HeapObject* made = source.id >= 0 ? facts_[source.id].heap : nullptr;
    if (made == nullptr || !made->is_created) {
      Py_DECREF(source.object);
      return stop("a filter over an iterator that existed before the recording");
    }
    auto state = std::make_unique<IteratorState>();
    state->kind = IteratorKind::Filter;
    state->is_negated = is_negated;
    return make_lazy(type, args[0], source, std::move(state), out);
  }
  const bool is_chain = !strcmp(t->tp_name, "itertools.chain") && kwnames == nullptr;
  auto is_made_iterator = [&](Operand o) {
    return facts_[o.id].heap != nullptr && facts_[o.id].heap->is_created && PyIter_Check(o.object);
  };
  if (is_chain && std::any_of(args, args + n, is_made_iterator)) {
    auto state = std::make_unique<IteratorState>();
    state->kind = IteratorKind::Chain;
    std::vector<ValueId> operands;
    std::vector<PyObject*> sources;
    for (int i = 0; i < n; i++) {
      // A list may change before it is reached; a tuple does not.
      if (!is_made_iterator(args[i]) && !PyTuple_CheckExact(args[i].object)) {
        return stop("itertools.chain over an iterator and " + type_name(Py_TYPE(args[i].object)));
      }
      Operand source;
      Outcome outcome = make_source(args[i], &source);
      if (outcome != Outcome::Done) return outcome;
      state->sources.push_back({source.object, facts_[source.id].heap});
      operands.push_back(source.id);
      sources.push_back(source.object);
    }
    PyObject* result = PyObject_Vectorcall(type.object, sources.data(), sources.size(), nullptr);
    if (result == nullptr) return raised();
    *out = new_iterator(result, operands, type.object, std::move(state));
    return Outcome::Done;
  }
  if (is_chain) {
    auto state = std::make_unique<IteratorState>();
    std::vector<ValueId> operands;
    for (int i = 0; i < n; i++) {
      // Its elements are fixed now: sequences and dicts only.
      if (!PyList_CheckExact(args[i].object) && !PyTuple_CheckExact(args[i].object) && !PyDict_Check(args[i].object) &&
          !(facts_[args[i].id].heap != nullptr && facts_[args[i].id].heap->is_view)) {
        return stop("itertools.chain over " + type_name(Py_TYPE(args[i].object)));
      }
      std::vector<Operand> elements;
      Outcome outcome = all_elements(args[i], &elements);
      if (outcome != Outcome::Done) return outcome;
      std::vector<ValueId> ids;
      for (Operand& element : elements) {
        ids.push_back(element.id);
        Py_DECREF(element.object);
      }
      state->ids.insert(state->ids.end(), ids.begin(), ids.end());
      HeapObject* list = PyList_CheckExact(args[i].object) ? heap_of(args[i]) : nullptr;
      if (list != nullptr) state->lists.push_back({list, std::move(ids)});
      operands.push_back(args[i].id);
    }
    PyObject* result = live();
    if (result == nullptr) return raised();
    *out = new_iterator(result, operands, type.object, std::move(state));
    return Outcome::Done;
  }
  if (!strcmp(t->tp_name, "functools.partial") && positional >= 1) {
    PyObject* result = live();
    if (result == nullptr) return raised();
    std::vector<ValueId> operands{type.id};
    for (int i = 0; i < n; i++) operands.push_back(args[i].id);
    ValueId id = emit_typed(NodeKind::Object, operands, result, kwnames, 1);
    if (id >= 0) {
      HeapObject* object = new_object(id);
      object->is_partial = true;
      // A partial of a partial is flattened, and so is what is known of it.
      PyObject* inner = args[0].object;
      HeapObject* made = facts_[args[0].id].heap;
      if (Py_TYPE(inner) != t) {
        object->partial.push_back(args[0].id);
      } else if (made != nullptr && made->is_partial) {
        object->partial = made->partial;
        for (const KeyMap::Item& item : made->items.items()) object->items.set(item.key, item.id);
      } else if (know_identity(args[0])) {
        PyObject* function = PyObject_GetAttr(inner, names().func_name);
        PyObject* bound = PyObject_GetAttr(inner, names().args);
        PyObject* keywords = PyObject_GetAttr(inner, names().keywords);
        object->partial.push_back(constant_id(function));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bound); i++)
          object->partial.push_back(constant_id(PyTuple_GET_ITEM(bound, i)));
        PyObject *key, *value;
        Py_ssize_t position = 0;
        while (PyDict_Next(keywords, &position, &key, &value))
          object->items.set(heap_.canonical_key(key), constant_id(value));
        Py_DECREF(function);
        Py_DECREF(bound);
        Py_DECREF(keywords);
      }
      for (int i = 1; i < positional; i++) object->partial.push_back(args[i].id);
      for (int i = positional; i < n; i++) {
        object->items.set(heap_.canonical_key(PyTuple_GET_ITEM(kwnames, i - positional)), args[i].id);
      }
    }
    *out = {result, id};
    return Outcome::Done;
  }
  if (t == &PySuper_Type) return make_super(args, n, out);
  if (t == &PyMethod_Type && n == 2 && kwnames == nullptr && PyFunction_Check(args[0].object)) {
    if (args[1].object == Py_None) return call_opaque(type);
    *out = new_method(args[0].object, args[0].id, args[1]);
    return out->object != nullptr ? Outcome::Done : Outcome::Raised;
  }
  if (!strcmp(t->tp_name, "collections.deque") && is_made_in_c(t)) return make_deque(type, args, n, kwnames, out);
  if (!strcmp(t->tp_name, "collections.defaultdict") && is_made_in_c(t) && n <= 1) {
    PyObject* result = live();
    if (result == nullptr) return raised();
    std::vector<ValueId> operands{type.id};
    if (n == 1) operands.push_back(args[0].id);
    ValueId id = emit_typed(NodeKind::Object, operands, result, nullptr, 1);
    if (id >= 0) {
      HeapObject* object = new_object(id);
      object->is_complete = true;
      object->function = n == 1 ? args[0].id : kNoValue;
      note_dict_written(result, object);
    }
    *out = {result, id};
    return Outcome::Done;
  }
  if (t == &PySet_Type || t == &PyFrozenSet_Type) {
    std::vector<ValueId> ids;
    bool is_fixed = true;
    if (n == 1 && t == &PySet_Type) {
      PyObject* set = PySet_New(nullptr);
      if (set == nullptr) return Outcome::Raised;
      ValueId id = emit_typed(NodeKind::Set, {}, set);
      if (id >= 0) new_object(id);
      Outcome outcome = set_update(*top_, {set, id}, args[0]);
      if (outcome == Outcome::Done) {
        *out = {set, id};
      } else {
        Py_DECREF(set);
      }
      return outcome;
    }
    if (n == 1) {
      if (PyAnySet_Check(args[0].object) && is_overridden(args[0].object, names().iter))
        return stop("a set whose class has an __iter__ of its own");
      std::vector<Operand> elements;
      {
        ModeScope mode(*this, ResumeMode::Never);
        Outcome outcome = all_elements(args[0], &elements);
        if (outcome != Outcome::Done) return outcome;
      }
      PyObject* list = PyList_New(0);
      for (Operand& element : elements) {
        is_fixed = is_fixed && active_ && make_key(element);
        ids.push_back(element.id);
        PyList_Append(list, element.object);
        Py_DECREF(element.object);
      }
      PyObject* result = PyObject_CallOneArg(type.object, list);
      Py_DECREF(list);
      if (result == nullptr) return raised();
      if (active_ && !is_fixed) lose("a set of values that are known late");
      if (active_ && t == &PyFrozenSet_Type) {
        *out = new_constant(result);
        return Outcome::Done;
      }
      ValueId id = emit_typed(NodeKind::Set, ids, result);
      if (id >= 0) new_object(id)->elements = ids;
      *out = {result, id};
      return Outcome::Done;
    }
    PyObject* result = live();
    if (result == nullptr) return raised();
    ValueId id = emit_typed(NodeKind::Set, {}, result);
    if (id >= 0) new_object(id);
    *out = {result, id};
    return Outcome::Done;
  }
  static const char* kPureTypes[] = {"int",
                                     "float",
                                     "bool",
                                     "str",
                                     "complex",
                                     "bytes",
                                     "torch.device",
                                     "operator.itemgetter",
                                     "operator.attrgetter",
                                     "operator.methodcaller"};
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || !strncmp(t->tp_name, "operator.", 9)) {
    for (const char* name : kPureTypes) {
      if (strcmp(t->tp_name, name) != 0) continue;
      // A conversion of a tensor is a read of its value.
      for (int i = 0; i < n; i++) {
        if (host::is_tensor(args[i].object)) return call_torch(type, args, n, kwnames, out);
      }
      if (n == 1 && kwnames == nullptr && (Py_TYPE(args[0].object)->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        if (t == &PyBool_Type) {
          bool truth_value;
          ModeScope mode(*this, ResumeMode::Never);
          Outcome outcome = truth(*top_, args[0], &truth_value);
          if (outcome == Outcome::Done) *out = bool_constant(truth_value);
          return outcome;
        }
        if (t == &PyUnicode_Type) {
          if (make_key(args[0])) return call_folded(type, args, n, kwnames, out);
          bool found;
          static PyObject* kStr = PyUnicode_InternFromString("__str__");
          Outcome outcome = call_special(kStr, args[0], {}, out, &found);
          if (found) return outcome;
        }
      }
      if (n == 1 && t == &PyBool_Type) {
        bool truth_value;
        Outcome outcome = truth(*top_, args[0], &truth_value);
        if (outcome == Outcome::Done) *out = bool_constant(truth_value);
        return outcome;
      }
      if (!strncmp(name, "operator.", 9)) {
        for (int i = 0; i < n; i++) {
          if (!make_constant(args[i])) return stop("a getter of what is known late");
        }
        return make_of_arguments(type, args, n, kwnames, out);
      }
      return call_pure(type, args, n, kwnames, out);
    }
  }
  // A metaclass with its own __call__.
  if (Py_TYPE(t)->tp_call != PyType_Type.tp_call) {
    PyTypeObject* meta = Py_TYPE(t);
    PyObject* method = find_in_class(meta, names().call);
    if (is_enum(t)) {
      for (int i = 0; i < n; i++) {
        if (!make_key(args[i])) return stop("an enum member of a value that is known late");
      }
      PyObject* result = live();
      if (result == nullptr) return raised();
      *out = new_constant(result);
      return Outcome::Done;
    }
    if (method == nullptr || !PyFunction_Check(method)) return call_opaque(type);
    know_type_version(meta);
    std::vector<Operand> all{type};
    all.insert(all.end(), args, args + n);
    return call_function({method, constant_id(method)}, all.data(), n + 1, kwnames, out);
  }
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    if (PyExceptionClass_Check(type.object)) return make_of_arguments(type, args, n, kwnames, out);
    if (host::classify_torch_callable(type.object).is_torch) return call_torch(type, args, n, kwnames, out);
    if (t == &PyBaseObject_Type && n == 0) {
      PyObject* result = live();
      if (result == nullptr) return raised();
      *out = new_plain_object(result, type);
      return Outcome::Done;
    }
    if (!strcmp(t->tp_name, "types.SimpleNamespace") && positional == 0) {
      PyObject* result = PyObject_CallNoArgs(type.object);
      if (result == nullptr) return raised();
      const Operand made = new_plain_object(result, type);
      for (int i = 0; i < n; i++) {
        const Outcome outcome = set_attribute(made, PyTuple_GET_ITEM(kwnames, i), args[i]);
        if (outcome != Outcome::Done) {
          Py_DECREF(result);
          return outcome;
        }
      }
      *out = made;
      return Outcome::Done;
    }
    return call_opaque(type);
  }
  return make_instance(type, args, n, kwnames, out);
}

Outcome Recorder::make_instance(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  PyTypeObject* t = reinterpret_cast<PyTypeObject*>(type.object);
  know_type_version(t);
  PyObject* new_method = find_in_class(t, names().new_);
  PyObject* init_method = find_in_class(t, names().init);
  bool is_abstract = (t->tp_flags & Py_TPFLAGS_IS_ABSTRACT) != 0;
  // An object with a finaliser is made and dies at the places of the program, not where liveness would have it.
  static PyObject* kDel = PyUnicode_InternFromString("__del__");
  if (is_abstract || find_in_class(t, kDel) != nullptr) return call_opaque(type);
  std::vector<Operand> all{type};
  all.insert(all.end(), args, args + n);
  Operand made;
  PyObject* new_function = new_method;
  PyObject* owned = nullptr;
  if (new_method != nullptr && Py_TYPE(new_method) == &PyStaticMethod_Type) {
    new_function = owned = PyObject_GetAttr(new_method, names().func);
  }
  auto finish_live = [&](PyObject* object) {
    // The recording ended while __new__ ran: the rest as type.__call__ does it.
    // What was made may be a class, whose own __init__ is that of its instances.
    if (PyType_IsSubtype(Py_TYPE(object), t) && Py_TYPE(object)->tp_init != nullptr) {
      const int positional = n - static_cast<int>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
      PyObject* arguments = PyTuple_New(positional);
      PyObject* keywords = kwnames != nullptr ? PyDict_New() : nullptr;
      for (int i = 0; i < positional; i++) PyTuple_SET_ITEM(arguments, i, Py_NewRef(args[i].object));
      for (int i = positional; i < n; i++)
        PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i - positional), args[i].object);
      const int status = Py_TYPE(object)->tp_init(object, arguments, keywords);
      Py_DECREF(arguments);
      Py_XDECREF(keywords);
      if (status < 0) {
        Py_DECREF(object);
        return Outcome::Raised;
      }
    }
    *out = {object, kNoValue};
    return Outcome::Done;
  };
  if (new_function != nullptr && PyFunction_Check(new_function)) {
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = call_function({new_function, constant_id(new_function)}, all.data(), n + 1, kwnames, &made);
    Py_XDECREF(owned);
    if (outcome != Outcome::Done) return outcome;
    if (!active_) return finish_live(made.object);
  } else {
    Py_XDECREF(owned);
    bool is_plain =
        t->tp_new == PyBaseObject_Type.tp_new || t->tp_new == PyDict_Type.tp_new || t->tp_new == PyList_Type.tp_new;
    bool is_ordered = !is_plain && PyDict_Check(type.object) == false && PyType_IsSubtype(t, &PyDict_Type) &&
                      t->tp_base != nullptr && find_callable(new_method).model == &Recorder::model_dict_new;
    if (PyExceptionClass_Check(type.object)) {
      // Exceptions keep their arguments in C: __new__ stores them, and a Python __init__ runs behind it.
      bool has_init = init_method != nullptr && PyFunction_Check(init_method);
      if (!has_init) return make_of_arguments(type, args, n, kwnames, out);
      if (kwnames != nullptr) return call_opaque(type);
      PyObject* tuple = PyTuple_New(n);
      for (int i = 0; i < n; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i].object));
      PyObject* object = t->tp_new(t, tuple, nullptr);
      Py_DECREF(tuple);
      if (object == nullptr) return Outcome::Raised;
      PyObject* maker = PyObject_GetAttr(type.object, names().new_);
      std::vector<ValueId> operands{constant_id(maker), type.id};
      for (int i = 0; i < n; i++) operands.push_back(args[i].id);
      Py_XDECREF(maker);
      ValueId id = emit_typed(NodeKind::Object, operands, object, nullptr, 1);
      if (id >= 0) {
        HeapObject* heap = new_object(id);
        PyObject* dict;
        if (instance_dict_of({object, id}, &dict) != nullptr)
          heap->instance_dict->is_complete = PyDict_GET_SIZE(dict) == 0;
      }
      made = {object, id};
    } else if (t->tp_new == PyTuple_Type.tp_new) {
      Outcome outcome = model_tuple_new(type, all.data(), n + 1, kwnames, &made);
      if (outcome != Outcome::Done) return outcome;
    } else if (is_plain || is_ordered) {
      PyObject* empty = PyTuple_New(0);
      PyObject* object = t->tp_new(t, empty, nullptr);
      Py_DECREF(empty);
      if (object == nullptr) {
        lose("a class that can't be instantiated");
        return Outcome::Raised;
      }
      if (t->tp_new == PyBaseObject_Type.tp_new && n > 0 &&
          (init_method == nullptr || !PyFunction_Check(init_method)) && t->tp_init == PyBaseObject_Type.tp_init) {
        Py_DECREF(object);
        return call_opaque(type);  // object() takes no arguments: CPython raises
      }
      made = new_plain_object(object, type);
    } else {
      if (host::classify_torch_callable(type.object).is_torch) return call_torch(type, args, n, kwnames, out);
      return call_opaque(type);
    }
  }
  if (!PyType_IsSubtype(Py_TYPE(made.object), t)) {
    *out = made;
    return Outcome::Done;
  }
  if (Py_TYPE(made.object) != t) init_method = find_in_class(Py_TYPE(made.object), names().init);
  if (init_method != nullptr && PyFunction_Check(init_method)) {
    all[0] = made;
    Operand none;
    ResumeMode mode_now =
        top_ != nullptr && top_->resume_mode == ResumeMode::Push ? ResumeMode::PushValue : ResumeMode::Never;
    ModeScope mode(*this, mode_now, made);
    Outcome outcome = call_function({init_method, constant_id(init_method)}, all.data(), n + 1, kwnames, &none);
    if (outcome == Outcome::Stop) {  // the object exists: __init__ runs unrecorded
      return finish_live(made.object);
    }
    if (outcome != Outcome::Done) {
      Py_DECREF(made.object);
      return outcome;
    }
    if (none.object != Py_None) {
      PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'", Py_TYPE(none.object)->tp_name);
      Py_DECREF(none.object);
      Py_DECREF(made.object);
      lose("an __init__ that returns a value");
      return Outcome::Raised;
    }
    Py_DECREF(none.object);
    *out = made;
    if (!active_) out->id = kNoValue;
    return Outcome::Done;
  }
  const CallableRow& init_row = init_method != nullptr ? find_callable(init_method) : find_callable(type.object);
  if (init_row.model == &Recorder::model_dict_init) {
    all[0] = made;
    Operand none;
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = model_dict_init(type, all.data(), n + 1, kwnames, &none);
    if (outcome == Outcome::Stop) return finish_live(made.object);
    if (outcome != Outcome::Done) return outcome;
    Py_DECREF(none.object);
    *out = made;
    return Outcome::Done;
  }
  if (PyList_Check(made.object) && t->tp_init == PyList_Type.tp_init) {
    if (n == 0) {
      *out = made;
      return Outcome::Done;
    }
    if (n == 1 && kwnames == nullptr) {
      const Outcome outcome = list_extend(*top_, made, args[0]);
      if (outcome == Outcome::Raised) Py_DECREF(made.object);
      if (outcome == Outcome::Raised) return outcome;
      if (outcome == Outcome::Done) {
        *out = {made.object, active_ ? made.id : kNoValue};
        return Outcome::Done;
      }
    }
    lose("a list subclass made from an iterable");
    return finish_live(made.object);
  }
  if (init_row.model == &Recorder::model_object_init || PyTuple_Check(made.object)) {
    *out = made;
    return Outcome::Done;
  }
  lose("the __init__ of " + type_name(t));
  return finish_live(made.object);
}

}  // namespace reprise::capture
