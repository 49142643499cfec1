// Unary and binary operators, comparisons, truth, identity and strings.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "capture/models_impl.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "capture/type_names.h"
#include "host/cpython/class_lookup.h"
#include "host/cpython/operators.h"
#include "host/torch/tensor.h"

extern "C" PyObject* _PyUnicode_JoinArray(PyObject*, PyObject* const*, Py_ssize_t);

namespace reprise::capture {

namespace {

using trace::UnaryOp;

constexpr int kAdd = 0, kMultiply = 5, kPower = 8, kOr = 7, kInplaceFirst = 13;

// Of the module operator, by CPython's number of the operator.
constexpr const char* kOperatorNames[] = {"add",  "and_",      "floordiv", "lshift",   "matmul",  "mul",  "mod",
                                          "or_",  "pow",       "rshift",   "sub",      "truediv", "xor",  "iadd",
                                          "iand", "ifloordiv", "ilshift",  "imatmul",  "imul",    "imod", "ior",
                                          "ipow", "irshift",   "isub",     "itruediv", "ixor"};

PyObject* run_unary(int op, PyObject* v) {
  switch (static_cast<UnaryOp>(op)) {
    case UnaryOp::Negative:
      return PyNumber_Negative(v);
    case UnaryOp::Invert:
      return PyNumber_Invert(v);
    case UnaryOp::Positive:
      return PyNumber_Positive(v);
    case UnaryOp::Not:
      return PyBool_FromLong(!PyObject_IsTrue(v));
  }
  return nullptr;
}

bool is_plain_value(PyObject* o) { return is_number(o) || PyUnicode_CheckExact(o) || PyBytes_CheckExact(o); }
bool is_numeric(PyObject* o) { return is_number(o) || (is_value_member(o) && !PyUnicode_Check(o)); }

}  // namespace

Outcome Recorder::unary(Act&, int op, Operand v, Operand* out) {
  if (!active_) {
    PyObject* result = run_unary(op, v.object);
    *out = {result, kNoValue};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  }
  if (v.id < 0) return stop("an operand of unknown origin");
  ValueId operands[] = {v.id};
  if (host::is_tensor(v.object)) {
    if (!know_tensor(v)) return Outcome::Stop;
    bool is_tainted = is_meta_tainted(v);
    PyObject* result;
    {
      CCall bracket(*this);
      result = run_unary(op, v.object);
    }
    if (result == nullptr) {
      lose("an operation that raised");
      return Outcome::Raised;
    }
    return finish_torch_result(NodeKind::TensorUnary, operands, nullptr, op, result, is_tainted, out);
  }
  if (is_of_numpy(v.object) && !is_constant(v.id)) {
    static const char* const kOperators[] = {"neg", "invert", "pos", "not_"};
    return call_builtin("_operator", kOperators[op], {v}, out);
  }
  const bool is_member = is_value_member(v.object);
  if (!is_number(v.object)) {
    static PyObject* kSpecial[] = {PyUnicode_InternFromString("__neg__"), PyUnicode_InternFromString("__invert__"),
                                   PyUnicode_InternFromString("__pos__")};
    bool found = false;
    if (op < 3) {
      Outcome outcome = call_special(kSpecial[op], v, {}, out, &found);
      if (found) return outcome;
    }
    if (!is_member || !make_constant(v)) return stop("a unary operation on " + type_name(Py_TYPE(v.object)));
  }
  if (!know_type(v)) return Outcome::Stop;
  PyObject* result = run_unary(op, v.object);
  if (result == nullptr) {
    lose("an operation that raised");
    return Outcome::Raised;
  }
  *out = {result, is_constant(v.id) ? constant_id(result) : emit_typed(NodeKind::Unary, operands, result, nullptr, op)};
  return Outcome::Done;
}

Outcome Recorder::call_special(PyObject* name, Operand self, std::span<const Operand> args, Operand* out, bool* found) {
  PyTypeObject* type = Py_TYPE(self.object);
  PyObject* function = find_in_class(type, name);
  *found = function != nullptr && PyFunction_Check(function);
  if (!*found) return Outcome::Done;
  if (!know_type(self)) return Outcome::Stop;
  know_type_version(type);
  std::vector<Operand> all{self};
  all.insert(all.end(), args.begin(), args.end());
  return call_function({function, constant_id(function)}, all.data(), static_cast<int>(all.size()), nullptr, out);
}

/// l + r where one side's class defines it in Python: the first method that does not answer NotImplemented.
Outcome Recorder::binary_special(int op, Operand l, Operand r, Operand* out, bool* found) {
  static const char* kSuffix[13] = {"add", "and", "floordiv", "lshift", "matmul",  "mul", "mod",
                                    "or",  "pow", "rshift",   "sub",    "truediv", "xor"};
  int base = op % kInplaceFirst;
  auto named = [&](const char* prefix) {
    std::string text = std::string("__") + prefix + kSuffix[base] + "__";
    return PyUnicode_InternFromString(text.c_str());
  };
  struct Try {
    PyObject* name;
    Operand self, other;
  };
  std::vector<Try> tries;
  if (op >= kInplaceFirst) tries.push_back({named("i"), l, r});
  Try left{named(""), l, r}, right{named("r"), r, l};
  bool right_first = Py_TYPE(l.object) != Py_TYPE(r.object) && PyType_IsSubtype(Py_TYPE(r.object), Py_TYPE(l.object));
  if (right_first)
    tries.insert(tries.end(), {right, left});
  else
    tries.insert(tries.end(), {left, right});
  *found = false;
  ModeScope mode(*this, ResumeMode::Never);
  for (Try& attempt : tries) {
    if (&attempt != tries.data() && attempt.name == right.name && Py_TYPE(l.object) == Py_TYPE(r.object)) continue;
    bool is_python = false;
    PyObject* function = find_in_class(Py_TYPE(attempt.self.object), attempt.name);
    if (function == nullptr) continue;
    if (!PyFunction_Check(function)) {
      if (is_plain_value(attempt.self.object)) continue;  // int.__add__(object of ours) is NotImplemented
      if (!*found) return Outcome::Done;
    }
    Outcome outcome = Outcome::Done;
    if (*found && (!active_ || !PyFunction_Check(function))) {  // what has been asked is not asked again
      CCall bracket(*this);
      PyObject* live = PyObject_CallFunctionObjArgs(function, attempt.self.object, attempt.other.object, nullptr);
      *out = {live, kNoValue};
      outcome = live != nullptr ? Outcome::Done : Outcome::Raised;
      if (live != Py_NotImplemented) lose("a binary operation with C and Python methods");
    } else {
      outcome = call_special(attempt.name, attempt.self, std::span<const Operand>(&attempt.other, 1), out, &is_python);
      if (outcome == Outcome::Stop && *found) {
        PyObject* live = PyObject_CallFunctionObjArgs(function, attempt.self.object, attempt.other.object, nullptr);
        *out = {live, kNoValue};
        outcome = live != nullptr ? Outcome::Done : Outcome::Raised;
      }
    }
    *found = true;
    if (outcome != Outcome::Done || out->object != Py_NotImplemented) return outcome;
    Py_DECREF(out->object);
  }
  if (!*found) return Outcome::Done;
  lose("a binary operation that no method implements");
  // Sequences are asked last: the left one to concatenate, either one to repeat.
  const PySequenceMethods* left_methods = Py_TYPE(l.object)->tp_as_sequence;
  const PySequenceMethods* right_methods = Py_TYPE(r.object)->tp_as_sequence;
  const bool repeats = (left_methods != nullptr && left_methods->sq_repeat != nullptr) ||
                       (right_methods != nullptr && right_methods->sq_repeat != nullptr);
  const bool concatenates = left_methods != nullptr && left_methods->sq_concat != nullptr;
  if ((base == kAdd && concatenates) || (base == kMultiply && repeats)) {
    PyObject* result = base == kAdd && op < kInplaceFirst ? left_methods->sq_concat(l.object, r.object)
                                                          : host::kBinaryOperators[op](l.object, r.object);
    *out = {result, kNoValue};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  }
  static constexpr const char* kSigns[13] = {"+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"};
  const bool is_in_place = op >= kInplaceFirst;
  const std::string sign =
      base == kPower && !is_in_place ? "** or pow()" : std::string(kSigns[base]) + (is_in_place ? "=" : "");
  PyErr_Format(PyExc_TypeError, "unsupported operand type(s) for %.100s: '%.100s' and '%.100s'", sign.c_str(),
               Py_TYPE(l.object)->tp_name, Py_TYPE(r.object)->tp_name);
  return Outcome::Raised;
}

int Recorder::find_binary_operator(PyObject* function) {
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
  const auto* const found = std::find(std::begin(kOperatorNames), std::end(kOperatorNames), name);
  return found != std::end(kOperatorNames) ? static_cast<int>(found - std::begin(kOperatorNames)) : -1;
}

// Enum members that are strings or numbers become constants, and the operands of the node their values, which guards
// can compute with.
bool Recorder::take_member_values(Operand l, Operand r, ValueId* operands) {
  const Operand sides[2] = {l, r};
  for (int i = 0; i < 2; i++) {
    PyObject* o = sides[i].object;
    if (!is_value_member(o)) continue;
    if (!make_constant(sides[i])) return false;
    PyObject* value = nullptr;
    if (PyUnicode_Check(o)) {
      value = PyUnicode_FromObject(o);
    } else {
      value = PyLong_Check(o) ? PyLong_Type.tp_as_number->nb_int(o) : PyFloat_FromDouble(PyFloat_AS_DOUBLE(o));
    }
    if (value == nullptr) {
      PyErr_Clear();
      return false;
    }
    operands[i] = constant_id(value);
    Py_DECREF(value);
  }
  return true;
}

Outcome Recorder::binary(Act& act, int op, Operand l, Operand r, Operand* out) {
  auto run = [&]() -> PyObject* {
    CCall bracket(*this);
    return host::kBinaryOperators[op](l.object, r.object);
  };
  if (!active_) {
    PyObject* result = run();
    *out = {result, kNoValue};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  }
  if (l.id < 0 || r.id < 0) return stop("an operand of unknown origin");
  ValueId operands[] = {l.id, r.id};
  if (host::is_tensor(l.object) || host::is_tensor(r.object)) {
    // A number that meets a tensor stays symbolic: its type decides about the result, its value does not. A power's
    // exponent may choose another formula, but not another shape.
    for (Operand side : {l, r}) {
      if (host::is_tensor(side.object)) {
        if (!know_tensor(side)) return Outcome::Stop;
      } else if (is_number(side.object)) {
        if (!know_type(side)) return Outcome::Stop;
      } else if (!prepare_torch_argument(side, false)) {
        return stop("a tensor operation with " + type_name(Py_TYPE(side.object)));
      }
    }
    bool is_tainted = is_operand_tainted(l) || is_operand_tainted(r);
    PyObject* result;
    bool saw_callback;
    {
      CCall bracket(*this);
      result = host::kBinaryOperators[op](l.object, r.object);
      saw_callback = bracket.saw_callback();
    }
    if (result == nullptr) {
      lose("an operation that raised");
      return Outcome::Raised;
    }
    if (op >= kInplaceFirst) note_written(result);
    Outcome outcome = finish_torch_result(NodeKind::TensorBinary, operands, nullptr, op, result, is_tainted, out);
    if (saw_callback) forget_after_callback();
    return outcome;
  }
  PyObject *a = l.object, *b = r.object;
  int base = op % kInplaceFirst;
  const bool is_late_numpy = (is_of_numpy(a) || is_of_numpy(b)) && !(is_constant(l.id) && is_constant(r.id));
  if (is_late_numpy) return call_builtin("_operator", kOperatorNames[op], {l, r}, out);
  auto done = [&](PyObject* result, ValueId id) {
    *out = {result, id};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  };
  auto raised = [&] {
    lose("an operation that raised");
    return Outcome::Raised;
  };
  bool is_format = base == 6 && PyUnicode_CheckExact(a);
  auto is_plain = [](PyObject* o) { return is_plain_value(o) || is_value_member(o); };
  if (is_value_member(a) || is_value_member(b)) {  // unless its class says otherwise, as its value
    bool found = false;
    Outcome outcome = binary_special(op, l, r, out, &found);
    if (found || outcome != Outcome::Done) return outcome;
    if (!take_member_values(l, r, operands)) return stop("an enum member that is known late");
  }
  if (is_plain(a) && is_plain(b) && !is_format) {
    if (!know_type(l) || !know_type(r)) return Outcome::Stop;
    PyObject* result = run();
    if (result == nullptr) return raised();
    if (is_constant(l.id) && is_constant(r.id)) return done(result, constant_id(result));
    ValueId id = emit(NodeKind::Binary, operands, nullptr, op);
    if (id >= 0) {
      facts_[id].is_present = true;
      bool type_follows = base != kPower || PyFloat_CheckExact(result);
      if (type_follows) facts_[id].type = Py_TYPE(result);
    }
    return done(result, id);
  }
  // torch.Size gives its own type; a class of the program may say otherwise (it may be a vector).
  auto concatenates = [](PyObject* o) {
    return PyTuple_CheckExact(o) || (PyTuple_Check(o) && !is_overridden(o, names().add) &&
                                     !is_overridden(o, names().radd) && !is_overridden(o, names().iadd));
  };
  bool is_sequence =
      (concatenates(a) && concatenates(b)) || (PyList_CheckExact(a) && PyList_CheckExact(b) && op == kAdd);
  if (base == kAdd && is_sequence) {
    std::vector<ValueId> ids, more;
    if (!element_ids(l, &ids) || !element_ids(r, &more)) return stop("sequences of unknown contents");
    ids.insert(ids.end(), more.begin(), more.end());
    PyObject* result = run();
    if (result == nullptr) return raised();
    // A torch.Size and a tuple are a torch.Size.
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(result));
    if (PyTuple_Check(result) && !PyTuple_CheckExact(result) && (!know_type(l) || !know_type(r)))
      lose("a concatenation whose class is known late");
    *out = PyTuple_Check(result) ? new_tuple(result, ids, PyTuple_CheckExact(result) ? nullptr : type)
                                 : new_list(result, ids);
    return Outcome::Done;
  }
  if (op == kAdd + kInplaceFirst && PyList_CheckExact(a)) {
    Outcome outcome = list_extend(act, l, r);
    if (outcome == Outcome::Done) *out = {Py_NewRef(a), l.id};
    return outcome;
  }
  if (base == kMultiply && (PyList_CheckExact(a) || PyTuple_CheckExact(a)) && op < kInplaceFirst &&
      (PyLong_CheckExact(b) || PyBool_Check(b))) {
    std::vector<ValueId> ids, repeated;
    if (!make_constant(r) || !element_ids(l, &ids)) return stop("a repeated sequence of unknown contents");
    PyObject* result = run();
    if (result == nullptr) return raised();
    for (Py_ssize_t i = PyLong_AsSsize_t(b); i > 0; i--) repeated.insert(repeated.end(), ids.begin(), ids.end());
    *out = PyTuple_Check(result) ? new_tuple(result, repeated) : new_list(result, repeated);
    return Outcome::Done;
  }
  if (base == kOr && PyDict_CheckExact(a) && PyDict_CheckExact(b)) {
    if (op >= kInplaceFirst) {
      Outcome outcome = dict_update(act, l, r);
      if (outcome == Outcome::Done) *out = {Py_NewRef(a), l.id};
      return outcome;
    }
    std::vector<Operand> keys;
    std::vector<ValueId> values, pairs;
    std::vector<PyObject*> key_objects;
    if (!dict_ids(l, &keys, &values) || !dict_ids(r, &keys, &values)) return stop("dicts of unknown contents");
    for (size_t i = 0; i < keys.size(); i++) {
      pairs.push_back(keys[i].id);
      pairs.push_back(values[i]);
      key_objects.push_back(keys[i].object);
    }
    PyObject* result = run();
    if (result == nullptr) return raised();
    *out = new_dict(result, pairs, key_objects.data());
    return Outcome::Done;
  }
  if (op >= kInplaceFirst && PySet_CheckExact(a) && is_created(l.id) && is_fixed_set(l) && is_fixed_set(r)) {
    const char* name = base == kOr ? "__ior__" : base == 1 ? "__iand__" : base == 10 ? "__isub__" : "__ixor__";
    if (base != kOr && base != 1 && base != 10 && base != 12) return stop("an operator that sets do not have");
    PyObject* method = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySet_Type), name);
    emit(NodeKind::MutatorCall, {l.id, constant_id(method), l.id, r.id});
    Py_XDECREF(method);
    PyObject* result = run();
    if (result == nullptr) return raised();
    if (active_) note_effect(facts_[l.id].heap);
    return done(result, l.id);
  }
  if (op < kInplaceFirst && is_fixed_set(l) && is_fixed_set(r)) {
    PyObject* result = run();
    if (result == nullptr) return raised();
    std::vector<ValueId> ids;
    PyObject* elements = PySequence_List(result);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(elements); i++) {
      ids.push_back(constant_id(PyList_GET_ITEM(elements, i)));
    }
    Py_DECREF(elements);
    if (PyFrozenSet_CheckExact(result)) return done(result, constant_id(result));
    const ValueId id = emit_typed(NodeKind::Set, ids, result);
    if (id >= 0) new_object(id)->elements = ids;
    return done(result, id);
  }
  bool found = false;
  Outcome outcome = binary_special(op, l, r, out, &found);
  if (found || outcome != Outcome::Done) return outcome;
  auto is_fixed = [&](Operand o) { return PyType_Check(o.object) || o.object == Py_None || is_constant(o.id); };
  if (is_fixed(l) && is_fixed(r) && make_constant(l) && make_constant(r)) {  // int | None, constant sets ...
    PyObject* result = run();
    if (result == nullptr) return raised();
    return done(result, constant_id(result));
  }
  if (is_format && is_plain_value(b) && know_type(l) && know_type(r)) {
    PyObject* result = run();
    if (result == nullptr) return raised();
    if (is_constant(l.id) && is_constant(r.id)) return done(result, constant_id(result));
    return done(result, emit_typed(NodeKind::Binary, operands, result, nullptr, op));
  }
  if (is_format && PyTuple_CheckExact(b) && op < kInplaceFirst && know_type(l)) {
    std::vector<ValueId> ids;
    if (!element_ids(r, &ids)) return stop("a tuple of unknown contents");
    bool all_fixed = is_constant(l.id);
    for (size_t i = 0; i < ids.size(); i++) {
      const Operand part{PyTuple_GET_ITEM(b, static_cast<Py_ssize_t>(i)), ids[i]};
      if (is_constant(part.id) && can_be_constant(part.object)) continue;
      if (is_plain_value(part.object) ? !know_type(part) : !make_constant(part)) {
        return stop("a string made of " + type_name(Py_TYPE(part.object)));
      }
      all_fixed = all_fixed && is_constant(part.id);
    }
    PyObject* result = run();
    if (result == nullptr) return raised();
    if (all_fixed) return done(result, constant_id(result));
    return done(result, emit_typed(NodeKind::Binary, operands, result, nullptr, op));
  }
  return stop("a binary operation on " + type_name(Py_TYPE(a)) + " and " + type_name(Py_TYPE(b)));
}

