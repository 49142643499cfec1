// Calls: Python functions with the ids of their arguments, C callables by the table, everything else by its kind.
#include "capture/callables.h"

#include <cstring>

#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"
#include "host/torch/callables.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

namespace {

/// The wrapper that torch.compiler.disable puts around a function (all optimizers wear it): for anybody but
/// torch.compile it calls what it wraps. Returns the index of the free variable that holds that, or -1.
int find_disabled_by_dynamo(PyObject* function) {
  static PyObject* kName = PyUnicode_InternFromString("_fn");
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  if (code->co_name != kName || PyFunction_GetClosure(function) == nullptr) return -1;
  if (PyUnicode_CompareWithASCIIString(code->co_qualname, "DisableContext.__call__.<locals>._fn") != 0) return -1;
  for (int i = 0; i < code->co_nfreevars; i++) {
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, code->co_nlocalsplus - code->co_nfreevars + i);
    if (PyUnicode_CompareWithASCIIString(name, "fn") == 0) return i;
  }
  return -1;
}

/// copy.copy and copy.deepcopy of such an object copy its instance dict, item by item.
bool copies_by_default(PyTypeObject* type) {
  static PyObject* const kHooks[] = {
      PyUnicode_InternFromString("__copy__"),      PyUnicode_InternFromString("__deepcopy__"),
      PyUnicode_InternFromString("__reduce_ex__"), PyUnicode_InternFromString("__reduce__"),
      PyUnicode_InternFromString("__getstate__"),  PyUnicode_InternFromString("__setstate__"),
      PyUnicode_InternFromString("__slots__")};
  for (PyObject* hook : kHooks) {
    if (host::find_in_class(type, hook) != host::find_in_class(&PyBaseObject_Type, hook)) return false;
  }
  return type->tp_new == PyBaseObject_Type.tp_new && type->tp_itemsize == 0;
}

/// The module that a function was defined in; empty if it does not say.
std::string_view module_of(PyObject* function) {
  PyObject* name = PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "__name__");
  const char* text = name != nullptr && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  return text != nullptr ? std::string_view(text) : std::string_view();
}

/// After the first torch.compile of a process each nn.Module that is made is noted in a table of torch._dynamo, under
/// its id(), which is another one at each call. Nothing but torch._dynamo reads the table, and the note dies with the
/// module.
bool is_note_of_dynamo(PyObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return PyUnicode_CompareWithASCIIString(code->co_qualname, "GenerationTracker.tag") == 0 &&
         module_of(function) == "torch._dynamo.mutation_guard";
}

/// Functions of numpy in C, and methods of its classes.
bool is_numpy_callable(PyObject* f) {
  const char* type = Py_TYPE(f)->tp_name;
  if (!strcmp(type, "numpy.ufunc") || !strcmp(type, "numpy._ArrayFunctionDispatcher")) return true;
  auto is_numpy = [](const char* name) { return name != nullptr && !strncmp(name, "numpy", 5); };
  if (!strncmp(type, "_cython_", 8)) {  // numpy.random
    PyObject* module = PyObject_GetAttrString(f, "__module__");
    const bool is_own = module != nullptr && PyUnicode_Check(module) && is_numpy(PyUnicode_AsUTF8(module));
    Py_XDECREF(module);
    PyErr_Clear();
    return is_own;
  }
  if (Py_TYPE(f) == &PyMethodDescr_Type || Py_TYPE(f) == &PyWrapperDescr_Type)
    return is_numpy(reinterpret_cast<PyDescrObject*>(f)->d_type->tp_name);
  if (PyType_Check(f)) {
    auto* t = reinterpret_cast<PyTypeObject*>(f);
    return (t->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 && !strncmp(t->tp_name, "numpy.", 6);
  }
  if (!PyCFunction_Check(f)) return false;
  PyObject* module = reinterpret_cast<PyCFunctionObject*>(f)->m_module;
  return module != nullptr && PyUnicode_Check(module) && is_numpy(PyUnicode_AsUTF8(module));
}

/// The transforms of torch.func run under their own levels, where nothing is recorded: they are called again each time.
/// functional_call is as any function.
bool is_functorch(PyObject* function) {
  const std::string_view module = module_of(function);
  return module.starts_with("torch._functorch") && module != "torch._functorch.functional_call";
}

}  // namespace

