// Finding the entry that serves a call or a frame, and running it to whatever it ends in.
//
// Threads: the GIL is held.
#pragma once

#include <Python.h>

#include <span>
#include <string>

#include "host/cpython/frame.h"
#include "runtime/compile_context.h"
#include "runtime/execute.h"

namespace reprise::runtime {

/// Exits through one guard, or at one boundary, after which a recording is wanted there.
constexpr uint32_t kLateGuardPatience = 2;

/// The entry of `place` whose guards hold, with what it needs in `state`; empty and counted as a miss if there is none.
/// `function` is the function that is called or whose frame it is; `globals` are its globals; `args` have the layout of
/// localsplus; entries in `excluded` are passed over. No Python code runs.
EntryRef find_entry(Place& place, PyObject* function, PyObject* globals, PyObject* const* args, RunState& state,
                    std::span<const EntryRef> excluded = {});

/// Why no entry of the place serves `args`, for explain; empty if there is no entry. Slow.
std::string describe_miss(Place& place, PyObject* function, PyObject* globals, PyObject* const* args);

struct ServeResult {
  bool is_frame_ready = false;  // an exit ended in `root_frame`, which stands at a boundary; `value` is null
  bool made_progress = true;    // false: it stands where the entry began, and the entry would do the same again
  PyObject* value = nullptr;    // new reference; null with an exception set
};

/// Runs what find_entry found. Frames that an exit rebuilds inside the root frame are driven to their ends before it
/// returns. `root_frame`: the frame the entry was entered in; it is gone afterwards unless `is_frame_ready`. Null: the
/// entry was called; an exit makes its frame too and drives it to its end.
ServeResult serve(CompileContext& context, PyThreadState* thread, EntryRef entry, RunState& state,
                  host::Frame* root_frame);

/// Raises the exception that is set in `frame`, which is not linked, where it stands. False: it has left the frame.
bool raise_at_boundary(PyThreadState* thread, host::Frame* frame);

}  // namespace reprise::runtime
