#include "runtime/compiled_callable.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "runtime/bind_arguments.h"
#include "runtime/compile_requests.h"
#include "runtime/dispatch.h"
#include "runtime/drive.h"
#include "runtime/errors.h"
#include "runtime/hook.h"
#include "runtime/wrapped_callable.h"

namespace reprise::runtime {
namespace {

struct CompiledFunction : WrappedCallable {
  CompileContext* context;  // owned reference

  // How a call finds its function. `vectorcall` knows which of these it uses.
  PyObject* function;          // strong; a Python function, or what is called as it is
  PyObject* self;              // strong or null: goes in front of the arguments
  PyTypeObject* type;          // strong or null: `function` is looked up here on every call
  PyObject* partial_args;      // strong or null: tuple that goes in front of the arguments
  PyObject* partial_keywords;  // strong or null: dict

  // What is known of the function's code; place null: calls are not recorded.
  PyCodeObject* code;  // strong or null
  Signature signature;
  Place* place;  // owned by the context
};

extern PyTypeObject compiled_function_type;

CompiledFunction* cast(PyObject* object) {
  return static_cast<CompiledFunction*>(reinterpret_cast<WrappedCallable*>(object));
}

bool is_recordable(PyCodeObject* code) {
  return (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0 &&
         (code->co_flags & CO_NEWLOCALS) != 0 && host::get_code_info(code)->undecodable == nullptr;
}

void look_at_code(CompiledFunction* self, PyFunctionObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  Py_XSETREF(self->code, reinterpret_cast<PyCodeObject*>(Py_NewRef(code)));
  self->signature = Signature(code);
  self->place = is_recordable(code) ? &self->context->get_place(code, 0) : nullptr;
  if (self->place == nullptr) return;
  self->place->is_root = true;
  self->place->want_recording("first call");
}

// ---- a call of a Python function

// `place` has been looked at; driving is of use only if there are others.
PyObject* call_plainly(CompileContext& context, Place& place, PyObject* function, PyObject* const* args, size_t nargsf,
                       PyObject* kwnames) {
  if (context.active_place_count() > !place.is_idle()) {
    return call_driven(context, place, function, args, nargsf, kwnames);
  }
  ++context.statistics.plain_calls;
  return PyObject_Vectorcall(function, args, nargsf, kwnames);
}

void log_call(CompileContext& context, const std::string& what) {
  if (base::is_log_enabled(base::LogWord::Calls)) base::write_log(base::LogWord::Calls, context.name + ": " + what);
}

// No entry serves the call.
PyObject* call_unserved(CompileContext& context, Place& place, PyObject* function, const BoundArguments& bound,
                        PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (!place.should_record()) {
    log_call(context, "runs in CPython");
    return call_plainly(context, place, function, args, nargsf, kwnames);
  }
  PyObject* globals = PyFunction_GET_GLOBALS(function);
  if (std::string miss = describe_miss(place, function, globals, bound.slots()); !miss.empty()) {
    place.why = std::move(miss);
    if (base::is_log_enabled(base::LogWord::Recompiles)) {
      base::write_log(base::LogWord::Recompiles, context.name + ": " + place.why);
    }
  }
  log_call(context, "is recorded: " + place.why);
  return context.requests.record_call(context, function, args, nargsf, kwnames);
}

// What this thread does may forbid to look for entries. Returns whether the call is to be made plainly.
bool is_left_alone(CompileContext& context) {
  if (context.requests.is_recording()) {
    ++context.statistics.inlined_calls;
    return true;
  }
  if (is_disabled()) {
    ++context.statistics.disabled_calls;
    return true;
  }
  return false;
}

PyObject* serve_call(CompiledFunction* self, PyObject* callable, PyObject* const* args, size_t nargsf,
                     PyObject* kwnames) {
  auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  CompileContext& context = *self->context;
  ++context.statistics.calls;
  if (is_any_thread_special() && is_left_alone(context)) [[unlikely]] {
    return PyObject_Vectorcall(callable, args, nargsf, kwnames);
  }
  if (function->func_code != reinterpret_cast<PyObject*>(self->code)) [[unlikely]]
    look_at_code(self, function);
  Place* place = self->place;
  if (place == nullptr) [[unlikely]] {
    ++context.statistics.unsupported_calls;
    return PyObject_Vectorcall(callable, args, nargsf, kwnames);
  }
  ContextRef keep_context(&context);
  BoundArguments bound;
  if (!bound.bind(self->signature, function, args, PyVectorcall_NARGS(nargsf), kwnames)) [[unlikely]] {
    return call_plainly(context, *place, callable, args, nargsf, kwnames);
  }
  RunState state;
  EntryRef entry = find_entry(*place, callable, function->func_globals, bound.slots(), state);
  PyObject* result;
  if (entry) [[likely]] {
    if (base::is_log_enabled(base::LogWord::Calls)) log_call(context, "entry " + std::to_string(entry->serial));
    result = serve(context, PyThreadState_Get(), std::move(entry), state, nullptr).value;
  } else {
    Py_INCREF(callable);  // the program may replace it meanwhile
    result = call_unserved(context, *place, callable, bound, args, nargsf, kwnames);
    Py_DECREF(callable);
  }
  context.statistics.errors += result == nullptr;
  return result;
}

PyObject* call_function(CompiledFunction* self, PyObject* callable, PyObject* const* args, size_t nargsf,
                        PyObject* kwnames) {
  try {
    return serve_call(self, callable, args, nargsf, kwnames);
  } catch (const base::InternalError& error) {
    return raise_bug(error);
  }
}

// ---- the forms of a call: vectorcalls of CompiledFunction

// Calls with `first` in front of the arguments, in place where the caller allows it.
PyObject* call_with_first(CompiledFunction* self, PyObject* callable, PyObject* first, PyObject* const* args,
                          size_t nargsf, PyObject* kwnames) {
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {
    auto* shifted = const_cast<PyObject**>(args) - 1;
    PyObject* saved = std::exchange(shifted[0], first);
    PyObject* result = call_function(self, callable, shifted, nargs + 1, kwnames);
    shifted[0] = saved;
    return result;
  }
  const Py_ssize_t total = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
  constexpr Py_ssize_t kInline = 8;
  PyObject* inline_args[kInline + 2];
  std::vector<PyObject*> heap_args;
  PyObject** copy = inline_args;
  if (total > kInline) {
    heap_args.resize(total + 2);
    copy = heap_args.data();
  }
  copy[1] = first;
  std::copy_n(args, total, copy + 2);
  return call_function(self, callable, copy + 1, (nargs + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
}

PyObject* vectorcall_function(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  CompiledFunction* self = cast(object);
  return call_function(self, self->function, args, nargsf, kwnames);
}

PyObject* vectorcall_method(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  CompiledFunction* self = cast(object);
  return call_with_first(self, self->function, self->self, args, nargsf, kwnames);
}

PyObject* vectorcall_as_it_is(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  CompiledFunction* self = cast(object);
  ++self->context->statistics.calls;
  ++self->context->statistics.unsupported_calls;
  return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
}

// The program has given the original another class: the object that stands for it follows, and is called anew.
PyObject* call_after_class_change(PyObject* stand_in, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* follow = PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(stand_in)), "__reprise_follow__");
  PyObject* done = follow == nullptr ? nullptr : PyObject_CallOneArg(follow, stand_in);
  Py_XDECREF(follow);
  if (done == nullptr) return nullptr;
  Py_DECREF(done);
  return PyObject_Vectorcall(stand_in, args, nargsf, kwnames);
}

// The first argument shares the `__dict__` of the original, of whose class a subclass of ours is its class.
bool stands_for(CompiledFunction* self, PyObject* const* args, size_t nargsf) {
  if (PyVectorcall_NARGS(nargsf) < 1 || args[0] == self->original || Py_TYPE(self->original) != self->type)
    return false;
  if (Py_TYPE(args[0])->tp_base != self->type) return false;
  PyObject* own = PyObject_GenericGetDict(args[0], nullptr);
  PyObject* others = PyObject_GenericGetDict(self->original, nullptr);
  const bool is_shared = own != nullptr && own == others;
  Py_XDECREF(own);
  Py_XDECREF(others);
  PyErr_Clear();
  return is_shared;
}

// `type.__call__` as it is now.
PyObject* vectorcall_type_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  CompiledFunction* self = cast(object);
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  if (self->self == nullptr && Py_TYPE(self->original) != self->type && PyVectorcall_NARGS(nargsf) > 0) [[unlikely]] {
    if (_PyType_Lookup(Py_TYPE(args[0]), name) == object) {
      return call_after_class_change(args[0], args + 1, static_cast<size_t>(PyVectorcall_NARGS(nargsf) - 1), kwnames);
    }
  }
  PyObject* found = _PyType_Lookup(self->type, name);
  if (found != nullptr && PyFunction_Check(found)) [[likely]] {
    if (self->self == nullptr && stands_for(self, args, nargsf)) {
      // The program's own code sees the original: its class is the class, not one of ours.
      const auto rest = static_cast<size_t>(PyVectorcall_NARGS(nargsf) - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET;
      return call_with_first(self, found, self->original, args + 1, rest, kwnames);
    }
    if (self->self == nullptr) return call_function(self, found, args, nargsf, kwnames);
    return call_with_first(self, found, self->self, args, nargsf, kwnames);
  }
  ++self->context->statistics.calls;
  ++self->context->statistics.unsupported_calls;
  if (self->self != nullptr) return PyObject_Vectorcall(self->original, args, nargsf, kwnames);
  if (found == nullptr || PyVectorcall_NARGS(nargsf) < 1) {
    return PyErr_Format(PyExc_TypeError, "'%s' object is not callable", self->type->tp_name);
  }
  PyObject* instance = args[0];
  descrgetfunc get = Py_TYPE(found)->tp_descr_get;
  PyObject* bound =
      get == nullptr ? Py_NewRef(found) : get(found, instance, reinterpret_cast<PyObject*>(Py_TYPE(instance)));
  if (bound == nullptr) return nullptr;
  PyObject* result = PyObject_Vectorcall(bound, args + 1, PyVectorcall_NARGS(nargsf) - 1, kwnames);
  Py_DECREF(bound);
  return result;
}

// Keyword values and names of a partial call: those of the partial first, overridden by the call's own.
// Returns the tuple of names, a new reference, or null with an exception set.
PyObject* merge_keywords(PyObject* partial_keywords, PyObject* const* values, PyObject* kwnames,
                         std::vector<PyObject*>& merged) {
  const Py_ssize_t own_count = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  std::vector<PyObject*> names;
  const size_t first = merged.size();
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(partial_keywords, &position, &key, &value);) {
    names.push_back(key);
    merged.push_back(value);
  }
  const size_t partial_count = names.size();
  for (Py_ssize_t k = 0; k < own_count; ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    size_t i = 0;
    while (i < partial_count && PyUnicode_Compare(names[i], name) != 0) ++i;
    if (i < partial_count) {
      merged[first + i] = values[k];
    } else {
      names.push_back(name);
      merged.push_back(values[k]);
    }
  }
  PyObject* result = PyTuple_New(names.size());
  for (size_t i = 0; result != nullptr && i < names.size(); ++i) PyTuple_SET_ITEM(result, i, Py_NewRef(names[i]));
  return result;
}

PyObject* vectorcall_partial(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  CompiledFunction* self = cast(object);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  std::vector<PyObject*> all;
  if (self->self != nullptr) all.push_back(self->self);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->partial_args); ++i) {
    all.push_back(PyTuple_GET_ITEM(self->partial_args, i));
  }
  all.insert(all.end(), args, args + nargs);
  const size_t positional_count = all.size();
  PyObject* names = merge_keywords(self->partial_keywords, args + nargs, kwnames, all);
  if (names == nullptr) return nullptr;
  PyObject* result =
      call_function(self, self->function, all.data(), positional_count, PyTuple_GET_SIZE(names) > 0 ? names : nullptr);
  Py_DECREF(names);
  return result;
}

