// Keeps the exception that is set, while something runs that would drop or replace it.
#pragma once

#include <Python.h>

namespace reprise::host {

class PendingException {
 public:
  PendingException() noexcept { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~PendingException() { PyErr_Restore(type_, value_, traceback_); }
  PendingException(const PendingException&) = delete;
  PendingException& operator=(const PendingException&) = delete;

 private:
  PyObject *type_, *value_, *traceback_;
};

}  // namespace reprise::host
