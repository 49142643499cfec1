// Values and facts: what the trace is built from.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "host/cpython/class_lookup.h"
#include "host/cpython/watch.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

using trace::Category;
using trace::category_of;

namespace {

bool is_singleton(PyObject* o) {
  return o == Py_None || o == Py_True || o == Py_False || o == Py_Ellipsis || o == Py_NotImplemented ||
         PyType_Check(o) || PyModule_Check(o) || PyFunction_Check(o) || PyCFunction_Check(o) || is_type_alias(o);
}

bool is_scalar(PyObject* o) {
  return PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyUnicode_CheckExact(o) || PyBytes_CheckExact(o) ||
         PyComplex_CheckExact(o);
}

/// torch.dtype, torch.layout, torch.memory_format are singletons; torch.device compares by value.
enum class TorchValue : uint8_t { None, Singleton, Comparable };
TorchValue torch_value(PyObject* o) {
  const char* name = Py_TYPE(o)->tp_name;
  if (name[0] != 't' || strncmp(name, "torch.", 6) != 0) return TorchValue::None;
  name += 6;
  if (!strcmp(name, "dtype") || !strcmp(name, "layout") || !strcmp(name, "memory_format") || !strcmp(name, "qscheme")) {
    return TorchValue::Singleton;
  }
  return !strcmp(name, "device") ? TorchValue::Comparable : TorchValue::None;
}

}  // namespace

bool Recorder::can_be_constant(PyObject* o) const {
  return is_singleton(o) || is_scalar(o) || torch_value(o) != TorchValue::None;
}

ValueId Recorder::emit(NodeKind kind, std::span<const ValueId> operands, PyObject* object, int32_t n) {
  if (!active_) return kNoValue;
  Category category = category_of(kind);
  bool is_pre = category == Category::Read || category == Category::Py ||
                ((kind == NodeKind::Tuple || kind == NodeKind::Slice) && object == nullptr);
  for (ValueId operand : operands) {
    if (operand >= 0 && !trace_->values[operand].is_pre) is_pre = false;
  }
  if (force_late_) is_pre = false;
  int32_t snapshot = -1;
  if (!is_pre && category != Category::Root && category != Category::Alloc) {
    snapshot = is_unwinding_ ? caught_snapshot_ : error_snapshot();
  }
  ValueId id = trace_->add_node(kind, operands, object, n, is_pre);
  trace_->values[id].snapshot = snapshot;
  trace_->values[id].varies = follows_from_sizes(kind, operands, is_pre);
  trace_->values[id].varies_with_data =
      trace_->values[id].varies && std::any_of(operands.begin(), operands.end(), [&](ValueId operand) {
        return operand >= 0 && trace_->values[operand].varies_with_data;
      });
  facts_.emplace_back();
  if (category == Category::Mutate || category == Category::Tensor || category == Category::State)
    note_effect_node(kind, id);
  if (static_cast<int64_t>(trace_->items.size()) > options_.max_items) {
    end_recording(UnsupportedCode::TraceTooLong, "more than " + std::to_string(options_.max_items) + " trace items");
    return kNoValue;
  }
  return id;
}

ValueId Recorder::emit_typed(NodeKind kind, std::span<const ValueId> operands, PyObject* live, PyObject* object,
                             int32_t n) {
  ValueId id = emit(kind, operands, object, n);
  if (id < 0) return id;
  Facts& known = facts_[id];
  known.is_present = true;
  known.type = Py_TYPE(live);
  return id;
}

ValueId Recorder::constant_id(PyObject* object) {
  // A constant is held by the trace; tensors never are (rule 4).
  if (object == nullptr || !active_ || host::is_tensor(object)) return kNoValue;
  auto found = constants_.find(object);
  if (found != constants_.end()) return found->second;
  ValueId id = trace_->add_node(NodeKind::Const, {}, object, 0, true);
  Facts& known = facts_.emplace_back();
  known.constant = object;
  known.type = Py_TYPE(object);
  known.is_present = true;
  constants_[object] = id;
  return id;
}

bool Recorder::guard(ValueId id, FactKind fact, PyObject* object, int64_t n) {
  if (!active_ || id < 0) return false;
  int32_t snapshot = -1;
  if (!trace_->values[id].is_pre) {
    snapshot = take_snapshot(true);
    if (snapshot < 0) {
      // Where the frames can't be resumed, a late fact can't be checked: see rule 5.
      lose("the late fact '" + std::string(trace::text_of(fact)) + "' about " + trace::describe_value(*trace_, id) +
           " (" + trace::text_of(trace_->values[id].kind) +
           (trace_->values[id].object != nullptr && PyUnicode_Check(trace_->values[id].object)
                ? std::string(" '") + PyUnicode_AsUTF8(trace_->values[id].object) + "'"
                : std::string()) +
           ") inside a C call or behind an effect");
      return false;
    }
  }
  trace_->add_guard(id, fact, object, n, snapshot);
  return true;
}

