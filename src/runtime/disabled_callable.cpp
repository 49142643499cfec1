#include "runtime/disabled_callable.h"

#include "runtime/hook.h"
#include "runtime/wrapped_callable.h"

namespace reprise::runtime {
namespace {

PyTypeObject disabled_function_type = {};

WrappedCallable* cast(PyObject* object) { return reinterpret_cast<WrappedCallable*>(object); }

PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* original = cast(object)->original;
  if (original == nullptr) {
    PyErr_SetString(PyExc_ReferenceError, "the disabled callable has been freed");
    return nullptr;
  }
  enter_disabled();
  PyObject* result = PyObject_Vectorcall(original, args, nargsf, kwnames);
  leave_disabled();
  return result;
}

int traverse(PyObject* object, visitproc visit, void* arg) { return traverse_wrapped(cast(object), visit, arg); }

int clear(PyObject* object) {
  clear_wrapped(cast(object));
  return 0;
}

void deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (cast(object)->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  clear(object);
  PyObject_GC_Del(object);
}

}  // namespace

int add_disabled_type(PyObject* module) {
  if (disabled_function_type.tp_name == nullptr) {
    disabled_function_type.tp_name = "reprise._C.DisabledFunction";
    disabled_function_type.tp_basicsize = sizeof(WrappedCallable);
    disabled_function_type.tp_dealloc = deallocate;
    disabled_function_type.tp_traverse = traverse;
    disabled_function_type.tp_clear = clear;
    if (ready_wrapped_type(&disabled_function_type) < 0) return -1;
  }
  return PyModule_AddObjectRef(module, "DisabledFunction", reinterpret_cast<PyObject*>(&disabled_function_type));
}

PyObject* make_disabled(PyObject* callable) {
  auto* self = PyObject_GC_New(WrappedCallable, &disabled_function_type);
  if (self == nullptr) return nullptr;
  auto* object = reinterpret_cast<PyObject*>(self);
  self->vectorcall = call;
  self->original = Py_NewRef(callable);
  self->settings = nullptr;
  self->weak_references = nullptr;
  PyObject_GC_Track(object);
  return object;
}

bool is_disabled_callable(PyObject* object) { return Py_IS_TYPE(object, &disabled_function_type); }

}  // namespace reprise::runtime
