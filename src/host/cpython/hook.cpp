#include "host/cpython/hook.h"

#include <pthread.h>

#include <cstddef>

#include "host/cpython/capture_request.h"
#include "host/cpython/decode.h"
#include "host/cpython/frame_view.h"
#include "host/cpython/host_state.h"

namespace reprise::host {
namespace {

// With any hook, Python calls recurse on the C stack. Below this many calls nothing is checked.
constexpr int kDepthWithoutCheck = 100;
// When less than this is left of it, CPython goes on without a hook and inlines calls again.
constexpr std::size_t kStackReserveBytes = 512 * 1024;
constexpr int kRecursionReserve = 100;

const char* find_stack_floor() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return nullptr;
  void* floor = nullptr;
  std::size_t size = 0;
  const bool is_known = pthread_attr_getstack(&attributes, &floor, &size) == 0;
  pthread_attr_destroy(&attributes);
  return is_known ? static_cast<const char*>(floor) : nullptr;
}

bool is_stack_low() {
  thread_local const char* const floor = find_stack_floor();
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  return floor != nullptr && here < floor + kStackReserveBytes;
}

bool is_recursion_deep(PyThreadState* thread) {
  if (view::recursion_depth(thread) < kDepthWithoutCheck) [[likely]]
    return false;
  return view::c_recursion_left(thread) < kRecursionReserve || is_stack_low();
}

PyObject* evaluate(PyThreadState* thread, Frame* frame, int throwflag);

}  // namespace

// Puts our entry point in or out, as the state wants it. A hook that somebody put over ours stays when ours goes; when
// it goes later and puts ours back, ours takes itself out (see evaluate).
void update_eval_frame() {
  HostState& state = get_host_state();
  const bool is_wanted = state.temporary_installs > 0 || (state.client != nullptr && state.suspensions == 0);
  const FrameHook current = _PyInterpreterState_GetEvalFrameFunc(state.interpreter);
  if (is_wanted && current != evaluate) {
    if (state.base == nullptr) state.base = current;
    state.previous = current;
    _PyInterpreterState_SetEvalFrameFunc(state.interpreter, evaluate);
  } else if (!is_wanted && current == evaluate) {
    _PyInterpreterState_SetEvalFrameFunc(state.interpreter, state.previous);
    if (state.previous == state.base) state.base = nullptr;
    state.previous = state.base;
  }
}

namespace {

// The frame that was last given to a foreign hook by this thread. If that hook was made when ours was already there, it
// hands the frame back to us.
thread_local const Frame* frame_passed_on = nullptr;

PyObject* run_without_hook(PyThreadState* thread, Frame* frame, int throwflag) {
  HostState& state = get_host_state();
  ++state.suspensions;
  update_eval_frame();
  PyObject* result = run_default(thread, frame, throwflag);
  --state.suspensions;
  update_eval_frame();
  return result;
}

// Micro operations, the trampoline and the function that does pending work are ours.
bool is_own_frame(Frame* frame) {
  PyCodeObject* code = view::code(frame);
  return code->_co_firsttraceable >= Py_SIZE(code) || code == get_host_state().pending_code;
}

PyObject* evaluate(PyThreadState* thread, Frame* frame, int throwflag) {
  HostState& state = get_host_state();
  if (state.captures != nullptr) [[unlikely]] {
    PyObject* result = nullptr;
    if (take_capture_request(thread, frame, throwflag, &result)) return result;
  }
  if (is_own_frame(frame)) [[unlikely]]
    return run_default(thread, frame, throwflag);
  if (is_recursion_deep(thread)) [[unlikely]]
    return run_without_hook(thread, frame, throwflag);
  if (state.previous != _PyEval_EvalFrameDefault && frame == frame_passed_on) [[unlikely]] {
    return run_default(thread, frame, throwflag);
  }
  if (state.client == nullptr) {
    update_eval_frame();
    return run_previous(thread, frame, throwflag);
  }
  return state.client(thread, frame, throwflag);
}

}  // namespace

void install_frame_hook(FrameHook hook) {
  get_host_state().client = hook;
  update_eval_frame();
}

void remove_frame_hook() { install_frame_hook(nullptr); }

bool is_frame_hook_installed() { return get_host_state().client != nullptr; }

PyObject* run_default(PyThreadState* thread, Frame* frame, int throwflag) {
  return _PyEval_EvalFrameDefault(thread, frame, throwflag);
}

PyObject* run_previous(PyThreadState* thread, Frame* frame, int throwflag) {
  const FrameHook previous = get_host_state().previous;
  if (previous == nullptr || previous == _PyEval_EvalFrameDefault) return run_default(thread, frame, throwflag);
  const Frame* const outer = frame_passed_on;
  frame_passed_on = frame;
  PyObject* result = previous(thread, frame, throwflag);
  frame_passed_on = outer;
  return result;
}

bool can_drive(PyThreadState* thread, Frame* frame) {
  PyCodeObject* code = view::code(frame);
  return !view::is_observed(thread, code) && view::has_recursion_left(thread, 1) &&
         code->_co_firsttraceable < Py_SIZE(code) && thread->interp == get_host_state().interpreter;
}

}  // namespace reprise::host
