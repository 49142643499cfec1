// CPython 3.12: the internals that frame_view.h gives to the evaluator. Layout facts hold for every 3.12.x.
//
// As 3.11, but tracing goes through sys.monitoring: code objects are instrumented in place, and one version number of
// the interpreter says for which set of tools. Python and C recursion are counted apart.
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

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "host/cpython/frame.h"

namespace reprise::host::view {

inline constexpr bool kCallerClearsFrame = false;

inline PyCodeObject* code(const Frame* frame) { return frame->f_code; }
inline void replace_code(Frame* frame, PyCodeObject* code) { frame->f_code = code; }
inline PyObject* function(const Frame* frame) { return frame->f_funcobj; }

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

inline uint64_t monitoring_version(PyThreadState* thread) { return thread->interp->monitoring_version; }

/// Tracing, profiling or monitoring is on for what this frame does, or CPython has yet to take old instrumentation out
/// of its code (it does so at the next RESUME that it executes).
inline bool is_observed(PyThreadState* thread, PyCodeObject* code) {
  if (thread->tracing) return true;
  if (monitoring_version(thread) == 0 && code->_co_monitoring == nullptr) [[likely]]
    return false;
  const auto has_tools = [](const auto& monitors) {
    return std::any_of(std::begin(monitors.tools), std::end(monitors.tools), [](auto tools) { return tools != 0; });
  };
  if (has_tools(thread->interp->monitors)) return true;
  if (code->_co_monitoring == nullptr) return false;
  return code->_co_instrumentation_version != monitoring_version(thread) ||
         has_tools(code->_co_monitoring->active_monitors);
}

inline bool has_recursion_left(PyThreadState* thread, int frames) {
  return thread->py_recursion_remaining > frames && thread->c_recursion_remaining > frames + 3;
}
inline int recursion_depth(PyThreadState* thread) {
  return thread->py_recursion_limit - thread->py_recursion_remaining;
}
inline int c_recursion_left(PyThreadState* thread) { return thread->c_recursion_remaining; }
inline Frame* current_frame(PyThreadState* thread) { return thread->cframe->current_frame; }
inline PyObject* import_function(PyThreadState* thread) { return thread->interp->imports.import_func; }
inline PyCodeObject* generator_code(PyGenObject* generator) {
  return reinterpret_cast<Frame*>(generator->gi_iframe)->f_code;
}

/// One frame that we evaluate, linked into its thread between `enter` and `leave`.
class FrameLink {
 public:
  void enter(PyThreadState* thread, Frame* frame) {
    cframe_.previous = thread->cframe;
    frame->previous = cframe_.previous->current_frame;
    frame->stacktop = -1;  // the garbage collector must not look at a live value stack
    cframe_.current_frame = frame;
    thread->cframe = &cframe_;
    --thread->py_recursion_remaining;
    --thread->c_recursion_remaining;
    monitoring_version_ = monitoring_version(thread);
  }
  void leave(PyThreadState* thread) {
    thread->cframe = cframe_.previous;
    ++thread->py_recursion_remaining;
    ++thread->c_recursion_remaining;
  }
  /// A callee has changed what is monitored: CPython must go on.
  bool is_interrupted(PyThreadState* thread) const { return monitoring_version(thread) != monitoring_version_; }

 private:
  _PyCFrame cframe_;
  uint64_t monitoring_version_;
};

}  // namespace reprise::host::view
