#include "host/cpython/capture_request.h"

#include <vector>

#include "host/cpython/frame_view.h"
#include "host/cpython/host_state.h"

namespace reprise::host {
namespace {

int count_parameters(const PyCodeObject* code) { return code->co_argcount + code->co_kwonlyargcount; }

void take_off_list(CaptureRequest& request) {
  HostState& state = get_host_state();
  for (CaptureRequest** link = &state.captures; *link != nullptr; link = &(*link)->next) {
    if (*link != &request) continue;
    *link = request.next;
    break;
  }
  request.is_waiting = false;
  --state.temporary_installs;
  update_eval_frame();
}

bool matches(const CaptureRequest& request, const Frame* frame) {
  if (request.frame != nullptr) return request.frame == frame;
  return view::function(frame) == request.function && is_at_start(frame) && has_placeholders(frame);
}

}  // namespace

PyObject* call_with_placeholders(PyObject* function) {
  HostState& state = get_host_state();
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  int count = count_parameters(code);
  PyObject* keywords = nullptr;
  if (code->co_kwonlyargcount > 0) {
    keywords = PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount, count);
  } else if (count == 0 && (code->co_flags & CO_VARKEYWORDS)) {
    // CPython allocates the dict of **kwargs first, which may run finalizers that call the same function.
    keywords = PyTuple_Pack(1, state.names.empty);
    count = 1;
  }
  if (keywords == nullptr && PyErr_Occurred()) return nullptr;
  const std::vector<PyObject*> arguments(count + 1, state.placeholder);
  PyObject* result = state.function_vectorcall(function, arguments.data(), code->co_argcount, keywords);
  Py_XDECREF(keywords);
  return result;
}

bool has_placeholders(const Frame* frame) {
  const HostState& state = get_host_state();
  const PyCodeObject* code = view::code(frame);
  if (count_parameters(code) > 0) return frame->localsplus[0] == state.placeholder;
  if (!(code->co_flags & CO_VARKEYWORDS)) return true;
  PyObject* keywords = frame->localsplus[code->co_flags & CO_VARARGS ? 1 : 0];
  return PyDict_CheckExact(keywords) && PyDict_GetItemWithError(keywords, state.names.empty) == state.placeholder;
}

bool take_capture_request(PyThreadState* thread, Frame* frame, int throwflag, PyObject** result) {
  CaptureRequest* request = get_host_state().captures;
  while (request != nullptr && request->thread != thread) request = request->next;
  // Only the thread's innermost request can be meant.
  if (request == nullptr || throwflag || !matches(*request, frame)) return false;
  take_off_list(*request);
  *result = request->run(request->context, thread, frame);
  return true;
}

CaptureScope::CaptureScope(CaptureRequest& request) : request_(request) {
  HostState& state = get_host_state();
  request.next = state.captures;
  request.is_waiting = true;
  state.captures = &request;
  ++state.temporary_installs;
  update_eval_frame();
}

CaptureScope::~CaptureScope() {
  if (request_.is_waiting) take_off_list(request_);
}

}  // namespace reprise::host