PyObject* Recorder::call_live(PyObject* callable, const Operand* args, int n, PyObject* kwnames) {
  PyObject* small[17];
  std::vector<PyObject*> large;
  PyObject** values = small;
  if (n > 16) {
    large.resize(n + 1);
    values = large.data();
  }
  values[0] = nullptr;
  for (int i = 0; i < n; i++) values[i + 1] = args[i].object;
  Py_ssize_t keywords = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
  return PyObject_Vectorcall(callable, values + 1, (n - keywords) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
}

PyObject* Recorder::call_live_c(PyObject* callable, const Operand* args, int n, PyObject* kwnames) {
  CCall bracket(*this);
  return call_live(callable, args, n, kwnames);
}

PyObject* Recorder::call_live_alone(PyObject* callable, const Operand* args, int n, PyObject* kwnames) {
  const bool had_foreign_writes = has_foreign_writes_;
  PyObject* result = call_live_c(callable, args, n, kwnames);
  has_foreign_writes_ = had_foreign_writes;
  return result;
}

Outcome Recorder::call_opaque(Operand callable) {
  return stop(UnsupportedCode::OpaqueCall, "a call of " + callable_name(callable.object));
}

bool Recorder::fix_callable(Operand callable) {
  return is_constant(callable.id) || is_created(callable.id) || know_identity(callable);
}

Outcome Recorder::call_any(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  PyObject* f = callable.object;
  auto plain = [&] {
    PyObject* result = call_live(f, args, n, kwnames);
    *out = {result, kNoValue};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  };
  if (!active_) return plain();
  if (callable.id < 0) return stop("a call of a value of unknown origin");
  for (int i = 0; i < n; i++) {
    if (args[i].id < 0) return stop("an argument of unknown origin in a call of " + callable_name(f));
  }
  if (PyFunction_Check(f)) return call_function(callable, args, n, kwnames, out);
  auto call_bound = [&](Operand function, Operand self) {
    std::vector<Operand> all{self};
    all.insert(all.end(), args, args + n);
    return call_any(function, all.data(), n + 1, kwnames, out);
  };
  HeapObject* object = facts_[callable.id].heap;
  PyTypeObject* type = Py_TYPE(f);
  if (PyMethod_Check(f)) {
    PyObject* function = PyMethod_GET_FUNCTION(f);
    PyObject* self = PyMethod_GET_SELF(f);
    if (object != nullptr && object->function >= 0)
      return call_bound({function, object->function}, {self, object->self});
    if (is_constant(callable.id)) {
      ValueId self_id = constant_id(self);
      if (self_id < 0) return stop("a bound method of a tensor");
      return call_bound({function, constant_id(function)}, {self, self_id});
    }
    if (!know_type(callable)) return Outcome::Stop;
    ValueId function_id = emit(NodeKind::MethodField, {callable.id}, nullptr, 0);
    ValueId self_id = emit(NodeKind::MethodField, {callable.id}, nullptr, 1);
    if (function_id < 0 || self_id < 0) return Outcome::Stop;
    facts_[function_id].is_present = facts_[self_id].is_present = true;
    return call_bound({function, function_id}, {self, self_id});
  }
  const bool is_bound = object != nullptr && object->function >= 0;
  if (!is_bound && is_numpy_callable(f)) return call_numpy(callable, args, n, kwnames, out);
  if (PyCFunction_Check(f) || !strcmp(type->tp_name, "method-wrapper")) {
    if (is_bound) {
      // A built-in method that the trace bound: the descriptor and its object.
      PyObject* descriptor = facts_[object->function].constant;
      PyObject* self = PyObject_GetAttr(f, names().self);
      if (self == nullptr) return Outcome::Raised;
      Outcome outcome = call_bound({descriptor, object->function}, {self, object->self});
      Py_DECREF(self);
      return outcome;
    }
    if (!PyCFunction_Check(f)) return call_opaque(callable);
    PyObject* self = PyCFunction_GET_SELF(f);
    if (self != nullptr && PyType_Check(self) && is_constant(callable.id)) {  // a class method in C: dict.fromkeys
      PyObject* name = PyUnicode_InternFromString(reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name);
      PyObject* descriptor = find_in_class(reinterpret_cast<PyTypeObject*>(self), name);
      Py_XDECREF(name);
      const bool is_class_method = descriptor != nullptr && Py_TYPE(descriptor) == &PyClassMethodDescr_Type;
      const CallPolicy policy = is_class_method ? find_callable(descriptor).policy : CallPolicy::Unknown;
      if (policy == CallPolicy::Pure) return call_pure(callable, args, n, kwnames, out);
      if (policy == CallPolicy::Model)
        return call_bound({descriptor, constant_id(descriptor)}, {self, constant_id(self)});
    }
    bool is_free = self == nullptr || PyModule_Check(self) || PyType_Check(self) || Py_TYPE(self) == &PyCapsule_Type;
    if (!is_free) {
      PyObject* name = PyUnicode_InternFromString(reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name);
      PyObject* descriptor = find_in_class(Py_TYPE(self), name);
      Py_XDECREF(name);
      if (descriptor != nullptr && Py_TYPE(descriptor) == &PyMethodDescr_Type) {
        if (find_callable(descriptor).policy == CallPolicy::Repeated) {
          if (!know_identity(callable)) return stop("a built-in method that is known late");
          return call_repeated(callable, args, n, kwnames, out);
        }
        if (!is_constant(callable.id)) return stop("a built-in method bound outside the recording");
      }
    }
    if (!fix_callable(callable)) return Outcome::Stop;
    return call_c(callable, args, n, kwnames, out);
  }
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyClassMethodDescr_Type) {
    if (!fix_callable(callable)) return Outcome::Stop;
    return call_c(callable, args, n, kwnames, out);
  }
  if (PyType_Check(f)) {
    if (!know_identity(callable)) return stop("a class that is known late");
    return call_type(callable, args, n, kwnames, out);
  }
  if (!strcmp(type->tp_name, "functools.partial")) return call_partial(callable, args, n, kwnames, out);
  if (!strncmp(type->tp_name, "operator.", 9)) return call_getter(callable, args, n, kwnames, out);
  if (!strcmp(type->tp_name, "functools._lru_cache_wrapper")) return call_cached(callable, args, n, kwnames, out);
  // A weak reference in a local variable is there to see its object die; the recorder, which holds what it has seen,
  // must not be in the way. One that is found on a path refers to something that somebody else keeps.
  const bool is_local = callable.id >= 0 && trace_->values[callable.id].kind == NodeKind::Arg;
  if (PyWeakref_CheckRefExact(f) && n == 0 && kwnames == nullptr && object == nullptr && !is_local) {
    if (!know_type(callable)) return Outcome::Stop;
    // What the trace has written may have been the last strong reference.
    force_late_ = had_callbacks_ || !heap_.effect_targets.empty();
    ValueId id = emit(NodeKind::Referent, {callable.id});
    force_late_ = false;
    if (id < 0) return Outcome::Stop;
    facts_[id].is_present = true;
    *out = {Py_NewRef(PyWeakref_GET_OBJECT(f)), id};
    return Outcome::Done;
  }
  if (options_.unwrap_compiled != nullptr) {
    PyObject *function, *self;
    if (options_.unwrap_compiled(f, &function, &self)) {
      if (!fix_callable(callable)) return Outcome::Stop;
      Operand target{function, constant_id(function)};
      if (self == nullptr) return call_any(target, args, n, kwnames, out);
      return call_bound(target, {self, constant_id(self)});
    }
  }
  host::TorchCallable torch = host::classify_torch_callable(f);
  if (torch.is_torch) {
    if (!fix_callable(callable)) return Outcome::Stop;
    return call_torch(callable, args, n, kwnames, out);
  }
  PyObject* method = find_in_class(type, names().call);
  if (method != nullptr && PyFunction_Check(method)) {
    if (!know_type(callable)) return Outcome::Stop;
    know_type_version(type);
    return call_bound({method, constant_id(method)}, callable);
  }
  if (method != nullptr && Py_TYPE(method) == &PyStaticMethod_Type) return call_opaque(callable);
  return call_opaque(callable);
}

