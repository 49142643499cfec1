// Methods of list, tuple, dict and set that are called past an override: super().__getitem__(i), list.__len__(self).
// The C method itself runs, never the operator, which would call the override again. What it gives follows from the
// contents that the heap model knows; where that is not enough the recording ends in front of the call.
#include <cstring>

#include "capture/models_impl.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "host/cpython/class_lookup.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

bool is_overridden(PyObject* object, PyObject* name) {
  PyObject* method = host::find_in_class(Py_TYPE(object), name);
  return method != nullptr && !Py_IS_TYPE(method, &PyWrapperDescr_Type) && !Py_IS_TYPE(method, &PyMethodDescr_Type);
}

bool passes_override(PyObject* callable, PyObject* self, PyObject* name) {
  const bool is_method = Py_IS_TYPE(callable, &PyWrapperDescr_Type) || Py_IS_TYPE(callable, &PyMethodDescr_Type);
  return is_method && is_overridden(self, name);
}

Outcome Recorder::call_unrecorded(Operand callable, const Operand* args, int n, Operand* out) {
  PyObject* result = call_live(callable.object, args, n, nullptr);
  *out = {result, kNoValue};
  return result != nullptr ? Outcome::Done : Outcome::Raised;
}

Outcome Recorder::base_length(Operand callable, const Operand* args, Operand* out) {
  if (!active_) return call_unrecorded(callable, args, 1, out);
  PyObject* o = args[0].object;
  std::vector<Operand> keys;
  std::vector<ValueId> ids;
  const bool is_sequence = PyTuple_Check(o) || PyList_Check(o);
  const bool is_known =
      is_sequence ? element_ids(args[0], &ids) : PyDict_Check(o) && dict_ids(args[0], &keys, &ids, false);
  if (!is_known) return stop("the length of a container of unknown contents, past an override");
  PyObject* result = call_live(callable.object, args, 1, nullptr);
  if (result == nullptr) return Outcome::Raised;
  *out = new_constant(result);
  return Outcome::Done;
}

Outcome Recorder::base_get_item(Operand callable, const Operand* args, Operand* out) {
  if (!active_) return call_unrecorded(callable, args, 2, out);
  PyObject* o = args[0].object;
  const bool is_sequence = PyTuple_Check(o) || PyList_Check(o);
  if (is_sequence && PySlice_Check(args[1].object)) return get_slice(args[0], args[1], out);
  if (!is_sequence || !PyIndex_Check(args[1].object) || !make_constant(args[1]))
    return stop("an item of a container of unknown contents, past an override");
  return get_element(args[0], args[1], out);
}

Outcome Recorder::base_set_item(Operand callable, const Operand* args, Operand* out) {
  if (!active_) return call_unrecorded(callable, args, 3, out);
  const bool is_known = PyList_Check(args[0].object) && PyLong_CheckExact(args[1].object) && make_constant(args[1]);
  HeapObject* list = is_known ? list_of(args[0]) : nullptr;
  if (list == nullptr || args[2].id < 0) return stop("an item store into a list of unknown contents, past an override");
  Py_ssize_t i = PyLong_AsSsize_t(args[1].object);
  const auto size = static_cast<Py_ssize_t>(list->elements.size());
  if (i < 0) i += size;
  if (i < 0 || i >= size) return stop("an item store out of range");
  emit(NodeKind::MutatorCall, {args[0].id, callable.id, args[0].id, args[1].id, args[2].id});
  const Outcome outcome = call_unrecorded(callable, args, 3, out);
  if (outcome != Outcome::Done || !active_) return outcome;
  list->elements[i] = args[2].id;
  note_list_written(args[0].object, list);
  note_effect(list);
  out->id = constant_id(out->object);
  return Outcome::Done;
}

Outcome Recorder::base_contains(Operand callable, const Operand* args, Operand* out) {
  if (!active_) return call_unrecorded(callable, args, 2, out);
  PyObject* o = args[0].object;
  if (PyTuple_Check(o) || PyList_Check(o)) return model_sequence_search(callable, args, 2, nullptr, out);
  HeapObject* object = args[0].id >= 0 ? heap_of(args[0]) : nullptr;
  if (object == nullptr) return stop("containment in a container of unknown origin");
  if (PyDict_Check(o)) {
    if (!is_constant(args[0].id) && !know_type(args[0])) return Outcome::Stop;
    if (!host::is_tensor(args[1].object) && !make_key(args[1])) return stop("a dict key that is known late");
    Operand value;
    const Outcome outcome = read_dict(o, object, args[1], &value);
    if (outcome == Outcome::Done) *out = bool_constant(value.object != nullptr);
    return outcome;
  }
  if (!object->is_created || object->is_dirty || host::is_tensor(args[1].object) || !make_key(args[1]))
    return stop("containment in a set of unknown contents, past an override");
  const Outcome outcome = call_unrecorded(callable, args, 2, out);
  if (outcome != Outcome::Done) {
    lose("a containment test that raised");
    return outcome;
  }
  if (active_) *out = new_constant(out->object);
  return Outcome::Done;
}

}  // namespace reprise::capture
