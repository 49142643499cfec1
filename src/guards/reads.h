// Reads of the heap and pure operations, as nodes of the trace IR mean them. Used by guard programs, which must run no
// Python code, and by steps.
#pragma once

#include <Python.h>

#include <cstdint>

#include "trace/trace.h"

namespace reprise::guards {

struct ReadResult {
  PyObject* object = nullptr;  // nullptr: the thing read is missing
  bool is_new = false;         // the reader owns it
  bool has_failed = false;     // the operand is not what this read is for
};

/// A node of category Read with one operand, which may be NULL: then the result is. No Python code runs; no exception
/// is set. Borrowed but for Length and Slot.
ReadResult read_value(trace::NodeKind kind, int32_t n, PyObject* object, PyObject* operand);
/// The same for DictItemByIdentity.
ReadResult read_item_by_identity(PyObject* dict, PyObject* key);

/// A node of category Py, or a Tuple or Slice. A new reference, or nullptr with an exception set. May run Python code
/// if operands are not plain.
PyObject* run_operation(trace::NodeKind kind, int32_t n, PyObject* object, PyObject* const* operands, size_t count);

/// Whether run_operation runs no Python code on these operands.
bool is_plain_operation(trace::NodeKind kind, PyObject* const* operands, size_t count);
/// Whether its result stays the same as long as the operands are the same objects.
bool is_constant_operation(trace::NodeKind kind, PyObject* const* operands, size_t count);
/// Calling it runs C code only, if its arguments are plain.
bool is_plain_callable(PyObject* callable);

}  // namespace reprise::guards