// ---- the type

// Keywords of a partial may be str subclasses with code of their own; such a partial is called as it is.
bool has_plain_keywords(PyObject* keywords) {
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(keywords, &position, &key, &value);) {
    if (!PyUnicode_CheckExact(key)) return false;
  }
  return true;
}

void set_target(CompiledFunction* self, PyObject* callable) {
  if (PyMethod_Check(callable) && PyFunction_Check(PyMethod_GET_FUNCTION(callable))) {
    self->function = Py_NewRef(PyMethod_GET_FUNCTION(callable));
    self->self = Py_NewRef(PyMethod_GET_SELF(callable));
    self->vectorcall = vectorcall_method;
  } else {
    self->function = Py_NewRef(callable);
    self->vectorcall = PyFunction_Check(callable) ? vectorcall_function : vectorcall_as_it_is;
  }
}

// False with an exception set on failure.
bool set_partial_target(CompiledFunction* self, PyObject* partial) {
  PyObject* function = PyObject_GetAttrString(partial, "func");
  self->partial_args = PyObject_GetAttrString(partial, "args");
  self->partial_keywords = PyObject_GetAttrString(partial, "keywords");
  if (function == nullptr || self->partial_args == nullptr || self->partial_keywords == nullptr) {
    Py_XDECREF(function);
    return false;
  }
  set_target(self, function);
  Py_DECREF(function);
  if (self->vectorcall != vectorcall_as_it_is && PyTuple_CheckExact(self->partial_args) &&
      PyDict_CheckExact(self->partial_keywords) && has_plain_keywords(self->partial_keywords)) {
    self->vectorcall = vectorcall_partial;
    return true;
  }
  Py_CLEAR(self->self);
  Py_XSETREF(self->function, Py_NewRef(partial));
  self->vectorcall = vectorcall_as_it_is;
  return true;
}

