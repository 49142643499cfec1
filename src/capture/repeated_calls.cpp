// Calls that are executed again each time: what they give is a value of the run, of which nothing is known but what
// facts say.
#include <algorithm>
#include <cstring>

#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "capture/type_names.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

// A function behind functools.lru_cache is taken to be pure. With constant arguments it is not called again, unless
// what it gives are tensors, which the trace must not keep.
Outcome Recorder::call_cached(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  if (!fix_callable(callable)) return Outcome::Stop;
  bool is_fixed = true;
  for (int i = 0; i < n && is_fixed; i++) {
    is_fixed = !host::is_tensor(args[i].object) && !varies(args[i].id) && !depends_on_data(args[i].id);
  }
  if (is_fixed && fix_folded_arguments(args, n)) return call_folded(callable, args, n, kwnames, out);
  if (!active_) return Outcome::Stop;
  for (int i = 0; i < n; i++) {
    if (host::is_tensor(args[i].object) && !facts_[args[i].id].is_meta_tainted && !know_tensor(args[i])) {
      return Outcome::Stop;
    }
  }
  PyObject* result = call_live_alone(callable.object, args, n, kwnames);
  if (result == nullptr) {
    lose("a cached function that raised");
    return Outcome::Raised;
  }
  return finish_repeated(callable, args, n, kwnames, result, out);
}

Outcome Recorder::call_repeated(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  PyObject* result = call_live_c(callable.object, args, n, kwnames);
  const bool saw_callback = last_call_ran_python_;
  if (result == nullptr) {
    lose("a call of " + callable_name(callable.object) + " that raised");
    return Outcome::Raised;
  }
  const Outcome outcome = finish_repeated(callable, args, n, kwnames, result, out);
  if (out->id >= 0) note_effect_node(NodeKind::SyncCall, out->id);  // executing it again might change something twice
  if (saw_callback) forget_after_callback();
  return outcome;
}

// Functions of numpy in C. Arrays can be changed through any of their views, so nothing of what they hold is known:
// each call is made again, in its place. Of numbers they give numbers.
Outcome Recorder::call_numpy(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  if (!fix_callable(callable)) return Outcome::Stop;
  auto is_number_constant = [&](const Operand& o) { return is_constant(o.id) && is_number(o.object); };
  const bool is_ufunc = std::strcmp(Py_TYPE(callable.object)->tp_name, "numpy.ufunc") == 0;
  if (is_ufunc && kwnames == nullptr && std::all_of(args, args + n, is_number_constant)) {
    PyObject* result = call_live(callable.object, args, n, kwnames);
    if (result == nullptr) {
      lose("a function of numpy that raised");
      return Outcome::Raised;
    }
    const bool is_array = PyTuple_Check(result) || std::strcmp(Py_TYPE(result)->tp_name, "numpy.ndarray") == 0;
    if (!is_array) {
      *out = new_constant(result);
      return Outcome::Done;
    }
    return finish_repeated(callable, args, n, kwnames, result, out);
  }
  return call_repeated(callable, args, n, kwnames, out);
}

// A function of a module of CPython, on objects of numpy.
Outcome Recorder::call_builtin(const char* module_name, const char* name, std::initializer_list<Operand> args,
                               Operand* out) {
  PyObject* module = PyImport_ImportModule(module_name);
  PyObject* function = module != nullptr ? PyObject_GetAttrString(module, name) : nullptr;
  Py_XDECREF(module);
  if (function == nullptr) {
    PyErr_Clear();
    return stop("an operator of numpy");
  }
  const Outcome outcome =
      call_repeated({function, constant_id(function)}, args.begin(), static_cast<int>(args.size()), nullptr, out);
  Py_DECREF(function);
  return outcome;
}

Outcome Recorder::finish_repeated(Operand callable, const Operand* args, int n, PyObject* kwnames, PyObject* stolen,
                                  Operand* out) {
  std::vector<ValueId> operands{callable.id};
  for (int i = 0; i < n; i++) operands.push_back(args[i].id);
  const ValueId id = emit(host::is_tensor(stolen) ? NodeKind::TensorCall : NodeKind::SyncCall, operands, kwnames);
  if (id >= 0) {
    trace_->values[id].runs_python = trace_->values[id].is_tainted = true;
    facts_[id].is_present = facts_[id].is_repeated = true;
    facts_[id].is_meta_tainted = host::is_tensor(stolen);
    has_outer_graph_ = true;
  }
  *out = {stolen, id};
  return Outcome::Done;
}

}  // namespace reprise::capture
