// Opcodes of bare raise, of exception groups, and the intrinsics.
#include "host/cpython/frame_exit.h"
#include "host/cpython/micro_ops.h"
#include "host/cpython/names.h"
#include "host/cpython/private_api.h"
#include "interp/errors.h"
#include "interp/rare_ops.h"

namespace reprise::interp {
namespace {

// --
RareResult raise_current(RareOp& op) {
  _PyErr_StackItem* item = op.thread->exc_info;
  const auto is_empty = [](const _PyErr_StackItem* i) { return i->exc_value == nullptr || i->exc_value == Py_None; };
  while (is_empty(item) && item->previous_item != nullptr) item = item->previous_item;
  if (is_empty(item)) {
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return RareResult::Raised;
  }
  host::Handler handler;
  if (!host::find_handler(op.code, op.instruction->op_unit, &handler)) return RareResult::Exit;
  PyObject* exception = item->exc_value;
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exception)), Py_NewRef(exception),
                PyException_GetTraceback(exception));
  return RareResult::Reraised;
}

// --- exception groups
// -------------------------------------------------------------------------------------------------

bool check_except_star_class(PyObject* type) {
  if (!check_except_class(type)) return false;
  int is_group = 0;
  if (PyTuple_Check(type)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type) && is_group == 0; ++i) {
      is_group = PyObject_IsSubclass(PyTuple_GET_ITEM(type, i), PyExc_BaseExceptionGroup);
    }
  } else {
    is_group = PyObject_IsSubclass(type, PyExc_BaseExceptionGroup);
  }
  if (is_group > 0) {
    PyErr_SetString(PyExc_TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.");
  }
  return is_group == 0;
}

#if PY_VERSION_HEX >= 0x030D0000

bool match_group(PyObject* exception, PyObject* type, PyObject** match, PyObject** rest) {
  return host::match_exception_group(exception, type, match, rest) == 0;
}

#else

// What `except*` catches of a plain exception: a group of it. New reference.
PyObject* wrap_in_group(PyObject* exception) {
  PyObject* group = PyObject_CallFunction(PyExc_BaseExceptionGroup, "s(O)", "", exception);
#if PY_VERSION_HEX >= 0x030C0000
  PyFrameObject* frame = group != nullptr ? PyEval_GetFrame() : nullptr;
  if (frame != nullptr) {
    PyObject* traceback = host::make_traceback(nullptr, frame);
    if (traceback == nullptr) Py_CLEAR(group);
    if (group != nullptr) PyException_SetTraceback(group, traceback);
    Py_XDECREF(traceback);
  }
#endif
  return group;
}

bool split_group(PyObject* exception, PyObject* type, PyObject** match, PyObject** rest) {
  PyObject* pair = PyObject_CallMethodOneArg(exception, host::get_names().split, type);
  if (pair == nullptr) return false;
#if PY_VERSION_HEX >= 0x030C0000
  if (!PyTuple_CheckExact(pair)) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a tuple, not %.200s", Py_TYPE(exception)->tp_name,
                 Py_TYPE(pair)->tp_name);
  } else if (PyTuple_GET_SIZE(pair) < 2) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple, got tuple of size %zd",
                 Py_TYPE(exception)->tp_name, PyTuple_GET_SIZE(pair));
  }
  if (PyErr_Occurred()) {
    Py_DECREF(pair);
    return false;
  }
#endif
  *match = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
  *rest = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
  Py_DECREF(pair);
  return true;
}

bool match_group(PyObject* exception, PyObject* type, PyObject** match, PyObject** rest) {
  *match = *rest = nullptr;
  if (exception == Py_None) {
    *match = Py_NewRef(Py_None);
    *rest = Py_NewRef(Py_None);
    return true;
  }
  const bool is_group = PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup));
  if (PyErr_GivenExceptionMatches(exception, type)) {
    *match = is_group ? Py_NewRef(exception) : wrap_in_group(exception);
    if (*match == nullptr) return false;
    *rest = Py_NewRef(Py_None);
    return true;
  }
  if (is_group) return split_group(exception, type, match, rest);
  *match = Py_NewRef(Py_None);
  *rest = Py_NewRef(exception);
  return true;
}

#endif

// exception class -- rest match-or-None
RareResult check_eg_match(RareOp& op) {
  PyObject* match = nullptr;
  PyObject* rest = nullptr;
  if (!check_except_star_class(op.peek(1)) || !match_group(op.peek(2), op.peek(1), &match, &rest)) {
    return RareResult::Raised;
  }
  op.drop(2);
  op.push(rest);
  op.push(match);
  if (match != Py_None) PyErr_SetHandledException(match);
  return RareResult::Done;
}

// --- intrinsics
// -------------------------------------------------------------------------------------------------------

constexpr int kIntrinsicStopIterationError = 3;

// What a StopIteration that leaves a generator becomes (PEP 479): a RuntimeError. Other exceptions stay. New reference.
PyObject* convert_stop_iteration(PyObject* exception, int code_flags) {
  const char* message = nullptr;
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    message = code_flags & CO_ASYNC_GENERATOR ? "async generator raised StopIteration"
              : code_flags & CO_COROUTINE     ? "coroutine raised StopIteration"
                                              : "generator raised StopIteration";
  } else if ((code_flags & CO_ASYNC_GENERATOR) && PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)) {
    message = "async generator raised StopAsyncIteration";
  }
  if (message == nullptr) return Py_NewRef(exception);
  PyObject* error = PyObject_CallFunction(PyExc_RuntimeError, "s", message);
  if (error != nullptr) {
    PyException_SetCause(error, Py_NewRef(exception));
    PyException_SetContext(error, Py_NewRef(exception));
  }
  return error;
}

// value -- result
RareResult call_intrinsic_1(RareOp& op) {
  PyObject* result = op.instruction->arg == kIntrinsicStopIterationError
                         ? convert_stop_iteration(op.peek(1), op.code->co_flags)
                         : host::run_micro_op(*op.instruction, op.peek(1), nullptr);
  if (result == nullptr) return RareResult::Raised;
  op.drop(1);
  op.push(result);
  return RareResult::Done;
}

// a b -- result
RareResult run_binary_micro_op(RareOp& op) {
  PyObject* result = host::run_micro_op(*op.instruction, op.peek(2), op.peek(1));
  if (result == nullptr) return RareResult::Raised;
  op.drop(2);
  op.push(result);
  return RareResult::Done;
}

}  // namespace

RareResult run_exception_op(RareOp& op) {
  switch (op.instruction->op) {
    case host::Op::RaiseCurrent:
      return raise_current(op);
    case host::Op::CheckEgMatch:
      return check_eg_match(op);
    case host::Op::CallIntrinsic1:
      return call_intrinsic_1(op);
    case host::Op::PrepReraiseStar:
    case host::Op::CallIntrinsic2:
      return run_binary_micro_op(op);
    default:
      return RareResult::Leave;
  }
}

}  // namespace reprise::interp
