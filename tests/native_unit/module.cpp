// Traces, guard programs, entries and exits for Python tests: conversion only.
//
// A trace is described by a dict (see builder.py) and held by a capsule, as is an entry.
#include <Python.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "entry/entry.h"
#include "guards/dispatcher.h"
#include "host/cpython/class_lookup.h"
#include "host/cpython/hook.h"
#include "host/cpython/watch.h"
#include "runtime/execute.h"
#include "trace/liveness.h"
#include "trace/object_text.h"
#include "trace/trace.h"

namespace {

using namespace reprise;
using trace::Trace;
using trace::ValueId;

constexpr char kTrace[] = "trace";
constexpr char kEntry[] = "entry";
constexpr char kDispatcher[] = "dispatcher";

struct Failed {};  // a Python exception is set

template <class T>
T* checked(T* object) {
  if (object == nullptr) throw Failed{};
  return object;
}

long to_long(PyObject* object) {
  const long value = PyLong_AsLong(object);
  if (value == -1 && PyErr_Occurred()) throw Failed{};
  return value;
}

PyObject* to_text(const std::string& text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* get(PyObject* dict, const char* name) { return checked(PyDict_GetItemString(dict, name)); }
PyObject* none_to_null(PyObject* object) { return object == Py_None ? nullptr : object; }

std::vector<int32_t> to_ids(PyObject* sequence) {
  std::vector<int32_t> ids;
  for (Py_ssize_t i = 0; i < PyTuple_Size(sequence); i++)
    ids.push_back(static_cast<int32_t>(to_long(PyTuple_GET_ITEM(sequence, i))));
  return ids;
}

trace::NodeKind find_node_kind(PyObject* name) {
  static const std::map<std::string_view, trace::NodeKind> kKinds = {
#define X(name, text, category, arity, payload) {#name, trace::NodeKind::name},
#include "trace/node_kinds.def"
  };
  const auto found = kKinds.find(PyUnicode_AsUTF8(name));
  if (found == kKinds.end()) {
    PyErr_Format(PyExc_ValueError, "no node kind %R", name);
    throw Failed{};
  }
  return found->second;
}

trace::FactKind find_fact_kind(PyObject* name) {
  static const std::map<std::string_view, trace::FactKind> kKinds = {
#define X(name, text, payload) {#name, trace::FactKind::name},
#include "trace/fact_kinds.def"
  };
  const auto found = kKinds.find(PyUnicode_AsUTF8(name));
  if (found == kKinds.end()) {
    PyErr_Format(PyExc_ValueError, "no fact kind %R", name);
    throw Failed{};
  }
  return found->second;
}

// ---- traces

void add_item(Trace& trace, PyObject* item) {
  // ("node", kind, operands, object, n, pre, snapshot) or ("guard", value, kind, object, n, snapshot); `...` is no
  // object
  auto at = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(item, i); };
  auto object_at = [&](Py_ssize_t i) { return at(i) == Py_Ellipsis ? nullptr : at(i); };
  if (PyUnicode_CompareWithASCIIString(at(0), "node") == 0) {
    const std::vector<int32_t> operands = to_ids(at(2));
    const ValueId id = trace.add_node(find_node_kind(at(1)), operands, object_at(3),
                                      static_cast<int32_t>(to_long(at(4))), at(5) == Py_True);
    trace.values[id].snapshot = static_cast<int32_t>(to_long(at(6)));
  } else {
    trace.add_guard(static_cast<ValueId>(to_long(at(1))), find_fact_kind(at(2)), object_at(3), to_long(at(4)),
                    static_cast<int32_t>(to_long(at(5))));
  }
}

trace::FrameState to_frame_state(PyObject* spec) {
  trace::FrameState state;
  state.function = Py_XNewRef(none_to_null(get(spec, "function")));
  state.function_value = static_cast<ValueId>(to_long(get(spec, "function_value")));
  state.code = reinterpret_cast<PyCodeObject*>(Py_NewRef(get(spec, "code")));
  state.unit = static_cast<int32_t>(to_long(get(spec, "unit")));
  state.op_unit = static_cast<int32_t>(to_long(get(spec, "op_unit")));
  state.slots = to_ids(get(spec, "slots"));
  state.mode = static_cast<host::ResumeMode>(to_long(get(spec, "mode")));
  state.mode_value = static_cast<ValueId>(to_long(get(spec, "mode_value")));
  state.generator_value = static_cast<ValueId>(to_long(get(spec, "generator_value")));
  state.caller = static_cast<int32_t>(to_long(get(spec, "caller")));
  return state;
}

std::unique_ptr<Trace> to_trace(PyObject* spec) {
  auto trace = std::make_unique<Trace>();
  auto for_each = [&](const char* name, auto function) {
    PyObject* list = get(spec, name);
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) function(PyList_GET_ITEM(list, i));
  };
  for_each("items", [&](PyObject* item) { add_item(*trace, item); });
  for_each("frame_states", [&](PyObject* state) { trace->frame_states.push_back(to_frame_state(state)); });
  for_each("snapshots", [&](PyObject* snapshot) {
    trace->snapshots.push_back({static_cast<int32_t>(to_long(PyTuple_GET_ITEM(snapshot, 0))),
                                static_cast<int32_t>(to_long(PyTuple_GET_ITEM(snapshot, 1))),
                                static_cast<ValueId>(to_long(PyTuple_GET_ITEM(snapshot, 2))),
                                PyTuple_GET_ITEM(snapshot, 3) == Py_True});
  });
  for_each("tensor_metas", [&](PyObject* tensor) { trace->tensor_metas.push_back(host::make_tensor_meta(tensor)); });
  for_each("type_versions", [&](PyObject* pair) {
    auto* type = reinterpret_cast<PyTypeObject*>(Py_NewRef(PyTuple_GET_ITEM(pair, 0)));
    const auto [name, qualified_name] = host::get_class_names(type);
    trace->type_versions.push_back({type,
                                    host::get_type_version(type),
                                    PyTuple_GET_ITEM(pair, 1) == Py_True,
                                    Py_NewRef(type->tp_mro),
                                    {Py_XNewRef(name), Py_XNewRef(qualified_name)}});
  });
  for_each("type_lookups", [&](PyObject* pair) {
    auto* type = reinterpret_cast<PyTypeObject*>(Py_NewRef(PyTuple_GET_ITEM(pair, 0)));
    PyObject* name = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    trace->type_lookups.push_back({type, nullptr, name, Py_XNewRef(host::find_in_class(type, name))});
  });
  trace->state_word = host::capture_state_word();
  trace->function = Py_NewRef(get(spec, "function"));
  trace->code = reinterpret_cast<PyCodeObject*>(Py_NewRef(get(spec, "code")));
  trace->globals = Py_NewRef(get(spec, "globals"));
  trace->unit = static_cast<int32_t>(to_long(get(spec, "unit")));
  trace->slot_count = static_cast<int32_t>(to_long(get(spec, "slot_count")));
  trace->result = static_cast<ValueId>(to_long(get(spec, "result")));
  trace->end_snapshot = static_cast<int32_t>(to_long(get(spec, "end_snapshot")));
  trace->end = trace->result >= 0 ? trace::EndKind::Return : trace::EndKind::Exit;
  trace->end_text = PyUnicode_AsUTF8(get(spec, "end_text"));
  return trace;
}

