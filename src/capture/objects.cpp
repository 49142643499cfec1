// Models of the heap: dicts, lists, tuples, cells and what is known of their contents.
#include <algorithm>

#include "base/check.h"
#include "capture/models_impl.h"
#include "capture/names.h"
#include "capture/recorder.h"
#include "host/cpython/watch.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

using trace::Category;

HeapObject* Recorder::new_object(ValueId id) {
  HeapObject* object = heap_.make(id, true, nullptr);
  if (id >= 0) facts_[id].heap = object;
  return object;
}

HeapObject* Recorder::heap_of(Operand o) {
  if (o.id < 0) return nullptr;
  if (HeapObject* known = facts_[o.id].heap) return known;
  if (!is_pre(o.id) && host::is_tensor(o.object)) {  // rule 4
    HeapObject* object = heap_.make(o.id, facts_[o.id].is_new, nullptr);
    facts_[o.id].heap = object;
    return object;
  }
  // The same object along another path: one HeapObject, and a fact that says so.
  if (HeapObject* other = heap_.find_existing(o.object)) {
    if (other->id != o.id) {
      ValueId later = is_pre(o.id) ? other->id : o.id;
      ValueId earlier = later == o.id ? other->id : o.id;
      if (!guard(later, FactKind::Same, nullptr, earlier)) return nullptr;
      Facts& mine = facts_[o.id];
      const Facts& theirs = facts_[other->id];
      if (mine.type == nullptr) mine.type = theirs.type;
      mine.is_present = true;
      mine.is_length_known |= theirs.is_length_known;
      mine.are_keys_known |= theirs.are_keys_known;
    }
    facts_[o.id].heap = other;
    return other;
  }
  HeapObject* object = heap_.make(o.id, false, o.object);
  facts_[o.id].heap = object;
  return object;
}

bool Recorder::check_effects(HeapObject* object) {
  return check_different(object, heap_.effect_targets, object->effects_seen);
}

// The first `seen` targets are done.
bool Recorder::check_different(HeapObject* object, const std::vector<HeapObject*>& targets, uint32_t& seen) {
  while (seen < targets.size()) {
    HeapObject* target = targets[seen++];
    if (target == object || target->is_created || object->is_created) continue;
    PyTypeObject* a = facts_[object->id].type;
    PyTypeObject* b = facts_[target->id].type;
    if (a != nullptr && b != nullptr && a != b) continue;
    ValueId later = is_pre(object->id) ? target->id : object->id;
    ValueId earlier = later == object->id ? target->id : object->id;
    if (!guard(later, FactKind::Different, nullptr, earlier)) return false;
  }
  return true;
}

void Recorder::note_effect(HeapObject* object) {
  object->has_entry_keys = false;
  if (object->is_created || object->is_effect_target) return;
  object->is_effect_target = true;
  heap_.effect_targets.push_back(object);
}