bool Recorder::know_type(Operand o) {
  if (o.id < 0) return false;
  Facts& known = facts_[o.id];
  if (known.type != nullptr) return true;
  if (!guard(o.id, FactKind::Type, reinterpret_cast<PyObject*>(Py_TYPE(o.object)))) return false;
  facts_[o.id].type = Py_TYPE(o.object);
  facts_[o.id].is_present = true;
  if (PyLong_CheckExact(o.object) && is_pre(o.id) && find_varying(o) != 0) trace_->values[o.id].varies = true;
  return true;
}

bool Recorder::know_identity(Operand o) {
  if (o.id < 0) return false;
  if (facts_[o.id].constant != nullptr) return true;
  if (is_created(o.id)) return false;
  if (!guard(o.id, FactKind::Identity, o.object)) return false;
  Facts& known = facts_[o.id];
  known.constant = o.object;
  known.type = Py_TYPE(o.object);
  known.is_present = true;
  return true;
}

bool Recorder::know_present(ValueId id) {
  if (id < 0) return false;
  if (facts_[id].is_present) return true;
  if (!guard(id, FactKind::Present)) return false;
  facts_[id].is_present = true;
  return true;
}

bool Recorder::know_absent(ValueId id) {
  if (id < 0) return false;
  if (facts_[id].is_truth_known) return true;
  if (!guard(id, FactKind::Absent)) return false;
  facts_[id].is_truth_known = true;
  return true;
}

bool Recorder::know_length(Operand o, Py_ssize_t length) {
  if (o.id < 0) return false;
  Facts& known = facts_[o.id];
  if (known.is_length_known || (known.constant != nullptr && PyTuple_Check(o.object))) return true;
  if (!guard(o.id, FactKind::Length, nullptr, length)) return false;
  facts_[o.id].is_length_known = true;
  return true;
}

bool Recorder::know_tensor(Operand o) {
  if (o.id < 0 || !know_not_reshaped(o)) return false;
  Facts& known = facts_[o.id];
  if (known.is_meta_known) return true;
  if (known.constant != nullptr || is_pre(o.id) || known.is_meta_tainted || known.type == nullptr) {
    trace_->tensor_metas.push_back(host::make_tensor_meta(o.object));
    const auto meta = static_cast<int64_t>(trace_->tensor_metas.size()) - 1;
    if (!know_type(o)) return false;
    if (is_pre(o.id) && !trace_->tensor_metas[meta]->is_leaf()) has_outer_graph_ = true;
    const uint64_t varying = find_varying(o);
    // One number, picked by an index that follows from data: it lies at another place of its storage in each call.
    const bool is_picked = known.is_meta_tainted && !known.is_repeated && options_.varying != nullptr &&
                           trace_->tensor_metas[meta]->dim_count() == 0 && host::is_plain_tensor(o.object);
    const bool is_like = varying != 0 || is_picked;
    any_varies_ |= is_picked;
    if (!guard(o.id, is_like ? FactKind::TensorLike : FactKind::TensorMeta, nullptr, meta)) return false;
    if (is_like) {
      trace_->values[o.id].varies = true;
      trace_->values[o.id].varies_with_data = !is_pre(o.id);
      const size_t count = trace_->tensor_metas[meta]->dim_count();
      for (size_t i = 0; i < count; i++) {
        if (((varying >> i) & 1) == 0 && !fix_size(o, static_cast<int32_t>(i))) return false;
      }
    }
  }
  Facts& now = facts_[o.id];
  now.is_meta_known = true;
  now.is_meta_tainted = false;
  now.is_present = true;
  now.type = Py_TYPE(o.object);
  return true;
}

bool Recorder::know_function(Operand o) {
  if (o.id < 0) return false;
  Facts& known = facts_[o.id];
  if (known.is_code_known || is_created(o.id)) return true;
  // A function that is made anew for each call (a lambda argument, a closure) never is the same object again: its code
  // is the fact, and its closure and defaults are read. All others are one object.
  NodeKind kind = trace_->values[o.id].kind;
  bool is_fresh = kind == NodeKind::Arg || kind == NodeKind::CellContents || PyFunction_GetClosure(o.object) != nullptr;
  if (known.constant == nullptr && !is_fresh && !know_identity(o)) return false;
  if (!know_type(o)) return false;
  if (!guard(o.id, FactKind::Code, PyFunction_GetCode(o.object))) return false;
  facts_[o.id].is_code_known = true;
  return true;
}

