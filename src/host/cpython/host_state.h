// The process-wide things of this folder, all in one place, and why each must exist. Private to host/cpython.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/cpython/hook.h"
#include "host/cpython/names.h"

namespace reprise::host {

struct CaptureRequest;

struct HostState {
  // The hook (hook.cpp): PEP 523 knows one hook of an interpreter.
  FrameHook client = nullptr;    // who gets the frames; nullptr: not installed
  FrameHook previous = nullptr;  // what is below ours, or was when it was put in last
  FrameHook base = nullptr;      // what was there when ours was put in first; nullptr: ours is nowhere in the chain
  int temporary_installs = 0;    // rebuild needs the hook for the moment of a placeholder call
  int suspensions = 0;           // deep recursions that run without the hook
  CaptureRequest* captures = nullptr;  // innermost first; of all threads

  // Made once by prepare().
  PyInterpreterState* interpreter = nullptr;  // the main one; the only one that we work in
  Py_ssize_t code_extra_index = -1;           // where a code object keeps its CodeInfo
  PyObject* pending_function = nullptr;       // lambda: None; its RESUME does CPython's pending work
  PyCodeObject* pending_code = nullptr;
  PyCodeObject* trampoline_code = nullptr;  // RETURN_VALUE: finishes a frame with a value
  PyObject* placeholder = nullptr;          // the argument by which a captured frame is recognised
  vectorcallfunc function_vectorcall = nullptr;
  Names names;

  // Functions of one raw instruction, made at first use (micro_ops.cpp). There are half a dozen of them.
  struct MicroFunction {
    uint32_t key = 0;
    PyObject* function = nullptr;
  };
  MicroFunction micro_functions[16];

  // Watchers (watch.cpp): the interpreter hands out eight of each kind.
  int dict_watcher = -1;
  int type_watcher = -1;
  uint64_t watch_epoch = 0;
};

extern HostState host_state;
inline HostState& get_host_state() { return host_state; }

/// Puts our entry point in or out, as the state wants it (hook.cpp).
void update_eval_frame();

// The parts of prepare() that belong to other files.
bool prepare_decoding(HostState* state);  // false with an exception set
void prepare_watchers(HostState* state);  // without watchers when there are none left

}  // namespace reprise::host