HeapObject* Recorder::instance_dict_of(Operand o, PyObject** dict) {
  *dict = nullptr;
  HeapObject* owner = heap_of(o);
  if (owner == nullptr) return nullptr;
  // A dict that is made only now holds nothing, whatever unrecorded code has done.
  bool is_new = Py_TYPE(o.object)->tp_dictoffset > 0 && *_PyObject_GetDictPtr(o.object) == nullptr;
  PyObject* live = PyObject_GenericGetDict(o.object, nullptr);
  if (live == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  Py_DECREF(live);  // the object holds it
  *dict = live;
  if (owner->instance_dict != nullptr) {
    HeapObject* known = owner->instance_dict;
    if (known->object != nullptr && known->object != live) return nullptr;  // replaced by unrecorded code
    return known;
  }
  ValueId id = emit(NodeKind::InstanceDict, {owner->id});
  if (id < 0) return nullptr;
  facts_[id].type = Py_TYPE(live);
  facts_[id].is_present = true;
  if (owner->is_created) {
    owner->instance_dict = new_object(id);
    owner->instance_dict->is_complete = PyDict_GET_SIZE(live) == 0;
    owner->instance_dict->is_dirty = owner->is_dirty;
    owner->instance_dict->copied_from = owner->copied_from;
    owner->instance_dict->copied_dict = owner->copied_dict;
    owner->instance_dict->copied_items = owner->copied_items;
  } else {
    owner->instance_dict = heap_of({live, id});
    if (is_new && owner->instance_dict != nullptr) note_dict_written(live, owner->instance_dict);
  }
  return owner->instance_dict;
}

bool Recorder::refresh_dict(PyObject* dict, HeapObject* object) {
  if (!host::stamps_have_tags()) {
    if (had_callbacks_ && !object->is_created) object->is_dirty = true;
    return true;
  }
  uint64_t version = host::get_dict_version(dict);
  if (version == object->dict_version) return true;
  if (object->dict_version == 0) {
    if (!object->is_created && had_callbacks_ && version > start_dict_version_) object->is_dirty = true;
  } else {
    object->is_dirty = true;
    object->is_complete = false;
    object->items.clear();
    facts_[object->id].are_keys_known = false;
    facts_[object->id].is_length_known = false;
  }
  object->dict_version = version;
  return true;
}

void Recorder::note_dict_written(PyObject* dict, HeapObject* object) {
  if (host::stamps_have_tags()) object->dict_version = host::get_dict_version(dict);
}

PyObject* Recorder::key_of(Operand key, bool* by_identity) {
  *by_identity = host::is_tensor(key.object);
  return *by_identity ? key.object : heap_.canonical_key(key.object);
}

Outcome Recorder::read_dict(PyObject* dict, HeapObject* object, Operand key, Operand* out) {
  bool by_identity;
  CCall bracket(*this);
  PyObject* canonical = key_of(key, &by_identity);
  if (canonical == nullptr) return stop("an unhashable dict key");
  PyObject* live = PyDict_GetItemWithError(dict, key.object);
  if (live == nullptr && PyErr_Occurred()) return Outcome::Raised;
  if (!check_effects(object)) return Outcome::Stop;
  refresh_dict(dict, object);
  if (const KeyMap::Item* item = object->items.find(canonical)) {
    *out = {live, item->id};
    if ((item->id == kNoValue) != (live == nullptr)) return stop("a dict that unrecorded code has changed");
    return Outcome::Done;
  }
  if (object->is_complete) {
    if (live != nullptr) return stop("a dict that unrecorded code has filled");
    *out = {nullptr, kNoValue};
    return Outcome::Done;
  }
  if (by_identity && key.id < 0) return stop("a tensor of unknown origin as dict key");
  if (read_copied_item(object, key, canonical, live, out)) return Outcome::Done;
  if (!active_) return Outcome::Stop;
  force_late_ = object->is_dirty;
  ValueId id = by_identity ? emit(NodeKind::DictItemByIdentity, {object->id, key.id})
                           : emit(NodeKind::DictItem, {object->id}, canonical);
  force_late_ = false;
  if (id < 0) return Outcome::Stop;
  bool is_known = live != nullptr ? know_present(id) : know_absent(id);
  if (!is_known) return Outcome::Stop;
  object->items.set(canonical, live != nullptr ? id : kNoValue);
  *out = {live, live != nullptr ? id : kNoValue};
  return Outcome::Done;
}

void Recorder::note_copy(HeapObject* copy, HeapObject* original, PyObject* dict) {
  if (!original->is_created) {
    copy->copied_from = original;
    copy->copied_dict = dict;
    return;
  }
  refresh_dict(dict, original);
  auto copied = std::make_shared<CopiedItems>();
  for (const KeyMap::Item& item : original->items.items()) {
    PyObject* value = item.id < 0 ? nullptr : PyDict_GetItemWithError(dict, item.key);
    if (value == nullptr) continue;
    copied->items.push_back({item.key, can_be_constant(value) ? Py_NewRef(value) : nullptr, item.id});
  }
  copy->copied_items = std::move(copied);
  // A copy of a copy: what nobody has asked the first one for is what its original has.
  copy->copied_from = original->copied_from;
  copy->copied_dict = original->copied_dict;
}

bool Recorder::read_copied_item(HeapObject* object, Operand key, PyObject* canonical, PyObject* live, Operand* out) {
  if (object->copied_items != nullptr) {
    for (const CopiedItems::Item& item : object->copied_items->items) {
      if (item.key != canonical) continue;
      if (item.value == nullptr || item.value != live) return false;
      object->items.set(canonical, item.id);
      *out = {live, item.id};
      return true;
    }
  }
  if (object->copied_from == nullptr) return false;
  if (object->copied_from->is_effect_target) return false;  // the original has changed since
  PyObject* original = PyDict_GetItemWithError(object->copied_dict, key.object);
  if ((original == nullptr) != (live == nullptr)) return false;
  bool is_list = live != nullptr && PyList_CheckExact(live) && PyList_CheckExact(original) &&
                 PyList_GET_SIZE(live) == PyList_GET_SIZE(original);
  for (Py_ssize_t i = 0; is_list && i < PyList_GET_SIZE(live); i++) {
    is_list = PyList_GET_ITEM(live, i) == PyList_GET_ITEM(original, i) && can_be_constant(PyList_GET_ITEM(live, i));
  }
  if (live != nullptr && !is_list && (live != original || !can_be_constant(live))) return false;
  Operand read;
  if (read_dict(object->copied_dict, object->copied_from, key, &read) != Outcome::Done) return false;
  if (live != nullptr && !know_type(read)) return false;
  ValueId id = read.id;
  if (is_list) {
    // Another list of the same elements; its own identity is late.
    std::vector<ValueId> ids;
    if (!element_ids(read, &ids)) return false;
    for (size_t i = 0; i < ids.size(); i++) {
      if (!know_type({PyList_GET_ITEM(original, static_cast<Py_ssize_t>(i)), ids[i]})) return false;
    }
    force_late_ = true;
    id = emit(NodeKind::DictItem, {object->id}, canonical);
    force_late_ = false;
    if (id < 0) return false;
    facts_[id].is_present = facts_[id].is_length_known = true;
    facts_[id].type = &PyList_Type;
    HeapObject* copy = new_object(id);
    copy->elements = std::move(ids);
    copy->has_elements = true;
  }
  object->items.set(canonical, live != nullptr ? id : kNoValue);
  *out = {live, live != nullptr ? id : kNoValue};
  return true;
}

Outcome Recorder::write_dict(Operand dict, Operand key, Operand value) {
  if (!active_) return PyObject_SetItem(dict.object, key.object, value.object) < 0 ? Outcome::Raised : Outcome::Done;
  if (dict.id < 0 || key.id < 0 || value.id < 0) return stop("a dict write with a value of unknown origin");
  bool by_identity = host::is_tensor(key.object);
  if (!by_identity && !make_key(key)) return stop("a dict key that is known late");
  HeapObject* object = heap_of(dict);
  if (object == nullptr) return Outcome::Stop;
  CCall bracket(*this);
  PyObject* canonical = key_of(key, &by_identity);
  if (canonical == nullptr) return stop("an unhashable dict key");
  refresh_dict(dict.object, object);
  // Does it only replace the value of a key that is known to be there?
  const KeyMap::Item* item = object->items.find(canonical);
  const bool is_known = item != nullptr ? item->id >= 0 : facts_[object->id].are_keys_known;
  const bool is_replaced = is_known && PyDict_Contains(dict.object, key.object) == 1;
  const bool has_entry_keys = object->has_entry_keys && is_replaced;
  if (!dict_iterators_.empty() && PyDict_Contains(dict.object, key.object) == 0)
    keep_dict_iterators(dict.object, object);
  emit(NodeKind::SetItem, {dict.id, key.id, value.id});
  if (PyObject_SetItem(dict.object, key.object, value.object) < 0) {
    lose("a dict write that raised");
    return Outcome::Raised;
  }
  if (!active_) return Outcome::Done;
  object->items.set(canonical, value.id);
  if (!is_replaced) {
    facts_[dict.id].is_length_known = false;
    facts_[dict.id].are_keys_known = false;
    facts_[dict.id].is_truth_known = false;
  }
  note_dict_written(dict.object, object);
  note_effect(object);
  object->has_entry_keys = has_entry_keys;
  return Outcome::Done;
}

Outcome Recorder::remove_from_dict(Operand dict, Operand key) {
  if (dict.id < 0 || key.id < 0) return stop("a dict deletion with a value of unknown origin");
  bool by_identity = host::is_tensor(key.object);
  if (!by_identity && !make_key(key)) return stop("a dict key that is known late");
  HeapObject* object = heap_of(dict);
  if (object == nullptr) return Outcome::Stop;
  Operand old;
  Outcome outcome = read_dict(dict.object, object, key, &old);
  if (outcome != Outcome::Done) return outcome;
  if (old.object == nullptr) return stop("deletion of a missing dict key");
  CCall bracket(*this);
  PyObject* canonical = key_of(key, &by_identity);
  if (!dict_iterators_.empty()) keep_dict_iterators(dict.object, object);
  emit(NodeKind::DeleteItem, {dict.id, key.id});
  if (PyObject_DelItem(dict.object, key.object) < 0) {
    lose("a dict deletion that raised");
    return Outcome::Raised;
  }
  if (!active_) return Outcome::Done;
  object->items.set(canonical, kNoValue);
  facts_[dict.id].is_length_known = false;
  facts_[dict.id].are_keys_known = false;
  facts_[dict.id].is_truth_known = false;
  note_dict_written(dict.object, object);
  note_effect(object);
  return Outcome::Done;
}

ValueId Recorder::read_element(Operand sequence, Py_ssize_t i, PyObject* element) {
  const trace::Value& value = trace_->values[sequence.id];
  // Which results are not there follows from the arguments' metadata, too.
  if (element == Py_None && value.kind == NodeKind::TensorCall && !value.runs_python && !value.is_tainted)
    return constant_id(Py_None);
  ValueId id = emit(NodeKind::SequenceItem, {sequence.id}, nullptr, static_cast<int32_t>(i));
  if (id < 0) return id;
  Facts& known = facts_[id];
  known.is_present = true;
  if (facts_[sequence.id].is_repeated) {
    known.is_repeated = true;
    known.is_meta_tainted = host::is_tensor(element);
    return id;
  }
  Category category = trace_->category(sequence.id);
  bool is_result = !is_pre(sequence.id) && (category == Category::Tensor || category == Category::Sync ||
                                            trace_->values[sequence.id].kind == NodeKind::SequenceItem);
  if (is_result) {
    // The structure of a torch result follows from the metadata of its arguments.
    known.type = Py_TYPE(element);
    known.is_meta_tainted = facts_[sequence.id].is_meta_tainted;
    known.is_meta_known = host::is_plain_tensor(element) && !known.is_meta_tainted;
    known.is_length_known = true;
  }
  return id;
}

bool Recorder::element_ids(Operand sequence, std::vector<ValueId>* out) {
  if (sequence.id < 0) return false;
  PyObject* o = sequence.object;
  if (facts_[sequence.id].constant != nullptr && PyTuple_Check(o)) {
    HeapObject* tuple = nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
      PyObject* element = PyTuple_GET_ITEM(o, i);
      ValueId id = constant_id(element);
      if (id < 0 && active_ && host::is_tensor(element)) {  // no constant of the trace: read in each call
        if (tuple == nullptr) tuple = heap_of(sequence);
        if (tuple == nullptr) return false;
        if (tuple->elements.empty()) tuple->elements.assign(PyTuple_GET_SIZE(o), kNoValue);
        if (tuple->elements[i] < 0) tuple->elements[i] = read_element({o, tuple->id}, i, element);
        id = tuple->elements[i];
      }
      if (id < 0) return false;
      out->push_back(id);
    }
    return true;
  }
  HeapObject* object = heap_of(sequence);
  if (object == nullptr || object->is_append_only) return false;
  if (!check_effects(object)) return false;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  if (object->has_elements) {
    if (static_cast<Py_ssize_t>(object->elements.size()) != n) return false;
    if (had_callbacks_ && object->is_created && PyList_Check(o)) {
      PyObject** items = PySequence_Fast_ITEMS(o);
      bool is_as_written = object->witnesses.size() == object->elements.size() &&
                           std::equal(object->witnesses.begin(), object->witnesses.end(), items);
      if (!is_as_written) return false;
    }
    *out = object->elements;
    return true;
  }
  if (!know_type(sequence)) return false;
  bool is_late = PyList_Check(o) && (reads_are_late_ || object->is_dirty);
  force_late_ = is_late;
  bool ok = facts_[sequence.id].is_length_known || know_length(sequence, n);
  for (Py_ssize_t i = 0; ok && i < n; i++) {
    ValueId id = read_element({o, object->id}, i, PySequence_Fast_ITEMS(o)[i]);
    ok = id >= 0;
    object->elements.push_back(id);
  }
  force_late_ = false;
  if (!ok) {
    object->elements.clear();
    return false;
  }
  object->has_elements = true;
  *out = object->elements;
  return true;
}