Trace& get_trace(PyObject* capsule) { return *static_cast<Trace*>(checked(PyCapsule_GetPointer(capsule, kTrace))); }
entry::Entry& get_entry(PyObject* capsule) {
  return *static_cast<entry::Entry*>(checked(PyCapsule_GetPointer(capsule, kEntry)));
}

PyObject* py_make_trace(PyObject*, PyObject* spec) {
  return PyCapsule_New(to_trace(spec).release(), kTrace,
                       [](PyObject* capsule) { delete static_cast<Trace*>(PyCapsule_GetPointer(capsule, kTrace)); });
}

PyObject* py_print_trace(PyObject*, PyObject* capsule) { return to_text(trace::print_trace(get_trace(capsule))); }
PyObject* py_verify_trace(PyObject*, PyObject* capsule) { return to_text(trace::verify_trace(get_trace(capsule))); }
PyObject* py_describe_object(PyObject*, PyObject* object) { return to_text(trace::describe_object(object)); }

PyObject* py_describe_values(PyObject*, PyObject* capsule) {
  const Trace& trace = get_trace(capsule);
  PyObject* list = PyList_New(0);
  for (size_t i = 0; i < trace.values.size(); i++) {
    PyObject* text = to_text(trace::describe_value(trace, static_cast<ValueId>(i)));
    PyList_Append(list, text);
    Py_DECREF(text);
  }
  return list;
}

