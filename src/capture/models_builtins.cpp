// Models of built-in functions and of the methods of object, type, tuple and str.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "capture/models_impl.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

MODEL(len) {
  NO_KEYWORDS(1, 1)
  PAST_OVERRIDE(len, base_length)
  return length(args[0], out);
}

// A class that decides in Python, in the program's own code, who its instances or subclasses are.
static bool has_own_check(PyObject* classes, PyObject* name) {
  if (PyTuple_Check(classes)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); i++) {
      if (has_own_check(PyTuple_GET_ITEM(classes, i), name)) return true;
    }
    return false;
  }
  PyObject* check = host::find_in_class(Py_TYPE(classes), name);
  if (check == nullptr || !PyFunction_Check(check)) return false;
  PyObject* module = PyDict_GetItemString(PyFunction_GET_GLOBALS(check), "__name__");
  const char* text = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  const std::string_view owner(text != nullptr ? text : "");
  return owner != "abc" && owner != "typing" && owner != "enum" && owner != "torch" && !owner.starts_with("torch.");
}

// isinstance(o, classes) or issubclass(o, classes) as CPython asks, one class after the other.
Outcome Recorder::ask_class(Operand o, Operand classes, PyObject* name, bool* answer) {
  *answer = false;
  if (PyTuple_Check(classes.object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes.object) && !*answer; i++) {
      PyObject* one = PyTuple_GET_ITEM(classes.object, i);
      const Outcome outcome = ask_class(o, {one, constant_id(one)}, name, answer);
      if (outcome != Outcome::Done) return outcome;
    }
    return Outcome::Done;
  }
  const bool is_instance = name == names().instancecheck;
  if (is_instance && reinterpret_cast<PyObject*>(Py_TYPE(o.object)) == classes.object) {
    *answer = true;
    return Outcome::Done;
  }
  if (!active_ || !has_own_check(classes.object, name)) {
    CCall bracket(*this);
    const int found =
        is_instance ? PyObject_IsInstance(o.object, classes.object) : PyObject_IsSubclass(o.object, classes.object);
    *answer = found > 0;
    if (found < 0) lose("isinstance that raised");
    return found < 0 ? Outcome::Raised : Outcome::Done;
  }
  ModeScope mode(*this, ResumeMode::Never);
  Operand result;
  bool is_python;
  Outcome outcome = call_special(name, classes, std::span<const Operand>(&o, 1), &result, &is_python);
  if (outcome != Outcome::Done) return outcome;
  outcome = truth(*top_, result, answer);
  if (outcome == Outcome::Stop) outcome = truth(*top_, result, answer);  // ended: unrecorded now
  Py_DECREF(result.object);
  return outcome;
}

MODEL(isinstance) {
  NO_KEYWORDS(2, 2)
  PyObject* o = args[0].object;
  if (PyType_Check(o) ? !know_identity(args[0]) : !know_type(args[0])) return Outcome::Stop;
  if (!is_constant(args[1].id)) {
    PyObject* classes = args[1].object;
    if (PyTuple_Check(classes)) {
      std::vector<ValueId> ids;
      if (!element_ids(args[1], &ids)) return stop("isinstance with classes of unknown origin");
      for (size_t i = 0; i < ids.size(); i++) {
        if (!make_constant({PyTuple_GET_ITEM(classes, i), ids[i]}))
          return stop("isinstance with classes that are known late");
      }
    } else if (!know_identity(args[1])) {
      return stop("isinstance with a class that is known late");
    }
  }
  if (!PyType_Check(o)) know_type_version(Py_TYPE(o));
  const char* called =
      PyCFunction_Check(callable.object) ? reinterpret_cast<PyCFunctionObject*>(callable.object)->m_ml->ml_name : "";
  const bool is_instance = strcmp(called, "isinstance") == 0;
  if (active_ && (is_instance || strcmp(called, "issubclass") == 0)) {
    PyObject* check = is_instance ? names().instancecheck : names().subclasscheck;
    if (has_own_check(args[1].object, check)) {
      bool answer = false;
      const Outcome outcome = ask_class(args[0], args[1], check, &answer);
      if (outcome == Outcome::Done) *out = bool_constant(answer);
      return outcome;
    }
  }
  CCall bracket(*this);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) {
    lose("isinstance that raised");
    return Outcome::Raised;
  }
  *out = new_constant(result);
  return Outcome::Done;
}

