#include "host/cpython/micro_ops.h"

#include <opcode.h>

#include "host/cpython/code_maker.h"
#include "host/cpython/host_state.h"

namespace reprise::host {
namespace {

PyCodeObject* make_micro_code(const Instruction& instruction, bool is_binary) {
  if (is_binary) {
    return make_code("lambda a, b: None",
                     {{LOAD_FAST, 0}, {LOAD_FAST, 1}, {instruction.opcode, instruction.arg}, {RETURN_VALUE, 0}});
  }
  return make_code("lambda a: None", {{LOAD_FAST, 0}, {instruction.opcode, instruction.arg}, {RETURN_VALUE, 0}});
}

PyObject* make_micro_function(const Instruction& instruction, bool is_binary) {
  PyCodeObject* code = make_micro_code(instruction, is_binary);
  PyObject* globals = code != nullptr ? PyDict_New() : nullptr;
  PyObject* function = globals != nullptr ? PyFunction_New(reinterpret_cast<PyObject*>(code), globals) : nullptr;
  Py_XDECREF(globals);
  Py_XDECREF(code);
  return function;
}

// Borrowed, or nullptr with an exception set.
PyObject* find_micro_function(const Instruction& instruction, bool is_binary) {
  const uint32_t key = instruction.opcode << 16 | static_cast<uint32_t>(instruction.arg) << 1 | is_binary;
  for (HostState::MicroFunction& micro : get_host_state().micro_functions) {
    if (micro.function == nullptr) micro = {key, make_micro_function(instruction, is_binary)};
    if (micro.key == key) return micro.function;
  }
  PyErr_SetString(PyExc_SystemError, "too many kinds of micro operations");
  return nullptr;
}

}  // namespace

PyObject* run_micro_op(const Instruction& instruction, PyObject* a, PyObject* b) {
  const bool is_binary = b != nullptr;
  PyObject* function = find_micro_function(instruction, is_binary);
  if (function == nullptr) return nullptr;
  PyObject* const arguments[] = {a, b};
  return PyObject_Vectorcall(function, arguments, is_binary ? 2 : 1, nullptr);
}

}  // namespace reprise::host