// A set, or a dict's view of its keys or pairs, whose elements are constants of the trace.
bool Recorder::is_fixed_set(Operand o) {
  if (o.id < 0 || o.object == nullptr) return false;
  const HeapObject* object = facts_[o.id].heap;
  const bool is_set = PyAnySet_CheckExact(o.object), is_view = PyDictKeys_Check(o.object);
  if (is_view ? object == nullptr || !object->is_view : !is_set) return false;
  if (is_set && !is_constant(o.id) && (object == nullptr || !object->is_created || object->is_dirty)) return false;
  PyObject* elements = PySequence_List(o.object);
  bool is_fixed = true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(elements) && is_fixed; i++) {
    is_fixed = !host::is_tensor(PyList_GET_ITEM(elements, i));
  }
  Py_DECREF(elements);
  if (is_view) {
    for (const ValueId id : object->view) is_fixed = is_fixed && is_constant(id);
  }
  return is_fixed;
}

Outcome Recorder::truth(Act&, Operand v, bool* out) {
  PyObject* o = v.object;
  if (!active_ || o == Py_True || o == Py_False || o == Py_None) {
    if (active_ && !make_constant(v)) return stop("a truth value that is known late");
    int truth = PyObject_IsTrue(o);
    *out = truth > 0;
    return truth < 0 ? Outcome::Raised : Outcome::Done;
  }
  if (v.id < 0) return stop("the truth of a value of unknown origin");
  if (host::is_tensor(o)) {
    if (!know_tensor(v)) return Outcome::Stop;
    int truth;
    {
      CCall bracket(*this);
      truth = PyObject_IsTrue(o);
    }
    if (truth < 0) {
      lose("the truth of a tensor that raised");
      return Outcome::Raised;
    }
    *out = truth;
    ValueId operands[] = {v.id};
    ValueId id = emit(NodeKind::SyncTruth, operands);
    if (id >= 0) guard(id, FactKind::Identity, truth ? Py_True : Py_False);
    return Outcome::Done;
  }
  const bool is_plain_class = PyType_Check(o) && find_in_class(Py_TYPE(o), names().bool_) == nullptr &&
                              find_in_class(Py_TYPE(o), names().len) == nullptr;
  if (PyFunction_Check(o) || is_plain_class || PyModule_Check(o) || PyCFunction_Check(o) || PyMethod_Check(o)) {
    if (!know_type(v)) return Outcome::Stop;
    *out = true;
    return Outcome::Done;
  }
  if (const HeapObject* deque = deque_of(v); deque != nullptr) {
    *out = !deque->elements.empty();
    return Outcome::Done;
  }
  PyTypeObject* type = Py_TYPE(o);
  if (!is_constant(v.id) && !know_type(v)) return Outcome::Stop;
  if (!is_made_in_c(type)) {
    know_type_version(type);
    PyObject* function = find_in_class(type, names().bool_);
    const bool is_length = function == nullptr;
    if (is_length) function = find_in_class(type, names().len);
    if (function == nullptr) {
      *out = true;
      return Outcome::Done;
    }
    if (PyFunction_Check(function)) {
      Operand result;
      {
        ModeScope mode(*this, ResumeMode::Never);
        Outcome outcome = call_function({function, constant_id(function)}, &v, 1, nullptr, &result);
        if (outcome != Outcome::Done) return outcome;
      }
      if (is_length && finish_length(&result) == Outcome::Raised) return Outcome::Raised;
      if (!is_length && !PyBool_Check(result.object)) {
        lose("a __bool__ that gives no bool");
        PyErr_Format(PyExc_TypeError, "__bool__ should return bool, returned %s", Py_TYPE(result.object)->tp_name);
        Py_DECREF(result.object);
        return Outcome::Raised;
      }
      if (active_ && !make_constant(result)) lose("the result of __bool__ is known late");
      *out = PyObject_IsTrue(result.object) > 0;
      Py_DECREF(result.object);
      return Outcome::Done;
    }
  }
  int truth = PyObject_IsTrue(o);
  if (truth < 0) {
    lose("a truth value that raised");
    return Outcome::Raised;
  }
  *out = truth;
  Facts& known = facts_[v.id];
  if (is_constant(v.id)) return Outcome::Done;
  bool is_sized = type->tp_as_number != nullptr && type->tp_as_number->nb_bool != nullptr;
  is_sized |= type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_length != nullptr;
  is_sized |= type->tp_as_mapping != nullptr && type->tp_as_mapping->mp_length != nullptr;
  if (!is_sized) return Outcome::Done;
  HeapObject* object = known.heap;
  if (is_of_numpy(o)) {
    ValueId operands[] = {v.id};
    force_late_ = true;
    ValueId id = emit(NodeKind::Truth, operands);
    force_late_ = false;
    if (id >= 0) guard(id, FactKind::Identity, truth ? Py_True : Py_False);
    return Outcome::Done;
  }
  if (object == nullptr && (PyDict_Check(o) || PyList_Check(o) || PyAnySet_Check(o))) {
    object = heap_of(v);
    if (object == nullptr) return Outcome::Stop;
  }
  if (object != nullptr && object->is_created &&
      (object->has_elements || object->is_complete || object->is_view || object->iterator != nullptr)) {
    return Outcome::Done;
  }
  if (object != nullptr && !object->is_created && !check_effects(object)) return Outcome::Stop;
  if (facts_[v.id].is_truth_known) return Outcome::Done;
  if (object != nullptr && object->is_effect_target) {
    if (object->has_elements) return Outcome::Done;
    force_late_ = true;
    ValueId operands[] = {v.id};
    ValueId id = emit(NodeKind::Truth, operands);
    force_late_ = false;
    if (id >= 0) guard(id, FactKind::Identity, truth ? Py_True : Py_False);
    return Outcome::Done;
  }
  if (!guard(v.id, FactKind::Truth, nullptr, truth)) return Outcome::Done;
  facts_[v.id].is_truth_known = true;
  return Outcome::Done;
}

