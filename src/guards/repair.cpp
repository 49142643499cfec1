// Repair of a stamp set: words have moved; does any fact depend on what changed?
//
// Operations that hang on a moved word are run again, in program order, and so are the users of every slot that got
// another value. A slot that got the same address again may hold another object (the old one has died): users that
// have no words of their own run again too. A failed fact undoes all of it, so the set stays as it was, with words that
// have moved: the next check finds the same failure as quickly.
#include <algorithm>
#include <functional>

#include "guards/facts.h"
#include "guards/stamps_impl.h"

namespace reprise::guards {

using trace::FactKind;
using trace::NodeKind;

class StampSet::Repair {
 public:
  Repair(StampSet& set, PyObject* const* args, Temporaries& temporaries)
      : set_(set), code_(set.code_), args_(args), temporaries_(temporaries), is_queued_(code_.ops.size(), 0) {}

  Outcome run(size_t moved_word, int32_t* failed_op) {
    // An operation runs only when all words in front of its own are as expected: its operands are alive.
    size_t verified = moved_word;
    for (;;) {
      const size_t end = heap_.empty() ? set_.word_count_ : set_.first_word_[heap_.front()];
      if (verified < end) {
        const size_t moved = set_.find_moved_word(verified, end);
        verified = moved;
        if (moved < end) {
          queue_moved(moved);
          ++verified;  // the operation that owns the word renews it
          continue;
        }
      }
      if (heap_.empty()) break;
      const int32_t op = take_first();
      const Outcome outcome = rerun(op);
      if (outcome != Outcome::Holds) {
        *failed_op = op;
        undo();
        return outcome;
      }
    }
    commit();
    return Outcome::Holds;
  }

 private:
  struct OldSlot {
    int32_t slot;
    PyObject* value;
    PyTypeObject* type;
  };
  struct OldWord {
    size_t index;
    Word word;
  };

  void queue(int32_t op) {
    if (is_queued_[op] || set_.is_slow_[op]) return;  // slow operations run anyway, behind the words
    is_queued_[op] = 1;
    heap_.push_back(op);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void queue_moved(size_t word) {
    const int32_t slot = set_.word_slots_[word];
    const auto owner = std::upper_bound(set_.first_word_.begin(), set_.first_word_.end(), static_cast<uint32_t>(word));
    queue(static_cast<int32_t>(owner - set_.first_word_.begin()) - 1);
    if (slot < 0) return;
    for (int32_t user : code_.users_of(slot)) queue(user);
  }

  int32_t take_first() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const int32_t op = heap_.back();
    heap_.pop_back();
    is_queued_[op] = 0;
    return op;
  }

  Outcome rerun(int32_t index) {
    const GuardOp& op = code_.ops[index];
    if (op.is_fact && op.fact() == FactKind::TensorMeta) {
      set_.are_tensors_dirty_ = true;
      return Outcome::Holds;
    }
    if (!op.is_fact && op.node() == NodeKind::Arg) return Outcome::Holds;
    PyObject* old = set_.values_[op.slot];
    if (!run_guard_op(code_, op, args_, set_.values_.data(), temporaries_)) {
      set_.values_[op.slot] = old;
      return Outcome::Fails;
    }
    if (!op.is_fact) take_value(index, old);
    return restamp(index) ? Outcome::Holds : Outcome::Unusable;
  }

  void take_value(int32_t index, PyObject* old) {
    const int32_t slot = code_.ops[index].slot;
    PyObject* value = set_.values_[slot];
    PyTypeObject* type = value == nullptr ? nullptr : Py_TYPE(value);
    const bool is_same = value == old && type == set_.types_[slot];
    if (!is_same) {
      old_slots_.push_back({slot, old, set_.types_[slot]});
      set_.types_[slot] = type;
      if (set_.is_held_[slot]) Py_XINCREF(value);  // the old reference goes at commit
    }
    for (int32_t user : code_.users_of(slot)) {
      if (!is_same || !is_covered(user, slot)) queue(user);
    }
  }

  // Under an unchanged address and type: words of its own prove what the user states, or the address alone does.
  bool is_covered(int32_t index, int32_t slot) const {
    if (set_.first_word_[index] < set_.first_word_[index + 1]) return true;
    const GuardOp& user = code_.ops[index];
    const bool has_contents = set_.content_owners_[slot] >= 0;
    if (user.is_fact) {
      switch (user.fact()) {
        case FactKind::Type:
        case FactKind::Identity:
        case FactKind::Absent:
        case FactKind::Present:
        case FactKind::Same:
        case FactKind::Different:
          return true;
        case FactKind::Truth:
        case FactKind::Length:
        case FactKind::Keys:
          return has_contents;
        case FactKind::Equal:
        case FactKind::TensorMeta:
        case FactKind::TensorLike:
        case FactKind::Code:
          return false;
      }
    }
    switch (user.node()) {
      case NodeKind::DictItem:
      case NodeKind::DictItemByIdentity:
      case NodeKind::Length:
        return has_contents;
      case NodeKind::InstanceDict:
      case NodeKind::Identical:
      case NodeKind::Distinct:
        return true;
      default:
        return false;
    }
  }

  // The words of an operation say what the heap looks like now. false: the shape is another one.
  bool restamp(int32_t index) {
    OpStamp stamp;
    set_.stamp_op(index, &stamp);
    const uint32_t first = set_.first_word_[index];
    const uint32_t count = set_.first_word_[index + 1] - first;
    const GuardOp& op = code_.ops[index];
    if (static_cast<uint32_t>(stamp.word_count) != count || stamp.trust != set_.op_trusts_[index] ||
        stamp.is_slow != (set_.is_slow_[index] != 0) ||
        (!op.is_fact && stamp.must_hold != (set_.is_held_[op.slot] != 0))) {
      // A missing value needs no reference; that is no change of shape.
      const bool is_only_missing = static_cast<uint32_t>(stamp.word_count) == count && set_.values_[op.slot] == nullptr;
      if (!is_only_missing) return false;
    }
    for (uint32_t i = 0; i < count; i++) {
      const size_t word = first + i;
      if (static_cast<int>(i) != stamp.watched_word) set_.is_watched_[word] = 0;  // not made 1: it may be undone
      const Word& old = set_.words_[word];
      if (old.address == stamp.words[i].address && old.expected == stamp.words[i].expected) continue;
      old_words_.push_back({word, old});
      set_.words_[word] = stamp.words[i];
    }
    return true;
  }

  void commit() {
    for (const OldSlot& old : old_slots_) {
      if (set_.is_held_[old.slot]) Py_XDECREF(old.value);
    }
    ++set_.repair_count_;
  }

  void undo() {
    for (size_t i = old_slots_.size(); i-- > 0;) {
      const OldSlot& old = old_slots_[i];
      if (set_.is_held_[old.slot]) Py_XDECREF(set_.values_[old.slot]);
      set_.values_[old.slot] = old.value;
      set_.types_[old.slot] = old.type;
    }
    for (size_t i = old_words_.size(); i-- > 0;) set_.words_[old_words_[i].index] = old_words_[i].word;
  }

  StampSet& set_;
  const GuardCode& code_;
  PyObject* const* args_;
  Temporaries& temporaries_;
  std::vector<uint8_t> is_queued_;
  std::vector<int32_t> heap_;
  std::vector<OldSlot> old_slots_;
  std::vector<OldWord> old_words_;
};

StampSet::Outcome StampSet::repair(size_t word, PyObject* const* args, Temporaries& temporaries, int32_t* failed_op) {
  return Repair(*this, args, temporaries).run(word, failed_op);
}

}  // namespace reprise::guards