MODEL(getattr) {
  NO_KEYWORDS(2, 3)
  if (!make_constant(args[1])) return stop("getattr with a name that is known late");
  PyObject* name = args[1].object;
  if (!PyUnicode_Check(name)) return stop("getattr with a name that is no string");
  Py_INCREF(name);
  PyUnicode_InternInPlace(&name);
  Outcome outcome;
  if (n == 2) {
    outcome = get_attribute(args[0], name, out, nullptr);
  } else {
    ModeScope mode(*this, ResumeMode::Never);
    outcome = get_attribute(args[0], name, out, nullptr);
    bool is_missing = outcome == Outcome::Raised && PyErr_ExceptionMatches(PyExc_AttributeError);
    if (is_missing && (exception_is_recorded_ || !active_)) {
      PyErr_Clear();
      exception_is_recorded_ = false;
      *out = {Py_NewRef(args[2].object), args[2].id};
      outcome = Outcome::Done;
    } else if (is_missing) {
      lose("an attribute access that raised");
      PyErr_Clear();
      *out = {Py_NewRef(args[2].object), kNoValue};
      outcome = Outcome::Done;
    }
  }
  Py_DECREF(name);
  return outcome;
}

MODEL(hasattr) {
  NO_KEYWORDS(2, 2)
  if (!make_constant(args[1]) || !PyUnicode_Check(args[1].object))
    return stop("hasattr with a name that is known late");
  PyObject* name = Py_NewRef(args[1].object);
  PyUnicode_InternInPlace(&name);
  Operand found;
  Outcome outcome;
  {
    ModeScope mode(*this, ResumeMode::Never);
    outcome = get_attribute(args[0], name, &found, nullptr);
  }
  Py_DECREF(name);
  if (outcome == Outcome::Stop) return outcome;
  if (outcome == Outcome::Raised) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return outcome;
    if (active_ && !exception_is_recorded_) lose("an attribute access that raised");
    PyErr_Clear();
    exception_is_recorded_ = false;
    *out = bool_constant(false);
    return Outcome::Done;
  }
  Py_DECREF(found.object);
  *out = bool_constant(true);
  return Outcome::Done;
}

MODEL(setattr) {
  NO_KEYWORDS(3, 3)
  if (!make_constant(args[1]) || !PyUnicode_Check(args[1].object))
    return stop("setattr with a name that is known late");
  ModeScope mode(*this, ResumeMode::Never);
  Outcome outcome = set_attribute(args[0], args[1].object, args[2]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

MODEL(delattr) {
  NO_KEYWORDS(2, 2)
  if (!make_constant(args[1]) || !PyUnicode_Check(args[1].object))
    return stop("delattr with a name that is known late");
  ModeScope mode(*this, ResumeMode::Never);
  Outcome outcome = delete_attribute(*top_, args[0], args[1].object);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

MODEL(iter) {
  NO_KEYWORDS(1, 1)
  const bool is_base = passes_override(callable.object, args[0].object, names().iter);
  return make_iterator(args[0], out, is_base ? callable.object : nullptr);
}

MODEL(next) {
  NO_KEYWORDS(1, 2)
  ModeScope mode(*this, ResumeMode::Never);
  PyObject* stop_value = nullptr;
  Outcome outcome = next_element(args[0], out, &stop_value);
  if (outcome != Outcome::Done || out->object != nullptr) return outcome;
  if (n == 2) {
    Py_XDECREF(stop_value);
    *out = {Py_NewRef(args[1].object), args[1].id};
    return Outcome::Done;
  }
  if (stop_value != nullptr) {
    // What a generator returned is in the exception, whose arguments have no ids.
    if (active_) lose("the value that a generator returned");
    PyObject* stop = PyObject_CallOneArg(PyExc_StopIteration, stop_value);
    Py_DECREF(stop_value);
    if (stop != nullptr) PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
    return Outcome::Raised;
  }
  PyErr_SetNone(PyExc_StopIteration);
  exception_is_recorded_ = active_;
  return Outcome::Raised;
}

// generator.send(value) of a generator that the trace made
MODEL(generator_send) {
  NO_KEYWORDS(2, 2)
  const HeapObject* generator = PyGen_CheckExact(args[0].object) ? facts_[args[0].id].heap : nullptr;
  if (generator == nullptr || generator->generator == nullptr) return call_opaque(callable);
  ModeScope mode(*this, ResumeMode::Never);
  return_id_ = kNoValue;
  sent_id_ = args[1].id;
  PyObject* value = nullptr;
  const PySendResult sent = PyIter_Send(args[0].object, args[1].object, &value);
  sent_id_ = kNoValue;
  if (sent == PYGEN_ERROR) {
    if (active_) lose("a generator that raised");
    return Outcome::Raised;
  }
  if (sent == PYGEN_NEXT) {
    *out = {value, active_ ? return_id_ : kNoValue};
    if (active_ && out->id < 0) lose("a generator's value of unknown origin");
    return Outcome::Done;
  }
  if (value == Py_None) {
    PyErr_SetNone(PyExc_StopIteration);
    exception_is_recorded_ = active_;
  } else {
    // What a generator returned is in the exception, whose arguments have no ids.
    if (active_) lose("the value that a generator returned");
    PyObject* stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (stop != nullptr) PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
  }
  Py_DECREF(value);
  return Outcome::Raised;
}

MODEL(any) {
  NO_KEYWORDS(1, 1)
  bool is_all = callable.object != nullptr && !strcmp(callable_name(callable.object).c_str(), "all");
  ModeScope mode(*this, ResumeMode::Never);
  Operand iterator;
  Outcome outcome = make_iterator(args[0], &iterator);
  if (outcome != Outcome::Done) return outcome;
  bool answer = is_all;
  for (bool is_first = true;; is_first = false) {
    Operand element;
    outcome = next_element(iterator, &element);
    if (outcome == Outcome::Stop && (!is_first || !can_be_iterated_again(args[0].object)))
      outcome = next_element(iterator, &element);
    if (outcome != Outcome::Done || element.object == nullptr) break;
    bool truth_value = false;
    outcome = truth(*top_, element, &truth_value);
    if (outcome == Outcome::Stop) outcome = truth(*top_, element, &truth_value);  // ended: unrecorded now
    Py_DECREF(element.object);
    if (outcome != Outcome::Done) break;
    if (truth_value != is_all) {
      answer = truth_value;
      break;
    }
  }
  Py_DECREF(iterator.object);
  if (outcome != Outcome::Done) return outcome;
  *out = bool_constant(answer);
  return Outcome::Done;
}

MODEL(all) { return model_any(callable, args, n, kwnames, out); }

// sum() of a list of the elements, one node. Takes the elements.
Outcome Recorder::sum_alone(Operand callable, std::vector<Operand>* elements, const Operand* args, int n,
                            Operand* out) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(elements->size()));
  std::vector<ValueId> ids;
  bool is_number = n == 1 || PyLong_CheckExact(args[1].object) || PyFloat_CheckExact(args[1].object);
  for (size_t i = 0; i < elements->size(); i++) {
    const Operand& element = (*elements)[i];
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), element.object);
    ids.push_back(element.id);
    is_number = is_number && (PyLong_CheckExact(element.object) || PyFloat_CheckExact(element.object));
    is_number = is_number && (element.id < 0 || know_type(element));
  }
  if (active_ && !is_number) lose("sum() of texts, or of floats and other objects");
  Operand whole[2] = {new_list(list, ids), n == 2 ? args[1] : Operand{}};
  const Outcome outcome =
      active_ ? call_pure(callable, whole, n, nullptr, out) : call_unrecorded(callable, whole, n, out);
  Py_DECREF(list);
  return outcome;
}

