// The exceptions that instructions raise, in CPython's words.
#pragma once

#include <Python.h>

namespace reprise::interp {

/// `raise exception` or `raise exception from cause` (nullptr: none). Always leaves an exception set.
void raise_exception(PyObject* exception, PyObject* cause);

/// What stands behind `except` is a class of exceptions or a tuple of them; otherwise sets a TypeError.
bool check_except_class(PyObject* type);

/// A mapping could not be merged into the keywords of a call: makes a TypeError of what is set.
void explain_keyword_error(PyObject* callable, PyObject* keywords);

/// What stands behind * in a call is not iterable.
void explain_star_error(PyObject* callable, PyObject* arguments);

}  // namespace reprise::interp
