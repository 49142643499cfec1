// "The next frame of this function is mine": how rebuild.cpp gets frames made by CPython. Private to host/cpython.
#pragma once

#include <Python.h>

#include "host/cpython/frame.h"

namespace reprise::host {

/// Lives on the C stack of who waits for the frame, in the list HostState::captures.
struct CaptureRequest {
  using Run = PyObject* (*)(void* context, PyThreadState* thread, Frame* frame);

  PyThreadState* thread = nullptr;
  PyObject* function = nullptr;  // a frame of this function, called with the placeholder,
  const Frame* frame = nullptr;  // or this very frame (of a generator)
  Run run = nullptr;             // evaluates the frame
  void* context = nullptr;
  CaptureRequest* next = nullptr;
  bool is_waiting = false;
};

/// Calls a Python function with placeholders for its arguments. Its frame is recognised by them.
PyObject* call_with_placeholders(PyObject* function);
bool has_placeholders(const Frame* frame);

/// If somebody waits for `frame`: takes the request off the list, runs the frame and sets its result.
bool take_capture_request(PyThreadState* thread, Frame* frame, int throwflag, PyObject** result);

/// Keeps a request in the list, and the hook installed, until the frame has come or the scope ends.
class CaptureScope {
 public:
  explicit CaptureScope(CaptureRequest& request);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  CaptureRequest& request_;
};

}  // namespace reprise::host
