// Inline access to CPython's frames and thread state, for the evaluator and for the files of this folder.
//
// v311.h, v312.h and v313.h each define the same functions and the same FrameLink in namespace `view`; they are the
// only headers that include CPython's internals. Everybody else uses frame.h.
#pragma once

#include <Python.h>

#if PY_VERSION_HEX >= 0x030E0000
#error "CPython 3.14 and later are not supported yet: write v314.h"
#elif PY_VERSION_HEX >= 0x030D0000
#include "host/cpython/v313.h"
#elif PY_VERSION_HEX >= 0x030C0000
#include "host/cpython/v312.h"
#elif PY_VERSION_HEX >= 0x030B0000
#include "host/cpython/v311.h"
#else
#error "CPython 3.11 is the oldest supported version"
#endif

#include "host/cpython/frame.h"

namespace reprise::host {

inline constexpr int kPythonMinor = PY_MINOR_VERSION;

namespace view {

inline _Py_CODEUNIT* first_unit(PyCodeObject* code) { return _PyCode_CODE(code); }

/// "About to execute `unit`": the state of a frame that is not running.
inline void set_boundary(Frame* frame, int32_t unit, PyObject** stack_pointer) {
  set_boundary(frame, unit);
  frame->stacktop = static_cast<int>(stack_pointer - frame->localsplus);
}

inline bool is_owned_by_generator(const Frame* frame) { return frame->owner == FRAME_OWNED_BY_GENERATOR; }

inline PyGenObject* generator_of(Frame* frame) {
  return reinterpret_cast<PyGenObject*>(reinterpret_cast<char*>(frame) - offsetof(PyGenObject, gi_iframe));
}

inline Frame* frame_of(PyGenObject* generator) { return reinterpret_cast<Frame*>(generator->gi_iframe); }

}  // namespace view
}  // namespace reprise::host