MODEL(sum) {
  if (n < 1 || n > 2 || (kwnames != nullptr && n != 2)) return stop("an unusual call of sum");
  std::vector<Operand> elements;
  {
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = all_elements(args[0], &elements);
    if (outcome != Outcome::Done) return outcome;
  }
  // Texts are refused, and from 3.12 on floats are added with a compensation: both are sum()'s own business.
  int float_count = n == 2 && PyFloat_CheckExact(args[1].object);
  for (Operand& element : elements) float_count += PyFloat_CheckExact(element.object);
  const bool is_text =
      n == 2 && (PyUnicode_Check(args[1].object) || PyBytes_Check(args[1].object) || PyByteArray_Check(args[1].object));
  if (is_text || (PY_VERSION_HEX >= 0x030C0000 && float_count > 1)) return sum_alone(callable, &elements, args, n, out);
  Operand total = n == 2 ? Operand{Py_NewRef(args[1].object), args[1].id} : Operand{PyLong_FromLong(0), kNoValue};
  if (n == 1) total.id = constant_id(total.object);
  // sum() adds from the left; so do we, one node an addition.
  Outcome outcome = Outcome::Done;
  for (Operand& element : elements) {
    if (outcome == Outcome::Done) {
      Operand next;
      outcome = binary(*top_, 0, total, element, &next);
      if (outcome == Outcome::Stop) outcome = binary(*top_, 0, total, element, &next);  // ended: unrecorded now
      Py_DECREF(total.object);
      total = outcome == Outcome::Done ? next : Operand{};
    }
    Py_DECREF(element.object);
  }
  if (outcome != Outcome::Done) return outcome;
  *out = total;
  return Outcome::Done;
}

