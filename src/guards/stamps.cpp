// Heap stamps: the rules.
//
// The aim: when nothing relevant has changed since the last call, find that out by comparing words of memory, without
// executing reads, and without keeping the program's objects alive.
//
//  1. A *stable path* leads from a constant or a root argument through reads whose outcome a word of memory proves. The
//     word stands in the array in the order of the operations, so when a word is read, all words in front of it were
//     as expected.
//  2. No word is read before the words that prove that its memory still belongs to the object: parents precede
//     children, an object's type precedes what depends on its layout.
//  3. *Strong* slots hold the very object that was stamped: constants; items of a dict whose version tag has not moved
//     (tags are unique in the process, and the dict holds the item); elements of a strong tuple; objects that an
//     Identity fact names (the trace holds them); scalars and results that the set holds itself.
//  4. *Weak* slots hold the same address: root arguments, contents of cells, elements of lists, instance dicts,
//  function
//     fields. The object may have died and another may live there. So only what words prove may hang on a weak slot:
//     its type word comes first, then tags, slots and cells of its own. A tag of a new object is another tag, so the
//     case is noticed. Facts about an immutable value (its number, its elements) need a strong slot.
//  5. Scalars and code objects in weak slots are held by the set, which makes them strong. Nothing else is held: no
//     tensor, no module, no function.
//  6. Everything else is *slow*: run at each check, in order, behind the words. Most getsets, sets, ordered keys of an
//     OrderedDict, new tuples of unstable values, arguments that are no roots.
//  7. Tensors at the end of stable paths are checked as one packed array, behind the words.
//  8. A word that moved re-runs the operations that hang on it, and those that hang on values that changed
//  (repair.cpp).
//     Operations under an unchanged address are skipped where words of their own cover them.
//  9. Dicts that can be watched (3.12 and later) are: while the epoch stands still all of them are unchanged and alive,
//     so what they hold is, too. With tags as well (3.12) a new epoch only means that the tags are compared again;
//     without (3.13) it makes the set unusable. Words for types, cells, lists and functions are compared at each check.
#include "guards/stamps.h"

#include <string_view>

#include <structmember.h>

#include "guards/facts.h"
#include "guards/reads.h"
#include "guards/stamps_impl.h"
#include "host/cpython/watch.h"

namespace reprise::guards {

using trace::Category;
using trace::FactKind;
using trace::FunctionField;
using trace::NodeKind;

namespace {

constexpr size_t kPrefetchDistance = 16;
constexpr int32_t kNobody = -1;
constexpr int32_t kProven = -2;  // the type is known without a word

bool has_heap_type(PyObject* object) { return PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE); }

const uint64_t* word_at(const void* address) { return static_cast<const uint64_t*>(address); }

bool can_be_root(PyObject* object) {
  return object != nullptr && has_heap_type(object) && Py_TYPE(object)->tp_dictoffset != 0 &&
         !host::is_tensor(object) && !PyType_Check(object);
}

}  // namespace

StampSet::StampSet(const GuardCode& code, std::span<PyObject* const> values, std::span<const uint8_t> may_be_root)
    : code_(code), values_(values.begin(), values.end()), may_be_root_(may_be_root.begin(), may_be_root.end()) {
  const size_t slot_count = values_.size(), op_count = code.ops.size();
  types_.resize(slot_count);
  for (size_t i = 0; i < slot_count; i++) types_[i] = values_[i] == nullptr ? nullptr : Py_TYPE(values_[i]);
  trusts_.assign(slot_count, Trust::None);
  for (size_t i = 0; i < slot_count; i++) {
    if (code.initial[i] != nullptr) trusts_[i] = Trust::Strong;
  }
  is_held_.assign(slot_count, 0);
  op_trusts_.assign(op_count, Trust::None);
  is_slow_.assign(op_count, 0);
  type_owners_.assign(slot_count, kNobody);
  content_owners_.assign(slot_count, kNobody);
  first_word_.reserve(op_count + 1);
  for (size_t i = 0; i < op_count; i++) {
    OpStamp stamp;
    stamp_op(static_cast<int32_t>(i), &stamp);
    add_op(stamp, static_cast<int32_t>(i));
  }
  word_count_ = words_.size();
  first_word_.push_back(static_cast<uint32_t>(word_count_));
  words_.resize(word_count_ + kPrefetchDistance, Word{reinterpret_cast<const uint64_t*>(this), 0});
  if (uses_epoch_) epoch_ = host::get_watch_epoch();
  if (uses_epoch_ && host::stamps_have_tags()) list_unwatched_words();
}

