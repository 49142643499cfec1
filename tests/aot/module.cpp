// aot as a Python module, for the tests of this folder: a Python callable stands for a recorded region.
//
// A region is a capsule. The callable takes a list of tensors and returns a flat list of tensors.
#include <Python.h>

#include <string>

#include "aot/region.h"
#include "aot/traced_code.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "host/torch/trace_tensor.h"

namespace {

using namespace reprise;

host::TraceRun* current_run = nullptr;

const std::shared_ptr<host::TraceContext>& trace_context() {
  static auto* const context = new std::shared_ptr<host::TraceContext>(std::make_shared<host::TraceContext>());
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
    current_run = run;
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(inputs.size()));
    for (size_t i = 0; i < inputs.size(); i++) PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(inputs[i]));
    PyObject* result = PyObject_CallOneArg(function_, list);
    Py_DECREF(list);
    if (result == nullptr) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(result); i++) outputs.push_back(Py_NewRef(PyList_GET_ITEM(result, i)));
    Py_DECREF(result);
    return true;
  }

  void end_run() override { current_run = nullptr; }

 private:
  PyObject* function_;
};

constexpr char kTrace[] = "trace";
constexpr char kCode[] = "code";

struct Trace {
  std::shared_ptr<graph::Context> context = std::make_shared<graph::Context>();
  std::unique_ptr<aot::RegionTrace> trace;
};

template <typename T>
T& get(PyObject* capsule, const char* name) {
  return *static_cast<T*>(PyCapsule_GetPointer(capsule, name));
}
aot::TracedCode& get_code(PyObject* capsule) { return *get<std::shared_ptr<aot::TracedCode>>(capsule, kCode); }

template <typename T>
PyObject* make_capsule(std::unique_ptr<T> value, const char* name) {
  return PyCapsule_New(value.release(), name,
                       [](PyObject* capsule) { delete &get<T>(capsule, PyCapsule_GetName(capsule)); });
}

// `gradient_of` is None, or a list: which input an input is the `.grad` of, or -1.
std::vector<aot::RegionInput> list_inputs(PyObject* inputs, PyObject* gradient_of = Py_None) {
  std::vector<aot::RegionInput> result;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs); i++) {
    result.push_back({host::describe_input(PyList_GET_ITEM(inputs, i)), graph::InputKind::Plain, -1, {}});
    if (gradient_of != Py_None) {
      result.back().gradient_of = static_cast<int32_t>(PyLong_AsLong(PyList_GET_ITEM(gradient_of, i)));
    }
  }
  return result;
}

PyObject* fail(const base::Unsupported& unsupported) {
  PyErr_SetString(PyExc_RuntimeError, unsupported.text.c_str());
  return nullptr;
}

// trace(callable, inputs): the recorded graph
PyObject* py_trace(PyObject*, PyObject* args) {
  PyObject *function, *inputs;
  if (!PyArg_ParseTuple(args, "OO!", &function, &PyList_Type, &inputs)) return nullptr;
  auto result = std::make_unique<Trace>();
  PythonCallables callables(function);
  auto traced =
      aot::trace_region(*trace_context(), result->context, callables, list_inputs(inputs), host::EntryState::capture());
  if (!traced) return fail(traced.unsupported());
  result->trace = std::make_unique<aot::RegionTrace>(std::move(traced).value());
  graph::verify_graph(result->trace->graph);
  return make_capsule(std::move(result), kTrace);
}

PyObject* py_text(PyObject*, PyObject* capsule) {
  return to_python(graph::print_graph(get<Trace>(capsule, kTrace).trace->graph));
}
PyObject* py_node_count(PyObject*, PyObject* capsule) {
  return PyLong_FromSize_t(get<Trace>(capsule, kTrace).trace->graph.nodes.size());
}

