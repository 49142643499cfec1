// Attribute access: the model of LOAD_ATTR, LOAD_METHOD, getattr, STORE_ATTR, setattr and super.
//
// Complete by design: Python code that an access runs (properties, __getattr__, __get__, __getattribute__) is called by
// us with ids, so that it is recorded like any other call. C code is never asked to look an attribute up for us.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

#include <Python.h>
#include <structmember.h>

#include "base/check.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"
#include "host/torch/callables.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

namespace {

/// object's own __getattribute__, through whatever slot function CPython has installed.
bool has_generic_getattr(PyTypeObject* type) {
  if (type->tp_getattro == PyObject_GenericGetAttr) return true;
  PyObject* found = host::find_in_class(type, names().getattribute);
  static PyObject* object_getattribute =
      PyObject_GetAttr(reinterpret_cast<PyObject*>(&PyBaseObject_Type), names().getattribute);
  return found == object_getattribute;
}

/// A `__getattr__`.
bool has_fallback(PyTypeObject* type) { return host::find_in_class(type, names().getattr) != nullptr; }

/// type's own __getattribute__; a metaclass may add a __getattr__.
bool has_type_getattr(PyTypeObject* meta) {
  if (meta->tp_getattro == PyType_Type.tp_getattro) return true;
  static PyObject* type_getattribute =
      PyObject_GetAttr(reinterpret_cast<PyObject*>(&PyType_Type), names().getattribute);
  return host::find_in_class(meta, names().getattribute) == type_getattribute;
}

/// A class of the module inspect.
bool is_of_inspect(PyTypeObject* type) {
  static PyObject* kModule = PyUnicode_InternFromString("__module__");
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return false;
  PyObject* module = host::find_in_class(type, kModule);
  return module != nullptr && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "inspect") == 0;
}

/// What inspect.signature gives: never changed once it is made, and made once for a function.
bool is_signature(PyObject* o) {
  const char* name = Py_TYPE(o)->tp_name;
  return (!strcmp(name, "Signature") || !strcmp(name, "Parameter")) && is_of_inspect(Py_TYPE(o));
}

bool is_code_of_function(PyObject* descriptor, PyObject* o) {
  return PyFunction_Check(o) && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) &&
         !strcmp(reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset->name, "__code__");
}

/// Objects whose slots never change once they are made.
bool is_fixed_with_owner(PyObject* owner) {
  if (PyCode_Check(owner)) return true;
  const char* name = Py_TYPE(owner)->tp_name;
  if (!strcmp(name, "torch.device") || !strcmp(name, "torch.dtype") || !strcmp(name, "torch.layout")) return true;
  return is_signature(owner) || (!strcmp(name, "BoundArguments") && is_of_inspect(Py_TYPE(owner)));
}

/// Attributes of `int | str` and `list[int]` that are their own, not those of the class that they stand for.
bool is_own_of_alias(PyObject* name) {
  static const char* const kNames[] = {"__args__", "__origin__", "__parameters__"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* own) { return PyUnicode_CompareWithASCIIString(name, own) == 0; });
}

}  // namespace

Outcome Recorder::load_method(Act&, Operand o, PyObject* name, Operand* callable, Operand* self) {
  if (!active_) {
    *self = {};
    PyObject* found = PyObject_GetAttr(o.object, name);
    if (found == nullptr) return Outcome::Raised;
    *callable = {found, kNoValue};
    return Outcome::Done;
  }
  *self = {};
  return get_attribute(o, name, callable, self);
}