// 1, 0, or -1 with an exception set.
int is_partial(PyObject* callable) {
  PyObject* module = PyImport_ImportModule("functools");
  if (module == nullptr) return -1;
  PyObject* type = PyObject_GetAttrString(module, "partial");
  Py_DECREF(module);
  if (type == nullptr) return -1;
  const bool result = Py_IS_TYPE(callable, reinterpret_cast<PyTypeObject*>(type));
  Py_DECREF(type);
  return result;
}

std::string describe_callable(PyObject* callable) {
  for (const char* attribute : {"__qualname__", "__name__"}) {
    PyObject* name = PyObject_GetAttrString(callable, attribute);
    const char* text = name != nullptr && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
    std::string result = text == nullptr ? "" : text;
    Py_XDECREF(name);
    PyErr_Clear();
    if (!result.empty()) return result;
  }
  return Py_TYPE(callable)->tp_name;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  CompiledFunction* self = cast(object);
  Py_VISIT(self->function);
  Py_VISIT(self->self);
  Py_VISIT(self->type);
  Py_VISIT(self->partial_args);
  Py_VISIT(self->partial_keywords);
  if (self->context != nullptr) {
    if (int result = self->context->traverse(visit, arg)) return result;
  }
  return traverse_wrapped(self, visit, arg);
}

