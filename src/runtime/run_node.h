// Executes one node of the trace IR for real: a step of an entry, or a rebuild step of an exit.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "trace/trace.h"

namespace reprise::runtime {

/// A new reference; nullptr with an exception set; nullptr without one where the node gives NULL (a missing item, an
/// exhausted iterator). `operands` may hold NULL where the node allows it; operands[0] may be overwritten during the
/// call. Nodes that only act give None. Not for roots and generators.
PyObject* run_node(trace::NodeKind kind, int32_t n, PyObject* object, PyObject** operands, size_t count);

/// Takes `count` elements from an iterator that has given none.
bool advance_iterator(PyObject* iterator, Py_ssize_t count);

}  // namespace reprise::runtime
