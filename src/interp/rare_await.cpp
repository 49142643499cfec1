// Opcodes of delegation (yield from) and of asynchronous code.
#include "host/cpython/frame_exit.h"
#include "host/cpython/frame_view.h"
#include "host/cpython/micro_ops.h"
#include "host/cpython/names.h"
#include "host/cpython/private_api.h"
#include "interp/rare_ops.h"

namespace reprise::interp {
namespace {

constexpr bool kIs312 = host::kPythonMinor >= 12;

bool has_handler(const RareOp& op) {
  host::Handler handler;
  return host::find_handler(op.code, op.instruction->op_unit, &handler);
}

#if PY_VERSION_HEX >= 0x030D0000

PyObject* get_awaitable_iterator(PyObject* object) { return host::get_awaitable_iterator(object); }

#else

bool is_coroutine(PyObject* object) {
  if (PyCoro_CheckExact(object)) return true;
  if (!PyGen_CheckExact(object)) return false;
  return host::view::generator_code(reinterpret_cast<PyGenObject*>(object))->co_flags & CO_ITERABLE_COROUTINE;
}

// object.__await__(), or the object itself if it is a coroutine. New reference, or nullptr with an exception set.
PyObject* get_awaitable_iterator(PyObject* object) {
  if (is_coroutine(object)) return Py_NewRef(object);
  PyAsyncMethods* const methods = Py_TYPE(object)->tp_as_async;
  if (methods == nullptr || methods->am_await == nullptr) {
    PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  PyObject* iterator = methods->am_await(object);
  if (iterator == nullptr) return nullptr;
  if (is_coroutine(iterator)) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
    Py_CLEAR(iterator);
  } else if (!PyIter_Check(iterator)) {
    PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'", Py_TYPE(iterator)->tp_name);
    Py_CLEAR(iterator);
  }
  return iterator;
}

#endif

// The words for an await that `async with` makes. `where`: 1 behind __aenter__, 2 behind __aexit__.
void explain_await_error(PyTypeObject* type, int where) {
  if (type->tp_as_async != nullptr && type->tp_as_async->am_await != nullptr) return;
  const char* method = where == 1 ? "__aenter__" : where == 2 ? "__aexit__" : nullptr;
  if (method == nullptr) return;
  PyErr_Format(PyExc_TypeError, "'async with' received an object from %s that does not implement __await__: %.100s",
               method, type->tp_name);
}

bool is_awaited_already(PyObject* coroutine) {
  PyObject* awaited = PyObject_GetAttr(coroutine, host::get_names().cr_await);
  const bool is_awaited = awaited != Py_None;
  Py_XDECREF(awaited);
  return is_awaited;
}

// awaitable -- iterator
RareResult get_awaitable(RareOp& op) {
  PyObject* object = op.peek(1);
  PyObject* iterator = get_awaitable_iterator(object);
  if (iterator == nullptr) {
    explain_await_error(Py_TYPE(object), op.instruction->arg);
    return RareResult::Raised;
  }
  if (PyCoro_CheckExact(iterator) && is_awaited_already(iterator)) {
    Py_DECREF(iterator);
    PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
    return RareResult::Raised;
  }
  op.drop(1);
  op.push(iterator);
  return RareResult::Done;
}

// iterable -- iterator
RareResult get_yield_from_iter(RareOp& op) {
  PyObject* object = op.peek(1);
  if (PyCoro_CheckExact(object)) {
    const bool may_delegate = op.code->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE);
    return may_delegate ? RareResult::Done : RareResult::Leave;
  }
  if (PyGen_CheckExact(object)) return RareResult::Done;
  PyObject* iterator = PyObject_GetIter(object);
  if (iterator == nullptr) return RareResult::Raised;
  op.drop(1);
  op.push(iterator);
  return RareResult::Done;
}

// receiver value -- receiver next  or, when the receiver has returned, and jumps:
// before 3.12: receiver value -- result;  later: receiver value -- receiver result
RareResult send(RareOp& op) {
  PyObject* result = nullptr;
  const PySendResult sent = PyIter_Send(op.peek(2), op.peek(1), &result);
  if (sent == PYGEN_ERROR) return RareResult::Raised;
  op.drop(1);
  if (sent == PYGEN_RETURN && !kIs312) op.drop(1);
  op.push(result);
  return sent == PYGEN_RETURN ? RareResult::Jump : RareResult::Done;
}

// receiver value exception -- None result
RareResult cleanup_throw(RareOp& op) {
  PyObject* exception = op.peek(1);
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    PyObject* result = Py_NewRef(reinterpret_cast<PyStopIterationObject*>(exception)->value);
    op.drop(3);
    op.push_new(Py_None);
    op.push(result);
    return RareResult::Done;
  }
  if (!has_handler(op)) return RareResult::Exit;
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exception)), Py_NewRef(exception),
                PyException_GetTraceback(exception));
  return RareResult::Reraised;
}

