#include "interp/plain_policy.h"

#include "host/cpython/names.h"
#include "host/cpython/private_api.h"
#include "interp/errors.h"

namespace reprise::interp {
namespace {

bool is_iterable(PyObject* object) { return Py_TYPE(object)->tp_iter != nullptr || PySequence_Check(object); }

}  // namespace

// --- operators
// --------------------------------------------------------------------------------------------------------

Outcome PlainPolicy::unary(Act&, int op, Operand v, Operand* out) {
  switch (static_cast<UnaryOp>(op)) {
    case UnaryOp::Negative:
      return set(out, PyNumber_Negative(v.object));
    case UnaryOp::Invert:
      return set(out, PyNumber_Invert(v.object));
    case UnaryOp::Positive:
      return set(out, PyNumber_Positive(v.object));
  }
  return Outcome::Stop;
}

// --- attributes, names, cells
// -----------------------------------------------------------------------------------------

Outcome PlainPolicy::load_super_attribute(Act&, Operand super, Operand cls, Operand self, PyObject* name,
                                          bool two_arguments, Operand* out) {
  PyObject* const arguments[] = {cls.object, self.object};
  PyObject* proxy = PyObject_Vectorcall(super.object, arguments, two_arguments ? 2 : 0, nullptr);
  if (proxy == nullptr) return Outcome::Raised;
  out->object = PyObject_GetAttr(proxy, name);
  Py_DECREF(proxy);
  return out->object != nullptr ? Outcome::Done : Outcome::Raised;
}

Outcome PlainPolicy::load_global_of_mapping(PyObject* globals, PyObject* builtins, PyObject* name, Operand* out) {
  for (PyObject* mapping : {globals, builtins}) {
    out->object = PyObject_GetItem(mapping, name);
    if (out->object != nullptr) return Outcome::Done;
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) return Outcome::Raised;
    PyErr_Clear();
  }
  return Outcome::Stop;
}

Outcome PlainPolicy::delete_global(Act& act, PyObject* name) {
  PyObject* const globals = act.frame->f_globals;
  if (PyDict_Contains(globals, name) != 1) {
    PyErr_Clear();
    return Outcome::Stop;
  }
  return check(PyDict_DelItem(globals, name));
}

Outcome PlainPolicy::delete_cell(Act& act, int index) {
  PyObject* cell = act.locals[index];
  PyObject* old = PyCell_GET(cell);
  if (old == nullptr) return Outcome::Stop;
  PyCell_SET(cell, nullptr);
  Py_DECREF(old);
  return Outcome::Done;
}

Outcome PlainPolicy::make_cell(Act& act, int index) {
  PyObject* cell = PyCell_New(act.locals[index]);
  if (cell == nullptr) return Outcome::Raised;
  Py_XSETREF(act.locals[index], cell);
  return Outcome::Done;
}

Outcome PlainPolicy::copy_free_vars(Act& act, int count) {
  PyObject* closure = PyFunction_GET_CLOSURE(act.function);
  PyObject** free_variables = act.locals + act.code->co_nlocalsplus - count;
  for (int i = 0; i < count; ++i) free_variables[i] = Py_NewRef(PyTuple_GET_ITEM(closure, i));
  return Outcome::Done;
}

// --- containers
// -------------------------------------------------------------------------------------------------------

Outcome PlainPolicy::build_tuple(Act&, PyObject* const* items, int n, Operand* out) {
  out->object = PyTuple_New(n);
  if (out->object == nullptr) return Outcome::Raised;
  for (int i = 0; i < n; ++i) PyTuple_SET_ITEM(out->object, i, Py_NewRef(items[i]));
  return Outcome::Done;
}

Outcome PlainPolicy::build_list(Act&, PyObject* const* items, int n, Operand* out) {
  out->object = PyList_New(n);
  if (out->object == nullptr) return Outcome::Raised;
  for (int i = 0; i < n; ++i) PyList_SET_ITEM(out->object, i, Py_NewRef(items[i]));
  return Outcome::Done;
}

Outcome PlainPolicy::build_set(Act&, PyObject* const* items, int n, Operand* out) {
  out->object = PySet_New(nullptr);
  if (out->object == nullptr) return Outcome::Raised;
  for (int i = 0; i < n; ++i) {
    if (PySet_Add(out->object, items[i]) < 0) {
      Py_CLEAR(out->object);
      return Outcome::Raised;
    }
  }
  return Outcome::Done;
}