MODEL(minmax) {
  Operand fallback, key;
  if (kwnames != nullptr) {
    const int positional = n - static_cast<int>(PyTuple_GET_SIZE(kwnames));
    for (int i = positional; i < n; i++) {
      PyObject* name = PyTuple_GET_ITEM(kwnames, i - positional);
      const bool is_default = PyUnicode_CompareWithASCIIString(name, "default") == 0;
      if (!is_default && PyUnicode_CompareWithASCIIString(name, "key") != 0) return call_opaque(callable);
      (is_default ? fallback : key) = args[i];
    }
    if (positional < 1 || (positional > 1 && fallback.object != nullptr)) return call_opaque(callable);
    n = positional;
    if (key.object == Py_None) key = {};
  }
  if (n > 1 && key.object == nullptr) {
    // One of its arguments, whichever their values say.
    if (std::any_of(args, args + n,
                    [](const Operand& o) { return host::is_tensor(o.object) || is_of_numpy(o.object); }))
      return call_repeated(callable, args, n, nullptr, out);
    return call_pure(callable, args, n, nullptr, out);
  }
  std::vector<Operand> elements;
  if (n > 1) {
    for (int i = 0; i < n; i++) elements.push_back({Py_NewRef(args[i].object), args[i].id});
  } else {
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = all_elements(args[0], &elements);
    if (outcome != Outcome::Done) return outcome;
  }
  if (key.object != nullptr && !elements.empty()) {
    // The first of the least, or of the greatest: a sort keeps the order of equal ones, in reverse too.
    ModeScope mode(*this, ResumeMode::Never);
    std::vector<Operand> sorted;
    const bool is_max = callable_name(callable.object) == "max";
    const Outcome outcome = sort_elements(&elements, key, is_max, &sorted);
    if (outcome != Outcome::Done) return outcome;
    *out = sorted[0];
    for (size_t i = 1; i < sorted.size(); i++) Py_DECREF(sorted[i].object);
    return Outcome::Done;
  }
  if (elements.empty() && fallback.object != nullptr) {
    *out = {Py_NewRef(fallback.object), fallback.id};
    return Outcome::Done;
  }
  if (elements.size() == 1) {
    *out = elements[0];
    return Outcome::Done;
  }
  bool is_plain = active_;
  for (Operand& element : elements)
    is_plain = is_plain && (PyLong_CheckExact(element.object) || PyFloat_CheckExact(element.object) ||
                            PyUnicode_CheckExact(element.object));
  Outcome outcome;
  if (is_plain && elements.size() > 1) {
    outcome = call_pure(callable, elements.data(), static_cast<int>(elements.size()), nullptr, out);
  } else {
    if (active_) lose("min or max of objects");
    PyObject* list = PyList_New(0);
    for (Operand& element : elements) PyList_Append(list, element.object);
    PyObject* result = PyObject_CallOneArg(callable.object, list);
    Py_DECREF(list);
    *out = {result, kNoValue};
    outcome = result != nullptr ? Outcome::Done : Outcome::Raised;
  }
  for (Operand& element : elements) Py_DECREF(element.object);
  return outcome;
}

// key= and reverse= of sorted() and list.sort(). False: another call.
static bool read_sort_keywords(const Operand* args, int n, PyObject* kwnames, Operand* key, Operand* reverse) {
  const Py_ssize_t count = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
  if (n - count != 1) return false;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    if (PyUnicode_CompareWithASCIIString(name, "key") == 0) {
      *key = args[1 + i];
    } else if (PyUnicode_CompareWithASCIIString(name, "reverse") == 0) {
      *reverse = args[1 + i];
      if (!PyBool_Check(reverse->object) && !PyLong_CheckExact(reverse->object)) return false;
    } else {
      return false;
    }
  }
  return true;
}

// The elements in order. Takes them. The keys are computed by calls that are recorded; where one is no constant, or the
// recording has ended, all that follows is live, and the ids are unknown.
Outcome Recorder::sort_elements(std::vector<Operand>* elements, Operand key, bool is_reversed,
                                std::vector<Operand>* sorted) {
  const bool has_key = key.object != nullptr && key.object != Py_None;
  const auto count = static_cast<Py_ssize_t>(elements->size());
  PyObject* keys = PyList_New(0);
  Outcome outcome = Outcome::Done;
  bool is_fixed = active_;
  for (Operand& element : *elements) {
    Operand of_element{Py_NewRef(element.object), element.id};
    if (has_key) {
      Py_CLEAR(of_element.object);
      outcome = call_any(key, &element, 1, nullptr, &of_element);
      if (outcome == Outcome::Stop) {  // others have been computed: this call is not recorded
        of_element = {call_live(key.object, &element, 1, nullptr), kNoValue};
        outcome = of_element.object != nullptr ? Outcome::Done : Outcome::Raised;
      }
      if (outcome != Outcome::Done) break;
    }
    // A key that follows from sizes would fix them.
    is_fixed = is_fixed && active_ && of_element.id >= 0 && !trace_->values[of_element.id].varies &&
               (is_constant(of_element.id) || (is_pre(of_element.id) && make_constant(of_element)) ||
                (is_created(of_element.id) && make_constant(of_element)));
    PyList_Append(keys, of_element.object);
    Py_DECREF(of_element.object);
  }
  if (active_ && outcome == Outcome::Done && !is_fixed) lose("a sort by values that are known late");
  PyObject* order = nullptr;
  if (outcome == Outcome::Done) {
    // By CPython's own sort: the numbers of the elements, by their keys.
    static PyObject* kSort = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyList_Type), "sort");
    static PyObject* kNames = Py_BuildValue("(ss)", "key", "reverse");
    PyObject* numbers = PyList_New(count);
    for (Py_ssize_t i = 0; i < count; i++) PyList_SET_ITEM(numbers, i, PyLong_FromSsize_t(i));
    PyObject* get_key = PyObject_GetAttr(keys, names().getitem);
    PyObject* live_args[3] = {numbers, get_key, is_reversed ? Py_True : Py_False};
    CCall bracket(*this);
    PyObject* done = PyObject_Vectorcall(kSort, live_args, 1, kNames);
    Py_XDECREF(get_key);
    if (done != nullptr) {
      order = numbers;
      Py_DECREF(done);
    } else {
      Py_DECREF(numbers);
      lose("a sort that raised");
      outcome = Outcome::Raised;
    }
  }
  for (Py_ssize_t i = 0; order != nullptr && i < count; i++) {
    const Operand& element = (*elements)[PyLong_AsSsize_t(PyList_GET_ITEM(order, i))];
    sorted->push_back({Py_NewRef(element.object), active_ ? element.id : kNoValue});
  }
  for (Operand& element : *elements) Py_DECREF(element.object);
  Py_DECREF(keys);
  Py_XDECREF(order);
  return outcome;
}

