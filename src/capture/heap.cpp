#include "capture/heap.h"

namespace reprise::capture {

namespace {
constexpr size_t kLinearSearchLimit = 12;
}

const KeyMap::Item* KeyMap::find(PyObject* canonical_key) const {
  if (items_.size() <= kLinearSearchLimit) {
    for (const Item& item : items_) {
      if (item.key == canonical_key) return &item;
    }
    return nullptr;
  }
  auto found = index_.find(canonical_key);
  return found == index_.end() ? nullptr : &items_[found->second];
}

void KeyMap::set(PyObject* canonical_key, ValueId id) {
  if (const Item* item = find(canonical_key)) {
    const_cast<Item*>(item)->id = id;
    return;
  }
  items_.push_back({canonical_key, id});
  if (items_.size() == kLinearSearchLimit + 1) {
    for (uint32_t i = 0; i < items_.size(); i++) index_[items_[i].key] = i;
  } else if (items_.size() > kLinearSearchLimit) {
    index_[canonical_key] = static_cast<uint32_t>(items_.size() - 1);
  }
}

void KeyMap::clear() {
  items_.clear();
  index_.clear();
}

Heap::Heap() : keys_(PyDict_New()) {}

Heap::~Heap() {
  clear();
  Py_XDECREF(keys_);
}

HeapObject* Heap::make(ValueId id, bool is_created, PyObject* object_to_hold) {
  HeapObject& heap_object = objects.emplace_back();
  heap_object.id = id;
  heap_object.is_created = is_created;
  if (object_to_hold != nullptr) {
    heap_object.object = Py_NewRef(object_to_hold);
    existing_[object_to_hold] = &heap_object;
  }
  return &heap_object;
}

HeapObject* Heap::find_existing(PyObject* object) const {
  auto found = existing_.find(object);
  return found == existing_.end() ? nullptr : found->second;
}

PyObject* Heap::canonical_key(PyObject* key) {
  PyObject* canonical = PyDict_SetDefault(keys_, key, key);
  if (canonical == nullptr) PyErr_Clear();
  return canonical;
}

void Heap::clear() {
  existing_.clear();
  effect_targets.clear();
  // Dropping a reference may run user code, which must not see a half-cleared heap.
  std::deque<HeapObject> dying;
  dying.swap(objects);
  for (HeapObject& heap_object : dying) Py_CLEAR(heap_object.object);
}

}  // namespace reprise::capture
