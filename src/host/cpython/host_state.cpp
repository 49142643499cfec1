#include "host/cpython/host_state.h"

#include <opcode.h>

#include "host/cpython/code_maker.h"
#include "host/cpython/decode.h"
#include "host/cpython/watch.h"

namespace reprise::host {
namespace {

bool make_names(Names* names) {
#define REPRISE_NAME(member, text)                  \
  names->member = PyUnicode_InternFromString(text); \
  if (names->member == nullptr) return false;
#include "host/cpython/names.def"
#undef REPRISE_NAME
  return true;
}

bool make_code_objects(HostState* state) {
  PyObject* function = make_lambda("lambda: None");
  if (function == nullptr) return false;
  state->pending_function = function;
  state->pending_code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  state->function_vectorcall = reinterpret_cast<PyFunctionObject*>(function)->vectorcall;
  state->trampoline_code = make_code("lambda: None", {{RETURN_VALUE, 0}});
  if (state->trampoline_code == nullptr) return false;
  state->placeholder = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return state->placeholder != nullptr;
}

}  // namespace

constinit HostState host_state;

const Names& get_names() { return get_host_state().names; }

bool prepare() {
  HostState& state = get_host_state();
  PyInterpreterState* const interpreter = PyInterpreterState_Get();
  if (state.interpreter == interpreter) return true;
  if (interpreter != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, "reprise works in the main interpreter only, this is another one");
    return false;
  }
  if (!make_names(&state.names) || !make_code_objects(&state) || !prepare_decoding(&state)) return false;
  prepare_watchers(&state);
  state.interpreter = interpreter;
  return true;
}

}  // namespace reprise::host
