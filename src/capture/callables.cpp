#include "capture/callables.h"

#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

namespace reprise::capture {

namespace {

struct RowSpec {
  const char* path;
  CallPolicy policy;
  Recorder::Model model;
};

constexpr Recorder::Model kModel_none = nullptr;
#define X(name) constexpr Recorder::Model kModel_##name = &Recorder::model_##name;
#include "capture/models.def"

const RowSpec kRows[] = {
#define CALLABLE(path, policy, model) {path, CallPolicy::policy, kModel_##model},
#include "capture/callables.def"
};

using Table = std::unordered_map<PyObject*, CallableRow>;

bool is_c_callable(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  return PyCFunction_Check(o) || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
         type == &PyClassMethodDescr_Type;
}

/// The object in front of the last component of the path, and that component.
PyObject* find_owner(const std::string& path, std::string* last) {
  size_t dot = path.find('.');
  PyObject* owner = PyImport_ImportModule(path.substr(0, dot).c_str());
  for (;;) {
    size_t next = path.find('.', dot + 1);
    if (owner == nullptr || next == std::string::npos) break;
    PyObject* inner = PyObject_GetAttrString(owner, path.substr(dot + 1, next - dot - 1).c_str());
    Py_SETREF(owner, inner);
    dot = next;
  }
  *last = path.substr(dot + 1);
  return owner;
}

PyObject* raw_attribute(PyObject* owner, const std::string& name) {
  if (PyType_Check(owner)) {
    PyObject* dict = PyObject_GetAttrString(owner, "__dict__");
    PyObject* found = dict != nullptr ? PyMapping_GetItemString(dict, name.c_str()) : nullptr;
    Py_XDECREF(dict);
    return found;
  }
  return PyObject_GetAttrString(owner, name.c_str());
}

void add_row(Table& table, PyObject* callable, const CallableRow& row) {
  if (table.emplace(callable, row).second) Py_INCREF(callable);
}

Table* make_table() {
  auto* table = new Table;
  for (const RowSpec& spec : kRows) {
    std::string last;
    PyObject* owner = find_owner(spec.path, &last);
    if (owner == nullptr) {
      PyErr_Clear();
      continue;
    }
    CallableRow row{spec.policy, spec.model};
    if (last == "*") {
      PyObject* dict = PyObject_GetAttrString(owner, "__dict__");
      PyObject* values = dict != nullptr ? PyMapping_Values(dict) : nullptr;
      for (Py_ssize_t i = 0; values != nullptr && i < PyList_GET_SIZE(values); i++) {
        PyObject* value = PyList_GET_ITEM(values, i);
        if (is_c_callable(value)) add_row(*table, value, row);
      }
      Py_XDECREF(values);
      Py_XDECREF(dict);
    } else if (PyObject* callable = raw_attribute(owner, last)) {
      // `dict.__new__` is found as a built-in method of the class.
      add_row(*table, callable, row);
      Py_DECREF(callable);
    }
    PyErr_Clear();
    Py_DECREF(owner);
  }
  return table;
}

}  // namespace

const CallableRow& find_callable(PyObject* callable) {
  // Making it imports modules, whose Python code may come back here: it then knows of no callable yet.
  static Table* table = nullptr;
  static bool is_making = false;
  static const CallableRow kUnknown;
  if (table == nullptr) {
    if (std::exchange(is_making, true)) return kUnknown;
    table = make_table();
  }
  auto found = table->find(callable);
  return found == table->end() ? kUnknown : found->second;
}

}  // namespace reprise::capture