Outcome Recorder::bind_descriptor(PyObject* descriptor, Operand o, Operand* out, Operand* self, bool* handled) {
  *handled = true;
  PyTypeObject* kind = Py_TYPE(descriptor);
  bool is_cached = !strcmp(kind->tp_name, "functools._lru_cache_wrapper");  // binds like a function
  if (PyFunction_Check(descriptor) || is_cached) {
    ValueId id = constant_id(descriptor);
    if (self != nullptr) {
      *out = {Py_NewRef(descriptor), id};
      *self = {Py_NewRef(o.object), o.id};
    } else {
      *out = new_method(descriptor, id, o);
    }
    return out->object != nullptr ? Outcome::Done : Outcome::Raised;
  }
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type) {
    ValueId id = constant_id(descriptor);
    if (self != nullptr) {
      *out = {Py_NewRef(descriptor), id};
      *self = {Py_NewRef(o.object), o.id};
      return Outcome::Done;
    }
    PyObject* bound = kind->tp_descr_get(descriptor, o.object, reinterpret_cast<PyObject*>(Py_TYPE(o.object)));
    if (bound == nullptr) return Outcome::Raised;
    ValueId operands[] = {id, o.id};
    ValueId method = emit_typed(NodeKind::Method, operands, bound, nullptr, 1);
    if (method >= 0) {
      HeapObject* object = new_object(method);
      object->function = id;
      object->self = o.id;
    }
    *out = {bound, method};
    return Outcome::Done;
  }
  PyObject* owner = PyType_Check(o.object) ? o.object : reinterpret_cast<PyObject*>(Py_TYPE(o.object));
  if (kind == &PyStaticMethod_Type) {
    *out = new_constant(PyObject_GetAttr(descriptor, names().func));
    return Outcome::Done;
  }
  if (kind == &PyClassMethod_Type) {
    PyObject* function = PyObject_GetAttr(descriptor, names().func);
    ValueId function_id = constant_id(function);
    Operand type{owner, constant_id(owner)};
    if (PyFunction_Check(function) && self != nullptr) {
      *out = {function, function_id};
      *self = {Py_NewRef(owner), type.id};
      return Outcome::Done;
    }
    *out = new_method(function, function_id, type);
    Py_DECREF(function);
    return out->object != nullptr ? Outcome::Done : Outcome::Raised;
  }
  if (kind == &PyClassMethodDescr_Type) {
    PyObject* bound = kind->tp_descr_get(descriptor, nullptr, owner);
    if (bound == nullptr) return Outcome::Raised;
    *out = new_constant(bound);
    return Outcome::Done;
  }
  if (kind->tp_descr_get == PyProperty_Type.tp_descr_get) {  // or of a subclass that reads as it does
    PyObject* getter = PyObject_GetAttr(descriptor, names().fget);
    if (getter == Py_None) {
      Py_DECREF(getter);
      return stop("a property without a getter");
    }
    Operand callable{getter, constant_id(getter)};
    Outcome outcome = call_any(callable, &o, 1, nullptr, out);
    Py_DECREF(getter);
    return outcome;
  }
  if (kind->tp_descr_get == nullptr) {
    *out = constant(descriptor);
    return Outcome::Done;
  }
  if (std::string_view(kind->tp_name).ends_with("_tuplegetter")) {  // of namedtuple; its module varies
    if (!PyTuple_Check(o.object)) return stop("a namedtuple field of no tuple");
    PyObject* value = kind->tp_descr_get(descriptor, o.object, owner);
    if (value == nullptr) return Outcome::Raised;
    std::vector<ValueId> ids;
    if (element_ids(o, &ids)) {
      for (size_t i = 0; i < ids.size(); i++) {
        if (PyTuple_GET_ITEM(o.object, i) == value) {
          // Two fields may hold the same object; the index decides, not the object.
          PyObject* reduced = PyObject_CallMethod(descriptor, "__reduce__", nullptr);
          PyObject* index = reduced != nullptr ? PyTuple_GetItem(PyTuple_GetItem(reduced, 1), 0) : nullptr;
          if (index != nullptr) i = PyLong_AsSize_t(index);
          Py_XDECREF(reduced);
          PyErr_Clear();
          *out = {value, ids[i]};
          return Outcome::Done;
        }
      }
    }
    Py_DECREF(value);
    return stop("a field of a tuple of unknown contents");
  }
  if (PyObject* getter = find_in_class(kind, names().get); getter != nullptr && PyFunction_Check(getter)) {
    know_type_version(kind);
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(o.object));
    Operand args[3] = {{descriptor, constant_id(descriptor)}, o, {type, constant_id(type)}};
    if (PyType_Check(o.object) && o.id < 0) args[1] = {Py_None, constant_id(Py_None)};
    return call_function({getter, constant_id(getter)}, args, 3, nullptr, out);
  }
  *handled = false;
  return Outcome::Done;
}

namespace {

/// Which element of a named tuple that C code defines the member is, or -1.
Py_ssize_t find_field(PyObject* descriptor, PyObject* o) {
  if (!PyTuple_Check(o) || Py_TYPE(descriptor) != &PyMemberDescr_Type || PyDescr_TYPE(descriptor) != Py_TYPE(o))
    return -1;
  const Py_ssize_t offset = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->offset;
  const auto first = static_cast<Py_ssize_t>(offsetof(PyTupleObject, ob_item));
  const auto size = static_cast<Py_ssize_t>(sizeof(PyObject*));
  if (offset < first || (offset - first) % size != 0) return -1;
  const Py_ssize_t index = (offset - first) / size;
  return index < PyTuple_GET_SIZE(o) ? index : -1;
}

/// Reading it gives None where nothing was stored: it never raises (a function's __module__, __doc__).
bool is_never_absent(PyObject* descriptor) {
  return Py_TYPE(descriptor) == &PyMemberDescr_Type &&
         reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->type == T_OBJECT;
}

/// Whether it is a field of a frame that changes as the frame goes on: an entry has no frame that could tell.
bool moves_with_frame(PyObject* descriptor, PyObject* o) {
  if (!PyFrame_Check(o)) return false;
  for (const char* fixed : {"f_code", "f_globals", "f_builtins"})
    if (PyUnicode_CompareWithASCIIString(PyDescr_NAME(descriptor), fixed) == 0) return false;
  return true;
}

}  // namespace