MODEL(sorted) {
  Operand key, reverse;
  if (!read_sort_keywords(args, n, kwnames, &key, &reverse)) return call_opaque(callable);
  if (reverse.object != nullptr && !make_constant(reverse)) return stop("sorted() in an order that is known late");
  const int is_reversed = reverse.object != nullptr ? PyObject_IsTrue(reverse.object) : 0;
  std::vector<Operand> elements, sorted;
  ModeScope mode(*this, ResumeMode::Never);
  Outcome outcome = all_elements(args[0], &elements, true);
  if (outcome != Outcome::Done) return outcome;
  outcome = sort_elements(&elements, key, is_reversed > 0, &sorted);
  if (outcome != Outcome::Done) return outcome;
  PyObject* result = PyList_New(static_cast<Py_ssize_t>(sorted.size()));
  std::vector<ValueId> ids;
  for (size_t i = 0; i < sorted.size(); i++) {
    PyList_SET_ITEM(result, static_cast<Py_ssize_t>(i), sorted[i].object);
    ids.push_back(sorted[i].id);
  }
  *out = new_list(result, ids);
  return Outcome::Done;
}

MODEL(list_sort) {
  Operand key, reverse;
  if (!read_sort_keywords(args, n, kwnames, &key, &reverse)) return call_opaque(callable);
  if (reverse.object != nullptr && !make_constant(reverse)) return stop("list.sort in an order that is known late");
  const int is_reversed = reverse.object != nullptr ? PyObject_IsTrue(reverse.object) : 0;
  std::vector<ValueId> ids;
  if (!PyList_CheckExact(args[0].object) || !element_ids(args[0], &ids))
    return stop("list.sort of a list of unknown contents");
  std::vector<Operand> elements, sorted;
  for (size_t i = 0; i < ids.size(); i++)
    elements.push_back({Py_NewRef(PyList_GET_ITEM(args[0].object, static_cast<Py_ssize_t>(i))), ids[i]});
  Outcome outcome;
  {
    ModeScope mode(*this, ResumeMode::Never);
    outcome = sort_elements(&elements, key, is_reversed > 0, &sorted);
  }
  if (outcome != Outcome::Done) return outcome;
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(sorted.size()));
  ids.clear();
  for (size_t i = 0; i < sorted.size(); i++) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), sorted[i].object);
    ids.push_back(sorted[i].id);
  }
  HeapObject* object = active_ ? list_of(args[0]) : nullptr;
  const Operand made = new_list(list, ids);
  PyObject* whole = PySlice_New(nullptr, nullptr, nullptr);
  if (active_) emit(NodeKind::SetItem, {args[0].id, constant_id(whole), made.id});
  const int status = PyList_SetSlice(args[0].object, 0, PyList_GET_SIZE(args[0].object), list);
  Py_DECREF(whole);
  Py_DECREF(list);
  if (status < 0) return Outcome::Raised;
  if (active_ && object != nullptr) {
    object->elements = std::move(ids);
    note_list_written(args[0].object, object);
    note_effect(object);
  }
  *out = constant(Py_None);
  return Outcome::Done;
}

MODEL(identity_fact) {
  NO_KEYWORDS(1, 1)
  // id() of a singleton is a constant; of anything else it is a number of this run.
  if (is_constant(args[0].id) ||
      (can_be_constant(args[0].object) && !PyLong_Check(args[0].object) && make_constant(args[0]))) {
    PyObject* result = call_live(callable.object, args, n, nullptr);
    if (result == nullptr) return Outcome::Raised;
    *out = new_constant(result);
    return Outcome::Done;
  }
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  ValueId operands[] = {callable.id, args[0].id};
  force_late_ = true;
  ValueId id = emit_typed(NodeKind::Call, operands, result);
  force_late_ = false;
  *out = {result, id};
  return Outcome::Done;
}

