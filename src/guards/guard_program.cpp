// Guard programs: the rules.
//
//  1. A guard program holds the pre nodes and entry guards of a trace that somebody needs, in trace order. An operation
//     runs only after all operations in front of it held, so a fact (a type, a length) protects the reads behind it.
//  2. It decides without running Python code: a read that would call user code, or meets an object it is not made for,
//     fails. `make_entry` refuses a trace whose program could never hold for that reason.
//  3. It answers for the moment of the call only. Nothing is kept alive between two checks but constants, types and
//     functions of the trace, and scalars.
//  4. Cheap and general things first: the torch state word, then the versions of types, then the heap.
//  5. A type's version that moved fails, unless the trace lists every look-up that it made in the type: then these are
//     repeated, and the new version is adopted when they find the same objects, and its own names, the special names of
//     its classes and its MRO are what they were.
//  6. A success makes a stamp set (stamps.h), keyed by the arguments that are objects with an instance dict: one
//     compiled block that serves twelve layers has twelve. Stamps may skip work, never change an answer.
//  7. A failing check under stamps leaves the set usable: two entries that alternate (train and eval) both stay cheap.
//  8. Sets are bounded in number and memory; an argument that is a new object at each call is not a root.
//  9. A check that is entered again from inside itself (a getset of an extension that runs Python) works on values of
//     its own, without stamps.
// 10. A failure is an index. Its text, and what was found instead, are made on demand.
#include "guards/guard_program.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "guards/facts.h"
#include "host/cpython/class_lookup.h"
#include "host/cpython/watch.h"
#include "trace/object_text.h"

namespace reprise::guards {

using trace::FactKind;

namespace {

constexpr size_t kLeastStampSets = 4, kMostStampSets = 64, kStampedOps = 200'000;  // bounds of rule 8
constexpr uint32_t kMaxRootChanges = 128;
constexpr uint32_t kEagerStampSets = 64;  // sets made without asking whether they pay
constexpr uint64_t kStampInterval = 16;   // afterwards one full pass in so many makes a set

class Flag {
 public:
  explicit Flag(bool& flag) : flag_(flag) { flag_ = true; }
  ~Flag() { flag_ = false; }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;

 private:
  bool& flag_;
};

bool is_in_mro(PyObject* mro, PyTypeObject* type) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
    if (PyTuple_GET_ITEM(mro, i) == reinterpret_cast<PyObject*>(type)) return true;
  }
  return false;
}

}  // namespace

GuardProgram::GuardProgram() = default;
GuardProgram::~GuardProgram() = default;

std::string GuardProgram::build(const trace::Trace& trace, std::span<const trace::ValueId> kept) {
  drop_stamps();
  if (std::string error = build_guard_code(trace, kept, &code_); !error.empty()) return error;
  type_words_.clear();
  for (const trace::TypeVersion& version : trace.type_versions) {
    const auto* address = static_cast<const uint32_t*>(host::make_type_stamp(version.type).address);
    type_words_.push_back({address, version.version});
  }
  may_be_root_.assign(static_cast<size_t>(trace.slot_count), 1);
  root_changes_.assign(may_be_root_.size(), 0);
  return "";
}

bool GuardProgram::check(PyObject* const* args, PyObject** kept_values) {
  if (check_unlogged(args, kept_values)) return true;
  if (base::is_log_enabled(base::LogWord::Guards)) {
    base::write_log(base::LogWord::Guards, trace::name_of_callable(code_object()) + ": failed: " + describe_failure());
  }
  return false;
}

PyObject* GuardProgram::code_object() const { return reinterpret_cast<PyObject*>(code_.trace->code); }

bool GuardProgram::check_unlogged(PyObject* const* args, PyObject** kept_values) {
  if (!check_state() || !check_type_versions()) return false;
  Temporaries temporaries;
  if (is_running_) {
    std::vector<PyObject*> values(code_.initial);
    if (!run_all(args, values.data(), temporaries)) return false;
    keep_values(values.data(), kept_values);
    return true;
  }
  const Flag running(is_running_);
  for (size_t i = 0; i < stamp_sets_.size(); i++) {
    if (!stamp_sets_[i]->fits(args)) continue;
    if (i > 0)
      std::rotate(stamp_sets_.begin(), stamp_sets_.begin() + static_cast<ptrdiff_t>(i),
                  stamp_sets_.begin() + static_cast<ptrdiff_t>(i) + 1);
    StampSet& set = *stamp_sets_.front();
    int32_t failed_op = -1;
    switch (set.check(args, temporaries, &failed_op)) {
      case StampSet::Outcome::Holds:
        ++stamped_passes_;
        keep_values(set.values(), kept_values);
        return true;
      case StampSet::Outcome::Fails:
        fail_at(failed_op);
        return false;
      case StampSet::Outcome::Unusable:
        repairs_of_dropped_sets_ += set.repair_count();
        stamp_sets_.erase(stamp_sets_.begin());
        break;
    }
    break;
  }
  scratch_.assign(code_.initial.begin(), code_.initial.end());
  if (!run_all(args, scratch_.data(), temporaries)) return false;
  keep_values(scratch_.data(), kept_values);
  make_stamp_set(scratch_);
  return true;
}