Outcome Recorder::is_identical(Act&, Operand l, Operand r, bool* out) {
  *out = l.object == r.object;
  if (!active_ || l.id == r.id)
    return active_ && l.id < 0 ? stop("identity of a value of unknown origin") : Outcome::Done;
  if (l.id < 0 || r.id < 0) return stop("identity of a value of unknown origin");
  if (is_constant(l.id) && is_constant(r.id)) return Outcome::Done;
  auto is_singleton = [&](Operand o) {
    return can_be_constant(o.object) && !PyLong_Check(o.object) && !PyUnicode_Check(o.object);
  };
  auto compare_with = [&](Operand value, Operand single) {
    // Another type than the singleton's decides; the same type needs the value.
    if (facts_[value.id].type != nullptr && facts_[value.id].type != Py_TYPE(single.object)) return true;
    if (is_created(value.id)) return true;
    if (host::is_tensor(value.object)) return know_tensor(value);
    if (Py_TYPE(value.object) != Py_TYPE(single.object)) return know_type(value);
    return make_constant(value) || know_identity(value);
  };
  if (is_constant(r.id) && is_singleton(r))
    return compare_with(l, r) ? Outcome::Done : stop("identity that is known late");
  if (is_constant(l.id) && is_singleton(l))
    return compare_with(r, l) ? Outcome::Done : stop("identity that is known late");
  if (is_created(l.id) || is_created(r.id)) {
    if (l.object != r.object) return Outcome::Done;
    return stop("identity of an object made in the trace");
  }
  if (Py_TYPE(l.object) != Py_TYPE(r.object)) {
    auto is_typed = [&](Operand o) {
      return is_constant(o.id) || facts_[o.id].type != nullptr || (is_pre(o.id) && know_type(o));
    };
    if (is_typed(l) && is_typed(r)) return Outcome::Done;
  }
  ValueId later = is_pre(l.id) ? r.id : l.id;
  ValueId earlier = later == l.id ? r.id : l.id;
  if (!guard(later, *out ? FactKind::Same : FactKind::Different, nullptr, earlier)) return Outcome::Done;
  return Outcome::Done;
}

