// Private to stamps.cpp and repair.cpp.
#pragma once

#include "guards/stamps.h"

namespace reprise::guards {

/// What one operation contributes to a stamp set.
struct StampSet::OpStamp {
  static constexpr int kMaxWords = 4;

  Word words[kMaxWords];
  int32_t word_slots[kMaxWords];
  int word_count = 0;
  int watched_word = -1;      // the one that is a tag of a watched dict
  Trust trust = Trust::None;  // of the slot that a node fills; Strong also for a fact that makes its slot strong
  bool must_hold = false;     // the set keeps a reference to the slot's value
  bool is_slow = false;

  void add_word(const uint64_t* address, int32_t slot) {
    words[word_count] = {address, *address};
    word_slots[word_count++] = slot;
  }
};

}  // namespace reprise::guards