MODEL(type_fact) {
  if (kwnames != nullptr || n < 1) return call_opaque(callable);
  for (int i = 0; i < n; i++) {
    if (PyType_Check(args[i].object) ? !know_identity(args[i]) : !know_type(args[i])) return Outcome::Stop;
  }
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  *out = new_constant(result);
  return Outcome::Done;
}

MODEL(vars) {
  if (n != 1 || kwnames != nullptr) return call_opaque(callable);
  return get_attribute(args[0], names().dict, out, nullptr);
}

MODEL(globals) {
  NO_KEYWORDS(0, 0)
  *out = constant(host::get_globals(top_->frame));
  return Outcome::Done;
}

// ---- object, type, tuple, str

MODEL(object_setattr) {
  NO_KEYWORDS(3, 3)
  if (!make_constant(args[1]) || !PyUnicode_Check(args[1].object)) return stop("a name that is known late");
  Outcome outcome = set_attribute(args[0], args[1].object, args[2], false);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

MODEL(object_getattribute) {
  NO_KEYWORDS(2, 2)
  if (!make_constant(args[1]) || !PyUnicode_Check(args[1].object)) return stop("a name that is known late");
  PyObject* name = Py_NewRef(args[1].object);
  PyUnicode_InternInPlace(&name);
  Outcome outcome = get_attribute(args[0], name, out, nullptr, false);
  Py_DECREF(name);
  return outcome;
}

MODEL(object_delattr) {
  NO_KEYWORDS(2, 2)
  if (!make_constant(args[1]) || !PyUnicode_Check(args[1].object)) return stop("a name that is known late");
  PyTypeObject* type = Py_TYPE(args[0].object);
  if (type->tp_setattro != PyObject_GenericSetAttr && !(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return stop("object.__delattr__");
  PyObject* dict;
  if (!know_type(args[0])) return Outcome::Stop;
  HeapObject* object = instance_dict_of(args[0], &dict);
  if (object == nullptr) return stop("object.__delattr__");
  PyObject* name = args[1].object;
  Operand old;
  Outcome outcome = read_dict(dict, object, {name, args[1].id}, &old);
  if (outcome != Outcome::Done) return outcome;
  if (old.object == nullptr) return stop("deletion of a missing attribute");
  emit(NodeKind::DeleteAttribute, {args[0].id}, name);
  if (PyObject_GenericSetAttr(args[0].object, name, nullptr) < 0) {
    lose("an attribute deletion that raised");
    return Outcome::Raised;
  }
  object->items.set(heap_.canonical_key(name), kNoValue);
  note_dict_written(dict, object);
  note_effect(object);
  *out = constant(Py_None);
  return Outcome::Done;
}

MODEL(object_init) {
  *out = constant(Py_None);
  return Outcome::Done;
}

// __init__ in C of an object that the trace made: what it stores is given to it, and nothing reads it but C code.
MODEL(init_in_c) {
  if (n < 1 || kwnames != nullptr || args[0].id < 0 || !is_created(args[0].id)) return call_opaque(callable);
  std::vector<ValueId> operands{args[0].id, callable.id};
  for (int i = 0; i < n; i++) {
    if (args[i].id < 0) return stop("an argument of unknown origin of " + callable_name(callable.object));
    operands.push_back(args[i].id);
  }
  emit(NodeKind::MutatorCall, operands);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  if (HeapObject* object = facts_[args[0].id].heap; active_ && object != nullptr) note_effect(object);
  *out = {result, active_ ? constant_id(result) : kNoValue};
  return Outcome::Done;
}

MODEL(object_new) {
  if (n < 1 || !PyType_Check(args[0].object) || !know_identity(args[0])) return stop("object.__new__");
  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(args[0].object);
  know_type_version(type);
  PyObject* result = call_live(callable.object, args, n, kwnames);
  if (result == nullptr) {
    lose("object.__new__ that raised");
    return Outcome::Raised;
  }
  *out = new_plain_object(result, args[0]);
  return Outcome::Done;
}

MODEL(dict_new) {
  if (n < 1 || !PyType_Check(args[0].object) || !know_identity(args[0])) return stop("dict.__new__");
  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(args[0].object);
  PyObject* empty = PyTuple_New(0);
  PyObject* result = PyDict_Type.tp_new(type, empty, nullptr);  // the class may have a __new__ of its own
  Py_DECREF(empty);
  if (result == nullptr) {
    lose("dict.__new__ that raised");
    return Outcome::Raised;
  }
  *out = new_plain_object(result, args[0]);
  return Outcome::Done;
}

MODEL(tuple_new) {
  NO_KEYWORDS(1, 2)
  if (!PyType_Check(args[0].object) || !know_identity(args[0])) return stop("tuple.__new__");
  std::vector<Operand> elements;
  if (n == 2) {
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = all_elements(args[1], &elements);
    if (outcome != Outcome::Done) return outcome;
  }
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(elements.size()));
  std::vector<ValueId> ids;
  for (size_t i = 0; i < elements.size(); i++) {
    PyTuple_SET_ITEM(tuple, i, elements[i].object);
    ids.push_back(elements[i].id);
  }
  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(args[0].object);
  if (type == &PyTuple_Type) {
    *out = new_tuple(tuple, ids);
    return Outcome::Done;
  }
  static PyObject* maker = PyObject_GetAttr(reinterpret_cast<PyObject*>(&PyTuple_Type), names().new_);
  PyObject* live_args[2] = {args[0].object, tuple};
  PyObject* result = PyObject_Vectorcall(maker, live_args, 2, nullptr);
  Operand plain = new_tuple(tuple, ids);
  if (result == nullptr) {
    Py_DECREF(tuple);
    lose("tuple.__new__ that raised");
    return Outcome::Raised;
  }
  ValueId operands[] = {constant_id(maker), args[0].id, plain.id};
  ValueId id = emit_typed(NodeKind::Object, operands, result, nullptr, 1);
  if (id >= 0) {
    HeapObject* object = new_object(id);
    object->elements = ids;
    object->has_elements = true;
    facts_[id].is_length_known = true;
  }
  Py_DECREF(tuple);
  *out = {result, id};
  return Outcome::Done;
}

MODEL(type_call) {
  if (n < 1 || !PyType_Check(args[0].object)) return call_opaque(callable);
  if (!know_identity(args[0])) return stop("a class that is known late");
  return make_instance(args[0], args + 1, n - 1, kwnames, out);
}

MODEL(str_join) {
  NO_KEYWORDS(2, 2)
  std::vector<Operand> elements;
  {
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = all_elements(args[1], &elements, true);
    if (outcome != Outcome::Done) return outcome;
  }
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(elements.size()));
  std::vector<ValueId> ids;
  bool is_fixed = active_ && is_constant(args[0].id), is_known = true;
  for (size_t i = 0; i < elements.size(); i++) {
    PyTuple_SET_ITEM(tuple, i, elements[i].object);
    ids.push_back(elements[i].id);
    is_fixed = is_fixed && is_constant(elements[i].id);
    is_known = is_known && elements[i].id >= 0;
  }
  if (active_ && !is_known) lose("strings of unknown origin");
  PyObject* live_args[2] = {args[0].object, tuple};
  PyObject* text = PyObject_Vectorcall(callable.object, live_args, 2, nullptr);
  if (text == nullptr) {
    Py_DECREF(tuple);
    if (active_) lose("a join that raised");
    return Outcome::Raised;
  }
  Operand parts = new_tuple(tuple, ids);
  Py_DECREF(tuple);
  if (is_fixed) {
    *out = new_constant(text);
    return Outcome::Done;
  }
  ValueId operands[] = {callable.id, args[0].id, parts.id};
  *out = {text, active_ ? emit_typed(NodeKind::Call, operands, text) : kNoValue};
  return Outcome::Done;
}

MODEL(sequence_search) {
  if (n < 2 || kwnames != nullptr) return call_opaque(callable);
  std::vector<ValueId> ids;
  if (!is_constant(args[0].id)) {
    if (!element_ids(args[0], &ids)) return stop("a search in a sequence of unknown contents");
    for (size_t i = 0; i < ids.size(); i++) {
      PyObject* element = PySequence_Fast_ITEMS(args[0].object)[i];
      if (host::is_tensor(element) || !make_key({element, ids[i]}))
        return stop("a search in a sequence of values that are known late");
    }
  }
  for (int i = 1; i < n; i++) {
    if (!make_key(args[i])) return stop("a search for a value that is known late");
  }
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) {
    lose("a search that found nothing");
    return Outcome::Raised;
  }
  *out = new_constant(result);
  return Outcome::Done;
}