StampSet::~StampSet() {
  for (size_t i = 0; i < values_.size(); i++) {
    if (is_held_[i]) Py_XDECREF(values_[i]);
  }
}

void StampSet::add_op(const OpStamp& stamp, int32_t index) {
  const GuardOp& op = code_.ops[index];
  first_word_.push_back(static_cast<uint32_t>(words_.size()));
  for (int i = 0; i < stamp.word_count; i++) {
    words_.push_back(stamp.words[i]);
    word_slots_.push_back(stamp.word_slots[i]);
    is_watched_.push_back(i == stamp.watched_word);
  }
  op_trusts_[index] = stamp.trust;
  is_slow_[index] = stamp.is_slow;
  if (stamp.is_slow) slow_ops_.push_back(index);
  if (!op.is_fact || stamp.trust == Trust::Strong) trusts_[op.slot] = stamp.trust;
  if (stamp.must_hold && values_[op.slot] != nullptr) {
    Py_INCREF(values_[op.slot]);
    is_held_[op.slot] = 1;
  }
  if (!op.is_fact && op.node() == NodeKind::Arg && !stamp.is_slow) roots_.push_back({op.n, values_[op.slot]});
  if (!op.is_fact && op.node() == NodeKind::InstanceDict) type_owners_[op.slot] = kProven;
  if (op.is_fact && op.fact() == FactKind::TensorMeta && !stamp.is_slow) tensor_ops_.push_back(index);
}

bool StampSet::is_root(int32_t arg) const {
  for (const Root& root : roots_) {
    if (root.arg == arg) return true;
  }
  return false;
}

size_t StampSet::size_bytes() const {
  return sizeof *this + words_.size() * (sizeof(Word) + sizeof(int32_t) + 1) + unwatched_words_.size() * sizeof(Word) +
         values_.size() * (2 * sizeof(void*) + sizeof(Trust) + 1 + 2 * sizeof(int32_t)) +
         code_.ops.size() * (sizeof(uint32_t) + sizeof(Trust) + 1) +
         (slow_ops_.size() + tensor_ops_.size()) * sizeof(int32_t) + tensors_.size() * 128;
}

// ---------------------------------------------------------------------------------------------------------------------
// What one operation adds

void StampSet::stamp_op(int32_t index, OpStamp* stamp) {
  const GuardOp& op = code_.ops[index];
  if (op.is_fact) {
    stamp_fact(index, stamp);
    return;
  }
  switch (trace::category_of(op.node())) {
    case Category::Root: {
      const bool is_allowed = static_cast<size_t>(op.n) < may_be_root_.size() && may_be_root_[op.n];
      stamp->trust = is_allowed && can_be_root(values_[op.slot]) ? Trust::Weak : Trust::None;
      break;
    }
    case Category::Read:
      if (op.node() == NodeKind::DictItemByIdentity) {
        stamp_item_by_identity(index, stamp);
      } else if (values_[op.operand] == nullptr) {
        stamp->trust = trusts_[op.operand] == Trust::None ? Trust::None : Trust::Strong;
      } else if (trusts_[op.operand] != Trust::None) {
        stamp_read(index, stamp);
      }
      break;
    case Category::Py:
    case Category::Alloc:
      stamp_operation(index, stamp);
      break;
    case Category::Mutate:
    case Category::Tensor:
    case Category::State:
    case Category::Sync:
      break;  // no operations of a guard program
  }
  stamp->is_slow = stamp->trust == Trust::None;
}

// The type of the object in a slot. A word is needed where the object may be another one, or may get another class.
void StampSet::stamp_type(int32_t index, int32_t slot, bool is_needed, OpStamp* stamp) {
  if (!is_needed || (type_owners_[slot] != kNobody && type_owners_[slot] != index)) return;
  type_owners_[slot] = index;
  PyObject* object = values_[slot];
  stamp->add_word(word_at(&object->ob_type), slot);
}

bool StampSet::stamp_dict(int32_t index, int32_t slot, OpStamp* stamp) {
  PyObject* dict = values_[slot];
  if (trusts_[slot] == Trust::None || dict == nullptr || !PyDict_Check(dict)) return false;
  const bool is_owner = content_owners_[slot] == kNobody || content_owners_[slot] == index;
  const bool has_tags = host::stamps_have_tags();
  const bool is_watched = is_owner && host::stamps_have_watchers() && host::watch_dict(dict);
  if (is_owner && !has_tags && !is_watched) return false;
  stamp_type(index, slot, trusts_[slot] == Trust::Weak, stamp);
  if (!is_owner) return true;
  content_owners_[slot] = index;
  if (is_watched) uses_epoch_ = true;
  if (has_tags) {
    if (is_watched) stamp->watched_word = stamp->word_count;
    stamp->add_word(word_at(host::make_dict_stamp(dict).address), slot);
  }
  return true;
}

