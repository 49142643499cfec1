// aot as a Python module, for the tests of this folder: a Python callable stands for a recorded region.
//
// A region is a capsule. The callable takes a list of tensors and returns a flat list of tensors.
#include <Python.h>

#include <string>

#include "aot/region.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "host/torch/trace_tensor.h"

namespace {

using namespace reprise;

host::TraceRun* current_run = nullptr;

host::TraceContext& trace_context() {
  static auto* const context = new host::TraceContext;
  return *context;
}

PyObject* to_python(const std::string& text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

class PythonCallables final : public aot::RegionCallables {
 public:
  explicit PythonCallables(PyObject* function) : function_(Py_NewRef(function)) {}
  ~PythonCallables() override { Py_DECREF(function_); }

  bool call(std::span<PyObject* const> inputs, host::TraceRun* run, std::vector<PyObject*>& outputs) override {
    host::TraceRun* const outer = std::exchange(current_run, run);
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(inputs.size()));
    for (size_t i = 0; i < inputs.size(); i++) PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(inputs[i]));
    PyObject* result = PyObject_CallOneArg(function_, list);
    Py_DECREF(list);
    current_run = outer;
    if (result == nullptr) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(result); i++) outputs.push_back(Py_NewRef(PyList_GET_ITEM(result, i)));
    Py_DECREF(result);
    return true;
  }

 private:
  PyObject* function_;
};

struct Region {
  Region(PyObject* function) : callables(function) {}
  PythonCallables callables;
  std::shared_ptr<graph::Context> context = std::make_shared<graph::Context>();
  std::unique_ptr<aot::RegionTrace> trace;
};

constexpr char kRegion[] = "region";
Region& get_region(PyObject* capsule) { return *static_cast<Region*>(PyCapsule_GetPointer(capsule, kRegion)); }

bool get_flag(PyObject* tensor, const char* name) {
  PyObject* value = PyObject_GetAttrString(tensor, name);
  const bool result = value != nullptr && PyObject_IsTrue(value) == 1;
  Py_XDECREF(value);
  return result;
}

std::vector<aot::RegionInput> list_inputs(PyObject* inputs) {
  std::vector<aot::RegionInput> result;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs); i++) {
    PyObject* tensor = PyList_GET_ITEM(inputs, i);
    aot::RegionInput& input = result.emplace_back();
    input.example = tensor;
    input.requires_grad = get_flag(tensor, "requires_grad");
    input.is_leaf = get_flag(tensor, "is_leaf");
    PyObject* is_view = PyObject_CallMethod(tensor, "_is_view", nullptr);
    input.is_view = is_view == Py_True;
    Py_XDECREF(is_view);
  }
  return result;
}

// trace(callable, inputs): the region
PyObject* py_trace(PyObject*, PyObject* args) {
  PyObject *function, *inputs;
  if (!PyArg_ParseTuple(args, "OO!", &function, &PyList_Type, &inputs)) return nullptr;
  auto region = std::make_unique<Region>(function);
  auto traced = aot::trace_region(trace_context(), region->context, region->callables, list_inputs(inputs),
                                  host::EntryState::capture());
  if (!traced.is_ok()) {
    PyErr_SetString(PyExc_RuntimeError, traced.unsupported().text.c_str());
    return nullptr;
  }
  region->trace = std::make_unique<aot::RegionTrace>(std::move(traced).value());
  graph::verify_graph(region->trace->graph);
  return PyCapsule_New(region.release(), kRegion,
                       [](PyObject* capsule) { delete &get_region(capsule); });
}

PyObject* py_text(PyObject*, PyObject* capsule) { return to_python(graph::print_graph(get_region(capsule).trace->graph)); }
PyObject* py_node_count(PyObject*, PyObject* capsule) {
  return PyLong_FromSize_t(get_region(capsule).trace->graph.nodes.size());
}

PyObject* py_is_trace(PyObject*, PyObject* tensor) {
  return PyBool_FromLong(current_run != nullptr && current_run->describe(tensor).value != host::kNoTraceValue);
}
PyObject* py_item(PyObject*, PyObject* tensor) { return current_run->item(tensor); }
PyObject* py_rng_get(PyObject*, PyObject*) { return PyLong_FromLong(current_run->get_rng_state()); }
PyObject* py_rng_set(PyObject*, PyObject* value) {
  current_run->set_rng_state(static_cast<host::TraceValueId>(PyLong_AsLong(value)));
  Py_RETURN_NONE;
}

// set_options(rules, memo, zeros, verify, timed)
PyObject* py_set_options(PyObject*, PyObject* args) {
  int rules, memo, zeros, verify, timed;
  if (!PyArg_ParseTuple(args, "ppppp", &rules, &memo, &zeros, &verify, &timed)) return nullptr;
  trace_context().options = {rules != 0, memo != 0, zeros != 0,
                             verify != 0 ? host::VerifyMode::Kernel : host::VerifyMode::Off};
  trace_context().statistics = {};
  trace_context().statistics.is_timed = timed != 0;
  Py_RETURN_NONE;
}

PyObject* to_list(const std::vector<std::string>& texts) {
  PyObject* list = PyList_New(0);
  for (const std::string& text : texts) {
    PyObject* item = to_python(text);
    PyList_Append(list, item);
    Py_DECREF(item);
  }
  return list;
}

PyObject* py_statistics(PyObject*, PyObject*) {
  const host::TraceStatistics& s = trace_context().statistics;
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:N,s:N}", "rule", static_cast<long long>(s.rule_count), "memo",
                       static_cast<long long>(s.memo_count), "zeros", static_cast<long long>(s.zeros_count), "meta",
                       static_cast<long long>(s.meta_count), "fallback_ns", static_cast<long long>(s.fallback_time_ns),
                       "mismatches", to_list(s.mismatches), "without_rule", to_list(s.without_rule));
}

PyMethodDef methods[] = {
    {"trace", py_trace, METH_VARARGS, nullptr},
    {"text", py_text, METH_O, nullptr},
    {"node_count", py_node_count, METH_O, nullptr},
    {"is_trace", py_is_trace, METH_O, nullptr},
    {"item", py_item, METH_O, nullptr},
    {"rng_get", py_rng_get, METH_NOARGS, nullptr},
    {"rng_set", py_rng_set, METH_O, nullptr},
    {"set_options", py_set_options, METH_VARARGS, nullptr},
    {"statistics", py_statistics, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "aot_tests", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_aot_tests() { return PyModule_Create(&definition); }