Outcome Recorder::is_none(Act&, Operand v, bool* out) {
  *out = v.object == Py_None;
  if (!active_) return Outcome::Done;
  if (v.id < 0) return stop("a value of unknown origin is compared with None");
  if (is_constant(v.id) || facts_[v.id].type != nullptr) return Outcome::Done;
  if (v.object == Py_None) return make_constant(v) ? Outcome::Done : Outcome::Stop;
  if (host::is_tensor(v.object)) return know_tensor(v) ? Outcome::Done : Outcome::Stop;
  return know_type(v) ? Outcome::Done : Outcome::Stop;
}

/// l < r where one side's class compares in Python: as CPython asks them, a subclass's method first, each once.
Outcome Recorder::compare_special(int op, Operand l, Operand r, Operand* out, bool* found) {
  static PyObject* kNames[6] = {PyUnicode_InternFromString("__lt__"), PyUnicode_InternFromString("__le__"),
                                PyUnicode_InternFromString("__eq__"), PyUnicode_InternFromString("__ne__"),
                                PyUnicode_InternFromString("__gt__"), PyUnicode_InternFromString("__ge__")};
  static constexpr int kSwapped[6] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
  static constexpr const char* kSigns[6] = {"<", "<=", "==", "!=", ">", ">="};
  struct Side {
    Operand self, other;
    int op;
    PyObject* name;
    PyObject* function;
    bool is_negated;  // object.__ne__ asks __eq__
  };
  Side sides[2] = {{l, r, op, kNames[op], nullptr, false}, {r, l, kSwapped[op], kNames[kSwapped[op]], nullptr, false}};
  if (Py_TYPE(l.object) != Py_TYPE(r.object) && PyType_IsSubtype(Py_TYPE(r.object), Py_TYPE(l.object)))
    std::swap(sides[0], sides[1]);
  *found = false;
  for (Side& side : sides) {
    side.function = find_in_class(Py_TYPE(side.self.object), side.name);
    if (op == Py_NE && side.function != nullptr &&
        side.function == host::find_in_class(&PyBaseObject_Type, side.name)) {
      PyObject* equal = find_in_class(Py_TYPE(side.self.object), kNames[Py_EQ]);
      side.is_negated = equal != nullptr && PyFunction_Check(equal);
      if (side.is_negated) {
        side.name = kNames[Py_EQ];
        side.function = equal;
      }
    }
    *found = *found || (side.function != nullptr && PyFunction_Check(side.function));
  }
  if (!*found) return Outcome::Done;
  if (!know_type(l) || !know_type(r)) return Outcome::Stop;
  ModeScope mode(*this, ResumeMode::Never);
  bool has_run = false;
  for (Side& side : sides) {
    Operand result;
    if (side.function != nullptr && PyFunction_Check(side.function)) {
      bool is_python;
      const Outcome outcome =
          call_special(side.name, side.self, std::span<const Operand>(&side.other, 1), &result, &is_python);
      if (outcome == Outcome::Stop && has_run) {  // the other side has answered: this call is not recorded
        result = {PyObject_CallFunctionObjArgs(side.function, side.self.object, side.other.object, nullptr), kNoValue};
        if (result.object == nullptr) return Outcome::Raised;
      } else if (outcome != Outcome::Done) {
        return outcome;
      }
      has_run = true;
    } else {
      CCall bracket(*this);
      const richcmpfunc compare = Py_TYPE(side.self.object)->tp_richcompare;
      if (compare == nullptr) continue;
      result.object = compare(side.self.object, side.other.object, side.op);
      if (result.object == nullptr || result.object != Py_NotImplemented) lose("a comparison by C and Python methods");
      if (result.object == nullptr) return Outcome::Raised;
    }
    if (result.object != Py_NotImplemented && side.is_negated) {
      bool answer = false;
      Outcome outcome = truth(*top_, result, &answer);
      if (outcome == Outcome::Stop) outcome = truth(*top_, result, &answer);  // ended: unrecorded now
      Py_DECREF(result.object);
      if (outcome == Outcome::Done) *out = bool_constant(!answer);
      return outcome;
    }
    if (result.object != Py_NotImplemented) {
      *out = {result.object, active_ ? result.id : kNoValue};
      return Outcome::Done;
    }
    Py_DECREF(result.object);
  }
  if (op == Py_EQ || op == Py_NE) {
    bool is_same = l.object == r.object;
    if (active_ && is_identical(*top_, l, r, &is_same) == Outcome::Stop) is_same = l.object == r.object;
    *out = bool_constant(is_same == (op == Py_EQ));
    return Outcome::Done;
  }
  lose("a comparison that is not supported");
  PyErr_Format(PyExc_TypeError, "'%s' not supported between instances of '%.100s' and '%.100s'", kSigns[op],
               Py_TYPE(l.object)->tp_name, Py_TYPE(r.object)->tp_name);
  return Outcome::Raised;
}