MODEL(getitem) {
  NO_KEYWORDS(2, 2)
  PAST_OVERRIDE(getitem, base_get_item)
  return get_item(*top_, args[0], args[1], out);
}

MODEL(setitem) {
  NO_KEYWORDS(3, 3)
  PAST_OVERRIDE(setitem, base_set_item)
  Outcome outcome = set_item(*top_, args[0], args[1], args[2]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

MODEL(delitem) {
  NO_KEYWORDS(2, 2)
  Outcome outcome = delete_item(*top_, args[0], args[1]);
  if (outcome == Outcome::Done) *out = constant(Py_None);
  return outcome;
}

MODEL(binary_operator) {
  NO_KEYWORDS(2, 2)
  const int op = find_binary_operator(callable.object);
  if (op < 0) return call_opaque(callable);
  return binary(*top_, op, args[0], args[1], out);
}

MODEL(contains) {
  NO_KEYWORDS(2, 2)
  PAST_OVERRIDE(contains, base_contains)
  bool found = false;
  Outcome outcome = contains(*top_, args[0], args[1], &found);
  if (outcome == Outcome::Done) *out = bool_constant(found);
  return outcome;
}

MODEL(reduce) {
  NO_KEYWORDS(2, 3)
  std::vector<Operand> elements;
  ModeScope mode(*this, ResumeMode::Never);
  Outcome outcome = all_elements(args[1], &elements);
  if (outcome != Outcome::Done) return outcome;
  size_t next = 0;
  Operand total;
  if (n == 3)
    total = {Py_NewRef(args[2].object), args[2].id};
  else if (!elements.empty())
    total = elements[next++];
  if (total.object == nullptr) return stop("reduce() of an empty sequence");
  for (; next < elements.size(); next++) {
    if (outcome == Outcome::Done) {
      Operand pair[2] = {total, elements[next]};
      Operand result;
      outcome = call_any(args[0], pair, 2, nullptr, &result);
      if (outcome == Outcome::Stop) outcome = call_any(args[0], pair, 2, nullptr, &result);  // ended: unrecorded now
      Py_DECREF(total.object);
      total = outcome == Outcome::Done ? result : Operand{};
    }
    Py_DECREF(elements[next].object);
  }
  if (outcome != Outcome::Done) return outcome;
  *out = total;
  return Outcome::Done;
}

// ---- context variables

MODEL(context_get) {
  if (n < 1 || kwnames != nullptr) return call_opaque(callable);
  if (!know_identity(args[0])) return stop("a context variable that is known late");
  HeapObject* variable = heap_of(args[0]);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) {
    lose("a context variable without a value");
    return Outcome::Raised;
  }
  if (variable != nullptr && variable->contents >= 0) {
    *out = {result, variable->contents};
    return Outcome::Done;
  }
  std::vector<ValueId> operands{callable.id};
  for (int i = 0; i < n; i++) operands.push_back(args[i].id);
  force_late_ = variable == nullptr || variable->is_dirty || had_callbacks_;
  ValueId id = emit(NodeKind::Call, operands);
  force_late_ = false;
  if (id >= 0) facts_[id].is_present = true;
  *out = {result, id};
  return Outcome::Done;
}

MODEL(context_set) {
  NO_KEYWORDS(2, 2)
  if (!know_identity(args[0])) return stop("a context variable that is known late");
  HeapObject* variable = heap_of(args[0]);
  if (variable == nullptr) return Outcome::Stop;
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  ValueId operands[] = {callable.id, args[0].id, args[1].id};
  ValueId id = emit_typed(NodeKind::StateCall, operands, result);
  if (id >= 0) {
    HeapObject* token = new_object(id);
    token->is_token = true;
    token->contents = variable->contents;
    variable->contents = args[1].id;
  }
  *out = {result, id};
  return Outcome::Done;
}

MODEL(context_reset) {
  NO_KEYWORDS(2, 2)
  HeapObject* token = facts_[args[1].id].heap;
  const bool is_made = token != nullptr && token->is_token;
  if (!is_made && !know_type(args[1])) return stop("a context token of unknown origin");
  if (!know_identity(args[0])) return stop("a context variable that is known late");
  HeapObject* variable = heap_of(args[0]);
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  ValueId operands[] = {callable.id, args[0].id, args[1].id};
  emit(NodeKind::StateCall, operands);
  if (variable != nullptr && is_made) {
    variable->contents = token->contents;
  } else if (variable != nullptr) {  // it has what it had before the recording: unknown, and not what it had at entry
    variable->contents = kUnknownContents;
    variable->is_dirty = true;
  }
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

MODEL(context_copy) {
  NO_KEYWORDS(0, 0)
  PyObject* result = call_live(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  ValueId operands[] = {callable.id};
  force_late_ = true;
  ValueId id = emit_typed(NodeKind::Call, operands, result);
  force_late_ = false;
  if (id >= 0) new_object(id);
  *out = {result, id};
  return Outcome::Done;
}

// function.__get__(object, type=None)
MODEL(function_get) {
  NO_KEYWORDS(2, 3)
  if (!PyFunction_Check(args[0].object) || args[1].object == Py_None) return call_opaque(callable);
  if (!is_created(args[1].id) && !know_type(args[1])) return Outcome::Stop;
  *out = new_method(args[0].object, args[0].id, args[1]);
  return out->object != nullptr ? Outcome::Done : Outcome::Raised;
}

}  // namespace reprise::capture
