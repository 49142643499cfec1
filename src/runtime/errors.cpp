#include "runtime/errors.h"

namespace reprise::runtime {
namespace {

PyObject* graph_break = nullptr;  // see globals.def

}  // namespace

int add_exception_types(PyObject* module) {
  if (graph_break == nullptr) {
    graph_break = PyErr_NewExceptionWithDoc(
        "reprise.GraphBreak",
        "fullgraph=True, and the program does something that cannot be compiled.\n\nRaised before the offending "
        "operation runs; the text names the line of the program.",
        PyExc_RuntimeError, nullptr);
    if (graph_break == nullptr) return -1;
  }
  return PyModule_AddObjectRef(module, "GraphBreak", graph_break);
}

void raise_graph_break(const std::string& text) {
  PyErr_SetString(graph_break == nullptr ? PyExc_RuntimeError : graph_break, text.c_str());
}

}  // namespace reprise::runtime
