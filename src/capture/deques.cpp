// collections.deque, as far as the trace made it: its elements have ids as those of a list.
#include <algorithm>

#include "capture/models_impl.h"
#include "capture/recorder.h"
#include "capture/type_names.h"

namespace reprise::capture {

namespace {

/// maxlen, or -1
Py_ssize_t limit_of(PyObject* deque) {
  PyObject* limit = PyObject_GetAttrString(deque, "maxlen");
  const Py_ssize_t result = limit == nullptr || limit == Py_None ? -1 : PyLong_AsSsize_t(limit);
  Py_XDECREF(limit);
  return result;
}

}  // namespace

// nullptr: another object, or one that unrecorded Python has written.
HeapObject* Recorder::deque_of(Operand o) {
  HeapObject* object = o.id >= 0 ? facts_[o.id].heap : nullptr;
  if (object == nullptr || !object->is_deque) return nullptr;
  PyObject* list = PySequence_List(o.object);
  bool is_same = list != nullptr && PyList_GET_SIZE(list) == static_cast<Py_ssize_t>(object->witnesses.size());
  for (Py_ssize_t i = 0; is_same && i < PyList_GET_SIZE(list); i++) {
    is_same = object->witnesses[i] == PyList_GET_ITEM(list, i);
  }
  Py_XDECREF(list);
  return is_same ? object : nullptr;
}

void Recorder::note_deque_written(PyObject* deque, HeapObject* object) {
  PyObject* list = PySequence_List(deque);
  object->witnesses.clear();
  for (Py_ssize_t i = 0; list != nullptr && i < PyList_GET_SIZE(list); i++) {
    object->witnesses.push_back(PyList_GET_ITEM(list, i));
  }
  Py_XDECREF(list);
}

// deque(iterable=(), maxlen=None)
Outcome Recorder::make_deque(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  const int positional = n - static_cast<int>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  Operand limit{Py_None, constant_id(Py_None)};
  if (n > positional) {
    const bool is_limit =
        n == positional + 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "maxlen") == 0;
    if (!is_limit || positional > 1) return call_opaque(type);
    limit = args[positional];
  } else if (positional == 2) {
    limit = args[1];
  }
  if (!make_constant(limit)) return stop("a deque of a length that is known late");
  std::vector<Operand> elements;
  if (positional > 0) {
    ModeScope mode(*this, ResumeMode::Never);
    const Outcome outcome = all_elements(args[0], &elements);
    if (outcome != Outcome::Done) return outcome;
  }
  const Operand source = new_tuple_of(elements);
  PyObject* result = PyObject_CallFunctionObjArgs(type.object, source.object, limit.object, nullptr);
  Py_DECREF(source.object);
  if (result == nullptr) {
    lose("a deque that could not be made");
    return Outcome::Raised;
  }
  const ValueId operands[] = {type.id, source.id, limit.id};
  const ValueId id = emit_typed(NodeKind::Object, operands, result, nullptr, 1);
  if (id >= 0) {
    HeapObject* object = new_object(id);
    const Py_ssize_t size = PyObject_Length(result);
    for (auto element = elements.end() - size; element != elements.end(); ++element) {
      object->elements.push_back(element->id);
    }
    object->is_deque = true;
    note_deque_written(result, object);
  }
  *out = {result, id};
  return Outcome::Done;
}

// The methods that change one.
MODEL(deque) {
  NO_KEYWORDS(1, 2)
  HeapObject* object = deque_of(args[0]);
  if (object == nullptr) return call_opaque(callable);
  const std::string name = callable_name(callable.object);
  const auto is = [&](const char* method) { return name.ends_with(method); };
  const bool is_left = is("left");
  std::vector<ValueId> ids;
  std::vector<Operand> taken;
  Operand argument = n == 2 ? args[1] : Operand{};
  PyObject* tuple = nullptr;
  if (is(".extend") || is(".extendleft")) {
    if (n != 2 || args[1].object == args[0].object) return call_opaque(callable);
    ModeScope mode(*this, ResumeMode::Never);
    const Outcome outcome = all_elements(args[1], &taken);
    if (outcome != Outcome::Done) return outcome;
    for (const Operand& element : taken) ids.push_back(element.id);
    argument = new_tuple_of(taken);
    tuple = argument.object;
  } else if (is(".append") || is(".appendleft")) {
    if (n != 2) return call_opaque(callable);
    ids.push_back(argument.id);
  } else if (is(".pop") || is(".popleft")) {
    if (n != 1 || object->elements.empty()) return stop("an element of an empty deque");
  } else if (n == 2 && !make_constant(argument)) {
    return stop("a deque turned by a number that is known late");
  }
  std::vector<ValueId> operands{args[0].id, callable.id, args[0].id};
  if (argument.object != nullptr) operands.push_back(argument.id);
  emit(NodeKind::MutatorCall, operands);
  const Operand live_args[2] = {args[0], argument};
  PyObject* result = call_live(callable.object, live_args, argument.object != nullptr ? 2 : 1, nullptr);
  Py_XDECREF(tuple);
  if (result == nullptr) {
    lose("a call of " + name + " that raised");
    return Outcome::Raised;
  }
  *out = {result, kNoValue};
  if (!active_) return Outcome::Done;
  std::vector<ValueId>& elements = object->elements;
  if (is(".pop") || is(".popleft")) {
    const auto at = is_left ? elements.begin() : elements.end() - 1;
    out->id = *at;
    elements.erase(at);
  } else {
    out->id = constant_id(Py_None);
    const Py_ssize_t limit = limit_of(args[0].object);
    for (const ValueId id : ids) {
      elements.insert(is_left ? elements.begin() : elements.end(), id);
      if (limit >= 0 && static_cast<Py_ssize_t>(elements.size()) > limit) {
        elements.erase(is_left ? elements.end() - 1 : elements.begin());
      }
    }
    if (is(".clear")) elements.clear();
    if (is(".reverse")) std::reverse(elements.begin(), elements.end());
    if (is(".rotate") && !elements.empty()) {
      const auto size = static_cast<Py_ssize_t>(elements.size());
      Py_ssize_t by = n == 2 ? PyLong_AsSsize_t(args[1].object) % size : 1 % size;
      if (by < 0) by += size;
      std::rotate(elements.begin(), elements.end() - by, elements.end());
    }
  }
  note_deque_written(args[0].object, object);
  facts_[args[0].id].is_length_known = facts_[args[0].id].is_truth_known = false;
  note_effect(object);
  return Outcome::Done;
}

}  // namespace reprise::capture
