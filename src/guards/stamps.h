// StampSet: the heap as one guard program found it, in a form that is cheap to compare.
//
// After a full pass a stamp set remembers the values reached through stable paths and one word of memory for everything
// that could change them: a dict's version tag, the slot that holds an instance dict, an object's type, a cell, a
// list's elements, a function's code. A later check compares the words in one pass. Words that moved re-run only the
// operations that hang on them (repair); what no word can prove (arguments, getsets, tensor metadata) is run every
// time. The rules, and why they are safe although nothing is kept alive, are in the essay at the top of stamps.cpp.
//
// Ownership: values are borrowed, but for scalars and results of operations. Threads: the GIL is held.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "guards/guard_code.h"
#include "host/torch/tensor_array.h"

namespace reprise::guards {

class StampSet {
 public:
  enum class Outcome : uint8_t {
    Holds,
    Fails,     // a fact does not hold: the full program would fail too
    Unusable,  // the heap has another shape: run the full program and make a new set
  };

  /// `values`: all slots, right after a full pass that succeeded. `may_be_root[n]`: argument n may be compared by
  /// address.
  StampSet(const GuardCode& code, std::span<PyObject* const> values, std::span<const uint8_t> may_be_root);
  ~StampSet();
  StampSet(const StampSet&) = delete;
  StampSet& operator=(const StampSet&) = delete;

  /// The arguments that the set hangs on are the same objects.
  bool fits(PyObject* const* args) const {
    for (const Root& root : roots_) {
      if (args[root.arg] != root.object) return false;
    }
    return true;
  }
  bool is_root(int32_t arg) const;

  /// On Holds `values()` are the values of all slots; those in `temporaries` die with them. `failed_op`: what failed.
  Outcome check(PyObject* const* args, Temporaries& temporaries, int32_t* failed_op);
  PyObject* const* values() const { return values_.data(); }

  size_t word_count() const { return word_count_; }
  std::span<const int32_t> slow_ops() const { return slow_ops_; }
  size_t tensor_count() const { return tensor_ops_.size(); }
  uint64_t repair_count() const { return repair_count_; }
  size_t size_bytes() const;

 private:
  struct Word {
    const uint64_t* address;
    uint64_t expected;
  };
  struct Root {
    int32_t arg;
    PyObject* object;
  };
  /// How far a slot can be trusted while the words hold. Weak: the same address, perhaps another object that took the
  /// place of a dead one. Strong: the same object.
  enum class Trust : uint8_t { None, Weak, Strong };
  struct OpStamp;
  class Repair;

  void stamp_op(int32_t index, OpStamp* stamp);
  void stamp_fact(int32_t index, OpStamp* stamp);
  void stamp_read(int32_t index, OpStamp* stamp);
  void stamp_item_by_identity(int32_t index, OpStamp* stamp);
  void stamp_operation(int32_t index, OpStamp* stamp);
  void stamp_type(int32_t index, int32_t slot, bool is_needed, OpStamp* stamp);
  bool stamp_dict(int32_t index, int32_t slot, OpStamp* stamp);
  bool stamp_sequence(int32_t index, int32_t slot, OpStamp* stamp);
  bool stamp_length(int32_t index, int32_t slot, OpStamp* stamp);
  static const uint64_t* find_field(PyObject* descriptor, PyObject* object);
  size_t find_moved_word(size_t first, size_t end) const;
  static size_t find_moved(const std::vector<Word>& all, size_t first, size_t end);
  void list_unwatched_words();
  bool are_unwatched_words_unmoved();
  Outcome check_tensors(int32_t* failed_op);
  Outcome repair(size_t word, PyObject* const* args, Temporaries& temporaries, int32_t* failed_op);
  void add_op(const OpStamp& stamp, int32_t index);

  const GuardCode& code_;
  std::vector<Word> words_;           // in op order, then padding for the prefetch
  std::vector<int32_t> word_slots_;   // whose users re-run when the word moves; -1: the op itself
  std::vector<uint32_t> first_word_;  // by op
  std::vector<uint8_t> is_watched_;   // by word: the epoch tells of its changes
  size_t word_count_ = 0;
  std::vector<Word> unwatched_words_;  // a copy of the others, and padding; empty where all must be compared
  bool are_unwatched_words_stale_ = false;
  std::vector<Root> roots_;
  std::vector<PyObject*> values_;
  std::vector<PyTypeObject*> types_;     // by slot: of the value when stamped
  std::vector<Trust> trusts_;            // by slot
  std::vector<uint8_t> is_held_;         // by slot: the set owns a reference
  std::vector<Trust> op_trusts_;         // by op: what it made of its slot's trust
  std::vector<uint8_t> is_slow_;         // by op
  std::vector<int32_t> type_owners_;     // by slot: the op whose words hold the object's type
  std::vector<int32_t> content_owners_;  // by slot: the op whose words hold the contents of a dict or list
  std::vector<int32_t> slow_ops_;
  std::vector<int32_t> tensor_ops_;
  host::TensorArray tensors_;
  std::vector<uint8_t> may_be_root_;
  uint64_t epoch_ = 0;
  bool uses_epoch_ = false;
  bool are_tensors_dirty_ = false;
  uint64_t repair_count_ = 0;
};

}  // namespace reprise::guards