bool Recorder::make_constant(Operand o) {
  if (o.id < 0 || o.object == nullptr) return false;
  Facts& known = facts_[o.id];
  if (known.constant != nullptr) return !is_mutable_container(known.constant);
  if (is_created(o.id) && !PyTuple_CheckExact(o.object)) return false;
  if (is_singleton(o.object)) return know_identity(o);
  TorchValue kind = torch_value(o.object);
  if (kind == TorchValue::Singleton) return know_identity(o);
  if (is_scalar(o.object) || kind == TorchValue::Comparable) {
    if (!know_type(o) || !guard(o.id, FactKind::Equal, o.object)) return false;
    facts_[o.id].constant = o.object;
    // The guard holds the object; the id keeps standing for it.
    return true;
  }
  if (PyTuple_CheckExact(o.object)) {
    std::vector<ValueId> ids;
    if (!element_ids(o, &ids)) return false;
    for (size_t i = 0; i < ids.size(); i++) {
      if (!make_constant({PyTuple_GET_ITEM(o.object, i), ids[i]})) return false;
    }
    // Equal elements make an equal tuple, but the recorded one may hold other objects that die: keep it by a constant.
    ValueId same = constant_id(o.object);
    facts_[o.id].constant = facts_[same].constant;
    return true;
  }
  if (!is_pre(o.id)) return false;
  // Enum members, frozen registry objects: immutable by convention and few.
  if (is_enum(Py_TYPE(o.object))) return know_identity(o);
  return false;
}

bool Recorder::make_key(Operand o) {
  if (o.id < 0) return false;
  if (make_constant(o)) return true;
  if (!active_) return false;
  // Objects hashed and compared by identity; a guard on identity would keep a user object alive, so tensors take
  // another way (DictItemByIdentity).
  PyTypeObject* type = Py_TYPE(o.object);
  if (is_pre(o.id) && type->tp_hash == PyBaseObject_Type.tp_hash &&
      type->tp_richcompare == PyBaseObject_Type.tp_richcompare) {
    return know_identity(o);
  }
  return false;
}

// What a class is subscripted by: a key, or tuples and lists of them (`Callable[[int], str]`).
bool Recorder::make_class_key(Operand o) {
  Nesting nesting(&nesting_);
  std::vector<ValueId> ids;
  const bool is_sequence = PyTuple_CheckExact(o.object) || PyList_CheckExact(o.object);
  if (nesting.is_deep() || !is_sequence || is_constant(o.id) || o.id < 0) return make_key(o);
  if (!element_ids(o, &ids)) return false;
  for (size_t i = 0; i < ids.size(); i++) {
    if (!make_class_key({PySequence_Fast_ITEMS(o.object)[i], ids[i]})) return false;
  }
  return true;
}

// The trace relies on a class: on its special names, and on what find_in_class is asked.
void Recorder::know_type_version(PyTypeObject* type) {
  if (!active_ || !known_types_.insert(type).second) return;
  const uint32_t version = host::get_type_version(type);
  PyObject* mro = type->tp_mro;
  Py_INCREF(type);
  const auto [name, qualified_name] = host::get_class_names(type);
  trace_->type_versions.push_back(
      {type, version, true, Py_NewRef(mro), {Py_XNewRef(name), Py_XNewRef(qualified_name)}});
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
    auto* owner = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (host::is_immutable_class(owner) || !known_classes_.insert(owner).second) continue;
    host::NamedValues defined = host::list_special_names(owner);
    for (auto& [name, value] : defined) {
      Py_INCREF(name);
      Py_INCREF(value);
    }
    Py_INCREF(owner);
    trace_->special_names.push_back({owner, std::move(defined)});
  }
}

PyObject* Recorder::find_in_class(PyTypeObject* type, PyObject* name, PyTypeObject* after) {
  PyObject* found = host::find_in_class(type, name, after);
  if (!active_ || host::is_immutable_class(type)) return found;
  know_type_version(type);
  if (!known_lookups_.insert({type, after, name}).second) return found;
  if (found != nullptr && host::is_tensor(found)) {  // the trace holds none
    for (trace::TypeVersion& version : trace_->type_versions) version.has_all_lookups &= version.type != type;
    return found;
  }
  Py_INCREF(type);
  trace_->type_lookups.push_back({type, after, Py_NewRef(name), Py_XNewRef(found)});
  return found;
}

}  // namespace reprise::capture