// object -- asynchronous iterator
RareResult get_aiter(RareOp& op) {
  PyTypeObject* type = Py_TYPE(op.peek(1));
  if (type->tp_as_async == nullptr || type->tp_as_async->am_aiter == nullptr) return RareResult::Leave;
  PyObject* iterator = type->tp_as_async->am_aiter(op.peek(1));
  if (iterator == nullptr) return RareResult::Raised;
  PyAsyncMethods* const methods = Py_TYPE(iterator)->tp_as_async;
  if (methods == nullptr || methods->am_anext == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "'async for' received an object from __aiter__ that does not implement __anext__: %.100s",
                 Py_TYPE(iterator)->tp_name);
    Py_DECREF(iterator);
    return RareResult::Raised;
  }
  op.drop(1);
  op.push(iterator);
  return RareResult::Done;
}

// iterator -- iterator awaitable
RareResult get_anext(RareOp& op) {
  PyObject* iterator = op.peek(1);
  PyTypeObject* type = Py_TYPE(iterator);
  if (type->tp_as_async == nullptr || type->tp_as_async->am_anext == nullptr) return RareResult::Leave;
  PyObject* next = type->tp_as_async->am_anext(iterator);
  if (next == nullptr) return RareResult::Raised;
  if (!PyAsyncGen_CheckExact(iterator)) {
    PyObject* awaitable = get_awaitable_iterator(next);
    if (awaitable == nullptr) {
      host::format_from_cause(PyExc_TypeError, "'async for' received an invalid object from __anext__: %.100s",
                              Py_TYPE(next)->tp_name);
    }
    Py_DECREF(next);
    if (awaitable == nullptr) return RareResult::Raised;
    next = awaitable;
  }
  op.push(next);
  return RareResult::Done;
}

// manager -- exit awaitable-of-enter
RareResult before_async_with(RareOp& op) {
  PyObject* manager = op.peek(1);
  PyObject* enter = host::find_special_method(manager, host::get_names().aenter);
  if (enter == nullptr) return PyErr_Occurred() ? RareResult::Raised : RareResult::Leave;
  PyObject* exit = host::find_special_method(manager, host::get_names().aexit);
  if (exit == nullptr) {
    Py_DECREF(enter);
    return PyErr_Occurred() ? RareResult::Raised : RareResult::Leave;
  }
  PyObject* awaitable = PyObject_CallNoArgs(enter);
  Py_DECREF(enter);
  if (awaitable == nullptr) {
    Py_DECREF(exit);
    return RareResult::Raised;
  }
  op.drop(1);
  op.push(exit);
  op.push(awaitable);
  return RareResult::Done;
}

// iterator exception --
RareResult end_async_for(RareOp& op) {
  PyObject* exception = op.peek(1);
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)) {
    op.drop(2);
    return RareResult::Done;
  }
  if (!has_handler(op)) return RareResult::Exit;
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exception)), Py_NewRef(exception),
                PyException_GetTraceback(exception));
  return RareResult::Reraised;
}

// value -- wrapped value
RareResult async_gen_wrap(RareOp& op) {
  PyObject* wrapped = host::run_micro_op(*op.instruction, op.peek(1), nullptr);
  if (wrapped == nullptr) return RareResult::Raised;
  op.drop(1);
  op.push(wrapped);
  return RareResult::Done;
}

}  // namespace

RareResult run_await_op(RareOp& op) {
  switch (op.instruction->op) {
    case host::Op::GetYieldFromIter:
      return get_yield_from_iter(op);
    case host::Op::Send:
      return send(op);
    case host::Op::CleanupThrow:
      return cleanup_throw(op);
    case host::Op::GetAwaitable:
      return get_awaitable(op);
    case host::Op::GetAiter:
      return get_aiter(op);
    case host::Op::GetAnext:
      return get_anext(op);
    case host::Op::BeforeAsyncWith:
      return before_async_with(op);
    case host::Op::EndAsyncFor:
      return end_async_for(op);
    case host::Op::AsyncGenWrap:
      return async_gen_wrap(op);
    default:
      return RareResult::Leave;
  }
}

}  // namespace reprise::interp
