// MemoryOrder: which tensors of a group of regions may share memory, and how early each may be read or written.
//
// What a torch call gives shares memory with its operands or is new; so values fall into classes, joined by calls that
// may give views. All that existed before the group is one class. A node that runs in region r, or a step behind it, is
// told here; the questions give the first region where order is kept, or behind which for a step. See regions.h. Plain
// data; near-linear.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "trace/trace.h"

namespace reprise::trace {

class MemoryOrder {
 public:
  void resize(size_t value_count) {
    class_of_.assign(value_count, kOutside);
    forget();
  }

  /// Another group begins.
  void forget() {
    for (ValueId id : known_) class_of_[id] = kOutside;
    known_.clear();
    classes_.assign(1, Class());
  }

  bool is_outside(ValueId id) const { return find(class_of_[id]) == kOutside; }
  /// All memory that it may share was made by nodes of that region.
  bool is_made_in(ValueId id, int32_t region) const { return get(id).made_in == region; }
  int32_t first_region_to_read(ValueId id) const { return std::max(get(id).last_write, get(id).last_step_write + 1); }
  int32_t first_step_to_read(ValueId id) const { return std::max(get(id).last_write, get(id).last_step_write); }
  int32_t first_step_to_write(ValueId id) const { return std::max(get(id).last_node, get(id).last_step); }
  int32_t first_region_to_write(ValueId id) const { return first_region_to_write(get(id)); }
  int32_t first_region_to_write_outside() const { return first_region_to_write(classes_[kOutside]); }

  void note_node_read(ValueId id, int32_t region) { raise(get(id).last_node, region); }
  void note_step_read(ValueId id, int32_t region) { raise(get(id).last_step, region); }
  void note_write(ValueId id, int32_t region) {
    raise(get(id).last_write, region);
    raise(get(id).last_node, region);
  }
  void note_step_write(ValueId id, int32_t region) {
    raise(get(id).last_step_write, region);
    raise(get(id).last_step, region);
  }
  void note_write_outside(int32_t region) {
    raise(classes_[kOutside].last_write, region);
    raise(classes_[kOutside].last_node, region);
  }

  /// `id` was computed of `operands`, by a node of `region` or a step (kStep).
  void add_result(ValueId id, std::span<const ValueId> operands, bool is_new_memory, int32_t region) {
    int32_t joined = -1;
    if (!is_new_memory) {
      for (ValueId operand : operands)
        joined = joined < 0 ? find(class_of_[operand]) : join(joined, class_of_[operand]);
    }
    if (joined < 0) {
      joined = static_cast<int32_t>(classes_.size());
      classes_.emplace_back().parent = joined;
      classes_.back().made_in = region;
    }
    class_of_[id] = joined;
    known_.push_back(id);
  }

  static constexpr int32_t kStep = -1;

 private:
  static constexpr int32_t kOutside = 0;
  struct Class {
    int32_t parent = kOutside;
    int32_t last_node = 0, last_write = 0;
    int32_t last_step = -1, last_step_write = -1;
    int32_t made_in = kStep;
  };

  static void raise(int32_t& level, int32_t to) { level = std::max(level, to); }
  static int32_t first_region_to_write(const Class& memory) { return std::max(memory.last_node, memory.last_step + 1); }

  int32_t find(int32_t number) const {
    while (classes_[number].parent != number) {
      classes_[number].parent = classes_[classes_[number].parent].parent;
      number = classes_[number].parent;
    }
    return number;
  }
  Class& get(ValueId id) { return classes_[find(class_of_[id])]; }
  const Class& get(ValueId id) const { return classes_[find(class_of_[id])]; }

  // The lower number stays, so the outside swallows what it meets.
  int32_t join(int32_t a, int32_t b) {
    a = find(a);
    b = find(b);
    if (a == b) return a;
    if (b < a) std::swap(a, b);
    raise(classes_[a].last_node, classes_[b].last_node);
    raise(classes_[a].last_write, classes_[b].last_write);
    raise(classes_[a].last_step, classes_[b].last_step);
    raise(classes_[a].last_step_write, classes_[b].last_step_write);
    if (classes_[a].made_in != classes_[b].made_in) classes_[a].made_in = kStep;
    classes_[b].parent = a;
    return a;
  }

  std::vector<int32_t> class_of_;  // by value
  std::vector<ValueId> known_;
  mutable std::vector<Class> classes_;
};

}  // namespace reprise::trace