// A finalizer may still call the object: it keeps a target that says what is wrong.
PyObject* vectorcall_cleared(PyObject*, PyObject* const*, size_t, PyObject*) {
  PyErr_SetString(PyExc_ReferenceError, "the compiled callable has been freed");
  return nullptr;
}

int clear(PyObject* object) {
  CompiledFunction* self = cast(object);
  self->vectorcall = vectorcall_cleared;
  self->place = nullptr;
  if (self->context != nullptr) self->context->clear();
  Py_CLEAR(self->function);
  Py_CLEAR(self->self);
  Py_CLEAR(self->type);
  Py_CLEAR(self->partial_args);
  Py_CLEAR(self->partial_keywords);
  Py_CLEAR(self->code);
  clear_wrapped(self);
  return 0;
}

void deallocate(PyObject* object) {
  CompiledFunction* self = cast(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  clear(object);
  if (CompileContext* context = std::exchange(self->context, nullptr)) context->release();
  PyObject_GC_Del(object);
}

PyTypeObject compiled_function_type = {};

}  // namespace

int add_compiled_type(PyObject* module) {
  if (compiled_function_type.tp_name == nullptr) {
    compiled_function_type.tp_name = "reprise._C.CompiledFunction";
    compiled_function_type.tp_basicsize = sizeof(CompiledFunction);
    compiled_function_type.tp_dealloc = deallocate;
    compiled_function_type.tp_traverse = traverse;
    compiled_function_type.tp_clear = clear;
    if (ready_wrapped_type(&compiled_function_type) < 0) return -1;
  }
  return PyModule_AddObjectRef(module, "CompiledFunction", reinterpret_cast<PyObject*>(&compiled_function_type));
}

