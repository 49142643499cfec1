// Shadow of the Python heap while recording: what the trace knows about the contents of objects.
//
// One HeapObject stands for one object. Objects made in the trace are found by the id of the value that made them;
// objects that existed before also by address, so that one object reached along two paths is one HeapObject (a Same
// guard states it). Attributes are items of the instance dict; slots are items keyed by their descriptor.
// Reads after writes forward the written id, so containers that never leave the trace vanish in liveness.
// Ownership: only objects that existed before are held; created containers and tensors never are.
#pragma once

#include <Python.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "trace/trace.h"

namespace reprise::capture {

using trace::kNoValue;
using trace::ValueId;

constexpr ValueId kUnknownContents = -2;

/// Small ordered map from a canonical key (see Heap::canonical_key) to a value id; kNoValue: known to be absent.
class KeyMap {
 public:
  struct Item {
    PyObject* key;  // canonical, owned by the key table
    ValueId id;
  };
  const Item* find(PyObject* canonical_key) const;
  void set(PyObject* canonical_key, ValueId id);
  void clear();
  const std::vector<Item>& items() const { return items_; }

 private:
  std::vector<Item> items_;
  std::unordered_map<PyObject*, uint32_t> index_;  // built when the map grows
};

enum class IteratorKind : uint8_t {
  Sequence,         // elements of a list or tuple, read through its HeapObject
  Fixed,            // `ids`, known when the iterator was made (dict keys, views, sets, strings, chains)
  Range,            // constant ints
  Zip,              // one element of each source
  Map,              // what `function` gives for one element of each source
  Filter,           // elements of the source of which `function` (or bool) says true
  Chain,            // elements of the first source that has any left; `index`: which
  Enumerate,        // (count, element of the source)
  EnumerateOpaque,  // (count, what a generator yields)
  Items,            // of an array of numpy: `ids` is the array, `length` long; each item is asked for anew
};

struct HeapObject;

struct IteratorState {
  IteratorKind kind = IteratorKind::Fixed;
  HeapObject* sequence = nullptr;
  bool has_ended = false;
  bool is_reversed = false;
  bool is_cyclic = false;   // Fixed: starts again at its end
  bool unpacks = false;     // Map: its function is called with the elements of what is taken (starmap)
  bool is_negated = false;  // Filter: what the function says no to
  struct Watched {
    HeapObject* list;
    std::vector<ValueId> ids;
  };
  std::vector<Watched> lists;  // Fixed: good as long as these hold what they held
  Py_ssize_t index = 0;
  Py_ssize_t start = 0, step = 1, length = 0;  // Range; start also for Enumerate
  std::vector<ValueId> ids;
  struct Source {
    PyObject* object;  // an inner iterator
    HeapObject* heap;
  };
  std::vector<Source> sources;
  bool owns_sources = true;      // references to them; else the live iterator keeps them as long as it lives
  PyObject* function = nullptr;  // strong: of a Map or a Filter
  ValueId function_id = kNoValue;
  /// From now on the live iterator keeps the sources: they die where the program lets go of it.
  void leave_sources() {
    for (Source& source : sources) Py_DECREF(source.object);
    owns_sources = false;
  }
  ~IteratorState() {
    if (owns_sources) leave_sources();
    Py_XDECREF(function);
  }
};

/// A generator made in the trace: the ids of its frame between two resumes.
struct GeneratorState {
  std::vector<ValueId> ids;
  PyObject* function = nullptr;  // borrowed from the value
  bool is_finished = false;
};

/// The immutable values of an instance dict that the trace made, at the moment it was copied.
struct CopiedItems {
  struct Item {
    PyObject* key;    // canonical
    PyObject* value;  // strong; nullptr: one that may change
    ValueId id;
  };
  std::vector<Item> items;
  CopiedItems() = default;
  CopiedItems(const CopiedItems&) = delete;
  CopiedItems& operator=(const CopiedItems&) = delete;
  ~CopiedItems() {
    for (const Item& item : items) Py_XDECREF(item.value);
  }
};

struct HeapObject {
  ValueId id = kNoValue;
  bool is_created = false;
  PyObject* object = nullptr;  // strong for objects that existed before, nullptr for created ones

  KeyMap items;               // dict items, or slot contents keyed by descriptor
  bool is_complete = false;   // `items` holds all keys
  bool is_dirty = false;      // something unrecorded may have written: reads are late
  uint64_t dict_version = 0;  // version tag up to which all writes were recorded (0: none seen)

  // Made by copy.copy or copy.deepcopy: the instance dict it was copied from, if that existed before. Immutable values
  // are those of the original.
  HeapObject* copied_from = nullptr;
  PyObject* copied_dict = nullptr;  // borrowed: the original is held
  // The same of an original that the trace made, which may have died or changed since: what it held then.
  std::shared_ptr<const CopiedItems> copied_items;

  std::vector<ValueId> elements;
  // Lists made in the trace: what each element was, as addresses to compare, never to follow. Unrecorded Python may
  // write such a list too.
  std::vector<const void*> witnesses;
  bool has_elements = false;
  bool is_append_only = false;  // an existing list that was only appended to: no length fact; `elements` is its end

  ValueId contents = kUnknownContents;  // cells, ContextVar overlay
  HeapObject* instance_dict = nullptr;

  ValueId function = kNoValue, self = kNoValue;  // bound methods; super objects keep their object in self
  PyTypeObject* super_type = nullptr;            // super objects: the type behind which the search starts
  PyObject* factory = nullptr;                   // borrowed: default factory of a defaultdict, and its id in `function`
  std::unique_ptr<IteratorState> iterator;
  std::unique_ptr<GeneratorState> generator;
  std::vector<ValueId> view;  // dict views: ids of what they show
  bool is_view = false;
  std::vector<ValueId> partial;  // functools.partial: function, positional arguments; keywords are `items`
  bool is_partial = false;
  // Sets made in the trace: tensors that were asked for or added, by address. All are different objects: one fact at
  // the end of the trace says so.
  std::unordered_map<const void*, ValueId> identities;
  std::vector<ValueId> distinct;        // the same ids, in order
  ValueId function_context = kNoValue;  // contexts of autograd functions: the tuple `needs_input_grad`
  bool is_deque = false;                // `elements` are those of a collections.deque
  bool is_token = false;                // ContextVar token: `contents` is what reset() brings back

  uint32_t effects_seen = 0;   // how many effect targets this object is known to differ from
  uint32_t reshapes_seen = 0;  // ... and tensors that calls gave other sizes
  bool is_effect_target = false;
  bool has_entry_keys = true;  // dicts that existed before: the trace has replaced values, nothing else
};

class Heap {
 public:
  Heap();
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  HeapObject* make(ValueId id, bool is_created, PyObject* object_to_hold);
  HeapObject* find_existing(PyObject* object) const;
  /// One representative for all equal keys (hash and equality of the key's own type). Borrowed; nullptr: unhashable,
  /// the exception is cleared.
  PyObject* canonical_key(PyObject* key);
  void clear();

  std::deque<HeapObject> objects;
  std::vector<HeapObject*> effect_targets;

 private:
  std::unordered_map<PyObject*, HeapObject*> existing_;
  PyObject* keys_;
};

}  // namespace reprise::capture