Outcome Recorder::call_function(Operand function, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  PyObject* f = function.object;
  if (active_) {
    if (function.id < 0) return stop("a call of a function of unknown origin");
    for (int i = 0; i < n; i++) {
      if (args[i].id < 0) return stop("an argument of unknown origin in a call of " + callable_name(f));
    }
    const CallableRow& row = find_callable(f);
    if (row.policy != CallPolicy::Unknown) {
      if (!fix_callable(function)) return Outcome::Stop;
      return call_c(function, args, n, kwnames, out);
    }
    if (is_functorch(f) && !is_in_transform_) return call_transform(function, args, n, kwnames, out);
    if (n == 2 && kwnames == nullptr && is_note_of_dynamo(f)) return call_note(function, args, out);
    if (!know_function(function)) return Outcome::Stop;
    if (int index = find_disabled_by_dynamo(f); index >= 0) {
      PyObject* closure = PyFunction_GetClosure(f);
      std::vector<ValueId> cells;
      if (!closure_ids(function, closure, &cells)) return stop("a closure of unknown origin");
      Operand wrapped;
      Outcome outcome = read_cell({PyTuple_GET_ITEM(closure, index), cells[index]}, &wrapped);
      if (outcome != Outcome::Done) return outcome;
      outcome = call_any(wrapped, args, n, kwnames, out);
      Py_DECREF(wrapped.object);
      return outcome;
    }
    pending_.function = f;
    pending_.function_id = function.id;
    pending_.ids.clear();
    for (int i = 0; i < n; i++) pending_.ids.push_back(args[i].id);
    pending_.positional = n - static_cast<int>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
    pending_.kwnames = kwnames;
    pending_.is_root = false;
    pending_.is_set = true;
    return_id_ = kNoValue;
  }
  bool was_active = active_;
  // The callee may drop the last other reference (a temporary's method, an argument that a global held).
  Py_INCREF(f);
  for (int i = 0; i < n; i++) Py_INCREF(args[i].object);
  PyObject* result = call_live(f, args, n, kwnames);
  for (int i = 0; i < n; i++) Py_DECREF(args[i].object);
  Py_DECREF(f);
  bool was_missed = pending_.is_set;
  pending_.is_set = false;
  if (result == nullptr) {
    if (active_ && was_missed && !exception_is_recorded_) lose("a call that raised before its frame was made");
    return Outcome::Raised;
  }
  *out = {result, kNoValue};
  if (!active_ || !was_active) return Outcome::Done;
  if (was_missed) {
    lose("a call whose frame was not seen: " + callable_name(f));
    return Outcome::Done;
  }
  out->id = return_id_;
  if (out->id < 0) lose("the result of " + callable_name(f) + " has no known origin");
  return Outcome::Done;
}

