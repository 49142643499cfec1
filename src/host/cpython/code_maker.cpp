#define PY_SSIZE_T_CLEAN  // "y#" takes a Py_ssize_t
#include "host/cpython/code_maker.h"

#include <string>

namespace reprise::host {
namespace {

constexpr int kStackSize = 6;

PyObject* make_globals() {
  PyObject* globals = PyDict_New();
  if (globals != nullptr && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) < 0) {
    Py_CLEAR(globals);
  }
  return globals;
}

}  // namespace

PyObject* make_lambda(const char* source) {
  PyObject* globals = make_globals();
  if (globals == nullptr) return nullptr;
  PyObject* function = PyRun_String(source, Py_eval_input, globals, globals);
  Py_DECREF(globals);
  return function;
}

PyCodeObject* make_code(const char* source, std::initializer_list<RawInstruction> instructions) {
  PyObject* function = make_lambda(source);
  if (function == nullptr) return nullptr;
  std::string bytes;
  for (const RawInstruction& instruction : instructions) {
    bytes.push_back(static_cast<char>(instruction.opcode));
    bytes.push_back(static_cast<char>(instruction.arg));
  }
  PyObject* result = nullptr;
  PyObject* replace = PyObject_GetAttrString(PyFunction_GET_CODE(function), "replace");
  PyObject* arguments = PyTuple_New(0);
  PyObject* keywords = Py_BuildValue("{s:y#,s:i,s:y#}", "co_code", bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                                     "co_stacksize", kStackSize, "co_exceptiontable", "", static_cast<Py_ssize_t>(0));
  if (replace != nullptr && arguments != nullptr && keywords != nullptr) {
    result = PyObject_Call(replace, arguments, keywords);
  }
  Py_XDECREF(replace);
  Py_XDECREF(arguments);
  Py_XDECREF(keywords);
  Py_DECREF(function);
  return reinterpret_cast<PyCodeObject*>(result);
}

}  // namespace reprise::host