// Of two lists, or two tuples: are the elements the same objects, or equal, one after the other? Once one has been
// asked, the rest is asked unrecorded where it can't be recorded: the comparison is not made again.
Outcome Recorder::compare_elements(bool asks_equal, Operand l, Operand r, Operand* out) {
  Nesting nesting(&nesting_);
  std::vector<ValueId> left, right;
  if (nesting.is_deep() || !element_ids(l, &left) || !element_ids(r, &right))
    return stop("a comparison of sequences of unknown contents");
  ModeScope mode(*this, ResumeMode::Never);
  PyObject* const seen[2] = {PySequence_Tuple(l.object), PySequence_Tuple(r.object)};
  const auto size_of = [](Operand o) { return PySequence_Fast_GET_SIZE(o.object); };
  Outcome outcome = Outcome::Done;
  bool is_equal = size_of(l) == size_of(r), has_asked = false;
  const auto again = [&] { return outcome == Outcome::Stop && has_asked; };
  for (Py_ssize_t i = 0; is_equal && i < size_of(l) && i < size_of(r); i++) {
    Operand a{Py_NewRef(PySequence_Fast_ITEMS(l.object)[i]), kNoValue};
    Operand b{Py_NewRef(PySequence_Fast_ITEMS(r.object)[i]), kNoValue};
    const bool is_steady = i < PyTuple_GET_SIZE(seen[0]) && PyTuple_GET_ITEM(seen[0], i) == a.object &&
                           i < PyTuple_GET_SIZE(seen[1]) && PyTuple_GET_ITEM(seen[1], i) == b.object;
    if (active_ && !is_steady) lose("a list that changes while it is compared");
    if (active_) a.id = left[i], b.id = right[i];
    bool is_same = a.object == b.object;
    if (active_ && a.id != b.id) outcome = is_identical(*top_, a, b, &is_same);
    if (again()) outcome = Outcome::Done, is_same = a.object == b.object;
    if (outcome == Outcome::Done && !is_same) {
      Operand answer;
      outcome = compare(*top_, Py_EQ, a, b, &answer);
      if (again()) outcome = compare(*top_, Py_EQ, a, b, &answer);
      if (outcome == Outcome::Done) {
        has_asked = true;
        outcome = truth(*top_, answer, &is_equal);
        if (again()) outcome = truth(*top_, answer, &is_equal);
        Py_DECREF(answer.object);
      }
    }
    Py_DECREF(a.object);
    Py_DECREF(b.object);
    if (outcome != Outcome::Done) break;
  }
  is_equal = is_equal && size_of(l) == size_of(r);
  for (PyObject* tuple : seen) Py_DECREF(tuple);
  if (outcome == Outcome::Done) *out = bool_constant(is_equal == asks_equal);
  return outcome;
}