Outcome Recorder::read_slot(PyObject* descriptor, Operand o, Operand* out) {
  // torch.max(x, 0).values
  const Py_ssize_t field = find_field(descriptor, o.object);
  std::vector<ValueId> ids;
  if (field >= 0 && o.id >= 0 && trace_->category(o.id) == trace::Category::Tensor && element_ids(o, &ids)) {
    *out = {Py_NewRef(PyTuple_GET_ITEM(o.object, field)), ids[field]};
    return Outcome::Done;
  }
  HeapObject* object = heap_of(o);
  if (object == nullptr) return Outcome::Stop;
  if (object->function_context >= 0) {
    // Its other fields, and what they are outside of the call, are PyTorch's.
    if (PyUnicode_CompareWithASCIIString(PyDescr_NAME(descriptor), "needs_input_grad") != 0)
      return stop("a field of an autograd function's context");
    *out = {Py_NewRef(facts_[object->function_context].constant), object->function_context};
    return Outcome::Done;
  }
  if (is_code_of_function(descriptor, o.object)) {  // known as for a call of it
    if (!know_function(o)) return Outcome::Stop;
    *out = constant(PyFunction_GET_CODE(o.object));
    return Outcome::Done;
  }
  // One that is made for each call (an argument, a cell's contents that changes) would never be the same again.
  if (is_pre(o.id) && is_signature(o.object) && trace_->values[o.id].kind != NodeKind::Arg && !know_identity(o))
    return Outcome::Stop;
  if (is_constant(o.id) && is_fixed_with_owner(o.object)) {
    PyObject* fixed =
        Py_TYPE(descriptor)->tp_descr_get(descriptor, o.object, reinterpret_cast<PyObject*>(Py_TYPE(o.object)));
    if (fixed == nullptr) return Outcome::Raised;
    *out = new_constant(fixed);
    return Outcome::Done;
  }
  if (moves_with_frame(descriptor, o.object)) return stop("a field of a frame that runs");
  if (!check_effects(object)) return Outcome::Stop;
  PyObject* value =
      Py_TYPE(descriptor)->tp_descr_get(descriptor, o.object, reinterpret_cast<PyObject*>(Py_TYPE(o.object)));
  bool is_member = Py_TYPE(descriptor) == &PyMemberDescr_Type;
  if (value == nullptr && !PyErr_ExceptionMatches(PyExc_AttributeError)) return Outcome::Raised;
  if (const KeyMap::Item* item = object->items.find(descriptor); item != nullptr && is_member) {
    if (value == nullptr) {
      exception_is_recorded_ = true;
      return Outcome::Raised;
    }
    *out = {value, item->id};
    return item->id >= 0 ? Outcome::Done : stop("a deleted slot");
  }
  if (object->is_created && is_member && value == nullptr) {
    exception_is_recorded_ = true;  // a slot that the trace never filled
    return Outcome::Raised;
  }
  if (object->is_created && value != nullptr && PyExceptionInstance_Check(value) && find_exception(value) < 0) {
    Py_DECREF(value);
    return stop("what an exception came from, outside of the recording");
  }
  if (object->is_created && value != nullptr && PyTraceBack_Check(value)) {
    for (const KnownException& known : known_exceptions_) {
      if (known.id != object->id) continue;
      if (!end_at_raise(known, "a read of a traceback")) lose("a read of a traceback");
      *out = {value, kNoValue};
      return Outcome::Done;
    }
  }
  force_late_ = object->is_created || (had_callbacks_ && !is_member);
  ValueId id = emit(NodeKind::Slot, {object->id}, descriptor);
  force_late_ = false;
  if (value == nullptr) {
    PyObject *type, *exception, *traceback;
    PyErr_Fetch(&type, &exception, &traceback);
    bool ok = know_absent(id);
    PyErr_Restore(type, exception, traceback);
    if (!ok) {
      PyErr_Clear();
      return stop("a missing slot");
    }
    exception_is_recorded_ = true;
    return Outcome::Raised;
  }
  if (id < 0) {
    *out = {value, kNoValue};
    return Outcome::Done;
  }
  if (is_member) {
    if (is_never_absent(descriptor)) facts_[id].is_present = true;
    if (!know_present(id)) {
      Py_DECREF(value);
      return Outcome::Stop;
    }
    object->items.set(descriptor, id);
  } else {
    facts_[id].is_present = true;
  }
  *out = {value, id};
  return Outcome::Done;
}

Outcome Recorder::get_attribute(Operand o, PyObject* name, Operand* out, Operand* self, bool use_hooks) {
  if (!active_) {
    PyObject* found = PyObject_GetAttr(o.object, name);
    if (found == nullptr) return Outcome::Raised;
    *out = {found, kNoValue};
    return Outcome::Done;
  }
  if (o.id < 0) return stop("an attribute of a value of unknown origin");
  PyTypeObject* type = Py_TYPE(o.object);
  if (PyModule_Check(o.object)) return get_module_attribute(o, name, out);
  if (PyType_Check(o.object) && has_type_getattr(type)) return get_type_attribute(o, name, out);
  if (type == &PySuper_Type) return get_super_attribute(o, name, out, self);
  bool is_tensor = host::is_tensor(o.object);
  if (!is_tensor && !know_type(o)) return Outcome::Stop;
  know_type_version(type);
  if (is_type_alias(o.object) && is_own_of_alias(name)) {
    if (!make_constant(o)) return stop("a type alias that is known late");
    PyObject* value = PyObject_GetAttr(o.object, name);
    if (value == nullptr) {
      exception_is_recorded_ = PyErr_ExceptionMatches(PyExc_AttributeError);
      return Outcome::Raised;
    }
    *out = new_constant(value);
    return Outcome::Done;
  }
  if (!has_generic_getattr(type) && use_hooks) {
    PyObject* hook = find_in_class(type, names().getattribute);
    if (hook == nullptr || !PyFunction_Check(hook)) return stop("the attribute access of " + type_name(type));
    Operand args[2] = {o, {name, constant_id(name)}};
    Outcome outcome;
    {
      std::optional<ModeScope> mode;
      if (has_fallback(type)) mode.emplace(*this, ResumeMode::Never);
      outcome = call_function({hook, constant_id(hook)}, args, 2, nullptr, out);
    }
    return or_fallback(outcome, o, name, out);
  }
  PyObject* descriptor = find_in_class(type, name);
  // Whether a descriptor has __set__ is a fact about its class.
  if (descriptor != nullptr && (Py_TYPE(descriptor)->tp_flags & Py_TPFLAGS_HEAPTYPE))
    know_type_version(Py_TYPE(descriptor));
  bool is_data = descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr &&
                 Py_TYPE(descriptor)->tp_descr_get != nullptr;
  if (is_tensor) {
    Outcome outcome = get_tensor_attribute(o, name, descriptor, out);
    if (outcome != Outcome::Done || out->object != nullptr || !active_) return outcome;
  }
  if (is_data) {
    if (name == names().class_ && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
      *out = constant(reinterpret_cast<PyObject*>(type));
      return Outcome::Done;
    }
    if (name == names().dict && has_instance_dict(type)) {
      PyObject* dict;
      HeapObject* object = instance_dict_of(o, &dict);
      if (object == nullptr) return stop("the __dict__ of " + type_name(type));
      *out = {Py_NewRef(dict), object->id};
      return Outcome::Done;
    }
    PyTypeObject* kind = Py_TYPE(descriptor);
    if (kind == &PyMemberDescr_Type || kind == &PyGetSetDescr_Type) return read_slot(descriptor, o, out);
    bool handled;
    const Outcome outcome = bind_for(descriptor, o, out, self, &handled, use_hooks);
    if (!handled) return stop("the data descriptor " + type_name(kind));
    return use_hooks ? or_fallback(outcome, o, name, out) : outcome;
  }
  // A tensor's own __dict__ rarely holds anything; the metadata fact says whether it does.
  bool read_dict_first = has_instance_dict(type);
  if (is_tensor && descriptor != nullptr) {
    if (!know_tensor(o)) return Outcome::Stop;
    PyObject* dict = PyObject_GenericGetDict(o.object, nullptr);
    read_dict_first = dict != nullptr && PyDict_GET_SIZE(dict) > 0;
    Py_XDECREF(dict);
    PyErr_Clear();
  }
  if (read_dict_first) {
    PyObject* dict;
    HeapObject* object = instance_dict_of(o, &dict);
    if (object == nullptr) return stop("the __dict__ of " + type_name(type));
    Operand value;
    Outcome outcome = read_dict(dict, object, {name, kNoValue}, &value);
    if (outcome != Outcome::Done) return outcome;
    if (value.object != nullptr) {
      *out = {Py_NewRef(value.object), value.id};
      return Outcome::Done;
    }
  }
  if (descriptor != nullptr) {
    if (host::is_tensor(descriptor)) return read_class_item(type, name, out);
    bool handled;
    const Outcome outcome = bind_for(descriptor, o, out, self, &handled, use_hooks);
    if (handled) return use_hooks ? or_fallback(outcome, o, name, out) : outcome;
    if (PyCFunction_Check(descriptor) || PyType_Check(descriptor)) {
      *out = constant(descriptor);
      return Outcome::Done;
    }
    return stop("the descriptor " + type_name(Py_TYPE(descriptor)));
  }
  if (use_hooks) {
    if (PyObject* fallback = find_in_class(type, names().getattr); fallback != nullptr) {
      if (!PyFunction_Check(fallback)) return stop("a __getattr__ that is no function");
      Operand args[2] = {o, {name, constant_id(name)}};
      return call_function({fallback, constant_id(fallback)}, args, 2, nullptr, out);
    }
  }
  PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%U'", type->tp_name, name);
  return note_missing(o.object, name);
}