// Lists, and tuples that may be other ones.
bool StampSet::stamp_sequence(int32_t index, int32_t slot, OpStamp* stamp) {
  PyObject* sequence = values_[slot];
  if (trusts_[slot] == Trust::None || sequence == nullptr) return false;
  const bool is_list = PyList_Check(sequence);
  if (!is_list && !PyTuple_Check(sequence)) return false;
  stamp_type(index, slot, trusts_[slot] == Trust::Weak, stamp);
  if (content_owners_[slot] != kNobody && content_owners_[slot] != index) return true;
  content_owners_[slot] = index;
  if (is_list) stamp->add_word(word_at(&reinterpret_cast<PyListObject*>(sequence)->ob_item), slot);
  stamp->add_word(word_at(&reinterpret_cast<PyVarObject*>(sequence)->ob_size), slot);
  return true;
}

// Where a Slot read gets its object from, if that is a plain field; nullptr: it computes.
const uint64_t* StampSet::find_field(PyObject* descriptor, PyObject* object) {
  if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
    constexpr int kObject = 6, kObjectOrMissing = 16;  // T_OBJECT, T_OBJECT_EX
    const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
    if (member->type != kObject && member->type != kObjectOrMissing) return nullptr;
    return word_at(reinterpret_cast<const char*>(object) + member->offset);
  }
  if (!PyFunction_Check(object)) return nullptr;
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  const std::string_view name = reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset->name;
  if (name == "__code__") return word_at(&function->func_code);
  if (name == "__defaults__") return word_at(&function->func_defaults);
  if (name == "__kwdefaults__") return word_at(&function->func_kwdefaults);
  if (name == "__name__") return word_at(&function->func_name);
  if (name == "__qualname__") return word_at(&function->func_qualname);
  return nullptr;
}

// The length of what is no dict.
bool StampSet::stamp_length(int32_t index, int32_t slot, OpStamp* stamp) {
  PyObject* object = values_[slot];
  const bool is_strong = trusts_[slot] == Trust::Strong;
  if (is_strong && (PyTuple_Check(object) || is_scalar(object))) return true;
  return stamp_sequence(index, slot, stamp);
}

void StampSet::stamp_read(int32_t index, OpStamp* stamp) {
  const GuardOp& op = code_.ops[index];
  const int32_t from = op.operand;
  PyObject* object = values_[from];
  PyObject* result = values_[op.slot];
  const bool is_weak = trusts_[from] == Trust::Weak;
  // An address that a word proves, unless the object never changes and may be held.
  auto trust_address = [&] {
    const bool is_held = result != nullptr && (is_scalar(result) || PyCode_Check(result));
    stamp->must_hold = is_held;
    stamp->trust = is_held || result == nullptr ? Trust::Strong : Trust::Weak;
  };
  switch (op.node()) {
    case NodeKind::InstanceDict: {
      PyObject** slot = _PyObject_GetDictPtr(object);
      stamp_type(index, from, is_weak || slot == nullptr, stamp);
      if (slot == nullptr) {
        stamp->trust = Trust::Strong;
      } else {
        stamp->add_word(word_at(slot), kNobody);
        stamp->trust = Trust::Weak;
      }
      return;
    }
    case NodeKind::DictItem:
      if (stamp_dict(index, from, stamp)) stamp->trust = Trust::Strong;
      return;
    case NodeKind::SequenceItem:
      if (PyTuple_Check(object) && !is_weak) {
        stamp->trust = Trust::Strong;
      } else if (stamp_sequence(index, from, stamp)) {
        if (result != nullptr) stamp->add_word(word_at(PySequence_Fast_ITEMS(object) + op.n), kNobody);
        trust_address();
      }
      return;
    case NodeKind::Length:
      if (PyDict_Check(object) ? stamp_dict(index, from, stamp) : stamp_length(index, from, stamp)) {
        stamp->trust = Trust::Strong;
        stamp->must_hold = true;
      }
      return;
    case NodeKind::CellContents:
      stamp_type(index, from, is_weak, stamp);
      stamp->add_word(word_at(&reinterpret_cast<PyCellObject*>(object)->ob_ref), kNobody);
      trust_address();
      return;
    case NodeKind::Referent:
      stamp_type(index, from, is_weak, stamp);
      stamp->add_word(word_at(&reinterpret_cast<PyWeakReference*>(object)->wr_object), kNobody);
      trust_address();
      return;
    case NodeKind::FunctionField: {
      auto* function = reinterpret_cast<PyFunctionObject*>(object);
      stamp_type(index, from, is_weak, stamp);
      switch (static_cast<FunctionField>(op.n)) {
        case FunctionField::Closure:
          stamp->add_word(word_at(&function->func_closure), kNobody);
          stamp->trust = is_weak && result != nullptr ? Trust::Weak : Trust::Strong;  // a function keeps its closure
          return;
        case FunctionField::Defaults: {
          stamp->add_word(word_at(&function->func_defaults), kNobody);
          bool may_change = false;
          stamp->must_hold = result != nullptr && is_plain(result, &may_change) && !may_change;
          stamp->trust = stamp->must_hold || result == nullptr ? Trust::Strong : Trust::Weak;
          return;
        }
        case FunctionField::KwDefaults:
          stamp->add_word(word_at(&function->func_kwdefaults), kNobody);
          trust_address();
          return;
        case FunctionField::Code:
          stamp->add_word(word_at(&function->func_code), kNobody);
          trust_address();
          return;
      }
      return;
    }
    case NodeKind::MethodField: {
      auto* method = reinterpret_cast<PyMethodObject*>(object);
      stamp_type(index, from, is_weak, stamp);
      if (is_weak) stamp->add_word(word_at(op.n == 0 ? &method->im_func : &method->im_self), kNobody);
      stamp->trust = is_weak ? Trust::Weak : Trust::Strong;  // a method never changes
      return;
    }
    case NodeKind::Slot:
      if (PyCode_Check(object)) {  // never changes
        bool may_change = false;
        stamp->must_hold = !is_weak && result != nullptr && is_plain(result, &may_change) && !may_change;
        stamp->trust = stamp->must_hold ? Trust::Strong : Trust::None;
      } else if (const uint64_t* field = find_field(op.object, object)) {
        stamp_type(index, from, is_weak, stamp);
        stamp->add_word(field, kNobody);
        trust_address();
      }
      return;
    default:
      return;
  }
}

