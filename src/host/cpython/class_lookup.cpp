#include "host/cpython/class_lookup.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "host/cpython/pending_exception.h"

extern "C" PyObject* _PyType_Lookup(PyTypeObject*, PyObject*);

namespace reprise::host {
namespace {

bool is_special(PyObject* name) {
  if (!PyUnicode_CheckExact(name) || !PyUnicode_IS_COMPACT_ASCII(name)) return false;
  const std::string_view text(reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(name)), PyUnicode_GET_LENGTH(name));
  if (text.size() < 5 || !text.starts_with("__") || !text.ends_with("__")) return false;
  static constexpr std::string_view kTexts[] = {"__doc__",         "__module__",   "__qualname__",
                                                "__annotations__", "__annotate__", "__annotations_cache__",
                                                "__firstlineno__", "__dict__",     "__weakref__"};
  return std::find(std::begin(kTexts), std::end(kTexts), text) == std::end(kTexts);
}

/// Calls `visit(name, value)` until it says false.
template <typename Visit>
void visit_special_names(PyTypeObject* type, Visit visit) {
  PyObject* dict = get_class_dict(type);
  if (dict == nullptr) return;
  PyObject *name, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &name, &value)) {
    if (is_special(name) && !visit(name, value)) break;
  }
}

}  // namespace

PyObject* get_class_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* dict = PyType_GetDict(type);
  Py_XDECREF(dict);  // the class holds it
  return dict;
#else
  return type->tp_dict;
#endif
}

PyObject* find_in_class(PyTypeObject* type, PyObject* name, PyTypeObject* after) {
  const PendingException pending;  // a look-up drops one when its cache misses
  if (after == nullptr) return _PyType_Lookup(type, name);
  PyObject* mro = type->tp_mro;
  bool is_behind = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (is_behind) {
      PyObject* dict = get_class_dict(base);
      PyObject* found = dict != nullptr ? PyDict_GetItemWithError(dict, name) : nullptr;
      if (found != nullptr) return found;
    }
    is_behind |= base == after;
  }
  return nullptr;
}

NamedValues list_special_names(PyTypeObject* type) {
  NamedValues found;
  visit_special_names(type, [&](PyObject* name, PyObject* value) {
    found.emplace_back(name, value);
    return true;
  });
  return found;
}

bool has_special_names(PyTypeObject* type, const NamedValues& expected) {
  size_t count = 0;
  bool is_same = true;
  visit_special_names(type, [&](PyObject* name, PyObject* value) {
    is_same = count < expected.size() && expected[count].first == name && expected[count].second == value;
    ++count;
    return is_same;
  });
  return is_same && count == expected.size();
}

std::array<PyObject*, 2> get_class_names(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return {};
  const auto* heap_type = reinterpret_cast<PyHeapTypeObject*>(type);
  return {heap_type->ht_name, heap_type->ht_qualname};
}

bool is_immutable_class(PyTypeObject* type) { return (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0; }

}  // namespace reprise::host