PyObject* py_describe_guards(PyObject*, PyObject* capsule) {
  const Trace& trace = get_trace(capsule);
  PyObject* list = PyList_New(0);
  for (const trace::Guard& guard : trace.guards) {
    PyObject* text = to_text(trace::describe_guard(trace, guard));
    PyList_Append(list, text);
    Py_DECREF(text);
  }
  return list;
}

PyObject* py_truncate(PyObject*, PyObject* args) {
  PyObject* capsule;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(args, "On", &capsule, &count)) return nullptr;
  get_trace(capsule).truncate(static_cast<size_t>(count));
  Py_RETURN_NONE;
}

// (is live, last use) a value; None for never, "end" for the end
PyObject* py_liveness(PyObject*, PyObject* capsule) {
  const trace::Liveness liveness = trace::compute_liveness(get_trace(capsule));
  PyObject* list = PyList_New(0);
  for (size_t i = 0; i < liveness.is_live.size(); i++) {
    const int32_t last = liveness.last_use[i];
    PyObject* use = last == trace::kNeverUsed   ? Py_NewRef(Py_None)
                    : last == trace::kUsedAtEnd ? to_text("end")
                                                : PyLong_FromLong(last);
    PyObject* pair = Py_BuildValue("(NN)", PyBool_FromLong(liveness.is_live[i]), use);
    PyList_Append(list, pair);
    Py_DECREF(pair);
  }
  return list;
}

PyObject* py_time_liveness(PyObject*, PyObject* capsule) {
  const auto start = std::chrono::steady_clock::now();
  trace::compute_liveness(get_trace(capsule));
  return PyFloat_FromDouble(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

// ---- entries

// Takes the trace out of its description, so that the entry owns it.
PyObject* py_make_entry(PyObject*, PyObject* spec) {
  std::string reason;
  std::unique_ptr<entry::Entry> entry = entry::make_entry(to_trace(spec), &reason);
  if (entry == nullptr) {
    PyErr_SetString(PyExc_ValueError, reason.c_str());
    return nullptr;
  }
  return PyCapsule_New(entry.release(), kEntry, [](PyObject* capsule) {
    delete static_cast<entry::Entry*>(PyCapsule_GetPointer(capsule, kEntry));
  });
}

std::vector<PyObject*> to_args(entry::Entry& entry, PyObject* list) {
  std::vector<PyObject*> args(static_cast<size_t>(entry.trace().slot_count) + 1, nullptr);
  for (Py_ssize_t i = 0; i < PyList_Size(list); i++) args[static_cast<size_t>(i)] = PyList_GET_ITEM(list, i);
  return args;
}

PyObject* py_check(PyObject*, PyObject* args) {
  PyObject *capsule, *list;
  if (!PyArg_ParseTuple(args, "OO", &capsule, &list)) return nullptr;
  entry::Entry& entry = get_entry(capsule);
  const std::vector<PyObject*> slots = to_args(entry, list);
  runtime::RunState state;
  return PyBool_FromLong(runtime::check_guards(entry, slots.data(), state));
}

struct LastExit {
  int calls = 0;
  runtime::ExitInfo info;
};

// result, or raises; `exits` is a list to which (kind, guard, item, snapshot) of the exit is appended
PyObject* py_run(PyObject*, PyObject* args) {
  PyObject *capsule, *list, *exits;
  if (!PyArg_ParseTuple(args, "OOO", &capsule, &list, &exits)) return nullptr;
  entry::Entry& entry = get_entry(capsule);
  const std::vector<PyObject*> slots = to_args(entry, list);
  runtime::RunState state;
  if (!runtime::check_guards(entry, slots.data(), state)) {
    PyErr_SetString(PyExc_LookupError, entry.describe_last_failure().c_str());
    return nullptr;
  }
  runtime::ExitInfo info;
  info.on_exit = [](void* context, entry::Entry&, const runtime::ExitInfo& exit) {
    PyObject* row = Py_BuildValue("(iiii)", static_cast<int>(exit.kind), exit.guard, exit.item, exit.snapshot);
    PyList_Append(static_cast<PyObject*>(context), row);
    Py_DECREF(row);
  };
  auto continue_frame = [](void*, PyThreadState* thread, host::Frame* frame, int throwflag) {
    return host::run_default(thread, frame, throwflag);
  };
  return runtime::run_entry(PyThreadState_Get(), entry, state, nullptr, continue_frame, exits, &info);
}

PyObject* py_print_entry(PyObject*, PyObject* capsule) { return to_text(get_entry(capsule).print()); }
PyObject* py_print_guards(PyObject*, PyObject* capsule) { return to_text(get_entry(capsule).guards().print()); }
PyObject* py_describe_failure(PyObject*, PyObject* capsule) {
  return to_text(get_entry(capsule).describe_last_failure());
}
PyObject* py_drop_stamps(PyObject*, PyObject* capsule) {
  get_entry(capsule).guards().drop_stamps();
  Py_RETURN_NONE;
}

PyObject* py_explain(PyObject*, PyObject* args) {
  PyObject *capsule, *list;
  if (!PyArg_ParseTuple(args, "OO", &capsule, &list)) return nullptr;
  entry::Entry& entry = get_entry(capsule);
  return to_text(entry.guards().explain(to_args(entry, list).data()));
}

PyObject* py_statistics(PyObject*, PyObject* capsule) {
  const entry::Entry& entry = get_entry(capsule);
  const guards::GuardProgram::Statistics guards = get_entry(capsule).guards().statistics();
  return Py_BuildValue("{s:K,s:K,s:K,s:n,s:n,s:n,s:n,s:n,s:K,s:K,s:K,s:K,s:n,s:n}", "full", guards.full_passes,
                       "stamped", guards.stamped_passes, "repairs", guards.repairs, "ops", guards.op_count, "words",
                       guards.word_count, "slow", guards.slow_op_count, "tensors", guards.tensor_count, "sets",
                       guards.stamp_set_count, "runs", entry.statistics.runs, "failures",
                       entry.statistics.guard_failures, "end_exits", entry.statistics.end_exits, "error_exits",
                       entry.statistics.error_exits, "steps", static_cast<Py_ssize_t>(entry.steps().size()), "bytes",
                       static_cast<Py_ssize_t>(entry.size_bytes()));
}

template <typename Body>
double best_of_rounds_us(int64_t repeat, Body body) {
  double best_us = 1e30;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeat; ++i) body();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    best_us = std::min(best_us, time.count() / static_cast<double>(repeat));
  }
  return best_us;
}