// compile(callable, inputs, gradient_of=None, min_cut=False, simplified=False, decomposed=False): code
PyObject* py_compile(PyObject*, PyObject* args) {
  PyObject *function, *inputs, *gradient_of = Py_None;
  aot::TracedOptions options;
  int is_min_cut = 0, is_simplified = 0, is_decomposed = 0;
  if (!PyArg_ParseTuple(args, "OO!|Oppp", &function, &PyList_Type, &inputs, &gradient_of, &is_min_cut, &is_simplified,
                        &is_decomposed))
    return nullptr;
  if (is_min_cut != 0) options.partition = passes::PartitionMode::MinCut;
  options.is_simplified = is_simplified != 0;
  options.is_decomposed = is_decomposed != 0;
  options.is_verified = true;
  auto code = aot::make_traced_code(trace_context(), std::make_shared<PythonCallables>(function),
                                    list_inputs(inputs, gradient_of), host::EntryState::capture(),
                                    std::make_shared<aot::BoxedMaker>(), options);
  if (!code) return fail(code.unsupported());
  return make_capsule(std::make_unique<std::shared_ptr<aot::TracedCode>>(std::move(code).value()), kCode);
}

// call(code, inputs): the outputs
PyObject* py_call(PyObject*, PyObject* args) {
  PyObject *capsule, *inputs;
  if (!PyArg_ParseTuple(args, "OO!", &capsule, &PyList_Type, &inputs)) return nullptr;
  const auto code = std::static_pointer_cast<host::RegionCode>(get<std::shared_ptr<aot::TracedCode>>(capsule, kCode));
  PyObject** items = PySequence_Fast_ITEMS(inputs);
  std::vector<PyObject*> outputs;
  if (!host::call_region(code, {items, static_cast<size_t>(PyList_GET_SIZE(inputs))}, outputs)) return nullptr;
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(outputs.size()));
  for (size_t i = 0; i < outputs.size(); i++) PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), outputs[i]);
  return list;
}

PyObject* py_code_texts(PyObject*, PyObject* capsule) {
  const aot::TracedCode& code = get_code(capsule);
  return Py_BuildValue("{s:N,s:N,s:N,s:N}", "recorded", to_python(graph::print_graph(code.trace().graph)), "functional",
                       to_python(graph::print_graph(code.functional_graph())), "forward",
                       to_python(graph::print_graph(code.forward_graph())), "backward",
                       to_python(graph::print_graph(code.backward_graph())));
}

template <typename T>
PyObject* to_int_list(const std::vector<T>& numbers) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(numbers.size()));
  for (size_t i = 0; i < numbers.size(); i++) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), PyLong_FromSize_t(numbers[i]));
  }
  return list;
}

PyObject* py_counts(PyObject*, PyObject* capsule) {
  const aot::TracedCode::Counts counts = get_code(capsule).counts();
  const aot::AliasFacts& facts = get_code(capsule).trace().alias_facts;
  PyObject* groups = PyList_New(0);
  for (const auto& group : facts.groups) {
    PyObject* list = to_int_list(group);
    PyList_Append(groups, list);
    Py_DECREF(list);
  }
  return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:N,s:N,s:N,s:N,s:N}", "nodes",
                       static_cast<Py_ssize_t>(get_code(capsule).trace().graph.nodes.size()), "saved",
                       static_cast<Py_ssize_t>(get_code(capsule).forward_graph().saved.size()), "inference",
                       static_cast<Py_ssize_t>(counts.inference_instructions), "forward",
                       static_cast<Py_ssize_t>(counts.forward_instructions), "clones",
                       static_cast<Py_ssize_t>(counts.forward_clones), "backward",
                       to_int_list(counts.backward_instructions), "needs_storage_identity",
                       PyBool_FromLong(facts.needs_storage_identity), "groups", groups, "no_views",
                       to_int_list(facts.no_views), "no_hooks", to_int_list(facts.no_hooks));
}

