#include "capture/type_names.h"

#include <cstring>

namespace reprise::capture {

namespace {

std::string text_attribute(PyObject* object, const char* name) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  std::string text;
  PyObject* attribute = PyObject_GetAttrString(object, name);
  if (attribute != nullptr && PyUnicode_Check(attribute)) {
    if (const char* utf8 = PyUnicode_AsUTF8(attribute)) text = utf8;
  }
  Py_XDECREF(attribute);
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return text;
}

}  // namespace

std::string type_name(PyTypeObject* type) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return type->tp_name;
  PyObject* object = reinterpret_cast<PyObject*>(type);
  std::string module = text_attribute(object, "__module__");
  std::string name = text_attribute(object, "__qualname__");
  if (module.empty() || module == "builtins") return name;
  return module + "." + name;
}

std::string callable_name(PyObject* callable) {
  if (PyType_Check(callable)) return type_name(reinterpret_cast<PyTypeObject*>(callable));
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    std::string name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
    if (self == nullptr || PyModule_Check(self)) {
      std::string module = text_attribute(callable, "__module__");
      return module.empty() || module == "builtins" ? name : module + "." + name;
    }
    PyTypeObject* type = PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
    return type_name(type) + "." + name;
  }
  PyTypeObject* kind = Py_TYPE(callable);
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type || kind == &PyClassMethodDescr_Type) {
    PyDescrObject* descriptor = reinterpret_cast<PyDescrObject*>(callable);
    return type_name(descriptor->d_type) + "." + PyUnicode_AsUTF8(descriptor->d_name);
  }
  if (PyFunction_Check(callable)) {
    std::string module = text_attribute(callable, "__module__");
    std::string name = text_attribute(callable, "__qualname__");
    return module.empty() ? name : module + "." + name;
  }
  return "an instance of " + type_name(kind);
}

}  // namespace reprise::capture