bool GuardProgram::check_state() {
  host::capture_state_word(state_now_);
  if (state_now_ == code_.trace->state_word) return true;
  failure_ = {Failure::State, -1};
  return false;
}

bool GuardProgram::check_type_versions() {
  for (size_t i = 0; i < type_words_.size(); i++) {
    if (*type_words_[i].address == type_words_[i].expected) [[likely]]
      continue;
    if (!renew_type_version(i)) return false;
  }
  return true;
}

// The class has changed. Does the trace rely on what has?
bool GuardProgram::renew_type_version(size_t index) {
  const trace::Trace& trace = *code_.trace;
  const trace::TypeVersion& version = trace.type_versions[index];
  const bool is_kept = [&] {
    if (!version.has_all_lookups || version.type->tp_mro != version.mro) return false;
    if (host::get_class_names(version.type) != std::to_array(version.names)) return false;
    return std::ranges::all_of(trace.special_names, [&](const trace::SpecialNames& names) {
      return !is_in_mro(version.mro, names.owner) || host::has_special_names(names.owner, names.defined);
    });
  }();
  if (!is_kept) {
    failure_ = {Failure::TypeVersion, static_cast<int32_t>(index)};
    return false;
  }
  for (size_t i = 0; i < trace.type_lookups.size(); i++) {
    const trace::TypeLookup& lookup = trace.type_lookups[i];
    if (lookup.type != version.type || host::find_in_class(lookup.type, lookup.name, lookup.after) == lookup.found)
      continue;
    failure_ = {Failure::TypeLookup, static_cast<int32_t>(i)};
    return false;
  }
  const uint32_t now = host::get_type_version(version.type);
  if (now != 0) type_words_[index].expected = now;  // 0: versions are used up; look again each time
  return true;
}

bool GuardProgram::run_all(PyObject* const* args, PyObject** values, Temporaries& temporaries) {
  ++full_passes_;
  for (size_t i = 0; i < code_.ops.size(); i++) {
    if (run_guard_op(code_, code_.ops[i], args, values, temporaries)) continue;
    fail_at(static_cast<int32_t>(i));
    return false;
  }
  return true;
}

void GuardProgram::keep_values(PyObject* const* values, PyObject** kept_values) const {
  if (kept_values == nullptr) return;
  for (size_t i = 0; i < code_.kept_count; i++) kept_values[i] = Py_XNewRef(values[i]);
}

void GuardProgram::make_stamp_set(std::span<PyObject* const> values) {
  if (stamp_sets_made_ >= kEagerStampSets && full_passes_ % kStampInterval != 0) return;
  ++stamp_sets_made_;
  const size_t limit = std::clamp(kStampedOps / (code_.ops.size() + 1), kLeastStampSets, kMostStampSets);
  if (!stamp_sets_.empty()) {  // no set fits: its roots are other objects
    for (size_t n = 0; n < may_be_root_.size(); n++) {
      if (stamp_sets_.front()->is_root(static_cast<int32_t>(n)) && ++root_changes_[n] > kMaxRootChanges)
        may_be_root_[n] = 0;
    }
    if (stamp_sets_.size() >= limit) {
      repairs_of_dropped_sets_ += stamp_sets_.back()->repair_count();
      stamp_sets_.pop_back();
    }
  }
  stamp_sets_.insert(stamp_sets_.begin(), std::make_unique<StampSet>(code_, values, may_be_root_));
  if (stamp_sets_made_ == 1 && base::is_log_enabled(base::LogWord::Guards)) {
    base::write_log(base::LogWord::Guards,
                    "guard program of " + trace::name_of_callable(code_object()) + ":\n" + print());
  }
}

void GuardProgram::drop_stamps() {
  for (const auto& set : stamp_sets_) repairs_of_dropped_sets_ += set->repair_count();
  stamp_sets_.clear();
}

void GuardProgram::fail_at(int32_t op) {
  failure_ = {code_.ops[op].is_fact ? Failure::Fact : Failure::Read, code_.origins[op]};
}

std::string GuardProgram::describe_failure() const {
  const trace::Trace& trace = *code_.trace;
  switch (failure_.kind) {
    case Failure::None:
      return "";
    case Failure::State:
      return "torch state: " + host::describe_state_difference(trace.state_word, state_now_);
    case Failure::TypeVersion:
      return "class " + trace::describe_type(trace.type_versions[failure_.index].type) + " is unchanged";
    case Failure::TypeLookup: {
      const trace::TypeLookup& lookup = trace.type_lookups[failure_.index];
      const char* name = PyUnicode_Check(lookup.name) ? PyUnicode_AsUTF8(lookup.name) : nullptr;
      return trace::describe_type(lookup.type) + "." + (name != nullptr ? name : "?") + " is unchanged";
    }
    case Failure::Fact:
      return trace::describe_guard(trace, trace.guards[failure_.index]);
    case Failure::Read:
      return trace::describe_value(trace, failure_.index) + " can be read";
  }
  return "";
}