// tag(class, module): a mutation of the module, so one that no step needs is not noted.
Outcome Recorder::call_note(Operand function, const Operand* args, Operand* out) {
  HeapObject* module = fix_callable(function) ? heap_of(args[1]) : nullptr;
  if (module == nullptr) return Outcome::Stop;
  emit(NodeKind::MutatorCall, {args[1].id, function.id, args[0].id, args[1].id});
  CCall bracket(*this);
  PyObject* result = call_live(function.object, args, 2, nullptr);
  if (result == nullptr) {
    lose("a call of " + callable_name(function.object) + " that raised");
    return Outcome::Raised;
  }
  if (active_) note_effect(module);
  *out = {result, constant_id(result)};
  return Outcome::Done;
}

Outcome Recorder::call_expected(PyObject* c_callable, PyObject* const* c_args, int c_n, PyObject* kwnames,
                                Operand function, std::span<const Operand> args, PyObject* function_kwnames,
                                Operand* out) {
  if (!know_function(function)) return Outcome::Stop;
  pending_.function = function.object;
  pending_.function_id = function.id;
  pending_.ids.clear();
  for (const Operand& arg : args) pending_.ids.push_back(arg.id);
  pending_.positional = static_cast<int>(args.size()) -
                        static_cast<int>(function_kwnames != nullptr ? PyTuple_GET_SIZE(function_kwnames) : 0);
  pending_.kwnames = function_kwnames;
  pending_.is_root = false;
  pending_.is_set = true;
  return_id_ = kNoValue;
  ModeScope mode(*this, ResumeMode::Never);
  Py_ssize_t keywords = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
  PyObject* result = PyObject_Vectorcall(c_callable, c_args, c_n - keywords, kwnames);
  pending_.is_set = false;
  if (result == nullptr) return Outcome::Raised;
  *out = {result, active_ ? return_id_ : kNoValue};
  if (active_ && out->id < 0) lose("a callback whose result has no known origin");
  return Outcome::Done;
}

