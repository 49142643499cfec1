// warnings.warn: which frame it is about is known, so it is given again for that place.
#include <cstring>
#include <string_view>

#include "capture/models_impl.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_names.h"

namespace reprise::capture {

namespace {

PyObject* registry_name() {
  static PyObject* const kName = PyUnicode_InternFromString("__warningregistry__");
  return kName;
}

// (message, category, file, line, globals of the frame), as warnings.warn goes on once it has found the frame.
PyObject* warn_at(PyObject*, PyObject* const* args, Py_ssize_t) {
  PyObject* registry = PyDict_GetItemWithError(args[4], registry_name());
  if (registry == nullptr && PyErr_Occurred()) return nullptr;
  Py_XINCREF(registry);
  if (registry == nullptr) {
    registry = PyDict_New();
    if (registry == nullptr || PyDict_SetItem(args[4], registry_name(), registry) < 0) {
      Py_XDECREF(registry);
      return nullptr;
    }
  }
  PyObject* module = PyDict_GetItemString(args[4], "__name__");
  const bool is_named = module != nullptr && (module == Py_None || PyUnicode_Check(module));
  module = is_named ? Py_NewRef(module) : PyUnicode_FromString("<string>");
  const int line = static_cast<int>(PyLong_AsLong(args[3]));
  const int status = PyErr_WarnExplicitObject(args[1], args[0], args[2], line, module, registry);
  Py_XDECREF(module);
  Py_DECREF(registry);
  if (status < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* warn_at_function() {
  static PyMethodDef kMethod = {"warn_at", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(warn_at)),
                                METH_FASTCALL, nullptr};
  static PyObject* const kFunction = PyCFunction_New(&kMethod, nullptr);
  return kFunction;
}

bool is_of_importlib(PyCodeObject* code) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  return file == nullptr || (std::strstr(file, "importlib") != nullptr && std::strstr(file, "_bootstrap") != nullptr);
}

}  // namespace

// warn(message, category=None, stacklevel=1, source=None)
MODEL(warn) {
  static constexpr std::string_view kNames[] = {"message", "category", "stacklevel", "source"};
  const int positional = n - static_cast<int>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  Operand given[4];
  for (int i = 0; i < n; i++) {
    int place = i;
    if (i >= positional) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i - positional));
      for (place = 0; place < 4 && (name == nullptr || kNames[place] != name); place++) {
      }
    }
    if (place >= 4) return call_opaque(callable);
    given[place] = args[i];
  }
  const Operand message = given[0], category = given[1], level = given[2], source = given[3];
  const bool has_category = category.object != nullptr && category.object != Py_None;
  if (message.object == nullptr || !PyUnicode_CheckExact(message.object)) return call_opaque(callable);
  if (source.object != nullptr && source.object != Py_None) return call_opaque(callable);
  for (Operand o : {category, level, source}) {
    if (o.object != nullptr && !make_constant(o)) return call_opaque(callable);
  }
  PyObject* kind = has_category ? category.object : PyExc_UserWarning;
  if (!PyType_Check(kind) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(kind), reinterpret_cast<PyTypeObject*>(PyExc_Warning))) {
    return call_opaque(callable);
  }
  long steps = 1;
  if (level.object != nullptr) {
    if (!PyLong_CheckExact(level.object)) return call_opaque(callable);
    steps = PyLong_AsLong(level.object);
    PyErr_Clear();
  }
  // The frame must be one of the trace's; above them it is another one in each call.
  Act* act = top_;
  for (long i = steps; i > 1 && act != nullptr; i--) act = act->is_root ? nullptr : static_cast<Act*>(act->caller);
  for (Act* inner = top_; steps >= 1 && inner != nullptr; inner = static_cast<Act*>(inner->caller)) {
    if (is_of_importlib(inner->code)) return call_opaque(callable);
    if (inner == act || inner->is_root) break;
  }
  if (steps < 1 || act == nullptr || act->instruction == nullptr || act->generator != nullptr) {
    return call_opaque(callable);
  }
  if (!know_type(message)) return Outcome::Stop;
  PyObject* globals = host::get_globals(act->frame);
  HeapObject* names = PyDict_CheckExact(globals) ? heap_of({globals, constant_id(globals)}) : nullptr;
  if (names == nullptr) return call_opaque(callable);
  if (PyDict_GetItemWithError(globals, registry_name()) == nullptr) {  // as warn would do it
    PyObject* registry = PyDict_New();
    const bool ok = registry != nullptr && PyDict_SetItem(globals, registry_name(), registry) == 0;
    Py_XDECREF(registry);
    if (!ok) return Outcome::Raised;
    names->items.clear();
    facts_[names->id].are_keys_known = facts_[names->id].is_length_known = false;
    note_dict_written(globals, names);
  }
  PyObject* result = call_live_c(callable.object, args, n, kwnames);
  const bool saw_callback = last_call_ran_python_;
  if (result == nullptr) {
    lose("a warning that raised");
    return Outcome::Raised;
  }
  PyObject* line = PyLong_FromLong(PyCode_Addr2Line(act->code, act->instruction->op_unit * 2));
  const ValueId operands[] = {constant_id(warn_at_function()),     message.id,        constant_id(kind),
                              constant_id(act->code->co_filename), constant_id(line), constant_id(globals)};
  Py_XDECREF(line);
  const ValueId id = emit(NodeKind::SyncCall, operands);
  if (id >= 0) note_effect_node(NodeKind::SyncCall, id);
  if (saw_callback) forget_after_callback();
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

}  // namespace reprise::capture