// The key's address is enough: the dict keeps the key alive that it found, and one that it does not have cannot have
// come in without a new tag.
void StampSet::stamp_item_by_identity(int32_t index, OpStamp* stamp) {
  const std::span<const int32_t> slots = code_.operands(code_.ops[index]);
  if (trusts_[slots[1]] != Trust::None && stamp_dict(index, slots[0], stamp)) stamp->trust = Trust::Strong;
}

void StampSet::stamp_operation(int32_t index, OpStamp* stamp) {
  const GuardOp& op = code_.ops[index];
  const std::span<const int32_t> slots = code_.operands(op);
  bool all_known = true, all_strong = true;
  for (int32_t slot : slots) {
    all_known = all_known && trusts_[slot] != Trust::None;
    all_strong = all_strong && trusts_[slot] == Trust::Strong;
  }
  if (!all_known) return;
  if (op.node() == NodeKind::Identical || op.node() == NodeKind::Distinct) {
    stamp->trust = Trust::Strong;
    stamp->must_hold = true;
    return;
  }
  if ((op.node() == NodeKind::Contains || op.node() == NodeKind::GetItem) && PyDict_CheckExact(values_[slots[0]])) {
    // By value or, for tensors and plain objects, by address: the dict keeps the key alive that it found.
    PyObject* key = values_[slots[1]];
    bool may_change = false;
    const bool is_fixed =
        trusts_[slots[1]] == Trust::Strong ? !is_plain(key, &may_change) || !may_change : !is_plain(key);
    if (is_fixed && stamp_dict(index, slots[0], stamp)) {
      stamp->trust = Trust::Strong;
      stamp->must_hold = op.node() == NodeKind::Contains;
    }
    return;
  }
  if (!all_strong) return;
  std::vector<PyObject*> operands;
  for (int32_t slot : slots) operands.push_back(values_[slot]);
  bool may_change = false;
  if (is_constant_operation(op.node(), operands.data(), operands.size()) && is_plain(values_[op.slot], &may_change) &&
      !may_change) {
    stamp->trust = Trust::Strong;
    stamp->must_hold = true;
  }
}