Outcome Recorder::call_partial(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  PyObject* f = callable.object;
  HeapObject* object = facts_[callable.id].heap;
  bool is_made = object != nullptr && object->is_partial;
  if (!is_made && !is_constant(callable.id) && !know_identity(callable)) return stop("a partial that is known late");
  PyObject* function = PyObject_GetAttr(f, names().func_name);
  PyObject* bound = PyObject_GetAttr(f, names().args);
  PyObject* keywords = PyObject_GetAttr(f, names().keywords);
  std::vector<Operand> all;
  bool ok = true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bound); i++) {
    PyObject* value = PyTuple_GET_ITEM(bound, i);
    all.push_back({value, is_made ? object->partial[i + 1] : constant_id(value)});
    ok = ok && all.back().id >= 0;
  }
  int positional = n - static_cast<int>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  all.insert(all.end(), args, args + positional);
  PyObject* all_names = PyList_New(0);
  if (!is_made) {
    std::vector<Operand> keys;
    std::vector<ValueId> values;
    ok = ok && dict_ids({keywords, constant_id(keywords)}, &keys, &values);
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(keywords, &position, &key, &value)) {
    bool is_replaced = kwnames != nullptr && PySequence_Contains(kwnames, key) == 1;
    if (is_replaced) continue;
    ValueId id = kNoValue;
    if (is_made) {
      const KeyMap::Item* item = object->items.find(heap_.canonical_key(key));
      if (item != nullptr) id = item->id;
    } else {
      // The dict of keywords can be written in place.
      HeapObject* dict = heap_of({keywords, constant_id(keywords)});
      Operand read;
      if (dict != nullptr && read_dict(keywords, dict, {key, constant_id(key)}, &read) == Outcome::Done) id = read.id;
    }
    ok = ok && id >= 0;
    all.push_back({value, id});
    PyList_Append(all_names, key);
  }
  for (int i = positional; i < n; i++) {
    all.push_back(args[i]);
    PyList_Append(all_names, PyTuple_GET_ITEM(kwnames, i - positional));
  }
  PyObject* names_tuple = PyList_GET_SIZE(all_names) > 0 ? PyList_AsTuple(all_names) : nullptr;
  Outcome outcome = ok ? call_any({function, is_made ? object->partial[0] : constant_id(function)}, all.data(),
                                  static_cast<int>(all.size()), names_tuple, out)
                       : stop("a partial that holds tensors");
  Py_DECREF(all_names);
  Py_XDECREF(names_tuple);
  Py_DECREF(function);
  Py_DECREF(bound);
  Py_DECREF(keywords);
  return outcome;
}

Outcome Recorder::call_c(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  const CallableRow& row = find_callable(callable.object);
  switch (row.policy) {
    case CallPolicy::Model:
      return (this->*row.model)(callable, args, n, kwnames, out);
    case CallPolicy::Pure: {
      for (int i = 0; i < n; i++) {
        if (has_tensor(args[i])) return call_torch(callable, args, n, kwnames, out);
      }
      return call_pure(callable, args, n, kwnames, out);
    }
    case CallPolicy::Fold:
    case CallPolicy::FoldBound:
      return call_folded(callable, args, n, kwnames, out, row.policy == CallPolicy::FoldBound);
    case CallPolicy::FoldNew: {  // of constants a new list or dict each time
      if (!fix_folded_arguments(args, n)) return call_opaque(callable);
      PyObject* result = call_live(callable.object, args, n, kwnames);
      if (result == nullptr) {
        lose("a call of " + callable_name(callable.object) + " that raised");
        return Outcome::Raised;
      }
      std::vector<ValueId> operands{callable.id};
      for (int i = 0; i < n; i++) operands.push_back(args[i].id);
      force_late_ = true;  // guards call nothing with such arguments
      *out = {result, emit_typed(NodeKind::Call, operands, result, kwnames)};
      force_late_ = false;
      return Outcome::Done;
    }
    case CallPolicy::Fresh:
      return call_fresh(callable, args, n, kwnames, out);
    case CallPolicy::StateRead: {
      // Of the thread or the process: asked again by the guards.
      if (n != 0 || kwnames != nullptr) return call_opaque(callable);
      PyObject* result = call_live(callable.object, args, n, kwnames);
      if (result == nullptr) return Outcome::Raised;
      force_late_ = had_callbacks_;
      *out = {result, emit(NodeKind::Call, {callable.id})};
      force_late_ = false;
      if (!make_constant(*out)) lose("what " + callable_name(callable.object) + " gives");
      return Outcome::Done;
    }
    case CallPolicy::Repeated:
      return call_repeated(callable, args, n, kwnames, out);
    case CallPolicy::Unknown:
      break;
  }
  if (host::classify_torch_callable(callable.object).is_torch) return call_torch(callable, args, n, kwnames, out);
  return call_opaque(callable);
}