PyObject* py_is_trace(PyObject*, PyObject* tensor) {
  return PyBool_FromLong(current_run != nullptr && current_run->describe(tensor).value != host::kNoTraceValue);
}
PyObject* py_in_run(PyObject*, PyObject*) { return PyBool_FromLong(current_run != nullptr); }
PyObject* py_item(PyObject*, PyObject* tensor) { return current_run->item(tensor); }
PyObject* py_rng_get(PyObject*, PyObject*) { return PyLong_FromLong(current_run->get_rng_state()); }
PyObject* py_rng_set(PyObject*, PyObject* value) {
  current_run->set_rng_state(static_cast<host::TraceValueId>(PyLong_AsLong(value)));
  Py_RETURN_NONE;
}

// set_options(rules, memo, zeros, verify, timed)
PyObject* py_set_options(PyObject*, PyObject* args) {
  int rules, memo, zeros, verify, timed;  // verify: 0 off, 1 against kernels, 2 against meta kernels too
  if (!PyArg_ParseTuple(args, "pppip", &rules, &memo, &zeros, &verify, &timed)) return nullptr;
  trace_context()->options = {rules != 0, memo != 0, zeros != 0, static_cast<host::VerifyMode>(verify)};
  trace_context()->statistics = {};
  trace_context()->statistics.is_timed = timed != 0;
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
  const host::TraceStatistics& s = trace_context()->statistics;
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:N,s:N}", "rule", static_cast<long long>(s.rule_count), "memo",
                       static_cast<long long>(s.memo_count), "zeros", static_cast<long long>(s.zeros_count), "meta",
                       static_cast<long long>(s.meta_count), "fallback_ns", static_cast<long long>(s.fallback_time_ns),
                       "mismatches", to_list(s.mismatches), "without_rule", to_list(s.without_rule));
}

// check_op_table(): differences between the rows of graph/ops.def and torch's schemas
PyObject* py_check_op_table(PyObject*, PyObject*) {
  std::vector<std::string> problems;
  for (uint32_t i = 0; i < graph::kKnownOpCount; i++) {
    const graph::OpInfo& row = graph::get_op_info(static_cast<graph::OpId>(i));
    if (!row.name.starts_with("aten::")) continue;
    const std::string name(row.name);
    const host::OpInfo* op = host::find_op(row.name);
    if (op == nullptr) {
      problems.push_back(name + ": torch has no such operator");
      continue;
    }
    if (op->mutated != row.writes) {
      problems.push_back(name + ": writes " + std::to_string(row.writes) + " in the table, " +
                         std::to_string(op->mutated) + " in torch");
    }
    if (op->is_random != graph::is_random(static_cast<graph::OpId>(i))) {
      problems.push_back(name + (op->is_random ? ": random in torch" : ": random in the table"));
    }
    if (op->is_view && !graph::is_view(static_cast<graph::OpId>(i))) problems.push_back(name + ": a view in torch");
  }
  return to_list(problems);
}

PyMethodDef methods[] = {
    {"trace", py_trace, METH_VARARGS, nullptr},
    {"text", py_text, METH_O, nullptr},
    {"node_count", py_node_count, METH_O, nullptr},
    {"compile", py_compile, METH_VARARGS, nullptr},
    {"call", py_call, METH_VARARGS, nullptr},
    {"texts", py_code_texts, METH_O, nullptr},
    {"counts", py_counts, METH_O, nullptr},
    {"is_trace", py_is_trace, METH_O, nullptr},
    {"in_run", py_in_run, METH_NOARGS, nullptr},
    {"item", py_item, METH_O, nullptr},
    {"rng_get", py_rng_get, METH_NOARGS, nullptr},
    {"rng_set", py_rng_set, METH_O, nullptr},
    {"set_options", py_set_options, METH_VARARGS, nullptr},
    {"check_op_table", py_check_op_table, METH_NOARGS, nullptr},
    {"statistics", py_statistics, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "aot_tests", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_aot_tests() { return PyModule_Create(&definition); }