void StampSet::stamp_fact(int32_t index, OpStamp* stamp) {
  const GuardOp& op = code_.ops[index];
  const int32_t slot = op.slot;
  PyObject* value = values_[slot];
  const bool is_weak = trusts_[slot] == Trust::Weak;
  stamp->is_slow = true;
  if (trusts_[slot] == Trust::None) return;
  switch (op.fact()) {
    case FactKind::Absent:
    case FactKind::Present:
      stamp->is_slow = false;
      return;
    case FactKind::Identity:
      stamp->is_slow = false;
      stamp->trust = Trust::Strong;  // the trace holds the object
      return;
    case FactKind::Same:
    case FactKind::Different:
      stamp->is_slow = trusts_[op.n] == Trust::None;
      return;
    case FactKind::Type:
      if (type_owners_[slot] == kProven) return;
      stamp_type(index, slot, is_weak || has_heap_type(value) || PyModule_Check(value), stamp);
      stamp->is_slow = false;
      return;
    case FactKind::Equal: {
      bool may_change = false;
      stamp->is_slow = is_weak || !is_plain(value, &may_change) || may_change;
      return;
    }
    case FactKind::Truth:
    case FactKind::Length:
      stamp->is_slow = PyDict_Check(value) ? !stamp_dict(index, slot, stamp) : !stamp_length(index, slot, stamp);
      return;
    case FactKind::Keys:
      if (!PyODict_Check(value)) stamp->is_slow = !stamp_dict(index, slot, stamp);
      return;
    case FactKind::TensorMeta:
      stamp->is_slow = !tensors_.add(value);
      return;
    case FactKind::TensorLike:
      stamp->is_slow = true;  // the tensor changes in place
      return;
    case FactKind::Code:
      stamp_type(index, slot, is_weak, stamp);
      stamp->add_word(word_at(&reinterpret_cast<PyFunctionObject*>(value)->func_code), kNobody);
      stamp->is_slow = false;
      return;
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Checking

// For the checks of an epoch in which no watched dict has changed.
void StampSet::list_unwatched_words() {
  unwatched_words_.clear();
  for (size_t i = 0; i < word_count_; i++) {
    if (!is_watched_[i]) unwatched_words_.push_back(words_[i]);
  }
  unwatched_words_.resize(unwatched_words_.size() + kPrefetchDistance, words_.back());
  are_unwatched_words_stale_ = false;
}

size_t StampSet::find_moved_word(size_t first, size_t end) const { return find_moved(words_, first, end); }

size_t StampSet::find_moved(const std::vector<Word>& all, size_t first, size_t end) {
  const Word* words = all.data();
  for (size_t i = first; i < end; i++) {
    __builtin_prefetch(words[i + kPrefetchDistance].address);
    if (*words[i].address != words[i].expected) [[unlikely]]
      return i;
  }
  return end;
}

// False also where they are not told apart.
bool StampSet::are_unwatched_words_unmoved() {
  if (unwatched_words_.empty()) return false;
  if (are_unwatched_words_stale_) list_unwatched_words();
  const size_t count = unwatched_words_.size() - kPrefetchDistance;
  return find_moved(unwatched_words_, 0, count) == count;
}

StampSet::Outcome StampSet::check(PyObject* const* args, Temporaries& temporaries, int32_t* failed_op) {
  const uint64_t epoch = uses_epoch_ ? host::get_watch_epoch() : 0;
  const bool is_quiet = epoch_ == epoch;
  if (!is_quiet && !host::stamps_have_tags()) return Outcome::Unusable;
  if (!is_quiet || !are_unwatched_words_unmoved()) {
    if (const size_t moved = find_moved_word(0, word_count_); moved < word_count_) [[unlikely]] {
      const Outcome outcome = repair(moved, args, temporaries, failed_op);
      if (outcome != Outcome::Holds) return outcome;
      are_unwatched_words_stale_ = true;
    }
    epoch_ = epoch;
  }
  if (are_tensors_dirty_ || !tensors_.check_all()) [[unlikely]] {
    const Outcome outcome = check_tensors(failed_op);
    if (outcome != Outcome::Holds) return outcome;
  }
  for (int32_t index : slow_ops_) {
    if (!run_guard_op(code_, code_.ops[index], args, values_.data(), temporaries)) {
      *failed_op = index;
      return Outcome::Fails;
    }
  }
  return Outcome::Holds;
}

// Something about a tensor is not as it was; perhaps nothing that a fact states.
StampSet::Outcome StampSet::check_tensors(int32_t* failed_op) {
  Temporaries none;
  for (int32_t index : tensor_ops_) {
    if (!run_guard_op(code_, code_.ops[index], nullptr, values_.data(), none)) {
      *failed_op = index;
      return Outcome::Fails;
    }
  }
  tensors_.clear();
  for (int32_t index : tensor_ops_) {
    if (!tensors_.add(values_[code_.ops[index].slot])) return Outcome::Unusable;
  }
  are_tensors_dirty_ = false;
  ++repair_count_;
  return Outcome::Holds;
}

}  // namespace reprise::guards