Outcome Recorder::call_pure(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  std::vector<ValueId> operands{callable.id};
  bool is_fixed = true, is_immutable = true;
  for (int i = 0; i < n; i++) {
    operands.push_back(args[i].id);
    if (is_constant(args[i].id)) continue;
    is_fixed = false;
    if (!can_be_constant(args[i].object)) {
      if (Py_TYPE(args[i].object)->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        bool is_python = false;
        const Outcome outcome =
            n == 1 && kwnames == nullptr ? call_conversion(callable, args[0], out, &is_python) : Outcome::Stop;
        if (is_python || !active_) return outcome;
        return stop("a call of " + callable_name(callable.object) + " with an instance of " +
                    type_name(Py_TYPE(args[i].object)));
      }
      is_immutable = false;
    }
    if (is_pre(args[i].id) && !know_type(args[i])) return Outcome::Stop;
  }
  PyObject* result;
  {
    CCall bracket(*this);
    result = call_live(callable.object, args, n, kwnames);
    if (bracket.saw_callback()) {
      lose("a call of " + callable_name(callable.object) + " that runs Python code");
      forget_after_callback();
    }
  }
  if (result == nullptr) {
    if (active_) lose("a call of " + callable_name(callable.object) + " that raised");
    return Outcome::Raised;
  }
  if (!active_) {
    *out = {result, kNoValue};
    return Outcome::Done;
  }
  if (is_fixed && (can_be_constant(result) || PyTuple_CheckExact(result) || PyFrozenSet_CheckExact(result))) {
    *out = new_constant(result);
    return Outcome::Done;
  }
  force_late_ = !is_immutable;
  ValueId id = emit(NodeKind::Call, operands, kwnames);
  force_late_ = false;
  if (id >= 0) {
    facts_[id].is_present = true;
    if (!is_pre(id) && (PyUnicode_CheckExact(result) || PyBool_Check(result) || PyFloat_CheckExact(result)))
      facts_[id].type = Py_TYPE(result);
    if (PyList_CheckExact(result)) facts_[id].type = Py_TYPE(result);
  }
  *out = {result, id};
  return Outcome::Done;
}

// repr(o), hash(o) and the like of an object whose class says in Python what they give.
Outcome Recorder::call_conversion(Operand callable, Operand o, Operand* out, bool* is_python) {
  struct Row {
    const char *function, *method;
    PyTypeObject* result;  // nullptr: any
  };
  static const Row kRows[] = {{"repr", "__repr__", &PyUnicode_Type}, {"hash", "__hash__", &PyLong_Type},
                              {"int", "__int__", &PyLong_Type},      {"float", "__float__", &PyFloat_Type},
                              {"bytes", "__bytes__", &PyBytes_Type}, {"round", "__round__", nullptr}};
  const std::string name = PyType_Check(callable.object) ? reinterpret_cast<PyTypeObject*>(callable.object)->tp_name
                                                         : callable_name(callable.object);
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return name == r.function; });
  if (row == std::end(kRows)) return Outcome::Stop;
  ModeScope mode(*this, ResumeMode::Never);
  PyObject* method = PyUnicode_InternFromString(row->method);
  const Outcome outcome = call_special(method, o, {}, out, is_python);
  Py_DECREF(method);
  if (!*is_python || outcome != Outcome::Done) return outcome;
  if (row->result != nullptr && Py_TYPE(out->object) != row->result) {
    lose(name + "() of something of another type");
    PyErr_Format(PyExc_TypeError, "%s returned %s", row->method, Py_TYPE(out->object)->tp_name);
    Py_CLEAR(out->object);
    return Outcome::Raised;
  }
  if (name != "hash") return outcome;
  // Numbers that are no hashes become some.
  int overflow = 0;
  const int64_t number = PyLong_AsLongLongAndOverflow(out->object, &overflow);
  if (overflow == 0 && number != -1) return outcome;
  lose("a __hash__ that gives no hash");
  Py_SETREF(out->object, PyLong_FromSsize_t(number == -1 && overflow == 0 ? -2 : PyObject_Hash(out->object)));
  out->id = kNoValue;
  return outcome;
}

