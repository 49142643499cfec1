// What the test module's frame hook does with every Python frame: the modes of tests/host.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/cpython/frame.h"
#include "interp/policy.h"

namespace reprise::testing {

enum class Mode : int {
  HookOnly,  // the hook is there and passes every frame on
  Plain,     // PlainPolicy, the whole frame
  Shadow,    // ShadowPolicy: values carry ids, and every use checks that the id belongs to the object
  HandOver,  // PlainPolicy up to a boundary, then CPython on the same frame
  Rebuild,   // PlainPolicy up to a boundary, then CPython on a fresh frame with the same contents
  Reenter,   // leaves the frame at a boundary and enters it again, sometimes in a fresh frame
  Finish,    // at a boundary the frame is left with a given result
  Raise,     // at a boundary the frame raises a given exception
  Snapshot,  // as Plain, with one policy for all frames: snapshot() can see them
};

struct Settings {
  Mode mode = Mode::HookOnly;
  uint64_t countdown = 0;     // act at this boundary, counted from 1; 0: never
  uint32_t probability = 0;   // act at a boundary with this probability, scaled to 2^32
  uint64_t random = 1;        // state of the generator
  PyObject* code = nullptr;   // Finish, Raise: count boundaries of this code object only (owned)
  PyObject* value = nullptr;  // Finish: the result or the exception; Raise: the exception (owned)
};

struct Counters {
  uint64_t frames = 0;
  uint64_t boundaries = 0;
  uint64_t acted = 0;
  uint64_t rebuilt = 0;
  uint64_t skipped = 0;
};

Settings& get_settings();
Counters& get_counters();

/// The hook. Install it with host::install_frame_hook.
PyObject* on_frame(PyThreadState* thread, host::Frame* frame, int throwflag);

/// The innermost frame of mode Snapshot, or nullptr.
interp::Activation* find_innermost_activation();

}  // namespace reprise::testing
