// The exception types of the public API that C++ raises.
#pragma once

#include <Python.h>

#include <string>

namespace reprise::runtime {

/// Adds GraphBreak to the module. Returns -1 with an exception set on failure.
int add_exception_types(PyObject* module);

/// Sets reprise.GraphBreak: fullgraph=True and a side exit is needed. `text` names the user's line.
void raise_graph_break(const std::string& text);

}  // namespace reprise::runtime