Outcome PlainPolicy::build_map(Act&, PyObject* const* pairs, int n, Operand* out) {
  out->object = PyDict_New();
  if (out->object == nullptr) return Outcome::Raised;
  for (int i = 0; i < n; ++i) {
    if (PyDict_SetItem(out->object, pairs[2 * i], pairs[2 * i + 1]) < 0) {
      Py_CLEAR(out->object);
      return Outcome::Raised;
    }
  }
  return Outcome::Done;
}

Outcome PlainPolicy::build_const_key_map(Act&, Operand keys, PyObject* const* values, int n, Operand* out) {
  out->object = PyDict_New();
  if (out->object == nullptr) return Outcome::Raised;
  for (int i = 0; i < n; ++i) {
    if (PyDict_SetItem(out->object, PyTuple_GET_ITEM(keys.object, i), values[i]) < 0) {
      Py_CLEAR(out->object);
      return Outcome::Raised;
    }
  }
  return Outcome::Done;
}

Outcome PlainPolicy::list_extend(Act&, Operand list, Operand iterable) {
  PyObject* none = host::extend_list(reinterpret_cast<PyListObject*>(list.object), iterable.object);
  if (none == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) && !is_iterable(iterable.object)) {
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(iterable.object)->tp_name);
    }
    return Outcome::Raised;
  }
  Py_DECREF(none);
  return Outcome::Done;
}

Outcome PlainPolicy::set_update(Act&, Operand set, Operand iterable) {
  return check(host::update_set(set.object, iterable.object));
}

Outcome PlainPolicy::dict_update(Act&, Operand d, Operand u) {
  if (PyDict_Update(d.object, u.object) == 0) return Outcome::Done;
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(u.object)->tp_name);
  }
  return Outcome::Raised;
}

Outcome PlainPolicy::dict_merge(Act&, Operand d, Operand u, Operand callee) {
  constexpr int kRaiseOnDuplicate = 2;
  if (host::merge_dict(d.object, u.object, kRaiseOnDuplicate) == 0) return Outcome::Done;
  explain_keyword_error(callee.object, u.object);
  return Outcome::Raised;
}

namespace {

// Takes `count` items of an iterator. On failure drops them and leaves an exception; `at_least`: how many the whole
// unpacking wants, for the message, or -1 if it wants `count` exactly.
bool take_items(PyObject* iterator, int count, int at_least, PyObject** out) {
  for (int i = 0; i < count; ++i) {
    out[i] = PyIter_Next(iterator);
    if (out[i] != nullptr) continue;
    if (!PyErr_Occurred()) {
      if (at_least < 0) {
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", count, i);
      } else {
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %d)", at_least, i);
      }
    }
    while (i > 0) Py_DECREF(out[--i]);
    return false;
  }
  return true;
}

PyObject* get_iterator_to_unpack(PyObject* object) {
  PyObject* iterator = PyObject_GetIter(object);
  if (iterator == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) && !is_iterable(object)) {
    PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(object)->tp_name);
  }
  return iterator;
}

}  // namespace

Outcome PlainPolicy::unpack_sequence(Act&, Operand s, int n, PyObject** out) {
  if ((PyTuple_CheckExact(s.object) || PyList_CheckExact(s.object)) && PySequence_Fast_GET_SIZE(s.object) == n) {
    PyObject** items = PySequence_Fast_ITEMS(s.object);
    for (int i = 0; i < n; ++i) out[i] = Py_NewRef(items[i]);
    return Outcome::Done;
  }
  PyObject* iterator = get_iterator_to_unpack(s.object);
  if (iterator == nullptr) return Outcome::Raised;
  bool is_done = take_items(iterator, n, -1, out);
  if (is_done) {
    PyObject* surplus = PyIter_Next(iterator);
    if (surplus != nullptr) PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", n);
    Py_XDECREF(surplus);
    if (PyErr_Occurred()) {
      is_done = false;
      for (int i = 0; i < n; ++i) Py_DECREF(out[i]);
    }
  }
  Py_DECREF(iterator);
  return is_done ? Outcome::Done : Outcome::Raised;
}

