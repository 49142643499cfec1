// What reprise.compile returns for a function: a Python object with its own vectorcall.
//
// A call binds its arguments to the target's parameters in C++, looks for an entry of its place and runs it; no frame
// is made. What no entry serves is recorded or called plainly. Whatever the binding refuses is left to the function
// itself, so errors are CPython's own. The target's code is looked at on every call: `f.__code__ = ...` starts anew.
//
// The object behaves as the original: name, doc, signature, attributes (read and written through), descriptor binding,
// pickling and copying. Identity decides equality and hash.
// Ownership: it owns its CompileContext and the original, and reports what entries hold to the cycle collector.
// Threads: all functions need the GIL.
#pragma once

#include <Python.h>

#include "base/options.h"
#include "runtime/compile_context.h"

namespace reprise::runtime {

/// Adds the type CompiledFunction to the module. Returns -1 with an exception set on failure.
int add_compiled_type(PyObject* module);

/// How to make a CompiledFunction.
struct CompileSpec {
  PyObject* callable = nullptr;  // what the object stands for
  base::Options options;
  PyObject* backend = nullptr;   // a str or a callable
  PyObject* settings = nullptr;  // dict of the arguments of reprise.compile, for copies; may be null
  PyTypeObject* type = nullptr;  // not null: calls are those of `type.__call__`, whose self is an argument (modules)
};

/// A new CompiledFunction. `spec.callable` may be a Python function, a bound method, a functools.partial, an object
/// with a Python `__call__`; any other callable is called as it is. Null with an exception set on failure.
PyObject* make_compiled(CompileRequests& requests, const CompileSpec& spec);

bool is_compiled(PyObject* object);

/// What a call of a compiled callable calls: `function`, with `self` (may be null) in front of the arguments. Borrowed.
/// For the recorder, which inlines compiled callables.
struct CallTarget {
  PyObject* function = nullptr;
  PyObject* self = nullptr;
};
/// {} for objects that are no CompiledFunction.
CallTarget find_call_target(PyObject* object);

/// Null for objects that are no CompiledFunction.
CompileContext* find_context(PyObject* object);

/// Drops the entries of a CompiledFunction and starts anew.
void reset_compiled(PyObject* object);

}  // namespace reprise::runtime