// As bind_descriptor. No exit is made inside of code for whose AttributeError a `__getattr__` stands in: whoever goes
// on behind it knows nothing of that.
Outcome Recorder::bind_for(PyObject* descriptor, Operand o, Operand* out, Operand* self, bool* handled,
                           bool use_hooks) {
  std::optional<ModeScope> mode;
  if (use_hooks && !PyFunction_Check(descriptor) && has_fallback(Py_TYPE(o.object)))
    mode.emplace(*this, ResumeMode::Never);
  return bind_descriptor(descriptor, o, out, self, handled);
}

// What a class's `__getattr__` says about an attribute whose own code raised an AttributeError, recorded or not.
Outcome Recorder::or_fallback(Outcome outcome, Operand o, PyObject* name, Operand* out) {
  if (outcome != Outcome::Raised || !PyErr_ExceptionMatches(PyExc_AttributeError)) return outcome;
  PyObject* fallback = find_in_class(Py_TYPE(o.object), names().getattr);
  if (fallback == nullptr) return outcome;
  if (active_ && !(exception_is_recorded_ && PyFunction_Check(fallback))) lose("an attribute access that raised");
  PyErr_Clear();
  exception_is_recorded_ = false;
  if (active_) {
    Operand args[2] = {o, {name, constant_id(name)}};
    const Outcome answer = call_function({fallback, constant_id(fallback)}, args, 2, nullptr, out);
    if (answer != Outcome::Stop) return answer;  // else ended in front of it: unrecorded
  }
  const descrgetfunc bind = Py_TYPE(fallback)->tp_descr_get;
  PyObject* method =
      bind != nullptr ? bind(fallback, o.object, reinterpret_cast<PyObject*>(Py_TYPE(o.object))) : Py_NewRef(fallback);
  *out = {method != nullptr ? PyObject_CallOneArg(method, name) : nullptr, kNoValue};
  Py_XDECREF(method);
  return out->object != nullptr ? Outcome::Done : Outcome::Raised;
}

// The AttributeError that is set says of what and which, as CPython's do (`obj`, `name`).
Outcome Recorder::note_missing(PyObject* object, PyObject* name) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const bool is_noted =
      PyObject_SetAttrString(value, "obj", object) == 0 && PyObject_SetAttrString(value, "name", name) == 0;
  if (!is_noted) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  exception_is_recorded_ = true;
  return Outcome::Raised;
}

