// C++ exceptions of torch as Python errors, and back. Private to host/torch.
#pragma once

#include <Python.h>

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <exception>

namespace reprise::host {

/// Runs the body with the GIL held; false with a Python exception set if it threw. Python errors that were raised
/// inside (a hook, a custom Function) come back as they are.
template <typename Body>
bool run_guarded(Body body) {
  try {
    body();
    return true;
  } catch (python_error& error) {
    error.restore();
  } catch (const c10::NotImplementedError& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what_without_backtrace());
  } catch (const c10::IndexError& error) {
    PyErr_SetString(PyExc_IndexError, error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return false;
}

/// With a Python exception set and the GIL held.
[[noreturn]] inline void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

}  // namespace reprise::host