Outcome PlainPolicy::unpack_ex(Act&, Operand s, int before, int after, PyObject** out) {
  PyObject* iterator = get_iterator_to_unpack(s.object);
  if (iterator == nullptr) return Outcome::Raised;
  const bool has_front = take_items(iterator, before, before + after, out);
  PyObject* rest = has_front ? PySequence_List(iterator) : nullptr;
  Py_DECREF(iterator);
  if (!has_front) return Outcome::Raised;
  const Py_ssize_t length = rest != nullptr ? PyList_GET_SIZE(rest) : 0;
  if (rest != nullptr && length < after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)", before + after,
                 before + length);
    Py_CLEAR(rest);
  }
  if (rest == nullptr) {
    for (int i = 0; i < before; ++i) Py_DECREF(out[i]);
    return Outcome::Raised;
  }
  // The last ones move from the list to the stack.
  out[before] = rest;
  for (int i = 0; i < after; ++i) out[before + 1 + i] = PyList_GET_ITEM(rest, length - after + i);
  Py_SET_SIZE(rest, length - after);
  return Outcome::Done;
}

Outcome PlainPolicy::get_len(Act&, Operand o, Operand* out) {
  const Py_ssize_t length = PyObject_Length(o.object);
  return length < 0 ? Outcome::Raised : set(out, PyLong_FromSsize_t(length));
}

Outcome PlainPolicy::end_iteration() {
  if (!PyErr_Occurred()) return Outcome::Done;
  if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return Outcome::Raised;
  PyErr_Clear();
  return Outcome::Done;
}

// --- strings
// ----------------------------------------------------------------------------------------------------------

Outcome PlainPolicy::build_string(Act&, PyObject* const* items, int n, Operand* out) {
  return set(out, host::join_strings(host::get_names().empty, items, n));
}

Outcome PlainPolicy::format_value(Act&, Operand v, Operand spec, int conversion, bool do_format, Operand* out) {
  PyObject* value = nullptr;
  switch (conversion) {
    case 0:
      value = Py_NewRef(v.object);
      break;
    case 1:
      value = PyObject_Str(v.object);
      break;
    case 2:
      value = PyObject_Repr(v.object);
      break;
    default:
      value = PyObject_ASCII(v.object);
  }
  if (value == nullptr) return Outcome::Raised;
  if (!do_format || (PyUnicode_CheckExact(value) && spec.object == nullptr)) {
    out->object = value;
    return Outcome::Done;
  }
  out->object = PyObject_Format(value, spec.object);
  Py_DECREF(value);
  return out->object != nullptr ? Outcome::Done : Outcome::Raised;
}

// --- calls, functions, imports
// ----------------------------------------------------------------------------------------

Outcome PlainPolicy::call_ex(Act&, Operand callable, Operand args, Operand kwargs, Operand* out) {
  if (PyTuple_CheckExact(args.object)) return set(out, PyObject_Call(callable.object, args.object, kwargs.object));
  if (!is_iterable(args.object)) {
    explain_star_error(callable.object, args.object);
    return Outcome::Raised;
  }
  PyObject* tuple = PySequence_Tuple(args.object);
  if (tuple == nullptr) return Outcome::Raised;
  out->object = PyObject_Call(callable.object, tuple, kwargs.object);
  Py_DECREF(tuple);
  return out->object != nullptr ? Outcome::Done : Outcome::Raised;
}

Outcome PlainPolicy::make_function(Act& act, Operand code, Operand defaults, Operand kwdefaults, Operand annotations,
                                   Operand closure, Operand* out) {
  out->object = PyFunction_New(code.object, act.frame->f_globals);
  if (out->object == nullptr) return Outcome::Raised;
  auto* function = reinterpret_cast<PyFunctionObject*>(out->object);
  function->func_closure = Py_XNewRef(closure.object);
  if (annotations.object != nullptr) Py_XSETREF(function->func_annotations, Py_NewRef(annotations.object));
  function->func_kwdefaults = Py_XNewRef(kwdefaults.object);
  function->func_defaults = Py_XNewRef(defaults.object);
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
  function->func_version = reinterpret_cast<PyCodeObject*>(code.object)->co_version;
#endif
  return Outcome::Done;
}