HeapObject* Recorder::list_of(Operand list) {
  std::vector<ValueId> ids;
  if (!element_ids(list, &ids)) return nullptr;
  return heap_of(list);
}

// The keys in the dict's order, whatever its class does to iteration; a new list.
static PyObject* own_keys(PyObject* dict) {
  if (!PyODict_Check(dict)) return PyDict_Keys(dict);
  PyObject* iterator = PyODict_Type.tp_iter(dict);
  PyObject* keys = iterator != nullptr ? PySequence_List(iterator) : nullptr;
  Py_XDECREF(iterator);
  return keys;
}

bool Recorder::dict_ids(Operand dict, std::vector<Operand>* keys, std::vector<ValueId>* values, bool needs_keys) {
  HeapObject* object = heap_of(dict);
  if (object == nullptr || !check_effects(object)) return false;
  refresh_dict(dict.object, object);
  if (!object->is_complete && !facts_[object->id].are_keys_known) {
    if (object->is_effect_target && !object->has_entry_keys) return false;  // the keys at entry are not those of now
    PyObject* names = own_keys(dict.object);
    if (names == nullptr) {
      PyErr_Clear();
      return false;
    }
    PyObject* tuple = PyList_AsTuple(names);
    Py_DECREF(names);
    if (tuple == nullptr) {
      PyErr_Clear();
      return false;
    }
    bool ok = true;
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(tuple); i++) ok = !host::is_tensor(PyTuple_GET_ITEM(tuple, i));
    // An entry fact would be about the keys of then.
    if (object->is_dirty && is_pre(object->id)) ok = false;
    if (ok) ok = guard(object->id, FactKind::Keys, tuple);
    Py_DECREF(tuple);
    if (!ok) return false;
    facts_[object->id].are_keys_known = true;
    facts_[object->id].is_length_known = true;
  }
  PyObject* names = own_keys(dict.object);
  if (names == nullptr) {
    PyErr_Clear();
    return false;
  }
  bool ok = true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names) && ok; i++) {
    PyObject* key = PyList_GET_ITEM(names, i);  // the dict holds it, too
    Operand read;
    Operand key_operand{key, constant_id(key)};
    ok = !host::is_tensor(key) || (!needs_keys && object->is_complete);
    ok = ok && read_dict(dict.object, object, key_operand, &read) == Outcome::Done && read.id >= 0;
    keys->push_back(key_operand);
    values->push_back(read.id);
  }
  Py_DECREF(names);
  return ok;
}

