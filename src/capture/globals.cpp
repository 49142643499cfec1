// Names of modules: the model of LOAD_GLOBAL, STORE_GLOBAL, DELETE_GLOBAL, IMPORT_NAME and IMPORT_FROM.
#include <string_view>

#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"

namespace reprise::capture {

Outcome Recorder::load_global(Act& act, PyObject* name, Operand* out) {
  PyObject* globals = host::get_globals(act.frame);
  PyObject* builtins = host::get_builtins(act.frame);
  if (!active_ || !PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) return stop("globals that are no dict");
  Operand value;
  for (PyObject* dict : {globals, builtins}) {
    HeapObject* object = heap_of({dict, constant_id(dict)});
    if (object == nullptr) return Outcome::Stop;
    Outcome outcome = read_dict(dict, object, {name, kNoValue}, &value);
    if (outcome != Outcome::Done) return outcome;
    if (value.object != nullptr) {
      *out = {Py_NewRef(value.object), value.id};
      return Outcome::Done;
    }
  }
  return stop("a name that is not defined");
}

Outcome Recorder::store_global(Act& act, PyObject* name, Operand v) {
  PyObject* globals = host::get_globals(act.frame);
  return write_dict({globals, constant_id(globals)}, {name, constant_id(name)}, v);
}

Outcome Recorder::delete_global(Act& act, PyObject* name) {
  PyObject* globals = host::get_globals(act.frame);
  return remove_from_dict({globals, constant_id(globals)}, {name, constant_id(name)});
}

Outcome Recorder::import_name(Act& act, PyObject* name, Operand fromlist, Operand level, Operand* out) {
  if (!active_) return Outcome::Stop;
  // An import statement of a module that is loaded gives that module as long as it is loaded.
  int live_level = PyLong_AsLong(level.object);
  CCall bracket(*this);
  PyObject* module =
      PyImport_ImportModuleLevelObject(name, host::get_globals(act.frame), Py_None, fromlist.object, live_level);
  if (module == nullptr) {
    lose("an import that raised");
    return Outcome::Raised;
  }
  if (bracket.saw_callback()) {
    forget_after_callback();
  } else if (!know_module(name, fromlist.object, live_level, module)) {
    Py_DECREF(module);
    return Outcome::Stop;
  }
  *out = new_constant(module);
  return Outcome::Done;
}

// Another module may take its place in sys.modules.
bool Recorder::know_module(PyObject* name, PyObject* fromlist, int level, PyObject* module) {
  PyObject* key = nullptr;
  if (level != 0) {
    key = PyModule_Check(module) ? PyModule_GetNameObject(module) : nullptr;
  } else {
    const Py_ssize_t size = PyUnicode_GET_LENGTH(name);
    const bool is_whole = fromlist != Py_None && PyObject_IsTrue(fromlist) > 0;
    const Py_ssize_t dot = is_whole ? -1 : PyUnicode_FindChar(name, '.', 0, size, 1);
    key = dot > 0 ? PyUnicode_Substring(name, 0, dot) : Py_NewRef(name);
  }
  PyErr_Clear();
  if (key == nullptr) return true;
  PyUnicode_InternInPlace(&key);
  PyObject* modules = PyImport_GetModuleDict();
  bool ok = true;
  if (PyDict_CheckExact(modules) && PyDict_GetItemWithError(modules, key) == module) {
    const Operand dict{modules, constant_id(modules)};
    HeapObject* object = heap_of(dict);
    Operand read;
    if (object != nullptr) refresh_dict(modules, object);
    // Where a module has been loaded in this trace, the fact would be a late one: not worth an exit.
    const bool is_read = object == nullptr || !object->is_dirty;
    ok =
        !is_read || (object != nullptr && read_dict(modules, object, {key, constant_id(key)}, &read) == Outcome::Done &&
                     know_identity(read));
  }
  Py_DECREF(key);
  return ok;
}

Outcome Recorder::import_from(Act&, Operand module, PyObject* name, Operand* out) {
  if (!active_ || !PyModule_Check(module.object)) return stop("an import from something that is no module");
  // What is not there may be a submodule, or an ImportError with the names in it: CPython's own.
  PyObject* dict = PyModule_GetDict(module.object);
  if (PyModule_CheckExact(module.object) && PyDict_GetItemWithError(dict, name) == nullptr &&
      PyDict_GetItemWithError(dict, names().getattr) == nullptr) {
    PyErr_Clear();
    return stop("an import of a name that is not there");
  }
  const Outcome outcome = get_attribute(module, name, out, nullptr);
  if (outcome != Outcome::Raised || !PyErr_ExceptionMatches(PyExc_AttributeError)) return outcome;
  lose("an import of a name that is not there");
  PyErr_Clear();
  exception_is_recorded_ = false;
  PyObject* package = PyModule_GetNameObject(module.object);
  PyObject* path = PyModule_GetFilenameObject(module.object);
  PyErr_Clear();
  PyObject* message = PyUnicode_FromFormat("cannot import name %R from %R (%S)", name, package, path);
  PyErr_SetImportError(message, package, path);
  Py_XDECREF(message);
  Py_XDECREF(package);
  Py_XDECREF(path);
  return Outcome::Raised;
}

}  // namespace reprise::capture
