// Rare opcodes that have a model. The match statement: patterns are tests of types, reads of dicts and of attributes.
#include "capture/models_impl.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"
#include "host/cpython/frame_view.h"

namespace reprise::capture {

Outcome Recorder::model_rare(Act& act, const host::Instruction& instruction, interp::RareModel* model) {
  if (!active_) return Outcome::Stop;
  const auto peek = [&](int n) { return Operand{act.stack_pointer[-n], act.ids[act.stack_pointer - act.locals - n]}; };
  const auto has_flag = [&](unsigned long flag) {
    const Operand subject = peek(1);
    if (subject.id < 0) return stop("a pattern on a value of unknown origin");
    if (!is_constant(subject.id) && !know_type(subject)) return Outcome::Stop;
    model->result = bool_constant((Py_TYPE(subject.object)->tp_flags & flag) != 0);
    return Outcome::Done;
  };
  using host::Op;
  const Op op = instruction.op;
  model->is_modelled = true;
  if (op == Op::MatchSequence) return has_flag(Py_TPFLAGS_SEQUENCE);
  if (op == Op::MatchMapping) return has_flag(Py_TPFLAGS_MAPPING);
  if (op == Op::MatchKeys) return match_keys(peek(2), peek(1), &model->result);
  if (op == Op::MatchClass) {
    model->pops = 3;
    return match_class(peek(3), peek(2), peek(1), instruction.arg, &model->result);
  }
  // yield from a container: its iterator gives what is yielded.
  if (op == Op::GetYieldFromIter && !PyGen_CheckExact(peek(1).object) && !PyCoro_CheckExact(peek(1).object)) {
    model->pops = 1;
    return make_iterator(peek(1), &model->result);
  }
  if (op == Op::Send && peek(1).object == Py_None && peek(2).id >= 0) {
    const HeapObject* receiver = facts_[peek(2).id].heap;
    if (receiver != nullptr && receiver->iterator != nullptr) {
      model->pops = 1;
      const Outcome outcome = next_element(peek(2), &model->result);
      if (outcome != Outcome::Done || model->result.object != nullptr) return outcome;
      model->jumps = true;
      if (host::kPythonMinor < 12) model->pops = 2;
      model->result = constant(Py_None);
      return Outcome::Done;
    }
  }
  model->is_modelled = false;
  return Outcome::Stop;
}

// subject keys -- subject keys values-or-None: through `get`, which makes nothing.
Outcome Recorder::match_keys(Operand subject, Operand keys, Operand* out) {
  if (subject.id < 0 || keys.id < 0) return stop("a mapping pattern on a value of unknown origin");
  PyObject* mapping = subject.object;
  if (!PyDict_Check(mapping)) return stop("a mapping pattern on " + type_name(Py_TYPE(mapping)));
  if (!is_constant(subject.id) && !know_type(subject)) return Outcome::Stop;
  static PyObject* const kGet = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyDict_Type), "get");
  if (find_in_class(Py_TYPE(mapping), names().get_item_or) != kGet)
    return stop("a mapping pattern on a dict whose class has a get of its own");
  std::vector<ValueId> key_ids, value_ids;
  if (!element_ids(keys, &key_ids)) return stop("a mapping pattern with keys of unknown origin");
  HeapObject* object = heap_of(subject);
  if (object == nullptr) return Outcome::Stop;
  PyObject* seen = PySet_New(nullptr);
  std::vector<PyObject*> values;
  Outcome outcome = Outcome::Done;
  bool is_match = true;
  for (size_t i = 0; i < key_ids.size() && is_match && outcome == Outcome::Done; i++) {
    const Operand key{PyTuple_GET_ITEM(keys.object, static_cast<Py_ssize_t>(i)), key_ids[i]};
    Operand value;
    if (!make_key(key)) {
      outcome = stop("a mapping pattern with a key that is known late");
    } else if (PySet_Contains(seen, key.object) != 0 || PySet_Add(seen, key.object) < 0) {
      PyErr_Clear();
      outcome = stop("a mapping pattern with a key twice");
    } else {
      outcome = read_dict(mapping, object, key, &value);
    }
    is_match = outcome == Outcome::Done && value.object != nullptr;
    values.push_back(value.object);
    value_ids.push_back(value.id);
  }
  Py_DECREF(seen);
  if (outcome != Outcome::Done) return outcome;
  if (!is_match) {
    *out = constant(Py_None);
    return Outcome::Done;
  }
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  if (tuple == nullptr) return Outcome::Raised;
  for (size_t i = 0; i < values.size(); i++) PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), Py_NewRef(values[i]));
  *out = new_tuple(tuple, value_ids);
  return Outcome::Done;
}

