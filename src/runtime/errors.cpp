#include "runtime/errors.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"

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

bool is_strict() {
  const char* text = std::getenv("REPRISE_STRICT");
  return text != nullptr && std::strcmp(text, "0") != 0 && *text != '\0';
}

void report_bug(const base::InternalError& error) {
  if (is_strict()) throw error;
  static bool is_reported = false;
  if (std::exchange(is_reported, true)) return;
  base::write_message(std::string("internal error, please report it: ") + error.what() +
                      "; the entry is dropped and the program goes on in CPython");
}

PyObject* raise_bug(const base::InternalError& error) {
  PyErr_Format(PyExc_SystemError, "internal error of Reprise, please report it: %s", error.what());
  return nullptr;
}

}  // namespace reprise::runtime
