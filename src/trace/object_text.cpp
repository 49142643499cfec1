#include "trace/object_text.h"

#include "host/cpython/pending_exception.h"
#include "host/torch/tensor.h"

namespace reprise::trace {

namespace {

constexpr size_t kMaxTextLength = 60;

std::string text_of_unicode(PyObject* unicode) {
  if (unicode == nullptr || !PyUnicode_Check(unicode)) return "?";
  const char* text = PyUnicode_AsUTF8(unicode);
  if (text == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return text;
}

// For objects whose repr is C code without addresses.
std::string repr(PyObject* object) {
  PyObject* text = PyObject_Repr(object);
  if (text == nullptr) {
    PyErr_Clear();
    return "?";
  }
  std::string result = text_of_unicode(text);
  Py_DECREF(text);
  if (result.size() > kMaxTextLength) {
    const char quote = result.back();
    result.resize(kMaxTextLength);
    while (!result.empty() && (result.back() & 0xc0) == 0x80) result.pop_back();  // no half UTF-8 character
    result += "...";
    if (quote == '\'' || quote == '"') result += quote;
  }
  return result;
}

// pybind11 binds its functions to an object of its own.
bool is_binding_record(PyObject* self) {
  return std::string_view(Py_TYPE(self)->tp_name).find("pybind11") != std::string_view::npos;
}

bool has_plain_repr(PyObject* object) {
  if (object == Py_None || object == Py_Ellipsis || object == Py_NotImplemented) return true;
  if (PyBool_Check(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyComplex_CheckExact(object) ||
      PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || PyRange_Check(object)) {
    return true;
  }
  // torch.dtype, torch.device, torch.layout, torch.memory_format
  PyTypeObject* type = Py_TYPE(object);
  return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && std::string_view(type->tp_name).starts_with("torch.") &&
         !host::is_tensor(object) && type->tp_itemsize == 0 && type->tp_repr != PyBaseObject_Type.tp_repr;
}

}  // namespace

std::string describe_type(PyTypeObject* type) {
  std::string name = type->tp_name;
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    PyObject* qualified = reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname;
    PyObject* module = type->tp_dict == nullptr ? nullptr : PyDict_GetItemString(type->tp_dict, "__module__");
    name = text_of_unicode(qualified);
    if (module != nullptr && PyUnicode_Check(module)) name = text_of_unicode(module) + "." + name;
  }
  if (name.starts_with("builtins.")) name.erase(0, 9);
  return name;
}

std::string name_of_callable(PyObject* object) {
  if (object == nullptr) return "";
  if (PyFunction_Check(object)) return text_of_unicode(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  if (PyCode_Check(object)) return text_of_unicode(reinterpret_cast<PyCodeObject*>(object)->co_name);
  return "";
}

std::string describe_object(PyObject* object) {
  if (object == nullptr) return "NULL";
  const host::PendingException pending;
  if (has_plain_repr(object)) return repr(object);
  if (PyType_Check(object)) return describe_type(reinterpret_cast<PyTypeObject*>(object));
  if (PyFunction_Check(object)) return "<function " + name_of_callable(object) + ">";
  if (PyCode_Check(object)) return "<code " + name_of_callable(object) + ">";
  if (PyModule_Check(object)) {
    PyObject* dict = PyModule_GetDict(object);
    PyObject* name = dict == nullptr ? nullptr : PyDict_GetItemString(dict, "__name__");
    return "<module " + text_of_unicode(name) + ">";
  }
  if (PyCFunction_Check(object)) {
    PyObject* self = PyCFunction_GET_SELF(object);
    std::string owner;
    if (self != nullptr && PyType_Check(self))
      owner = describe_type(reinterpret_cast<PyTypeObject*>(self)) + ".";
    else if (self != nullptr && !PyModule_Check(self) && !is_binding_record(self))
      owner = describe_type(Py_TYPE(self)) + ".";
    return "<builtin " + owner + reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name + ">";
  }
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyMethodDescr_Type || type == &PyGetSetDescr_Type || type == &PyMemberDescr_Type ||
      type == &PyWrapperDescr_Type || type == &PyClassMethodDescr_Type) {
    auto* descriptor = reinterpret_cast<PyDescrObject*>(object);
    return "<" + describe_type(descriptor->d_type) + "." + text_of_unicode(descriptor->d_name) + ">";
  }
  if (PyTuple_CheckExact(object)) {
    std::string text = "(";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
      if (i > 0) text += ", ";
      if (text.size() > 2 * kMaxTextLength) return text + "...)";
      text += describe_object(PyTuple_GET_ITEM(object, i));
    }
    return text + (PyTuple_GET_SIZE(object) == 1 ? ",)" : ")");
  }
  return "<" + describe_type(type) + ">";
}

std::string describe_code_place(PyCodeObject* code, int32_t unit) {
  if (code == nullptr) return "?";
  std::string file = text_of_unicode(code->co_filename);
  const int line = PyCode_Addr2Line(code, unit * 2);
  return file + ":" + std::to_string(line);
}

}  // namespace reprise::trace