// The names that a class pattern asks for, appended to the list. False: the recording has ended in front of it.
bool Recorder::pattern_names(Operand type, Operand keywords, int positional, PyObject* list, bool* matches_self) {
  *matches_self = false;
  const auto refuse = [&] {
    if (active_) stop("an unusual class pattern");
    return false;
  };
  if (positional > 0) {
    Operand found;
    const Outcome outcome = get_attribute(type, names().match_args, &found, nullptr);
    if (outcome == Outcome::Stop) return false;
    if (outcome == Outcome::Raised) {
      const bool is_missing = PyErr_ExceptionMatches(PyExc_AttributeError) && exception_is_recorded_;
      PyErr_Clear();
      exception_is_recorded_ = false;
      // int(x), str(x) and their like match the subject itself.
      *matches_self = PyType_HasFeature(reinterpret_cast<PyTypeObject*>(type.object), _Py_TPFLAGS_MATCH_SELF) != 0;
      if (!is_missing || !*matches_self || positional > 1) return refuse();
    } else {
      const bool is_fixed = PyTuple_CheckExact(found.object) && PyTuple_GET_SIZE(found.object) >= positional &&
                            (is_constant(found.id) || make_constant(found));
      for (int i = 0; is_fixed && i < positional; i++) PyList_Append(list, PyTuple_GET_ITEM(found.object, i));
      Py_DECREF(found.object);
      if (!is_fixed) return refuse();
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords.object); i++) {
    PyList_Append(list, PyTuple_GET_ITEM(keywords.object, i));
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject* name = PyList_GET_ITEM(list, i);
    bool is_usual = PyUnicode_CheckExact(name);
    for (Py_ssize_t j = 0; j < i && is_usual; j++) is_usual = PyUnicode_Compare(name, PyList_GET_ITEM(list, j)) != 0;
    if (!is_usual) return refuse();
  }
  return true;
}

// subject class keywords -- attributes-or-None
Outcome Recorder::match_class(Operand subject, Operand type, Operand keywords, int positional, Operand* out) {
  if (subject.id < 0 || type.id < 0) return stop("a class pattern on a value of unknown origin");
  if (!PyType_Check(type.object) || !know_identity(type)) return stop("a class pattern of a class that is known late");
  static PyObject* const kIsInstance = PyDict_GetItemString(PyEval_GetBuiltins(), "isinstance");
  bool matches_self = false;
  PyObject* names_list = PyList_New(0);
  if (!pattern_names(type, keywords, positional, names_list, &matches_self)) {
    Py_DECREF(names_list);
    return Outcome::Stop;
  }
  const Operand both[2] = {subject, type};
  Operand answer;
  Outcome outcome = model_isinstance({kIsInstance, constant_id(kIsInstance)}, both, 2, nullptr, &answer);
  const bool is_match = outcome == Outcome::Done && answer.object == Py_True;
  if (outcome == Outcome::Done) Py_DECREF(answer.object);
  if (!is_match) {
    Py_DECREF(names_list);
    if (outcome == Outcome::Done) *out = constant(Py_None);
    return outcome;
  }
  std::vector<Operand> attributes;
  if (matches_self) attributes.push_back({Py_NewRef(subject.object), subject.id});
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names_list) && outcome == Outcome::Done; i++) {
    PyObject* name = Py_NewRef(PyList_GET_ITEM(names_list, i));
    PyUnicode_InternInPlace(&name);
    ModeScope mode(*this, ResumeMode::Never);
    Operand value;
    outcome = active_ ? get_attribute(subject, name, &value, nullptr) : Outcome::Stop;
    if (outcome == Outcome::Stop) {  // what came before has run: the rest of the pattern is not recorded
      value = {PyObject_GetAttr(subject.object, name), kNoValue};
      outcome = value.object != nullptr ? Outcome::Done : Outcome::Raised;
    }
    Py_DECREF(name);
    if (outcome == Outcome::Done) attributes.push_back(value);
  }
  Py_DECREF(names_list);
  if (outcome != Outcome::Done) {
    for (Operand& attribute : attributes) Py_DECREF(attribute.object);
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return outcome;
    if (active_ && !exception_is_recorded_) lose("an attribute access that raised");
    PyErr_Clear();
    exception_is_recorded_ = false;
    *out = constant(Py_None);
    return Outcome::Done;
  }
  *out = new_tuple_of(attributes);
  return Outcome::Done;
}

}  // namespace reprise::capture