Outcome Recorder::compare_values(int op, Operand l, Operand r, Operand* out) {
  auto run = [&]() -> PyObject* {
    CCall bracket(*this);
    return PyObject_RichCompare(l.object, r.object, op);
  };
  if (!active_) {
    PyObject* result = run();
    *out = {result, kNoValue};
    return result != nullptr ? Outcome::Done : Outcome::Raised;
  }
  if (l.id < 0 || r.id < 0) return stop("a comparison with a value of unknown origin");
  ValueId operands[] = {l.id, r.id};
  if (host::is_tensor(l.object) || host::is_tensor(r.object)) {
    for (Operand side : {l, r}) {
      bool ok = is_number(side.object) ? know_type(side) : prepare_torch_argument(side, false);
      if (!ok) return stop("a tensor comparison with " + type_name(Py_TYPE(side.object)));
    }
    bool is_tainted = is_operand_tainted(l) || is_operand_tainted(r);
    PyObject* result = run();
    if (result == nullptr) {
      lose("a comparison that raised");
      return Outcome::Raised;
    }
    if (!host::is_tensor(result) && !is_number(host::is_tensor(l.object) ? r.object : l.object)) {  // tensor == None
      *out = new_constant(result);
      return Outcome::Done;
    }
    return finish_torch_result(NodeKind::TensorCompare, operands, nullptr, op, result, is_tainted, out);
  }
  auto fixed = [&](Operand o) { return is_constant(o.id); };
  if ((is_of_numpy(l.object) || is_of_numpy(r.object)) && !(fixed(l) && fixed(r))) {
    static const char* const kComparisons[] = {"lt", "le", "eq", "ne", "gt", "ge"};
    return call_builtin("_operator", kComparisons[op], {l, r}, out);
  }
  auto fold = [&] {
    PyObject* result = run();
    if (result == nullptr) {
      lose("a comparison that raised");
      return Outcome::Raised;
    }
    *out = new_constant(result);
    return Outcome::Done;
  };
  auto is_of_program = [](PyObject* o) { return (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0; };
  if (fixed(l) && fixed(r) && !is_of_program(l.object) && !is_of_program(r.object)) return fold();
  bool is_found = false;
  const Outcome special = compare_special(op, l, r, out, &is_found);
  if (is_found || special != Outcome::Done) return special;
  if (fixed(l) && fixed(r)) return fold();
  // No method of its class compares it: its value does.
  if (!take_member_values(l, r, operands)) return stop("an enum member that is known late");
  if (fixed(l) && fixed(r)) return fold();
  bool l_plain = is_plain_value(l.object) || can_be_constant(l.object) || fixed(l);
  bool r_plain = is_plain_value(r.object) || can_be_constant(r.object) || fixed(r);
  if (l_plain && r_plain) {
    if (!is_numeric(l.object) || !is_numeric(r.object)) {
      if ((make_constant(l) || fixed(l)) && (make_constant(r) || fixed(r))) return fold();
      if (!active_) return Outcome::Stop;
    }
    if (!know_type(l) || !know_type(r)) return Outcome::Stop;
    PyObject* result = run();
    if (result == nullptr) {
      lose("a comparison that raised");
      return Outcome::Raised;
    }
    *out = {result, emit_typed(NodeKind::Compare, operands, result, nullptr, op)};
    return Outcome::Done;
  }
  bool l_sequence = PyTuple_Check(l.object) || PyList_Check(l.object);
  bool r_sequence = PyTuple_Check(r.object) || PyList_Check(r.object);
  if (l_sequence && r_sequence && (op == Py_EQ || op == Py_NE)) {
    bool is_handled = false;
    const Outcome outcome = compare_shapes(op == Py_EQ, l, r, out, &is_handled);
    if (is_handled || outcome != Outcome::Done) return outcome;
  }
  if (l_sequence && r_sequence && (op == Py_EQ || op == Py_NE) && Py_TYPE(l.object) == Py_TYPE(r.object) &&
      (PyList_CheckExact(l.object) || PyTuple_CheckExact(l.object)) && !fixed(l) && !fixed(r)) {
    return compare_elements(op == Py_EQ, l, r, out);
  }
  if (l_sequence && r_sequence) {
    for (Operand side : {l, r}) {
      if (fixed(side)) continue;
      std::vector<ValueId> ids;
      if (!element_ids(side, &ids)) return stop("a comparison of sequences of unknown contents");
      for (size_t i = 0; i < ids.size(); i++) {
        if (!make_constant({PySequence_Fast_ITEMS(side.object)[i], ids[i]})) return stop("a comparison of sequences");
      }
    }
    return fold();
  }
  if (is_fixed_set(l) && is_fixed_set(r)) return fold();
  if ((op == Py_EQ || op == Py_NE) && Py_TYPE(l.object) != Py_TYPE(r.object)) {
    // Built-in types and plain objects of different types are unequal; their types decide.
    auto is_builtin = [](PyObject* o) {
      return !(Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) ||
             Py_TYPE(o)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
    };
    if (is_builtin(l.object) && is_builtin(r.object)) {
      if (!know_type(l) || !know_type(r)) return Outcome::Stop;
      return fold();
    }
  }
  if ((op == Py_EQ || op == Py_NE) && Py_TYPE(l.object)->tp_richcompare == PyBaseObject_Type.tp_richcompare &&
      Py_TYPE(r.object)->tp_richcompare == PyBaseObject_Type.tp_richcompare) {
    bool is_same;
    Outcome outcome = is_identical(*top_, l, r, &is_same);
    if (outcome != Outcome::Done) return outcome;
    *out = bool_constant(is_same == (op == Py_EQ));
    return Outcome::Done;
  }
  return stop("a comparison of " + type_name(Py_TYPE(l.object)) + " and " + type_name(Py_TYPE(r.object)));
}

// ---- strings

Outcome Recorder::build_string(Act&, const Operand* items, int n, Operand* out) {
  std::vector<ValueId> ids(n);
  std::vector<PyObject*> parts(n);
  bool is_constant_text = true;
  for (int i = 0; i < n; i++) {
    if (active_ && items[i].id < 0) return stop("a string of values of unknown origin");
    ids[i] = items[i].id;
    parts[i] = items[i].object;
    is_constant_text = is_constant_text && is_constant(ids[i]);
  }
  static PyObject* kEmpty = PyUnicode_InternFromString("");
  PyObject* text = _PyUnicode_JoinArray(kEmpty, parts.data(), n);
  if (text == nullptr) return Outcome::Raised;
  ValueId id = kNoValue;
  if (active_) id = is_constant_text ? constant_id(text) : emit_typed(NodeKind::JoinStrings, ids, text);
  *out = {text, id};
  return Outcome::Done;
}

Outcome Recorder::format_value(Act&, Operand v, Operand spec, int conversion, bool do_format, Operand* out) {
  if (!active_) return Outcome::Stop;
  if (v.id < 0 || (spec.object != nullptr && spec.id < 0)) return stop("formatting of a value of unknown origin");
  bool is_plain = is_plain_value(v.object) || v.object == Py_None || is_constant(v.id);
  // It reads data, so it is late; where nobody looks at the text, it is dropped.
  const bool is_tensor = host::is_plain_tensor(v.object) && conversion == 0 && do_format && know_tensor(v);
  // A torch.Size: its sizes may vary, so what is said about them is late, too.
  const bool is_size = host::is_size_type(reinterpret_cast<PyObject*>(Py_TYPE(v.object))) && know_type(v);
  is_plain = is_plain || is_tensor || is_size;
  if (!is_plain) return stop("formatting of " + type_name(Py_TYPE(v.object)));
  if (!is_constant(v.id) && !know_type(v)) return Outcome::Stop;
  CCall bracket(*this);
  PyObject* value = Py_NewRef(v.object);
  if (conversion != 0) {
    PyObject* converted = conversion == 1   ? PyObject_Str(value)
                          : conversion == 2 ? PyObject_Repr(value)
                                            : PyObject_ASCII(value);
    Py_SETREF(value, converted);
  }
  PyObject* text = value;
  if (value != nullptr && do_format) {
    text = PyObject_Format(value, spec.object);
    Py_DECREF(value);
  }
  if (text == nullptr) {
    lose("formatting that raised");
    return Outcome::Raised;
  }
  const bool is_member = is_constant(v.id) && is_enum(Py_TYPE(v.object));
  if (bracket.saw_callback() && !is_tensor && !is_member) {
    lose("formatting that runs Python code");
    *out = {text, kNoValue};
    return Outcome::Done;
  }
  std::vector<ValueId> operands{v.id};
  if (spec.object != nullptr) operands.push_back(spec.id);
  bool is_fixed = is_constant(v.id) && (spec.object == nullptr || is_constant(spec.id));
  int32_t n = conversion | (spec.object != nullptr ? 4 : 0) | (do_format ? 0 : 8);
  force_late_ = is_tensor || is_size;
  *out = {text, is_fixed ? constant_id(text) : emit_typed(NodeKind::Format, operands, text, nullptr, n)};
  force_late_ = false;
  return Outcome::Done;
}

}  // namespace reprise::capture