Outcome Recorder::get_module_attribute(Operand o, PyObject* name, Operand* out) {
  if (!know_identity(o)) return Outcome::Stop;
  if (!facts_[o.id].is_type_guarded) {  // `module.__class__ = ...`
    if (!guard(o.id, FactKind::Type, reinterpret_cast<PyObject*>(Py_TYPE(o.object)))) return Outcome::Stop;
    facts_[o.id].is_type_guarded = true;
    know_type_version(Py_TYPE(o.object));
  }
  PyObject* dict = PyModule_GetDict(o.object);
  HeapObject* object = heap_of({dict, constant_id(dict)});
  if (object == nullptr) return Outcome::Stop;
  Operand value;
  Outcome outcome = read_dict(dict, object, {name, kNoValue}, &value);
  if (outcome != Outcome::Done) return outcome;
  if (value.object != nullptr) {
    *out = {Py_NewRef(value.object), value.id};
    return Outcome::Done;
  }
  if (name == names().dict) {
    *out = constant(dict);
    return Outcome::Done;
  }
  if (name == names().class_) {
    *out = constant(reinterpret_cast<PyObject*>(Py_TYPE(o.object)));
    return Outcome::Done;
  }
  // Lazy modules (PEP 562, subclasses of module): the attribute is there afterwards.
  CCall bracket(*this);
  PyObject* found = PyObject_GetAttr(o.object, name);
  if (found == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) exception_is_recorded_ = true;
    return Outcome::Raised;
  }
  // Computed on each access (a property of a module's class): only torch's own are known to follow from the state word.
  bool is_stored = PyDict_GetItemWithError(dict, name) != nullptr;
  const char* module = PyModule_GetName(o.object);
  PyErr_Clear();
  if (!is_stored && (module == nullptr || strncmp(module, "torch", 5) != 0)) {
    lose("an attribute that a module computes");
    *out = {found, kNoValue};
    return Outcome::Done;
  }
  *out = {found, constant_id(found)};
  return Outcome::Done;
}

// A tensor in a class: no constant of the trace, so it is read in each call.
Outcome Recorder::read_class_item(PyTypeObject* type, PyObject* name, Operand* out) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* dict = host::get_class_dict(base);
    if (dict == nullptr || PyDict_GetItemWithError(dict, name) == nullptr) continue;
    HeapObject* object = heap_of({dict, constant_id(dict)});
    Operand value;
    const Outcome outcome =
        object != nullptr ? read_dict(dict, object, {name, constant_id(name)}, &value) : Outcome::Stop;
    if (outcome != Outcome::Done || value.object == nullptr) return stop("a class attribute of unknown origin");
    *out = {Py_NewRef(value.object), value.id};
    return Outcome::Done;
  }
  return stop("a class attribute of unknown origin");
}

Outcome Recorder::get_type_attribute(Operand o, PyObject* name, Operand* out) {
  if (!know_identity(o)) return stop("a class that is known late");
  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(o.object);
  PyTypeObject* meta = Py_TYPE(o.object);
  know_type_version(type);
  if (meta != &PyType_Type) know_type_version(meta);
  PyObject* meta_attribute = find_in_class(meta, name);
  if (meta_attribute != nullptr && Py_TYPE(meta_attribute)->tp_descr_set != nullptr) {
    PyTypeObject* kind = Py_TYPE(meta_attribute);
    if (kind == &PyProperty_Type) {
      bool handled;
      return bind_descriptor(meta_attribute, o, out, nullptr, &handled);
    }
    if (kind != &PyMemberDescr_Type && kind != &PyGetSetDescr_Type)
      return stop("the metaclass descriptor " + type_name(kind));
    find_in_class(type, name);  // `__module__`, `__annotations__`: the metaclass reads it from the class
    PyObject* value = kind->tp_descr_get(meta_attribute, o.object, reinterpret_cast<PyObject*>(meta));
    if (value == nullptr) return Outcome::Raised;
    *out = new_constant(value);
    return Outcome::Done;
  }
  PyObject* attribute = find_in_class(type, name);
  if (attribute != nullptr && host::is_tensor(attribute)) return read_class_item(type, name, out);
  if (attribute != nullptr) {
    PyTypeObject* kind = Py_TYPE(attribute);
    if (PyFunction_Check(attribute) || kind->tp_descr_get == nullptr || kind == &PyProperty_Type ||
        kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type || kind == &PyMemberDescr_Type ||
        kind == &PyGetSetDescr_Type) {
      *out = constant(attribute);
      return Outcome::Done;
    }
    if (kind == &PyStaticMethod_Type || kind == &PyClassMethod_Type || kind == &PyClassMethodDescr_Type) {
      bool handled;
      return bind_descriptor(attribute, o, out, nullptr, &handled);
    }
    const bool is_member = is_enum(type);
    static PyObject* kGet = PyUnicode_InternFromString("__get__");
    PyObject* get = is_member ? nullptr : find_in_class(kind, kGet);
    if (get != nullptr && PyFunction_Check(get)) {  // read on the class: __get__(descriptor, None, class)
      know_type_version(kind);
      Operand all[3] = {{attribute, constant_id(attribute)}, {Py_None, constant_id(Py_None)}, o};
      return call_function({get, constant_id(get)}, all, 3, nullptr, out);
    }
    // Enum members and other descriptors read on their class: C code or Python that gives the same object each time.
    CCall bracket(*this);
    PyObject* value = PyObject_GetAttr(o.object, name);
    if (value == nullptr) {
      lose("a class attribute that raised");
      return Outcome::Raised;
    }
    if (bracket.saw_callback() && !is_member) {
      lose("the descriptor " + type_name(kind) + " on a class");
    }
    *out = new_constant(value);
    return Outcome::Done;
  }
  if (meta_attribute != nullptr) {
    bool handled;
    Outcome outcome = bind_descriptor(meta_attribute, o, out, nullptr, &handled);
    if (handled) return outcome;
    return stop("the metaclass descriptor " + type_name(Py_TYPE(meta_attribute)));
  }
  if (PyObject* fallback = find_in_class(meta, names().getattr); fallback != nullptr && PyFunction_Check(fallback)) {
    Operand args[2] = {o, {name, constant_id(name)}};
    return call_function({fallback, constant_id(fallback)}, args, 2, nullptr, out);
  }
  PyErr_Format(PyExc_AttributeError, "type object '%.50s' has no attribute '%U'", type->tp_name, name);
  return note_missing(o.object, name);
}