// microseconds of one look at the guards, the best of seven rounds
PyObject* py_time_check(PyObject*, PyObject* args) {
  PyObject *capsule, *list;
  long repeat;
  int drop;
  if (!PyArg_ParseTuple(args, "OOlp", &capsule, &list, &repeat, &drop)) return nullptr;
  entry::Entry& entry = get_entry(capsule);
  const std::vector<PyObject*> slots = to_args(entry, list);
  bool ok = true;
  const double time = best_of_rounds_us(repeat, [&] {
    if (drop) entry.guards().drop_stamps();
    runtime::RunState state;
    ok &= runtime::check_guards(entry, slots.data(), state);
  });
  return Py_BuildValue("(dN)", time, PyBool_FromLong(ok));
}

// microseconds of one whole run, exits included
PyObject* py_time_run(PyObject*, PyObject* args) {
  PyObject *capsule, *list;
  long repeat;
  if (!PyArg_ParseTuple(args, "OOl", &capsule, &list, &repeat)) return nullptr;
  entry::Entry& entry = get_entry(capsule);
  const std::vector<PyObject*> slots = to_args(entry, list);
  PyThreadState* thread = PyThreadState_Get();
  bool ok = true;
  const double time = best_of_rounds_us(repeat, [&] {
    runtime::RunState state;
    runtime::ExitInfo info;
    if (!ok || !runtime::check_guards(entry, slots.data(), state)) return;
    PyObject* result = runtime::run_entry(thread, entry, state, nullptr, host::continue_default, nullptr, &info);
    ok = result != nullptr;
    Py_XDECREF(result);
  });
  return ok ? PyFloat_FromDouble(time) : nullptr;
}

// ---- dispatcher

struct DispatcherHandle {
  std::vector<PyObject*> capsules;
  std::vector<guards::GuardProgram*> programs;
  guards::Dispatcher dispatcher;
  ~DispatcherHandle() {
    for (PyObject* capsule : capsules) Py_DECREF(capsule);
  }
};

DispatcherHandle& get_dispatcher(PyObject* capsule) {
  return *static_cast<DispatcherHandle*>(checked(PyCapsule_GetPointer(capsule, kDispatcher)));
}

