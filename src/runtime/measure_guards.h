// How long the guards of a call take: for benchmarks and the tests of their promises.
#pragma once

#include <Python.h>

#include <optional>

namespace reprise::runtime {

/// The median nanoseconds of `checks` guard checks of the entry that serves a call with these arguments (vectorcall
/// convention; a compiled module's own object comes first). Nothing if no entry serves it. Runs no Python code, counts
/// nothing. `takes_values`: with the references that the run needs; otherwise the answer alone. Threads: the GIL is
/// held throughout.
std::optional<double> measure_guards_ns(PyObject* compiled, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                                        int checks, bool takes_values);

}  // namespace reprise::runtime