Outcome PlainPolicy::set_function_attribute(Act&, Operand function, int which, Operand v) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function.object);
  PyObject** const field = which == 8   ? &object->func_closure
                           : which == 4 ? &object->func_annotations
                           : which == 2 ? &object->func_kwdefaults
                                        : &object->func_defaults;
  Py_XSETREF(*field, Py_NewRef(v.object));
  return Outcome::Done;
}

Outcome PlainPolicy::import_name(Act& act, PyObject* name, Operand fromlist, Operand level, Operand* out) {
  PyObject* const globals = act.frame->f_globals;
  PyObject* const builtins = act.frame->f_builtins;
  PyObject* const locals = act.frame->f_locals != nullptr ? act.frame->f_locals : Py_None;
  if (!PyDict_Check(builtins)) return Outcome::Stop;
  PyObject* import = PyDict_GetItemWithError(builtins, host::get_names().dunder_import);
  if (import == nullptr) {
    PyErr_Clear();
    return Outcome::Stop;
  }
  if (import == host::view::import_function(PyThreadState_Get())) {
    const long number = PyLong_AsLong(level.object);
    if (number == -1 && PyErr_Occurred()) return Outcome::Raised;
    return set(out, PyImport_ImportModuleLevelObject(name, globals, locals, fromlist.object, static_cast<int>(number)));
  }
  PyObject* const arguments[] = {name, globals, locals, fromlist.object, level.object};
  Py_INCREF(import);
  out->object = PyObject_Vectorcall(import, arguments, 5, nullptr);
  Py_DECREF(import);
  return out->object != nullptr ? Outcome::Done : Outcome::Raised;
}

Outcome PlainPolicy::import_from(Act&, Operand module, PyObject* name, Operand* out) {
  if (host::find_attribute(module.object, name, &out->object) != 0) {
    return out->object != nullptr ? Outcome::Done : Outcome::Raised;
  }
  // A circular import: the submodule may be in sys.modules and not yet in its package.
  PyObject* package = nullptr;
  if (host::find_attribute(module.object, host::get_names().dunder_name, &package) < 0) return Outcome::Raised;
  if (package != nullptr && PyUnicode_Check(package)) {
    PyObject* full_name = PyUnicode_FromFormat("%U.%U", package, name);
    Py_DECREF(package);
    if (full_name == nullptr) return Outcome::Raised;
    out->object = PyImport_GetModule(full_name);
    Py_DECREF(full_name);
    if (out->object != nullptr) return Outcome::Done;
    return PyErr_Occurred() ? Outcome::Raised : Outcome::Stop;
  }
  Py_XDECREF(package);
  return Outcome::Stop;
}

// --- with, exceptions
// -------------------------------------------------------------------------------------------------

Outcome PlainPolicy::before_with(Act&, Operand manager, Operand* exit, Operand* result) {
  PyObject* enter = host::find_special_method(manager.object, host::get_names().enter);
  if (enter == nullptr) return PyErr_Occurred() ? Outcome::Raised : Outcome::Stop;
  exit->object = host::find_special_method(manager.object, host::get_names().exit);
  if (exit->object == nullptr) {
    Py_DECREF(enter);
    return PyErr_Occurred() ? Outcome::Raised : Outcome::Stop;
  }
  result->object = PyObject_CallNoArgs(enter);
  Py_DECREF(enter);
  if (result->object != nullptr) return Outcome::Done;
  Py_CLEAR(exit->object);
  return Outcome::Raised;
}

Outcome PlainPolicy::with_except_start(Act&, Operand exit, Operand exception, Operand* out) {
  PyObject* traceback = PyException_GetTraceback(exception.object);
  PyObject* arguments[] = {nullptr, PyExceptionInstance_Class(exception.object), exception.object,
                           traceback != nullptr ? traceback : Py_None};
  out->object = PyObject_Vectorcall(exit.object, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  Py_XDECREF(traceback);
  return out->object != nullptr ? Outcome::Done : Outcome::Raised;
}

Outcome PlainPolicy::raise(Act&, Operand exception, Operand cause) {
  raise_exception(exception.object, cause.object);
  return Outcome::Raised;
}

Outcome PlainPolicy::exception_matches(Act&, Operand exception, Operand type, bool* out) {
  if (!check_except_class(type.object)) return Outcome::Raised;
  *out = PyErr_GivenExceptionMatches(exception.object, type.object) != 0;
  return Outcome::Done;
}

}  // namespace reprise::interp