PyObject* make_compiled(CompileRequests& requests, const CompileSpec& spec) {
  const int partial = is_partial(spec.callable);
  if (partial < 0) return nullptr;
  auto* self = PyObject_GC_New(CompiledFunction, &compiled_function_type);
  if (self == nullptr) return nullptr;
  auto* object = reinterpret_cast<PyObject*>(static_cast<WrappedCallable*>(self));
  self->original = Py_NewRef(spec.callable);
  self->settings = Py_XNewRef(spec.settings);
  self->weak_references = nullptr;
  self->context = nullptr;
  self->function = self->self = self->partial_args = self->partial_keywords = nullptr;
  self->type = nullptr;
  self->code = nullptr;
  self->place = nullptr;
  self->vectorcall = vectorcall_cleared;
  self->context = new CompileContext(requests, spec.options, spec.backend, describe_callable(spec.callable));

  bool is_ok = true;
  if (spec.type != nullptr) {
    self->type = reinterpret_cast<PyTypeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(spec.type)));
    self->vectorcall = vectorcall_type_call;
  } else if (partial) {
    is_ok = set_partial_target(self, spec.callable);
  } else {
    set_target(self, spec.callable);
    if (self->vectorcall == vectorcall_as_it_is && !PyType_Check(spec.callable) && !PyMethod_Check(spec.callable) &&
        !PyCFunction_Check(spec.callable)) {
      self->type = reinterpret_cast<PyTypeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(spec.callable))));
      self->self = Py_NewRef(spec.callable);
      self->vectorcall = vectorcall_type_call;
    }
  }
  PyObject_GC_Track(object);
  if (!is_ok) Py_CLEAR(object);
  return object;
}

bool is_compiled(PyObject* object) { return Py_IS_TYPE(object, &compiled_function_type); }

CallTarget find_call_target(PyObject* object) {
  if (!is_compiled(object)) return {};
  CompiledFunction* self = cast(object);
  if (self->vectorcall == vectorcall_function || self->vectorcall == vectorcall_method) {
    return {self->function, self->self};
  }
  if (self->vectorcall == vectorcall_type_call && self->self == nullptr) {
    PyObject* name = PyUnicode_InternFromString("__call__");
    PyObject* found = _PyType_Lookup(self->type, name);
    Py_DECREF(name);
    return {found, nullptr};
  }
  return {self->original, nullptr};
}

CompileContext* find_context(PyObject* object) { return is_compiled(object) ? cast(object)->context : nullptr; }

void reset_compiled(PyObject* object) {
  CompiledFunction* self = cast(object);
  self->context->reset();
  self->place = nullptr;
  Py_CLEAR(self->code);
}

}  // namespace reprise::runtime
