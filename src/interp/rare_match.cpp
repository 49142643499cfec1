// Opcodes of the match statement.
#include "host/cpython/names.h"
#include "host/cpython/private_api.h"
#include "interp/rare_ops.h"

namespace reprise::interp {
namespace {

// --- mappings
// ---------------------------------------------------------------------------------------------------------

// The values of all keys as a tuple; None if one is missing. New reference, or nullptr with an exception set.
class KeyMatcher {
 public:
  KeyMatcher(PyObject* mapping, PyObject* keys) : mapping_(mapping), keys_(keys) {}
  ~KeyMatcher() {
    Py_XDECREF(get_);
    Py_XDECREF(seen_);
    Py_XDECREF(missing_);
    Py_XDECREF(values_);
  }

  PyObject* match() {
    const Py_ssize_t count = PyTuple_GET_SIZE(keys_);
    if (count == 0) return PyTuple_New(0);
    // mapping.get, not mapping[key]: a defaultdict must not grow.
    is_method_ = host::find_method(mapping_, host::get_names().get, &get_) != 0;
    if (get_ == nullptr) return nullptr;
    seen_ = PySet_New(nullptr);
    missing_ = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
    values_ = PyTuple_New(count);
    if (seen_ == nullptr || missing_ == nullptr || values_ == nullptr) return nullptr;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* value = get_value(PyTuple_GET_ITEM(keys_, i));
      if (value == nullptr) return nullptr;
      if (value == missing_) {
        Py_DECREF(value);
        return Py_NewRef(Py_None);
      }
      PyTuple_SET_ITEM(values_, i, value);
    }
    return Py_NewRef(values_);
  }

 private:
  PyObject* get_value(PyObject* key) {
    if (PySet_Contains(seen_, key) || PySet_Add(seen_, key)) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
      return nullptr;
    }
    PyObject* const arguments[] = {mapping_, key, missing_};
    return is_method_ ? PyObject_Vectorcall(get_, arguments, 3, nullptr)
                      : PyObject_Vectorcall(get_, arguments + 1, 2, nullptr);
  }

  PyObject* mapping_;
  PyObject* keys_;
  PyObject* get_ = nullptr;
  bool is_method_ = false;
  PyObject* seen_ = nullptr;
  PyObject* missing_ = nullptr;
  PyObject* values_ = nullptr;
};

// --- classes
// ----------------------------------------------------------------------------------------------------------

// The attributes that a class pattern asks for, as a tuple. nullptr without an exception: no match.
class ClassMatcher {
 public:
  ClassMatcher(PyObject* subject, PyObject* type) : subject_(subject), type_(type) {}
  ~ClassMatcher() {
    Py_XDECREF(seen_);
    Py_XDECREF(attributes_);
  }

  PyObject* match(Py_ssize_t positional, PyObject* keywords) {
    if (!PyType_Check(type_)) {
      PyErr_SetString(PyExc_TypeError, "called match pattern must be a class");
      return nullptr;
    }
    if (PyObject_IsInstance(subject_, type_) <= 0) return nullptr;
    seen_ = PySet_New(nullptr);
    attributes_ = PyList_New(0);
    if (seen_ == nullptr || attributes_ == nullptr) return nullptr;
    if (positional > 0 && !add_positional(positional)) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) {
      if (!add(PyTuple_GET_ITEM(keywords, i))) return nullptr;
    }
    return PyList_AsTuple(attributes_);
  }

 private:
  const char* type_name() const { return reinterpret_cast<PyTypeObject*>(type_)->tp_name; }

  bool add_positional(Py_ssize_t count) {
    PyObject* names = nullptr;
    if (host::find_attribute(type_, host::get_names().match_args, &names) < 0) return false;
    const bool is_added = names != nullptr ? add_match_args(count, names) : add_subject(count);
    Py_XDECREF(names);
    return is_added;
  }

  bool check_count(Py_ssize_t count, Py_ssize_t allowed) {
    if (count <= allowed) return true;
    PyErr_Format(PyExc_TypeError, "%s() accepts %d positional sub-pattern%s (%d given)", type_name(),
                 static_cast<int>(allowed), allowed == 1 ? "" : "s", static_cast<int>(count));
    return false;
  }

  bool add_match_args(Py_ssize_t count, PyObject* names) {
    if (!PyTuple_CheckExact(names)) {
      PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", type_name(), Py_TYPE(names)->tp_name);
      return false;
    }
    if (!check_count(count, PyTuple_GET_SIZE(names))) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      if (!PyUnicode_CheckExact(name)) {
        PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)", Py_TYPE(name)->tp_name);
        return false;
      }
      if (!add(name)) return false;
    }
    return true;
  }

  // int(x), str(x) and their like match the subject itself.
  bool add_subject(Py_ssize_t count) {
    const bool matches_self = PyType_HasFeature(reinterpret_cast<PyTypeObject*>(type_), _Py_TPFLAGS_MATCH_SELF);
    return check_count(count, matches_self ? 1 : 0) && PyList_Append(attributes_, subject_) == 0;
  }

  bool add(PyObject* name) {
    if (PySet_Contains(seen_, name) || PySet_Add(seen_, name)) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R", type_name(), name);
      }
      return false;
    }
    PyObject* value = PyObject_GetAttr(subject_, name);
    if (value == nullptr) {
      if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
      return false;
    }
    const bool is_added = PyList_Append(attributes_, value) == 0;
    Py_DECREF(value);
    return is_added;
  }

  PyObject* subject_;
  PyObject* type_;
  PyObject* seen_ = nullptr;
  PyObject* attributes_ = nullptr;
};

// subject keys -- subject keys values-or-None
RareResult match_keys(RareOp& op) {
  PyObject* values = KeyMatcher(op.peek(2), op.peek(1)).match();
  if (values == nullptr) return RareResult::Raised;
  op.push(values);
  return RareResult::Done;
}

// subject class keywords -- attributes-or-None
RareResult match_class(RareOp& op) {
  PyObject* attributes = ClassMatcher(op.peek(3), op.peek(2)).match(op.instruction->arg, op.peek(1));
  if (attributes == nullptr) {
    if (PyErr_Occurred()) return RareResult::Raised;
    attributes = Py_NewRef(Py_None);
  }
  op.drop(3);
  op.push(attributes);
  return RareResult::Done;
}

// subject -- subject is-match
RareResult match_type_flag(RareOp& op, unsigned long flag) {
  op.push_new(Py_TYPE(op.peek(1))->tp_flags & flag ? Py_True : Py_False);
  return RareResult::Done;
}

}  // namespace

RareResult run_match_op(RareOp& op) {
  switch (op.instruction->op) {
    case host::Op::MatchMapping:
      return match_type_flag(op, Py_TPFLAGS_MAPPING);
    case host::Op::MatchSequence:
      return match_type_flag(op, Py_TPFLAGS_SEQUENCE);
    case host::Op::MatchKeys:
      return match_keys(op);
    case host::Op::MatchClass:
      return match_class(op);
    default:
      return RareResult::Leave;
  }
}

}  // namespace reprise::interp
