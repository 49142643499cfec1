// The common half of CompiledFunction and DisabledFunction: an object that stands in for a callable.
//
// It has the original's name, doc, signature and attributes (read and written through to it), binds as a method like a
// function, can be weakly referenced, and is pickled and copied by reprise._callables. Private to runtime.
#pragma once

#include <Python.h>

namespace reprise::runtime {

struct WrappedCallable {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* original;  // strong: what the user gave
  PyObject* settings;  // strong: dict of the keyword arguments that would make the object again; may be null
  PyObject* weak_references;
};

/// Slots shared by both types; fills what is not set. Returns PyType_Ready's answer.
int ready_wrapped_type(PyTypeObject* type);

int traverse_wrapped(WrappedCallable* self, visitproc visit, void* arg);
/// Drops what the object holds; for tp_clear and tp_dealloc.
void clear_wrapped(WrappedCallable* self);

}  // namespace reprise::runtime