Operand Recorder::new_tuple(PyObject* stolen, std::span<const ValueId> ids, PyObject* subclass) {
  if (!active_ || stolen == nullptr) return {stolen, kNoValue};
  ValueId id = emit_typed(NodeKind::Tuple, ids, stolen, subclass);
  if (id < 0) return {stolen, kNoValue};
  facts_[id].is_length_known = true;
  facts_[id].is_truth_known = true;
  HeapObject* object = new_object(id);
  object->elements.assign(ids.begin(), ids.end());
  object->has_elements = true;
  return {stolen, id};
}

// Takes the references of the elements.
Operand Recorder::new_tuple_of(std::span<const Operand> stolen) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(stolen.size()));
  std::vector<ValueId> ids;
  for (size_t i = 0; i < stolen.size(); i++) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), stolen[i].object);
    ids.push_back(stolen[i].id);
  }
  return new_tuple(tuple, ids);
}

void Recorder::note_list_written(PyObject* list, HeapObject* object) {
  if (!object->is_created || !PyList_Check(list)) return;
  PyObject** items = PySequence_Fast_ITEMS(list);
  object->witnesses.assign(items, items + PyList_GET_SIZE(list));
}

Operand Recorder::new_list(PyObject* stolen, std::span<const ValueId> ids) {
  if (!active_ || stolen == nullptr) return {stolen, kNoValue};
  ValueId id = emit_typed(NodeKind::List, ids, stolen);
  if (id < 0) return {stolen, kNoValue};
  HeapObject* object = new_object(id);
  object->elements.assign(ids.begin(), ids.end());
  object->has_elements = true;
  note_list_written(stolen, object);
  return {stolen, id};
}

Operand Recorder::new_dict(PyObject* stolen, std::span<const ValueId> keys_and_values, PyObject* const* keys) {
  if (!active_ || stolen == nullptr) return {stolen, kNoValue};
  ValueId id = emit_typed(NodeKind::Dict, keys_and_values, stolen);
  if (id < 0) return {stolen, kNoValue};
  HeapObject* object = new_object(id);
  object->is_complete = true;
  for (size_t i = 0; i < keys_and_values.size() / 2; i++) {
    PyObject* canonical = host::is_tensor(keys[i]) ? keys[i] : heap_.canonical_key(keys[i]);
    if (canonical != nullptr) object->items.set(canonical, keys_and_values[2 * i + 1]);
  }
  note_dict_written(stolen, object);
  return {stolen, id};
}