std::string GuardProgram::explain(PyObject* const* args) {
  if (!check_state() || !check_type_versions()) return describe_failure();
  Temporaries temporaries;
  std::vector<PyObject*> values(code_.initial);
  if (run_all(args, values.data(), temporaries)) return "";
  const std::string expected = describe_failure();
  if (failure_.kind != Failure::Fact) return expected;
  const trace::Guard& guard = code_.trace->guards[failure_.index];
  for (size_t i = 0; i < code_.ops.size(); i++) {
    if (!code_.ops[i].is_fact || code_.origins[i] != failure_.index) continue;
    PyObject* found = values[code_.ops[i].slot];
    if (found != nullptr && guard.fact == FactKind::Type)
      return expected + "; found " + trace::describe_type(Py_TYPE(found));
    if (found != nullptr && guard.fact == FactKind::Length)
      return expected + "; found " + std::to_string(find_length(found));
    if (guard.fact == FactKind::TensorMeta) {
      return expected + "; " + host::describe_meta_mismatch(*code_.trace->tensor_metas[guard.n], found);
    }
    return expected + "; found " + trace::describe_object(found);
  }
  return expected;
}

bool GuardProgram::find_varying(PyObject* const* args, std::vector<Varying>* found) {
  if (!check_state() || !check_type_versions()) return false;
  Temporaries temporaries;
  std::vector<PyObject*> values(code_.initial);
  for (size_t i = 0; i < code_.ops.size(); i++) {
    const GuardOp& op = code_.ops[i];
    if (run_guard_op(code_, op, args, values.data(), temporaries)) continue;
    if (!op.is_fact || values[op.slot] == nullptr) return false;
    PyObject* value = values[op.slot];
    const trace::ValueId id = code_.trace->guards[code_.origins[i]].value;
    if (op.fact() == FactKind::Equal && PyLong_CheckExact(op.object) && PyLong_CheckExact(value)) {
      const trace::Value& origin = code_.trace->values[id];
      const int32_t dimension = origin.n >> 8;
      if (origin.kind == trace::NodeKind::TensorSize && dimension < 63) {
        found->push_back({code_.trace->operands(id)[0], uint64_t{1} << dimension});
      } else {
        found->push_back({id, 1});
      }
      continue;
    }
    // A branch on sizes that are open already goes another way because of those that are not: it is asked again.
    if (code_.trace->values[id].varies) continue;
    const host::TensorMeta* meta = op.fact() == FactKind::TensorMeta ? code_.trace->tensor_metas[op.n].get() : nullptr;
    if (meta == nullptr || !host::check_tensor_header(*meta, value)) return false;
    const std::span<const int64_t> sizes = host::tensor_sizes(value), recorded = meta->sizes();
    constexpr size_t kMaxDimensions = 63;
    if (sizes.size() != recorded.size() || sizes.size() > kMaxDimensions) return false;
    uint64_t dimensions = 0;
    for (size_t k = 0; k < sizes.size(); k++) dimensions |= static_cast<uint64_t>(sizes[k] != recorded[k]) << k;
    if (dimensions == 0) return false;  // other strides only
    found->push_back({id, dimensions});
  }
  return !found->empty();
}

GuardProgram::Statistics GuardProgram::statistics() const {
  Statistics result;
  result.full_passes = full_passes_;
  result.stamped_passes = stamped_passes_;
  result.repairs = repairs_of_dropped_sets_;
  for (const auto& set : stamp_sets_) result.repairs += set->repair_count();
  result.op_count = code_.ops.size();
  result.stamp_set_count = stamp_sets_.size();
  if (!stamp_sets_.empty()) {
    result.word_count = stamp_sets_.front()->word_count();
    result.slow_op_count = stamp_sets_.front()->slow_ops().size();
    result.tensor_count = stamp_sets_.front()->tensor_count();
  }
  return result;
}

std::string GuardProgram::print() const {
  if (stamp_sets_.empty()) return print_guard_code(code_, {});
  return print_guard_code(code_, stamp_sets_.front()->slow_ops());
}

size_t GuardProgram::size_bytes() const {
  size_t size = code_.ops.size() * (sizeof(GuardOp) + sizeof(int32_t)) +
                (code_.operand_pool.size() + code_.users.size()) * sizeof(int32_t) +
                code_.initial.size() * 2 * sizeof(void*);
  for (const auto& set : stamp_sets_) size += set->size_bytes();
  return size;
}

}  // namespace reprise::guards