Outcome Recorder::get_super_attribute(Operand o, PyObject* name, Operand* out, Operand* self) {
  HeapObject* object = facts_[o.id].heap;
  if (object == nullptr || object->super_type == nullptr) return stop("a super object of unknown origin");
  PyObject* live_self = PyObject_GetAttr(o.object, names().self);
  if (live_self == nullptr) return Outcome::Raised;
  Py_DECREF(live_self);
  Operand bound{live_self, object->self};
  PyTypeObject* start =
      PyType_Check(live_self) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(live_self), object->super_type)
          ? reinterpret_cast<PyTypeObject*>(live_self)
          : Py_TYPE(live_self);
  bool on_type = start == reinterpret_cast<PyTypeObject*>(live_self);
  know_type_version(start);
  PyObject* found = find_in_class(start, name, object->super_type);
  if (found == nullptr || name == names().class_) {
    if (name == names().class_) {
      *out = constant(reinterpret_cast<PyObject*>(&PySuper_Type));
      return Outcome::Done;
    }
    if (host::find_in_class(&PySuper_Type, name) != nullptr) return stop("an attribute of a super object itself");
    PyErr_Format(PyExc_AttributeError, "'super' object has no attribute '%U'", name);
    return note_missing(o.object, name);
  }
  if (on_type && PyFunction_Check(found)) {
    *out = constant(found);
    return Outcome::Done;
  }
  bool handled;
  Outcome outcome = bind_descriptor(found, bound, out, self, &handled);
  if (handled) return outcome;
  if (Py_TYPE(found)->tp_descr_get == nullptr || PyCFunction_Check(found) || PyType_Check(found)) {
    *out = constant(found);
    return Outcome::Done;
  }
  if (Py_TYPE(found) == &PyMemberDescr_Type || Py_TYPE(found) == &PyGetSetDescr_Type)
    return read_slot(found, bound, out);
  return stop("a descriptor behind super: " + type_name(Py_TYPE(found)));
}

Outcome Recorder::load_super_attribute(Act& act, Operand super, Operand cls, Operand self, PyObject* name,
                                       bool two_arguments, Operand* out) {
  if (!active_) return Outcome::Stop;
  if (super.object != reinterpret_cast<PyObject*>(&PySuper_Type)) return stop("a replaced super");
  if (!know_identity(super)) return Outcome::Stop;
  (void)two_arguments;
  Operand args[2] = {cls, self};
  Operand object;
  Outcome outcome = make_super(args, 2, &object);
  if (outcome != Outcome::Done) return outcome;
  outcome = get_super_attribute(object, name, out, nullptr);
  Py_DECREF(object.object);
  (void)act;
  return outcome;
}

// ---- tensors

Outcome Recorder::get_tensor_attribute(Operand o, PyObject* name, PyObject* descriptor, Operand* out) {
  *out = {};
  if (descriptor == nullptr || Py_TYPE(descriptor) != &PyGetSetDescr_Type) return Outcome::Done;
  if (name == names().class_ || name == names().dict) return Outcome::Done;
  host::TensorAttributeKind kind = host::classify_tensor_attribute(name).read;
  bool is_plain = host::is_plain_tensor(o.object);
  if (!know_type(o)) return Outcome::Stop;
  if (kind == host::TensorAttributeKind::Metadata) open_late_sizes(o);
  CCall bracket(*this);
  if (kind == host::TensorAttributeKind::Metadata && is_plain && !facts_[o.id].is_meta_tainted) {
    if (!know_tensor(o)) return Outcome::Stop;
    if (trace_->values[o.id].varies) {
      if (PyUnicode_CompareWithASCIIString(name, "shape") == 0) {
        *out = read_shape(o, host::SizeRead::Size);
        return out->object != nullptr ? Outcome::Done : Outcome::Raised;
      }
      if (PyUnicode_CompareWithASCIIString(name, "nbytes") == 0 && !fix_sizes(o)) return Outcome::Stop;
    }
    PyObject* value =
        Py_TYPE(descriptor)->tp_descr_get(descriptor, o.object, reinterpret_cast<PyObject*>(Py_TYPE(o.object)));
    if (value == nullptr) return Outcome::Raised;
    *out = new_constant(value);
    return Outcome::Done;
  }
  const bool is_grad = name == names().grad || PyUnicode_CompareWithASCIIString(name, "_grad") == 0;
  const bool is_written = grads_written_ && is_grad;
  const bool is_changed = !is_grad && written_storages_.contains(host::tensor_storage(o.object));
  bool is_state = kind == host::TensorAttributeKind::HeapState && is_plain;
  if (is_state && !is_written && !is_changed && is_pre(o.id) && !had_callbacks_) {
    // A function of the entry state, unless the trace has stored it.
    HeapObject* object = heap_of(o);
    if (object == nullptr || !check_effects(object)) return Outcome::Stop;
    PyObject* value =
        Py_TYPE(descriptor)->tp_descr_get(descriptor, o.object, reinterpret_cast<PyObject*>(Py_TYPE(o.object)));
    if (value == nullptr) return Outcome::Raised;
    const KeyMap::Item* item = object->items.find(name);
    ValueId id = item != nullptr ? item->id : emit(NodeKind::Slot, {object->id}, descriptor);
    if (id >= 0) {
      object->items.set(name, id);
      facts_[id].is_present = true;
    }
    *out = {value, id};
    return Outcome::Done;
  }
  ValueId operands[] = {o.id};
  // `x.T`, `x.real`: what the result is follows from what the tensor is, as with a call.
  const bool is_view = kind == host::TensorAttributeKind::Tensor;
  if (is_view ? !prepare_torch_argument(o, false) : !is_plain && !know_tensor(o)) return Outcome::Stop;
  PyObject* value =
      Py_TYPE(descriptor)->tp_descr_get(descriptor, o.object, reinterpret_cast<PyObject*>(Py_TYPE(o.object)));
  if (value == nullptr) {
    lose("a tensor attribute that raised");
    return Outcome::Raised;
  }
  const bool is_guarded_late = has_outer_graph_ || had_callbacks_;
  if (active_ && is_state && is_written && !is_guarded_late && !know_gradient_at_entry(o, name, descriptor, value)) {
    Py_DECREF(value);
    return Outcome::Stop;
  }
  if (is_state && !is_written) {
    // Neither a fact about the entry nor a consequence of the trace: what Python asks of it is guarded late.
    ValueId id = emit(NodeKind::TensorGetAttribute, operands, name);
    if (id >= 0) facts_[id].is_present = true;
    *out = {value, id};
    return Outcome::Done;
  }
  if (is_written && is_guarded_late) {
    // Which leaves have a gradient follows from what the backward went through, and from what hooks did.
    ValueId id = emit(NodeKind::TensorGetAttribute, operands, name);
    if (id >= 0) {
      facts_[id].is_present = facts_[id].is_repeated = true;
      facts_[id].is_meta_tainted = host::is_tensor(value);
    }
    *out = {value, id};
    return Outcome::Done;
  }
  bool is_tainted = facts_[o.id].is_meta_tainted;
  return finish_torch_result(NodeKind::TensorGetAttribute, operands, name, 0, value, is_tainted, out);
}