Operand Recorder::new_method(PyObject* function, ValueId function_id, Operand self) {
  PyObject* method = PyMethod_New(function, self.object);
  if (method == nullptr || !active_) return {method, kNoValue};
  ValueId operands[] = {function_id, self.id};
  ValueId id = emit_typed(NodeKind::Method, operands, method);
  if (id < 0) return {method, kNoValue};
  HeapObject* object = new_object(id);
  object->function = function_id;
  object->self = self.id;
  return {method, id};
}

void Recorder::forget_after_callback() {
  if (!has_foreign_writes_) return;
  has_foreign_writes_ = false;
  had_callbacks_ = true;
  reads_are_late_ = true;
  for (HeapObject& object : heap_.objects) {
    if (object.is_created && object.iterator != nullptr) continue;
    if (object.is_created && (object.has_elements && facts_[object.id].type == &PyTuple_Type)) continue;
    if (!object.is_created) {
      if (object.has_elements && facts_[object.id].type != nullptr &&
          !PyType_IsSubtype(facts_[object.id].type, &PyTuple_Type)) {
        object.has_elements = false;
        object.elements.clear();
        facts_[object.id].is_length_known = false;
        object.is_dirty = true;
      }
      if (object.is_append_only) object.elements.clear();
      object.contents = kUnknownContents;
      if (!host::stamps_have_tags()) {
        object.items.clear();
        object.is_dirty = true;
      }
    } else if (facts_[object.id].type == &PyCell_Type) {
      object.contents = kUnknownContents;  // a closure may have been called
      object.is_dirty = true;
    }
  }
}

// ---- containers as operations of the evaluator

Outcome Recorder::build_tuple(Act&, const Operand* items, int n, Operand* out) {
  std::vector<ValueId> ids(n);
  for (int i = 0; i < n; i++) {
    if (active_ && items[i].id < 0) return stop("a tuple of values of unknown origin");
    ids[i] = items[i].id;
  }
  PyObject* tuple = PyTuple_New(n);
  if (tuple == nullptr) return Outcome::Raised;
  for (int i = 0; i < n; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i].object));
  *out = new_tuple(tuple, ids);
  return Outcome::Done;
}

Outcome Recorder::build_list(Act&, const Operand* items, int n, Operand* out) {
  std::vector<ValueId> ids(n);
  for (int i = 0; i < n; i++) {
    if (active_ && items[i].id < 0) return stop("a list of values of unknown origin");
    ids[i] = items[i].id;
  }
  PyObject* list = PyList_New(n);
  if (list == nullptr) return Outcome::Raised;
  for (int i = 0; i < n; i++) PyList_SET_ITEM(list, i, Py_NewRef(items[i].object));
  *out = new_list(list, ids);
  return Outcome::Done;
}

Outcome Recorder::build_set(Act& act, const Operand* items, int n, Operand* out) {
  PyObject* set = PySet_New(nullptr);
  if (set == nullptr) return Outcome::Raised;
  Operand made{set, active_ ? emit_typed(NodeKind::Set, {}, set) : kNoValue};
  if (made.id >= 0) new_object(made.id);
  for (int i = 0; i < n; i++) {
    Outcome outcome = set_add(act, made, items[i]);
    if (outcome == Outcome::Done) continue;
    Py_DECREF(set);
    return outcome;
  }
  *out = made;
  return Outcome::Done;
}

Outcome Recorder::build_map(Act&, const Operand* pairs, int n, Operand* out) {
  std::vector<ValueId> ids(2 * n);
  std::vector<PyObject*> keys(n);
  for (int i = 0; i < n; i++) {
    if (active_) {
      if (pairs[2 * i].id < 0 || pairs[2 * i + 1].id < 0) return stop("a dict of values of unknown origin");
      if (!host::is_tensor(pairs[2 * i].object) && !make_key(pairs[2 * i]))
        return stop("a dict key that is known late");
    }
    ids[2 * i] = pairs[2 * i].id;
    ids[2 * i + 1] = pairs[2 * i + 1].id;
    keys[i] = pairs[2 * i].object;
  }
  PyObject* dict = PyDict_New();
  if (dict == nullptr) return Outcome::Raised;
  CCall bracket(*this);
  for (int i = 0; i < n; i++) {
    if (PyDict_SetItem(dict, pairs[2 * i].object, pairs[2 * i + 1].object) < 0) {
      Py_DECREF(dict);
      return Outcome::Raised;
    }
  }
  *out = new_dict(dict, ids, keys.data());
  return Outcome::Done;
}

Outcome Recorder::build_const_key_map(Act&, Operand keys, const Operand* values, int n, Operand* out) {
  std::vector<ValueId> ids(2 * n);
  std::vector<PyObject*> names(n);
  PyObject* dict = PyDict_New();
  if (dict == nullptr) return Outcome::Raised;
  for (int i = 0; i < n; i++) {
    if (active_ && values[i].id < 0) {
      Py_DECREF(dict);
      return stop("a dict of values of unknown origin");
    }
    names[i] = PyTuple_GET_ITEM(keys.object, i);
    ids[2 * i] = constant_id(names[i]);
    ids[2 * i + 1] = values[i].id;
    if (PyDict_SetItem(dict, names[i], values[i].object) < 0) {
      Py_DECREF(dict);
      return Outcome::Raised;
    }
  }
  *out = new_dict(dict, ids, names.data());
  return Outcome::Done;
}