Outcome Recorder::call_fresh(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  std::vector<ValueId> operands{callable.id};
  for (int i = 0; i < n; i++) {
    if (!host::is_tensor(args[i].object) ? !know_type(args[i]) : !know_tensor(args[i])) return Outcome::Stop;
    operands.push_back(args[i].id);
  }
  PyObject* result = call_live_c(callable.object, args, n, kwnames);
  if (last_call_ran_python_) forget_after_callback();
  if (result == nullptr) {
    lose("a call of " + callable_name(callable.object) + " that raised");
    return Outcome::Raised;
  }
  if (can_be_constant(result) && n > 0 && is_constant(args[0].id)) {
    *out = new_constant(result);
    return Outcome::Done;
  }
  if (host::is_tensor(result))
    return finish_torch_result(NodeKind::TensorCall, operands, kwnames, 0, result, false, out);
  ValueId id = emit(NodeKind::Object, operands, kwnames, 1);
  if (id >= 0) {
    facts_[id].is_present = true;
    if (n > 0 && Py_TYPE(result) == Py_TYPE(args[0].object)) facts_[id].type = Py_TYPE(result);
    HeapObject* object = new_object(id);
    object->is_dirty = true;  // all its contents are read late
    PyObject* dict;
    if (n >= 1 && copies_by_default(Py_TYPE(args[0].object)) && instance_dict_of(args[0], &dict) != nullptr) {
      know_type_version(Py_TYPE(args[0].object));
      note_copy(object, facts_[args[0].id].heap->instance_dict, dict);
    }
  }
  *out = {result, id};
  return Outcome::Done;
}

bool Recorder::fix_folded_arguments(const Operand* args, int n, bool methods_count_by_function) {
  const bool is_regex = n > 0 && !strncmp(Py_TYPE(args[0].object)->tp_name, "re.", 3);
  for (int i = 0; i < n; i++) {
    if (methods_count_by_function && PyMethod_Check(args[i].object)) {
      HeapObject* method = facts_[args[i].id].heap;
      Operand function{PyMethod_GET_FUNCTION(args[i].object), method != nullptr ? method->function : kNoValue};
      if (function.id >= 0 && know_identity(function)) continue;
    }
    // What a pattern calls for each match may do anything.
    if (is_regex && i > 0 && PyCallable_Check(args[i].object)) return false;
    bool ok = make_constant(args[i]);
    const char* type = Py_TYPE(args[i].object)->tp_name;
    if (!ok && active_ && is_pre(args[i].id) && (!strcmp(type, "re.Pattern") || !strcmp(type, "re.Match"))) {
      ok = know_identity(args[i]);  // nobody can change them
    }
    if (!ok && active_ && is_pre(args[i].id) && !host::is_tensor(args[i].object)) {
      // Functions, methods and classes by identity: what is called here depends on nothing else of them.
      ok = (PyCallable_Check(args[i].object) && !PyMethod_Check(args[i].object) && know_identity(args[i])) ||
           make_key(args[i]);
    }
    if (!ok) return false;
  }
  return true;
}

Outcome Recorder::call_folded(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out,
                              bool methods_count_by_function) {
  if (!fix_folded_arguments(args, n, methods_count_by_function)) {
    return stop(UnsupportedCode::OpaqueCall,
                "a call of " + callable_name(callable.object) + " with arguments that are known late");
  }
  PyObject* result = call_live_alone(callable.object, args, n, kwnames);
  if (result == nullptr) {
    lose("a call of " + callable_name(callable.object) + " that raised");
    return Outcome::Raised;
  }
  if (has_tensor({result, kNoValue})) return finish_repeated(callable, args, n, kwnames, result, out);
  *out = new_constant(result);
  return Outcome::Done;
}

Outcome Recorder::call_ex(Act&, Operand callable, Operand args, Operand kwargs, Operand* out) {
  if (!active_) return Outcome::Stop;
  if (Py_TYPE(args.object)->tp_iter == nullptr) return stop("a star argument that is no iterable");
  // First what can refuse: the elements of an iterator are taken once.
  std::vector<Operand> keys;
  std::vector<ValueId> values;
  if (kwargs.object != nullptr) {
    bool ok = PyDict_Check(kwargs.object) && know_type(kwargs) && dict_ids(kwargs, &keys, &values);
    for (Operand& key : keys) ok = ok && PyUnicode_Check(key.object);
    if (!ok) return stop("a double star argument of unknown contents");
  }
  std::vector<Operand> all;
  Outcome outcome = all_elements(args, &all, true);
  if (outcome != Outcome::Done) return outcome;
  size_t owned = all.size();
  PyObject* kwnames = nullptr;
  if (!keys.empty()) kwnames = PyTuple_New(static_cast<Py_ssize_t>(keys.size()));
  for (size_t i = 0; i < keys.size(); i++) {
    PyTuple_SET_ITEM(kwnames, i, Py_NewRef(keys[i].object));
    all.push_back({PyDict_GetItemWithError(kwargs.object, keys[i].object), values[i]});
  }
  const int n = static_cast<int>(all.size());
  outcome = call_any(callable, all.data(), n, kwnames, out);
  if (outcome == Outcome::Raised && !active_ && PyErr_Occurred() == nullptr) outcome = Outcome::Stop;
  if (outcome == Outcome::Stop && !can_be_iterated_again(args.object)) {  // the call itself is not recorded
    *out = {call_live(callable.object, all.data(), n, kwnames), kNoValue};
    outcome = out->object != nullptr ? Outcome::Done : Outcome::Raised;
  }
  for (size_t i = 0; i < owned; i++) Py_DECREF(all[i].object);
  Py_XDECREF(kwnames);
  return outcome;
}

