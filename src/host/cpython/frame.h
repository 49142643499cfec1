// CPython's real frames (_PyInterpreterFrame) as an opaque type with accessors, the same on every version.
//
// Everything outside host/cpython and the evaluator lives with this header alone: it includes no internals.
// Threads: all functions need the GIL. Results are borrowed; `find_` functions may return nullptr.
#pragma once

#include <Python.h>

#include <cstdint>

struct _PyInterpreterFrame;

namespace reprise::host {

using Frame = struct ::_PyInterpreterFrame;

PyCodeObject* get_code(const Frame* frame);
/// The function; for class bodies, modules and exec'd code also a function, made for the occasion.
PyObject* get_function(const Frame* frame);
PyObject* get_globals(const Frame* frame);
PyObject* get_builtins(const Frame* frame);
/// The namespace of a class body or module; nullptr in functions.
PyObject* find_namespace(const Frame* frame);

/// localsplus: locals, cells, free variables, then the value stack. Slots may be NULL.
PyObject** get_locals(Frame* frame);
/// Slots in use, locals included. Meaningful only for a frame that is not running.
int32_t get_slot_count(const Frame* frame);

/// The unit of the instruction that is being executed (f_lasti / 2).
int32_t get_current_unit(const Frame* frame);
/// The boundary at which a frame that is not running goes on.
int32_t get_next_unit(const Frame* frame);
/// Nothing of the frame has been executed yet: it stands at the first unit of its code.
bool is_at_start(const Frame* frame);

/// A generator, coroutine or async generator owns the frame.
bool is_generator_frame(const Frame* frame);
/// The generator, coroutine or async generator object that owns the frame.
PyObject* find_generator(Frame* frame);
/// The frame of a generator, coroutine or async generator that has not finished.
Frame* find_generator_frame(PyObject* generator);

/// Somebody may hold the frame as a Python object.
bool has_frame_object(const Frame* frame);
/// The next outer frame.
Frame* find_previous(const Frame* frame);
/// The innermost running frame of the thread.
Frame* find_current_frame(PyThreadState* thread);

}  // namespace reprise::host