Outcome Recorder::build_slice(Act&, Operand start, Operand stop_, Operand step, Operand* out) {
  Operand parts[3] = {start, stop_, step.object != nullptr ? step : Operand{Py_None, constant_id(Py_None)}};
  ValueId ids[3];
  for (int i = 0; i < 3; i++) {
    if (active_ && parts[i].id < 0) return stop("a slice of values of unknown origin");
    ids[i] = parts[i].id;
    // Slices select shapes: their bounds are fixed where they can be. What follows from data is another number in
    // another call; who needs it fixed (a slice of a list) does that.
    if (!active_ || host::is_tensor(parts[i].object)) continue;
    if (PyLong_CheckExact(parts[i].object) && is_pre(ids[i])) know_type(parts[i]);
    if (!trace_->values[ids[i]].varies && !depends_on_data(ids[i])) make_constant(parts[i]);
  }
  PyObject* slice = PySlice_New(start.object, stop_.object, step.object);
  if (slice == nullptr) return Outcome::Raised;
  ValueId id = emit_typed(NodeKind::Slice, ids, slice);
  if (id >= 0) {
    HeapObject* object = new_object(id);
    object->elements.assign(ids, ids + 3);
  }
  *out = {slice, id};
  return Outcome::Done;
}

Outcome Recorder::list_append(Act&, Operand list, Operand v) {
  if (!active_) return PyList_Append(list.object, v.object) < 0 ? Outcome::Raised : Outcome::Done;
  if (list.id < 0 || v.id < 0) return stop("append of a value of unknown origin");
  HeapObject* object = heap_of(list);
  if (object == nullptr) return Outcome::Stop;
  if (!object->is_created && !object->has_elements) {
    if (!know_type(list)) return Outcome::Stop;
    object->is_append_only = true;
  }
  emit(NodeKind::ListAppend, {list.id, v.id});
  if (PyList_Append(list.object, v.object) < 0) return Outcome::Raised;
  if (!active_) return Outcome::Done;
  object->elements.push_back(v.id);  // of a list that was only appended to: its last elements
  if (object->is_created) object->witnesses.push_back(v.object);
  facts_[list.id].is_length_known = false;
  facts_[list.id].is_truth_known = false;
  note_effect(object);
  return Outcome::Done;
}

Outcome Recorder::list_extend(Act& act, Operand list, Operand iterable) {
  std::vector<Operand> elements;
  {
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = all_elements(iterable, &elements, true);
    if (outcome != Outcome::Done) return outcome;
  }
  Outcome outcome = Outcome::Done;
  bool is_first = true;
  for (Operand& element : elements) {
    if (outcome == Outcome::Done) {
      outcome = list_append(act, list, element);
      if (outcome == Outcome::Stop && !is_first) {  // part of it is done: finish unrecorded
        outcome = PyList_Append(list.object, element.object) < 0 ? Outcome::Raised : Outcome::Done;
      } else if (outcome == Outcome::Stop && !can_be_iterated_again(iterable.object)) {
        outcome = PyList_Append(list.object, element.object) < 0 ? Outcome::Raised : Outcome::Done;
      }
    }
    is_first = false;
    Py_DECREF(element.object);
  }
  return outcome;
}

Outcome Recorder::set_add(Act&, Operand set, Operand v) {
  if (!active_) return PySet_Add(set.object, v.object) < 0 ? Outcome::Raised : Outcome::Done;
  bool by_identity = host::is_tensor(v.object);
  if (set.id < 0 || v.id < 0 || (!by_identity && !make_key(v))) return stop("a set element that is known late");
  static PyObject* add = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySet_Type), "add");
  emit(NodeKind::MutatorCall, {set.id, constant_id(add), set.id, v.id});
  HeapObject* object = facts_[set.id].heap;
  // Whether tensors that are known late are one object is not known: what the set holds is then asked late.
  if (by_identity && object != nullptr && !note_identity(object, v)) object->is_dirty = true;
  CCall bracket(*this);
  if (PySet_Add(set.object, v.object) < 0) return Outcome::Raised;
  if (object != nullptr) note_effect(object);
  return Outcome::Done;
}

// A tensor of the entry state meets a set: it is one of those that were there before, or differs from all of them.
// Control flow relies on that, but no read does, so the fact may stand at the end of the trace.
bool Recorder::note_identity(HeapObject* set, Operand tensor) {
  if (!set->is_created || set->is_dirty || !is_pre(tensor.id)) return false;
  auto [found, is_new] = set->identities.try_emplace(tensor.object, tensor.id);
  if (is_new) {
    set->distinct.push_back(tensor.id);
  } else if (found->second != tensor.id) {
    guard(tensor.id, FactKind::Same, nullptr, found->second);
  }
  return true;
}

void Recorder::state_identities() {
  for (const HeapObject& object : heap_.objects) {
    std::vector<ValueId> ids;
    for (ValueId id : object.distinct) {
      if (trace_->values[id].item >= 0) ids.push_back(id);  // not cut off
    }
    if (ids.size() < 2) continue;
    ValueId id = trace_->add_node(NodeKind::Distinct, ids, nullptr, 0, true);
    trace_->add_guard(id, FactKind::Identity, Py_True, 0, -1);
  }
}

