#include "host/cpython/iterator_over.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace reprise::host {

namespace {

// An iterable whose iter() is the iterator that it holds.
struct Source {
  PyObject_HEAD PyObject* iterator;
};

PyObject* iterator_of(PyObject* self) { return Py_NewRef(reinterpret_cast<Source*>(self)->iterator); }

void destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<Source*>(self)->iterator);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyTypeObject* source_type() {
  static PyType_Slot slots[] = {{Py_tp_iter, reinterpret_cast<void*>(iterator_of)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                {0, nullptr}};
  static PyType_Spec spec = {"reprise.iterator_source", sizeof(Source), 0, Py_TPFLAGS_DEFAULT, slots};
  static PyObject* const type = PyType_FromSpec(&spec);
  return reinterpret_cast<PyTypeObject*>(type);
}

PyObject* make_source(PyObject* iterator) {
  PyTypeObject* type = source_type();
  auto* source = type != nullptr ? PyObject_New(Source, type) : nullptr;
  if (source == nullptr) return nullptr;
  source->iterator = Py_NewRef(iterator);
  return reinterpret_cast<PyObject*>(source);
}

}  // namespace

size_t first_source(PyObject* type) {
  if (!PyType_Check(type)) return 0;
  const char* name = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  return type == reinterpret_cast<PyObject*>(&PyMap_Type) || type == reinterpret_cast<PyObject*>(&PyFilter_Type) ||
         std::strcmp(name, "itertools.starmap") == 0 || std::strcmp(name, "itertools.filterfalse") == 0;
}

PyObject* make_iterator_over(PyObject* type, PyObject* const* operands, size_t count, size_t first) {
  const auto is_in_python = [](PyObject* operand) {
    return PyIter_Check(operand) && PyType_HasFeature(Py_TYPE(operand), Py_TPFLAGS_HEAPTYPE);
  };
  const std::span<PyObject* const> sources(operands + std::min(first, count), operands + count);
  if (std::ranges::none_of(sources, is_in_python)) return PyObject_Vectorcall(type, operands, count, nullptr);
  std::vector<PyObject*> arguments;
  bool ok = true;
  for (size_t i = 0; i < count; i++) {
    PyObject* operand = operands[i];
    arguments.push_back(i >= first && is_in_python(operand) ? make_source(operand) : Py_NewRef(operand));
    ok = ok && arguments.back() != nullptr;
  }
  PyObject* result = ok ? PyObject_Vectorcall(type, arguments.data(), count, nullptr) : nullptr;
  for (PyObject* argument : arguments) Py_XDECREF(argument);
  return result;
}

// A view's layout is private; all that it refers to is its dict.
PyObject* find_dict_of_view(PyObject* view) {
  PyObject* dict = nullptr;
  const visitproc visit = [](PyObject* object, void* found) {
    if (PyDict_Check(object)) *static_cast<PyObject**>(found) = object;
    return 0;
  };
  Py_TYPE(view)->tp_traverse(view, visit, &dict);
  return dict;
}

}  // namespace reprise::host