// Behind a backward of the trace a leaf has a gradient if the backward reached it, which follows from the trace, or if
// it had one before. A gradient of a leaf that was not reached is a fact about the entry: None now was None then.
bool Recorder::know_gradient_at_entry(Operand o, PyObject* name, PyObject* descriptor, PyObject* gradient) {
  if (!is_pre(o.id) || (gradient != Py_None && reached_leaves_.contains(host::tensor_impl(o.object)))) return true;
  HeapObject* object = heap_of(o);
  if (object == nullptr || !check_effects(object)) return false;
  const KeyMap::Item* item = object->items.find(name);
  const ValueId id = item != nullptr ? item->id : emit(NodeKind::Slot, {object->id}, descriptor);
  if (id < 0) return false;
  if (item == nullptr) {
    object->items.set(name, id);
    facts_[id].is_present = true;
  }
  if (!is_pre(id) || is_constant(id)) return true;
  return gradient == Py_None ? know_identity({gradient, id}) : know_type({gradient, id});
}

Outcome Recorder::set_tensor_attribute(Operand o, PyObject* name, Operand value) {
  if (!know_tensor(o)) return Outcome::Stop;
  if (host::is_tensor(value.object)) {
    if (!know_tensor(value)) return Outcome::Stop;
  } else if (can_be_constant(value.object) && !make_constant(value)) {
    return stop("a tensor attribute set to a value that is known late");
  }
  CCall bracket(*this);
  emit(NodeKind::TensorSetAttribute, {o.id, value.id}, name);
  if (name != names().grad) note_written(o.object);
  if (PyObject_SetAttr(o.object, name, value.object) < 0) {
    lose("a tensor attribute that raised");
    return Outcome::Raised;
  }
  if (bracket.saw_callback()) forget_after_callback();
  if (name != names().grad) note_resized(o);
  if (HeapObject* object = active_ ? heap_of(o) : nullptr) {
    object->items.set(name, value.id);
    note_effect(object);
  }
  // `.data =`, `requires_grad =`: what was known of the tensor is void, and it follows from what was assigned.
  if (active_ && name != names().grad) facts_[o.id].is_meta_known = !is_pre(o.id) || facts_[o.id].is_meta_known;
  return Outcome::Done;
}

// ---- stores