Outcome Recorder::set_update(Act& act, Operand set, Operand iterable) {
  HeapObject* source = iterable.id >= 0 ? facts_[iterable.id].heap : nullptr;
  // Of a set it takes the elements themselves, past a subclass's __iter__.
  if (PyAnySet_Check(iterable.object) && is_overridden(iterable.object, names().iter)) {
    if (active_) return stop("a set whose class has an __iter__ of its own");
    static PyObject* kUpdate = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySet_Type), "update");
    PyObject* result = PyObject_CallFunctionObjArgs(kUpdate, set.object, iterable.object, nullptr);
    Py_XDECREF(result);
    return result == nullptr ? Outcome::Raised : Outcome::Done;
  }
  const bool existed = PyAnySet_CheckExact(iterable.object) && iterable.id >= 0 && !is_constant(iterable.id) &&
                       (source == nullptr || !source->is_created);
  if (active_ && existed && is_created(set.id)) {
    // As a whole: what is in it then is asked late.
    if (!know_type(iterable) || heap_of(iterable) == nullptr || !check_effects(heap_of(iterable))) return Outcome::Stop;
    static PyObject* update = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySet_Type), "update");
    emit(NodeKind::MutatorCall, {set.id, constant_id(update), set.id, iterable.id});
    PyObject* result = PyObject_CallFunctionObjArgs(update, set.object, iterable.object, nullptr);
    if (result == nullptr) return Outcome::Raised;
    Py_DECREF(result);
    facts_[set.id].heap->is_dirty = true;
    note_effect(facts_[set.id].heap);
    return Outcome::Done;
  }
  std::vector<Operand> elements;
  {
    ModeScope mode(*this, ResumeMode::Never);
    Outcome outcome = all_elements(iterable, &elements);
    if (outcome != Outcome::Done) return outcome;
  }
  Outcome outcome = Outcome::Done;
  bool has_started = !can_be_iterated_again(iterable.object);
  for (Operand& element : elements) {
    if (outcome == Outcome::Done) {
      outcome = set_add(act, set, element);
      if (outcome == Outcome::Stop && has_started) {
        outcome = PySet_Add(set.object, element.object) < 0 ? Outcome::Raised : Outcome::Done;
      }
      has_started = true;
    }
    Py_DECREF(element.object);
  }
  return outcome;
}

Outcome Recorder::list_to_tuple(Act&, Operand list, Operand* out) {
  std::vector<ValueId> ids;
  if (active_ && !element_ids(list, &ids)) return stop("a list of unknown contents");
  PyObject* tuple = PyList_AsTuple(list.object);
  if (tuple == nullptr) return Outcome::Raised;
  *out = new_tuple(tuple, ids);
  return Outcome::Done;
}

// What C code reads of a mapping (`{**d}`, dict(d), d.update) are a dict's own items, unless its class has keys() and
// subscription of its own and says so by another __iter__, or is an OrderedDict's.
bool Recorder::reads_own_items(PyObject* mapping) {
  if (!PyDict_Check(mapping)) return false;
  if (Py_TYPE(mapping)->tp_iter == PyDict_Type.tp_iter) return true;
  return !is_overridden(mapping, names().iter) && !is_overridden(mapping, names().keys) &&
         !is_overridden(mapping, names().getitem);
}

Outcome Recorder::dict_update(Act&, Operand d, Operand u) {
  if (!active_) return PyDict_Update(d.object, u.object) < 0 ? Outcome::Raised : Outcome::Done;
  if (u.id < 0 || !know_type(u)) return stop("a mapping that is no dict");
  if (!reads_own_items(u.object)) return update_by_keys(d, u, false);
  std::vector<Operand> keys;
  std::vector<ValueId> values;
  if (!dict_ids(u, &keys, &values)) return stop("a dict of unknown contents");
  for (size_t i = 0; i < keys.size(); i++) {
    Operand value{PyDict_GetItemWithError(u.object, keys[i].object), values[i]};
    Outcome outcome = write_dict(d, keys[i], value);
    if (outcome == Outcome::Stop && i > 0) {
      return PyDict_Update(d.object, u.object) < 0 ? Outcome::Raised : Outcome::Done;
    }
    if (outcome != Outcome::Done) return outcome;
  }
  return Outcome::Done;
}

// As dict.update does it: what keys() gives, one by one, and the item of each. `is_merge`: none may be there already.
Outcome Recorder::update_by_keys(Operand d, Operand u, bool is_merge) {
  if (u.id < 0 || !know_type(u)) return stop("a mapping that is no dict");
  if (!PyDict_Check(u.object) && find_in_class(Py_TYPE(u.object), names().keys) == nullptr)
    return stop("an update from something that is no mapping");
  ModeScope mode(*this, ResumeMode::Never);
  Operand method, view;
  Outcome outcome = get_attribute(u, names().keys, &method, nullptr);
  if (outcome != Outcome::Done) return outcome;
  outcome = call_any(method, nullptr, 0, nullptr, &view);
  Py_DECREF(method.object);
  if (outcome != Outcome::Done) return outcome;
  std::vector<Operand> keys;
  outcome = all_elements(view, &keys);
  Py_DECREF(view.object);
  if (outcome != Outcome::Done) return outcome;
  bool are_new = true;
  for (const Operand& key : keys) {
    if (is_merge && (!PyUnicode_Check(key.object) || PyDict_Contains(d.object, key.object) != 0)) are_new = false;
  }
  if (!are_new) outcome = stop("a keyword given twice, or one that is no string");
  for (Operand& key : keys) {
    Operand value;
    if (outcome == Outcome::Done) outcome = active_ ? get_item(*top_, u, key, &value) : Outcome::Stop;
    if (outcome == Outcome::Stop && are_new) {  // the keys have been asked: the rest is not recorded
      value = {PyObject_GetItem(u.object, key.object), kNoValue};
      outcome = value.object != nullptr ? Outcome::Done : Outcome::Raised;
    }
    if (outcome == Outcome::Done) {
      outcome = active_ && value.id >= 0 ? write_dict(d, key, value) : Outcome::Stop;
      if (outcome == Outcome::Stop) {
        if (active_) lose("an item of unknown origin");
        outcome = PyDict_SetItem(d.object, key.object, value.object) < 0 ? Outcome::Raised : Outcome::Done;
      }
      Py_DECREF(value.object);
    }
    Py_DECREF(key.object);
  }
  return outcome;
}

