#include "interp/errors.h"

#include "host/cpython/private_api.h"

namespace reprise::interp {
namespace {

constexpr bool kChecksCauseInstance = PY_VERSION_HEX >= 0x030D0000;

// An instance of what is raised: of a class, a new one. New reference, or nullptr with an exception set.
PyObject* make_instance(PyObject* exception, bool checks_result, const char* problem) {
  if (PyExceptionInstance_Check(exception)) return Py_NewRef(exception);
  if (!PyExceptionClass_Check(exception)) {
    PyErr_SetString(PyExc_TypeError, problem);
    return nullptr;
  }
  PyObject* instance = PyObject_CallNoArgs(exception);
  if (instance != nullptr && checks_result && !PyExceptionInstance_Check(instance)) {
    PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", exception,
                 Py_TYPE(instance));
    Py_CLEAR(instance);
  }
  return instance;
}

}  // namespace

void raise_exception(PyObject* exception, PyObject* cause) {
  PyObject* value = make_instance(exception, true, "exceptions must derive from BaseException");
  if (value == nullptr) return;
  if (cause != nullptr) {
    PyObject* fixed = nullptr;
    if (cause != Py_None) {
      fixed = make_instance(cause, kChecksCauseInstance, "exception causes must derive from BaseException");
      if (fixed == nullptr) {
        Py_DECREF(value);
        return;
      }
    }
    PyException_SetCause(value, fixed);
  }
  PyObject* type = PyExceptionClass_Check(exception) ? exception : PyExceptionInstance_Class(value);
  PyErr_SetObject(type, value);  // chains __context__
  Py_DECREF(value);
}

bool check_except_class(PyObject* type) {
  bool is_class = true;
  if (PyTuple_Check(type)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type); ++i) {
      is_class = is_class && PyExceptionClass_Check(PyTuple_GET_ITEM(type, i));
    }
  } else {
    is_class = PyExceptionClass_Check(type);
  }
  if (!is_class) {
    PyErr_SetString(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
  }
  return is_class;
}

void explain_keyword_error(PyObject* callable, PyObject* keywords) {
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    PyObject* text = host::describe_callable(callable);
    if (text == nullptr) return;
    PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", text,
                 Py_TYPE(keywords)->tp_name);
    Py_DECREF(text);
    return;
  }
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* arguments = value != nullptr ? reinterpret_cast<PyBaseExceptionObject*>(value)->args : nullptr;
  if (arguments == nullptr || !PyTuple_Check(arguments) || PyTuple_GET_SIZE(arguments) != 1) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  if (PyObject* text = host::describe_callable(callable)) {
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", text,
                 PyTuple_GET_ITEM(arguments, 0));
    Py_DECREF(text);
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

void explain_star_error(PyObject* callable, PyObject* arguments) {
  PyObject* text = host::describe_callable(callable);
  if (text == nullptr) return;
  PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", text,
               Py_TYPE(arguments)->tp_name);
  Py_DECREF(text);
}

}  // namespace reprise::interp
