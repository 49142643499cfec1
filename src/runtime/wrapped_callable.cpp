#include "runtime/wrapped_callable.h"

#include <cstddef>
#include <cstring>

namespace reprise::runtime {
namespace {

WrappedCallable* cast(PyObject* self) { return reinterpret_cast<WrappedCallable*>(self); }

// After tp_clear there is no original left to ask.
PyObject* get_original(PyObject* self) {
  PyObject* original = cast(self)->original;
  if (original == nullptr) PyErr_SetString(PyExc_ReferenceError, "the compiled callable has been freed");
  return original;
}

PyObject* get_attribute(PyObject* self, PyObject* name) {
  PyObject* own = PyObject_GenericGetAttr(self, name);
  if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  PyObject* original = get_original(self);
  return original == nullptr ? nullptr : PyObject_GetAttr(original, name);
}

int set_attribute(PyObject* self, PyObject* name, PyObject* value) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(self), name);
  if (descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr) {
    return PyObject_GenericSetAttr(self, name, value);
  }
  PyObject* original = get_original(self);
  return original == nullptr ? -1 : PyObject_SetAttr(original, name, value);
}

PyObject* bind_as_method(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

PyObject* represent(PyObject* self) {
  return PyUnicode_FromFormat("<%s of %R>", strrchr(Py_TYPE(self)->tp_name, '.') + 1, cast(self)->original);
}

PyObject* get_wrapped(PyObject* self, void*) { return Py_XNewRef(get_original(self)); }

PyObject* get_settings(PyObject* self, void*) {
  PyObject* settings = cast(self)->settings;
  return settings == nullptr ? PyDict_New() : PyDict_Copy(settings);
}

PyObject* get_doc(PyObject* self, void*) {
  PyObject* original = get_original(self);
  return original == nullptr ? nullptr : PyObject_GetAttrString(original, "__doc__");
}

int set_doc(PyObject* self, PyObject* value, void*) {
  PyObject* original = get_original(self);
  return original == nullptr ? -1 : PyObject_SetAttrString(original, "__doc__", value == nullptr ? Py_None : value);
}

// reprise._callables.<name>(self, *arguments)
PyObject* call_python_half(const char* name, PyObject* self, PyObject* argument) {
  PyObject* module = PyImport_ImportModule("reprise._callables");
  if (module == nullptr) return nullptr;
  PyObject* function = PyObject_GetAttrString(module, name);
  Py_DECREF(module);
  if (function == nullptr) return nullptr;
  PyObject* result = PyObject_CallFunctionObjArgs(function, self, argument, nullptr);
  Py_DECREF(function);
  return result;
}

PyObject* reduce(PyObject* self, PyObject*) { return call_python_half("reduce", self, nullptr); }
PyObject* copy(PyObject* self, PyObject*) { return call_python_half("copy", self, nullptr); }
PyObject* deep_copy(PyObject* self, PyObject* memo) { return call_python_half("deepcopy", self, memo); }

PyGetSetDef kProperties[] = {{"__wrapped__", get_wrapped, nullptr, "The original callable.", nullptr},
                             {"__doc__", get_doc, set_doc, nullptr, nullptr},
                             {"__reprise_settings__", get_settings, nullptr, "How it was made, for copies.", nullptr},
                             {}};

PyMethodDef kMethods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                          {"__copy__", copy, METH_NOARGS, nullptr},
                          {"__deepcopy__", deep_copy, METH_O, nullptr},
                          {}};

}  // namespace

int ready_wrapped_type(PyTypeObject* type) {
  const PyVarObject heads[] = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type->ob_base = heads[0];
  type->tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  type->tp_vectorcall_offset = offsetof(WrappedCallable, vectorcall);
  type->tp_weaklistoffset = offsetof(WrappedCallable, weak_references);
  type->tp_call = PyVectorcall_Call;
  type->tp_getattro = get_attribute;
  type->tp_setattro = set_attribute;
  type->tp_descr_get = bind_as_method;
  type->tp_repr = represent;
  type->tp_getset = kProperties;
  type->tp_methods = kMethods;
  return PyType_Ready(type);
}

int traverse_wrapped(WrappedCallable* self, visitproc visit, void* arg) {
  Py_VISIT(self->original);
  Py_VISIT(self->settings);
  return 0;
}

void clear_wrapped(WrappedCallable* self) {
  Py_CLEAR(self->original);
  Py_CLEAR(self->settings);
}

}  // namespace reprise::runtime