Outcome Recorder::make_function(Act& act, Operand code, Operand defaults, Operand kwdefaults, Operand annotations,
                                Operand closure, Operand* out) {
  PyObject* globals = host::get_globals(act.frame);
  ValueId ids[5] = {constant_id(globals), defaults.id, kwdefaults.id, annotations.id, closure.id};
  if (active_) {
    for (Operand part : {defaults, kwdefaults, closure}) {
      if (part.object != nullptr && part.id < 0) return stop("a function with parts of unknown origin");
    }
    if (annotations.object != nullptr && annotations.id < 0)
      return stop("a function with annotations of unknown origin");
  }
  PyObject* made = PyFunction_New(code.object, globals);
  if (made == nullptr) return Outcome::Raised;
  if (defaults.object != nullptr) PyFunction_SetDefaults(made, defaults.object);
  if (kwdefaults.object != nullptr) PyFunction_SetKwDefaults(made, kwdefaults.object);
  if (annotations.object != nullptr) {
    reinterpret_cast<PyFunctionObject*>(made)->func_annotations = Py_NewRef(annotations.object);
  }
  if (closure.object != nullptr) PyFunction_SetClosure(made, closure.object);
  ValueId id = emit_typed(NodeKind::Function, ids, made, code.object);
  if (id >= 0) {
    HeapObject* object = new_object(id);
    object->elements.assign(ids, ids + 5);
    facts_[id].is_code_known = true;
  }
  *out = {made, id};
  return Outcome::Done;
}

Outcome Recorder::set_function_attribute(Act&, Operand function, int which, Operand v) {
  PyObject* f = function.object;
  if (active_) {
    HeapObject* object = function.id >= 0 ? facts_[function.id].heap : nullptr;
    if (object == nullptr || !object->is_created || v.id < 0) return stop("a part of a function of unknown origin");
    // The node gets its part now: nothing can have used the function yet.
    int index = which == 8 ? 4 : which == 4 ? 3 : which == 2 ? 2 : 1;
    trace::Value& node = trace_->values[function.id];
    trace_->operand_pool[node.first_operand + index] = v.id;
    object->elements[index] = v.id;
  }
  if (which == 8)
    PyFunction_SetClosure(f, v.object);
  else if (which == 4)
    Py_XSETREF(reinterpret_cast<PyFunctionObject*>(f)->func_annotations, Py_NewRef(v.object));
  else if (which == 2)
    PyFunction_SetKwDefaults(f, v.object);
  else
    PyFunction_SetDefaults(f, v.object);
  return PyErr_Occurred() ? Outcome::Raised : Outcome::Done;
}

Outcome Recorder::before_with(Act&, Operand manager, Operand* exit, Operand* result) {
  if (!active_ || manager.id < 0) return stop("a context manager of unknown origin");
  PyTypeObject* type = Py_TYPE(manager.object);
  PyObject* enter_method = find_in_class(type, names().enter);
  PyObject* exit_method = find_in_class(type, names().exit);
  if (enter_method == nullptr || exit_method == nullptr) return stop("an object that is no context manager");
  if (!know_type(manager)) return Outcome::Stop;
  know_type_version(type);
  bool handled;
  Operand bound_exit;
  Outcome outcome = bind_descriptor(exit_method, manager, &bound_exit, nullptr, &handled);
  if (!handled || outcome != Outcome::Done) return handled ? outcome : stop("the context manager " + type_name(type));
  Operand callable{enter_method, constant_id(enter_method)};
  {
    // The frame does not hold __exit__ yet: a callee's exit could not find it there.
    ModeScope mode(*this, ResumeMode::Never);
    outcome = call_any(callable, &manager, 1, nullptr, result);
  }
  if (outcome != Outcome::Done) {
    Py_DECREF(bound_exit.object);
    return outcome;
  }
  *exit = bound_exit;
  return Outcome::Done;
}

}  // namespace reprise::capture