PyObject* py_make_dispatcher(PyObject*, PyObject* entries) {
  auto* handle = new DispatcherHandle();
  for (Py_ssize_t i = 0; i < PyList_Size(entries); i++) {
    handle->capsules.push_back(Py_NewRef(PyList_GET_ITEM(entries, i)));
    handle->programs.push_back(&get_entry(handle->capsules.back()).guards());
  }
  handle->dispatcher.rebuild(handle->programs);
  return PyCapsule_New(handle, kDispatcher, [](PyObject* capsule) {
    delete static_cast<DispatcherHandle*>(PyCapsule_GetPointer(capsule, kDispatcher));
  });
}

PyObject* py_find_candidates(PyObject*, PyObject* args) {
  PyObject *capsule, *list;
  if (!PyArg_ParseTuple(args, "OO", &capsule, &list)) return nullptr;
  DispatcherHandle& handle = get_dispatcher(capsule);
  const std::vector<PyObject*> slots = to_args(get_entry(handle.capsules[0]), list);
  PyObject* result = PyList_New(0);
  for (int32_t index : handle.dispatcher.find_candidates(slots.data())) {
    PyObject* number = PyLong_FromLong(index);
    PyList_Append(result, number);
    Py_DECREF(number);
  }
  return result;
}

int32_t look_up(DispatcherHandle& handle, PyObject* const* slots) {
  for (int32_t index : handle.dispatcher.find_candidates(slots)) {
    runtime::RunState state;
    if (!runtime::check_guards(get_entry(handle.capsules[static_cast<size_t>(index)]), slots, state)) continue;
    handle.dispatcher.note_hit(index);
    return index;
  }
  return -1;
}

PyObject* py_look_up(PyObject*, PyObject* args) {
  PyObject *capsule, *list;
  if (!PyArg_ParseTuple(args, "OO", &capsule, &list)) return nullptr;
  DispatcherHandle& handle = get_dispatcher(capsule);
  const std::vector<PyObject*> slots = to_args(get_entry(handle.capsules[0]), list);
  return PyLong_FromLong(look_up(handle, slots.data()));
}

// microseconds of one look-up, over a list of argument lists in turn
PyObject* py_time_look_up(PyObject*, PyObject* args) {
  PyObject *capsule, *calls;
  long repeat;
  if (!PyArg_ParseTuple(args, "OOl", &capsule, &calls, &repeat)) return nullptr;
  DispatcherHandle& handle = get_dispatcher(capsule);
  std::vector<std::vector<PyObject*>> slots;
  for (Py_ssize_t i = 0; i < PyList_Size(calls); i++)
    slots.push_back(to_args(get_entry(handle.capsules[0]), PyList_GET_ITEM(calls, i)));
  size_t next = 0;
  bool ok = true;
  const double time = best_of_rounds_us(repeat, [&] {
    ok &= look_up(handle, slots[next].data()) >= 0;
    next = next + 1 == slots.size() ? 0 : next + 1;
  });
  return Py_BuildValue("(dN)", time, PyBool_FromLong(ok));
}

PyObject* py_traverse(PyObject*, PyObject* capsule) {
  PyObject* found = PyList_New(0);
  get_entry(capsule).traverse(
      [](PyObject* object, void* list) { return PyList_Append(static_cast<PyObject*>(list), object); }, found);
  return found;
}

// ---- the module

template <PyCFunction Function>
PyObject* guarded(PyObject* self, PyObject* argument) {
  try {
    return Function(self, argument);
  } catch (const Failed&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_KeyError, "a field of the description is missing");
    return nullptr;
  } catch (const base::InternalError& error) {
    PyErr_SetString(PyExc_AssertionError, error.what());
    return nullptr;
  }
}

PyMethodDef kMethods[] = {
#define ONE(name) {#name, guarded<py_##name>, METH_O, nullptr}
#define MANY(name) {#name, guarded<py_##name>, METH_VARARGS, nullptr}
    ONE(make_trace),       ONE(print_trace),
    ONE(verify_trace),     ONE(describe_object),
    ONE(describe_values),  ONE(describe_guards),
    MANY(truncate),        ONE(liveness),
    ONE(time_liveness),    ONE(make_entry),
    MANY(check),           MANY(run),
    ONE(print_entry),      ONE(print_guards),
    ONE(describe_failure), ONE(drop_stamps),
    MANY(explain),         ONE(statistics),
    MANY(time_check),      MANY(time_run),
    ONE(make_dispatcher),  MANY(find_candidates),
    MANY(look_up),         MANY(time_look_up),
    ONE(traverse),         {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "entry_tests", nullptr, -1, kMethods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) PyObject* PyInit_entry_tests() {
  if (!host::prepare()) return nullptr;
  return PyModule_Create(&kModule);
}
