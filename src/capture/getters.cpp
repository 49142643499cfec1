// Calls of operator.itemgetter, attrgetter and methodcaller: what they stand for is done as the program would do it.
#include <cstring>
#include <string>

#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_names.h"

namespace reprise::capture {

// Its items, names or method are those that its `__reduce__` gives. They are known where the object is (it can't be
// changed), or where the trace made it of constants.
Outcome Recorder::call_getter(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  PyObject* f = callable.object;
  const char* type = Py_TYPE(f)->tp_name;
  const bool is_item = strcmp(type, "operator.itemgetter") == 0,
             is_attribute = strcmp(type, "operator.attrgetter") == 0;
  const bool is_method = strcmp(type, "operator.methodcaller") == 0;
  if ((!is_item && !is_attribute && !is_method) || n != 1 || kwnames != nullptr) return call_opaque(callable);
  bool is_known = is_constant(callable.id);
  if (!is_known && trace_->values[callable.id].kind == NodeKind::Object) {
    is_known = true;
    for (const ValueId operand : trace_->operands(callable.id)) is_known = is_known && is_constant(operand);
  }
  if (!is_known && !know_identity(callable)) return stop("a getter that is known late");
  PyObject* parts = PyObject_CallMethod(f, "__reduce__", nullptr);
  PyObject* what =
      parts != nullptr && PyTuple_Check(parts) && PyTuple_GET_SIZE(parts) == 2 ? PyTuple_GET_ITEM(parts, 1) : nullptr;
  const bool is_usual = what != nullptr && PyTuple_CheckExact(what) && PyTuple_GET_SIZE(what) > 0 &&
                        PyTuple_GET_ITEM(parts, 0) == reinterpret_cast<PyObject*>(Py_TYPE(f));
  PyErr_Clear();
  if (!is_usual) {  // keywords of a method
    Py_XDECREF(parts);
    return call_opaque(callable);
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(what);
  auto get_path = [&](PyObject* path, Operand* value) {
    *value = {Py_NewRef(args[0].object), args[0].id};
    PyObject* names_list = PyObject_CallMethod(path, "split", "s", ".");
    Outcome outcome = names_list != nullptr ? Outcome::Done : Outcome::Raised;
    for (Py_ssize_t i = 0; outcome == Outcome::Done && i < PyList_GET_SIZE(names_list); i++) {
      PyObject* name = Py_NewRef(PyList_GET_ITEM(names_list, i));
      PyUnicode_InternInPlace(&name);
      Operand next;
      outcome = active_ ? get_attribute(*value, name, &next, nullptr) : Outcome::Stop;
      if (outcome == Outcome::Stop && i > 0) {  // what came before has run
        next = {PyObject_GetAttr(value->object, name), kNoValue};
        outcome = next.object != nullptr ? Outcome::Done : Outcome::Raised;
      }
      Py_DECREF(name);
      Py_DECREF(value->object);
      *value = next;
    }
    Py_XDECREF(names_list);
    return outcome;
  };
  Outcome outcome = Outcome::Done;
  if (is_method) {
    PyObject* name = Py_NewRef(PyTuple_GET_ITEM(what, 0));
    PyUnicode_InternInPlace(&name);
    Operand method;
    ModeScope mode(*this, ResumeMode::Never);
    outcome = get_attribute(args[0], name, &method, nullptr);
    Py_DECREF(name);
    if (outcome == Outcome::Done) {
      std::vector<Operand> all;
      for (Py_ssize_t i = 1; i < count; i++) {
        all.push_back({PyTuple_GET_ITEM(what, i), active_ ? constant_id(PyTuple_GET_ITEM(what, i)) : kNoValue});
      }
      outcome = active_ ? call_any(method, all.data(), static_cast<int>(all.size()), nullptr, out) : Outcome::Stop;
      if (outcome == Outcome::Stop) {
        *out = {call_live(method.object, all.data(), static_cast<int>(all.size()), nullptr), kNoValue};
        outcome = out->object != nullptr ? Outcome::Done : Outcome::Raised;
      }
      Py_DECREF(method.object);
    }
    Py_DECREF(parts);
    return outcome;
  }
  if (count == 1 && is_item) {
    PyObject* key = PyTuple_GET_ITEM(what, 0);
    outcome = get_item(*top_, args[0], {key, constant_id(key)}, out);
    Py_DECREF(parts);
    return outcome;
  }
  ModeScope mode(*this, ResumeMode::Never);
  if (count == 1) {
    outcome = get_path(PyTuple_GET_ITEM(what, 0), out);
    Py_DECREF(parts);
    return outcome;
  }
  std::vector<ValueId> ids;
  PyObject* result = PyTuple_New(count);
  for (Py_ssize_t i = 0; i < count && outcome == Outcome::Done; i++) {
    PyObject* one = PyTuple_GET_ITEM(what, i);
    Operand value;
    if (!active_) {
      outcome = Outcome::Stop;
    } else {
      outcome = is_item ? get_item(*top_, args[0], {one, constant_id(one)}, &value) : get_path(one, &value);
    }
    if (outcome == Outcome::Stop && i > 0) {  // those in front of it have been read
      PyObject* const single = PyObject_CallOneArg(PyTuple_GET_ITEM(parts, 0), one);
      value = {single != nullptr ? PyObject_CallOneArg(single, args[0].object) : nullptr, kNoValue};
      Py_XDECREF(single);
      outcome = value.object != nullptr ? Outcome::Done : Outcome::Raised;
    }
    if (outcome == Outcome::Done) PyTuple_SET_ITEM(result, i, value.object);
    ids.push_back(value.id);
  }
  Py_DECREF(parts);
  if (outcome != Outcome::Done) {
    Py_DECREF(result);
    return outcome;
  }
  *out = new_tuple(result, ids);
  return Outcome::Done;
}

}  // namespace reprise::capture