Outcome Recorder::set_attribute(Operand o, PyObject* name, Operand value, bool use_hooks) {
  if (!active_) return PyObject_SetAttr(o.object, name, value.object) < 0 ? Outcome::Raised : Outcome::Done;
  if (o.id < 0 || value.id < 0) return stop("an attribute store with a value of unknown origin");
  PyTypeObject* type = Py_TYPE(o.object);
  if (PyModule_Check(o.object) || PyType_Check(o.object)) {
    return stop(PyType_Check(o.object) ? "an attribute of a class is written" : "an attribute of a module is written");
  }
  PyObject* descriptor = find_in_class(type, name);
  if (host::is_tensor(o.object) && descriptor != nullptr && Py_TYPE(descriptor) == &PyGetSetDescr_Type) {
    return set_tensor_attribute(o, name, value);
  }
  if (!know_type(o)) return Outcome::Stop;
  know_type_version(type);
  if (use_hooks && type->tp_setattro != PyObject_GenericSetAttr) {
    PyObject* hook = find_in_class(type, names().setattr);
    static PyObject* object_setattr =
        PyObject_GetAttr(reinterpret_cast<PyObject*>(&PyBaseObject_Type), names().setattr);
    if (hook != object_setattr) {
      if (hook == nullptr || !PyFunction_Check(hook)) return stop("the attribute stores of " + type_name(type));
      Operand args[3] = {o, {name, constant_id(name)}, value};
      Operand result;
      Outcome outcome = call_function({hook, constant_id(hook)}, args, 3, nullptr, &result);
      if (outcome == Outcome::Done) Py_DECREF(result.object);
      return outcome;
    }
  }
  if (descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr) {
    PyTypeObject* kind = Py_TYPE(descriptor);
    if (kind == &PyProperty_Type) {
      PyObject* setter = PyObject_GetAttr(descriptor, names().fset);
      if (setter == Py_None) {
        Py_DECREF(setter);
        return stop("a property without a setter");
      }
      Operand args[2] = {o, value};
      Operand result;
      Outcome outcome = call_any({setter, constant_id(setter)}, args, 2, nullptr, &result);
      Py_DECREF(setter);
      if (outcome == Outcome::Done) Py_DECREF(result.object);
      return outcome;
    }
    if (PyObject* setter = find_in_class(kind, names().set); setter != nullptr && PyFunction_Check(setter)) {
      know_type_version(kind);
      Operand args[3] = {{descriptor, constant_id(descriptor)}, o, value};
      Operand result;
      Outcome outcome = call_function({setter, constant_id(setter)}, args, 3, nullptr, &result);
      if (outcome == Outcome::Done) Py_DECREF(result.object);
      return outcome;
    }
    // Names and texts of a function that the trace made (functools.wraps); not what a call of it depends on.
    static const char* const kTexts[] = {"__name__", "__qualname__", "__annotations__", "__type_params__"};
    const bool is_text = kind == &PyGetSetDescr_Type && PyFunction_Check(o.object) && is_created(o.id) &&
                         std::any_of(std::begin(kTexts), std::end(kTexts), [&](const char* text) {
                           return PyUnicode_CompareWithASCIIString(name, text) == 0;
                         });
    // Where no graph is made nobody reads what a context keeps for backward.
    if (HeapObject* context = kind == &PyGetSetDescr_Type && is_created(o.id) ? facts_[o.id].heap : nullptr;
        context != nullptr && context->function_context >= 0) {
      if (PyObject_GenericSetAttr(o.object, name, value.object) == 0) return Outcome::Done;
      lose("an attribute store that raised");
      return Outcome::Raised;
    }
    if (kind != &PyMemberDescr_Type && !is_text) return stop("a store through the descriptor " + type_name(kind));
    HeapObject* object = heap_of(o);
    if (object == nullptr) return Outcome::Stop;
    emit(NodeKind::SetAttribute, {o.id, value.id}, name);
    if (PyObject_GenericSetAttr(o.object, name, value.object) < 0) {
      lose("an attribute store that raised");
      return Outcome::Raised;
    }
    object->items.set(descriptor, value.id);
    note_effect(object);
    return Outcome::Done;
  }
  if (!has_instance_dict(type)) return stop("an attribute store on " + type_name(type));
  PyObject* dict;
  HeapObject* object = instance_dict_of(o, &dict);
  if (object == nullptr) return stop("the __dict__ of " + type_name(type));
  refresh_dict(dict, object);
  emit(NodeKind::SetAttribute, {o.id, value.id}, name);
  if (PyObject_GenericSetAttr(o.object, name, value.object) < 0) {
    lose("an attribute store that raised");
    return Outcome::Raised;
  }
  if (!active_) return Outcome::Done;
  object->items.set(heap_.canonical_key(name), value.id);
  facts_[object->id].is_length_known = false;
  facts_[object->id].are_keys_known = false;
  note_dict_written(dict, object);
  note_effect(object);
  return Outcome::Done;
}

Outcome Recorder::delete_attribute(Act&, Operand o, PyObject* name) {
  if (!active_) return PyObject_SetAttr(o.object, name, nullptr) < 0 ? Outcome::Raised : Outcome::Done;
  PyTypeObject* type = Py_TYPE(o.object);
  if (o.id < 0 || PyModule_Check(o.object) || PyType_Check(o.object)) return stop("an attribute deletion");
  if (!know_type(o)) return Outcome::Stop;
  know_type_version(type);
  if (PyObject* hook = find_in_class(type, names().delattr); hook != nullptr && PyFunction_Check(hook)) {
    Operand args[2] = {o, {name, constant_id(name)}};
    Operand result;
    Outcome outcome = call_function({hook, constant_id(hook)}, args, 2, nullptr, &result);
    if (outcome == Outcome::Done) Py_DECREF(result.object);
    return outcome;
  }
  if (type->tp_setattro != PyObject_GenericSetAttr && !(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return stop("an attribute deletion");
  PyObject* descriptor = find_in_class(type, name);
  if (descriptor != nullptr && Py_TYPE(descriptor) == &PyProperty_Type) {
    PyObject* deleter = PyObject_GetAttr(descriptor, names().fdel);
    Operand result;
    Outcome outcome = deleter != Py_None ? call_any({deleter, constant_id(deleter)}, &o, 1, nullptr, &result)
                                         : stop("a property without a deleter");
    Py_DECREF(deleter);
    if (outcome == Outcome::Done) Py_DECREF(result.object);
    return outcome;
  }
  if ((descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr) || !has_instance_dict(type)) {
    return stop("an attribute deletion through a descriptor");
  }
  PyObject* dict;
  HeapObject* object = instance_dict_of(o, &dict);
  if (object == nullptr) return stop("the __dict__ of " + type_name(type));
  Operand old;
  Outcome outcome = read_dict(dict, object, {name, kNoValue}, &old);
  if (outcome != Outcome::Done) return outcome;
  if (old.object == nullptr) return stop("deletion of a missing attribute");
  emit(NodeKind::DeleteAttribute, {o.id}, name);
  if (PyObject_GenericSetAttr(o.object, name, nullptr) < 0) {
    lose("an attribute deletion that raised");
    return Outcome::Raised;
  }
  object->items.set(heap_.canonical_key(name), kNoValue);
  note_dict_written(dict, object);
  note_effect(object);
  return Outcome::Done;
}

}  // namespace reprise::capture