Outcome Recorder::dict_merge(Act& act, Operand d, Operand u, Operand) {
  if (active_ && !reads_own_items(u.object)) return update_by_keys(d, u, true);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(u.object, &position, &key, &value)) {
    if (PyDict_Contains(d.object, key) != 0) return stop("a keyword given twice");
  }
  return dict_update(act, d, u);
}

// ---- cells

Outcome Recorder::load_cell(Act& act, int index, Operand* out) {
  if (!active_) return Outcome::Stop;
  return read_cell({act.locals[index], act.ids[index]}, out);
}

Outcome Recorder::read_cell(Operand cell, Operand* out) {
  PyObject* contents = PyCell_GET(cell.object);
  if (contents == nullptr) return stop("an empty cell");
  HeapObject* object = heap_of(cell);
  if (object == nullptr) return stop("a cell of unknown origin");
  if (!check_effects(object)) return Outcome::Stop;
  if (object->contents < 0) {
    force_late_ = object->is_dirty || (reads_are_late_ && !object->is_created);
    ValueId id = emit(NodeKind::CellContents, {object->id});
    force_late_ = false;
    if (id < 0 || !know_present(id)) return Outcome::Stop;
    object->contents = id;
  }
  *out = {Py_NewRef(contents), object->contents};
  return Outcome::Done;
}

Outcome Recorder::store_cell(Act& act, int index, Operand v) {
  PyObject* cell = act.locals[index];
  if (active_) {
    HeapObject* object = heap_of({cell, act.ids[index]});
    if (object == nullptr || v.id < 0) return stop("a cell of unknown origin");
    emit(NodeKind::SetCell, {object->id, v.id});
    object->contents = v.id;
    note_effect(object);
  }
  PyObject* old = PyCell_GET(cell);
  PyCell_SET(cell, Py_NewRef(v.object));
  Py_XDECREF(old);
  return Outcome::Done;
}

Outcome Recorder::delete_cell(Act& act, int index) {
  PyObject* cell = act.locals[index];
  PyObject* old = PyCell_GET(cell);
  if (old == nullptr) return stop("an empty cell");
  if (active_) {
    HeapObject* object = heap_of({cell, act.ids[index]});
    if (object == nullptr) return stop("a cell of unknown origin");
    emit(NodeKind::SetCell, {object->id, kNoValue});
    object->contents = kUnknownContents;
    object->is_dirty = true;
    note_effect(object);
  }
  PyCell_SET(cell, nullptr);
  Py_DECREF(old);
  return Outcome::Done;
}

Outcome Recorder::make_cell(Act& act, int index) {
  PyObject* contents = act.locals[index];
  PyObject* cell = PyCell_New(contents);
  if (cell == nullptr) return Outcome::Raised;
  if (active_) {
    ValueId id = emit_typed(NodeKind::Cell, {}, cell);
    if (id >= 0) {
      HeapObject* object = new_object(id);
      ValueId contents_id = act.ids[index];
      if (contents != nullptr) {
        if (contents_id < 0) {
          Py_DECREF(cell);
          return stop("a cell around a value of unknown origin");
        }
        emit(NodeKind::SetCell, {id, contents_id});
        object->contents = contents_id;
      }
    }
    act.ids[index] = id;
  }
  act.locals[index] = cell;
  Py_XDECREF(contents);
  return Outcome::Done;
}

bool Recorder::closure_ids(Operand function, PyObject* closure, std::vector<ValueId>* ids) {
  Py_ssize_t count = PyTuple_GET_SIZE(closure);
  if (is_created(function.id)) {
    // elements: globals, defaults, kwdefaults, annotations, closure
    ValueId closure_id = facts_[function.id].heap->elements[4];
    return closure_id >= 0 && element_ids({closure, closure_id}, ids);
  }
  if (function.id < 0 || is_constant(function.id)) {
    for (Py_ssize_t i = 0; i < count; i++) ids->push_back(constant_id(PyTuple_GET_ITEM(closure, i)));
    return true;
  }
  ValueId closure_id =
      emit(NodeKind::FunctionField, {function.id}, nullptr, static_cast<int>(trace::FunctionField::Closure));
  if (closure_id < 0) return false;
  facts_[closure_id].type = &PyTuple_Type;
  facts_[closure_id].is_present = true;
  facts_[closure_id].is_length_known = true;  // follows from the code
  if (!element_ids({closure, closure_id}, ids)) return false;
  for (ValueId id : *ids) facts_[id].type = &PyCell_Type;
  return true;
}

Outcome Recorder::copy_free_vars(Act& act, int count) {
  PyObject* closure = PyFunction_GetClosure(act.function);
  int first = act.code->co_nlocalsplus - count;
  std::vector<ValueId> ids;
  if (active_) {
    if (!closure_ids({act.function, act.function_value}, closure, &ids)) return stop("a closure of unknown origin");
  } else {
    ids.assign(count, kNoValue);
  }
  for (int i = 0; i < count; i++) {
    act.locals[first + i] = Py_NewRef(PyTuple_GET_ITEM(closure, i));
    act.ids[first + i] = ids[i];
  }
  return Outcome::Done;
}

}  // namespace reprise::capture
