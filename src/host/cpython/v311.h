// CPython 3.11: the internals that frame_view.h gives to the evaluator. Layout facts hold for every 3.11.x.
//
// A frame stands at the unit in front of the next one (`prev_instr`), and a thread reaches its frames through a chain
// of _PyCFrame on the C stack, one for each evaluator. Tracing is a bit in that _PyCFrame.
#pragma once

#include <Python.h>

#pragma push_macro("HAVE_STD_ATOMIC")
#pragma push_macro("_PyGC_FINALIZED")
#undef HAVE_STD_ATOMIC  // the flavour of pycore_atomic.h that is C++
#undef _PyGC_FINALIZED
#define Py_BUILD_CORE 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#pragma GCC diagnostic pop
#undef Py_BUILD_CORE
#pragma pop_macro("_PyGC_FINALIZED")
#pragma pop_macro("HAVE_STD_ATOMIC")

#include <climits>
#include <cstdint>

#include "host/cpython/frame.h"

namespace reprise::host::view {

inline constexpr bool kCallerClearsFrame = true;  // a frame that returns is cleared by who made it

inline PyCodeObject* code(const Frame* frame) { return frame->f_code; }
inline void replace_code(Frame* frame, PyCodeObject* code) { frame->f_code = code; }
inline PyObject* function(const Frame* frame) { return reinterpret_cast<PyObject*>(frame->f_func); }

inline int32_t next_unit(const Frame* frame) {
  return static_cast<int32_t>(frame->prev_instr + 1 - _PyCode_CODE(frame->f_code));
}
inline int32_t current_unit(const Frame* frame) {
  return static_cast<int32_t>(frame->prev_instr - _PyCode_CODE(frame->f_code));
}
inline void set_boundary(Frame* frame, int32_t unit) { frame->prev_instr = _PyCode_CODE(frame->f_code) + unit - 1; }
/// "Executing the instruction at `first + unit`".
inline void set_current(Frame* frame, _Py_CODEUNIT* first, int32_t unit) { frame->prev_instr = first + unit; }
/// In front of RESUME: the frame does not show in tracebacks.
inline bool is_incomplete(const Frame* frame) { return _PyFrame_IsIncomplete(const_cast<Frame*>(frame)); }

inline bool has_pending_work(PyThreadState* thread) {
  return __atomic_load_n(&thread->interp->ceval.eval_breaker._value, __ATOMIC_RELAXED) != 0;
}

/// Tracing, profiling or monitoring is on for what this frame does.
inline bool is_observed(PyThreadState* thread, PyCodeObject*) { return thread->cframe->use_tracing != 0; }
inline bool has_recursion_left(PyThreadState* thread, int frames) { return thread->recursion_remaining > frames; }
inline int recursion_depth(PyThreadState* thread) { return thread->recursion_limit - thread->recursion_remaining; }
inline int c_recursion_left(PyThreadState*) { return INT_MAX; }
inline Frame* current_frame(PyThreadState* thread) { return thread->cframe->current_frame; }
inline PyObject* import_function(PyThreadState* thread) { return thread->interp->import_func; }
inline PyCodeObject* generator_code(PyGenObject* generator) { return generator->gi_code; }

/// One frame that we evaluate, linked into its thread between `enter` and `leave`.
class FrameLink {
 public:
  void enter(PyThreadState* thread, Frame* frame) {
    cframe_.use_tracing = thread->cframe->use_tracing;
    cframe_.previous = thread->cframe;
    frame->is_entry = true;
    frame->previous = cframe_.previous->current_frame;
    frame->stacktop = -1;  // the garbage collector must not look at a live value stack
    cframe_.current_frame = frame;
    thread->cframe = &cframe_;
    --thread->recursion_remaining;
  }
  void leave(PyThreadState* thread) {
    thread->cframe = cframe_.previous;
    thread->cframe->use_tracing = cframe_.use_tracing;
    ++thread->recursion_remaining;
  }
  /// A callee has switched tracing on: CPython must go on.
  bool is_interrupted(PyThreadState*) const { return cframe_.use_tracing != 0; }

 private:
  _PyCFrame cframe_;
};

}  // namespace reprise::host::view
