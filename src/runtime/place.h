// A Place: one boundary of one code object where a compiled callable has entries or wants to record one.
//
// A place is (context, code, unit). Unit 0 is the start of a call (parameters bound, nothing executed yet); any other
// unit is the boundary in front of that instruction of a frame that is being driven, and the place keeps the
// instruction watched (host::set_watched) as long as it is of use.
//
// Who decides: the place alone says whether a miss is worth a recording (`should_record`), so that no call is recorded
// over and over: a place fails for good after kMaxFailures recordings without an entry, and one whose new entries do
// not match again is recorded at growing intervals only.
//
// Ownership: the CompileContext owns its places; they live as long as it does, also across reset(). A published entry
// lives while the place holds it or somebody runs it (EntryRef). Threads: all members need the GIL.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/cpython/decode.h"
#include "trace/trace.h"

namespace reprise::entry {
class Entry;
}
namespace reprise::guards {
class Dispatcher;
}

namespace reprise::runtime {

class CodePlaces;
class CompileContext;
class Place;

/// An entry and what happened to it since it was published. Counted by hand: the GIL is held wherever one is touched.
class PublishedEntry {
 public:
  PublishedEntry(Place& place, std::unique_ptr<entry::Entry> entry, int32_t serial, std::string why);

  entry::Entry& entry() { return *entry_; }
  /// Another entry of the same trace takes over. Nobody may be running the old one.
  void renew(std::unique_ptr<entry::Entry> entry);
  bool is_dropped() const { return place_ == nullptr; }
  /// Null once the entry was dropped.
  Place* place() { return place_; }

  const int32_t serial;   // the n-th entry of its context, from 0
  const std::string why;  // why it was recorded: "first call", the guard that failed, the exit it starts behind
  uint64_t run_count = 0;
  uint64_t last_used = 0;  // CompileContext::clock when it ran last
  /// What goes on where a late guard of this entry fails, by index in Trace::guards; -2 - index: in front of the region
  /// that the guard refused.
  struct Branch {
    int32_t guard;
    int32_t snapshot;  // where it begins: in front of the guard, or of a region
    std::unique_ptr<Place> place;
  };
  const std::vector<Branch>& branches() const { return branches_; }
  Place* find_branch(int32_t guard, int32_t snapshot) const;
  /// Null: the context has too many branches, or the entry is out of service.
  Place* make_branch(int32_t guard, int32_t snapshot);
  int32_t depth = 0;            // runs under way
  bool is_end_planned = false;  // the places behind its end have been made

 private:
  friend class EntryRef;
  friend class Place;
  ~PublishedEntry();

  std::unique_ptr<entry::Entry> entry_;
  std::vector<Branch> branches_;
  Place* place_;
  int32_t reference_count_ = 0;
};

/// A strong reference to a PublishedEntry.
class EntryRef {
 public:
  EntryRef() = default;
  explicit EntryRef(PublishedEntry* entry) : entry_(entry) {
    if (entry_ != nullptr) ++entry_->reference_count_;
  }
  EntryRef(const EntryRef& other) : EntryRef(other.entry_) {}
  EntryRef(EntryRef&& other) noexcept : entry_(other.entry_) { other.entry_ = nullptr; }
  EntryRef& operator=(EntryRef other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~EntryRef() {
    if (entry_ != nullptr && --entry_->reference_count_ == 0) delete entry_;
  }

  PublishedEntry* get() const { return entry_; }
  PublishedEntry* operator->() const { return entry_; }
  PublishedEntry& operator*() const { return *entry_; }
  explicit operator bool() const { return entry_ != nullptr; }

 private:
  PublishedEntry* entry_ = nullptr;
};

class Place {
 public:
  static constexpr int kMaxFailures = 2;
  static constexpr int32_t kBranchUnit = -1;

  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  CompileContext& context() const;
  PyCodeObject* code() const;
  int32_t unit() const { return unit_; }
  /// Behind a late guard of an entry, with all its frames: at no boundary of one code object.
  bool is_branch() const { return unit_ == kBranchUnit; }
  /// The n-th place of its context, from 0.
  int32_t serial() const { return serial_; }
  bool is_call_entry() const { return unit_ == 0; }
  /// In the order of publication, newest first.
  const std::vector<EntryRef>& entries() const { return entries_; }
  /// What took other sizes or values in calls that missed. Grows until reset().
  const trace::VaryingSources& varying() const { return varying_; }
  /// These arguments missed: where only sizes and ints keep them from an entry, the next recording leaves them open.
  void learn_varying(PyObject* const* args);
  /// Which of many entries may fit; null for fewer than two.
  guards::Dispatcher* find_dispatcher() const { return dispatcher_.get(); }
  /// Nothing to look up and nothing to record: a driven frame need not stop here.
  bool is_idle() const { return entries_.empty() && !is_wanted_; }
  bool is_wanted() const { return is_wanted_; }

  // ---- recording
  /// Asks for recordings on misses from now on. The first reason stays. No-op for a blacklisted place.
  void want_recording(std::string why);
  /// Whether this miss is to be recorded. Counts what it refuses.
  bool should_record();
  /// Called by the driver when it starts to record here, with the reason that the new entry will carry.
  void note_recording_started();
  /// Called by the driver when the recording gave no entry and the next call is to be recorded instead.
  void note_recording_put_off();
  /// Called by the driver when the recording gave no entry; `text` is for explain.
  void note_recording_failed(std::string text);
  /// Takes an entry into service; evicts the least recently used one above max_entries. Called by the driver.
  /// An entry that is of no use counts as a failed recording and is refused: one that ends where it began, and, inside
  /// a function, one that calls nothing of PyTorch (interpreting is as quick).
  void publish(std::unique_ptr<entry::Entry> entry);

  // ---- entries
  /// Called on every run of an entry of this place.
  void note_run(PublishedEntry& entry);
  /// Takes an entry out of service: an object it depends on has died, validation refused it. No-op when it is out.
  void drop(PublishedEntry& entry);
  /// Drops all entries and forgets all that was learned. The place stays usable.
  void reset();

  // ---- facts, for explain too
  bool is_root = false;      // the start of a compiled callable's own function
  std::string why;           // why recordings are wanted, then why the last one was made
  std::string last_failure;  // of the last recording without an entry
  int attempts = 0;
  int failures = 0;             // in a row
  bool is_blacklisted = false;  // failed kMaxFailures times in a row
  uint64_t misses = 0;
  uint32_t exits = 0;  // exits that ended at this boundary

 private:
  friend class CodePlaces;
  friend class PublishedEntry;
  Place(CodePlaces& owner, int32_t unit, int32_t serial);
  void update_activity();
  void update_dispatcher();

  CodePlaces& owner_;
  const int32_t unit_;
  const int32_t serial_;
  std::vector<EntryRef> entries_;
  std::unique_ptr<guards::Dispatcher> dispatcher_;
  trace::VaryingSources varying_;
  bool is_wanted_ = false;
  bool is_active_ = false;          // what the owner has been told
  uint32_t unused_recordings_ = 0;  // recordings whose entries have not run; halved when one runs first
  uint64_t misses_since_recording_ = 0;
};

/// The places of one context in one code object, and the back edges counted there.
class CodePlaces {
 public:
  CodePlaces(CompileContext& context, PyCodeObject* code, host::CodeInfo* info);
  ~CodePlaces();
  CodePlaces(const CodePlaces&) = delete;
  CodePlaces& operator=(const CodePlaces&) = delete;

  CompileContext& context() const { return context_; }
  PyCodeObject* code() const { return code_; }
  host::CodeInfo* info() const { return info_; }
  const std::vector<std::unique_ptr<Place>>& places() const { return places_; }
  /// Some place here is not idle: frames of the code are to be driven.
  bool is_active() const { return active_count_ > 0; }
  Place* find(int32_t unit) const;
  Place& get(int32_t unit);
  /// Counts a backward jump to `unit` taken in plain mode; returns how many there were.
  uint32_t count_back_edge(int32_t unit);
  void forget_back_edges() { back_edges_.clear(); }

 private:
  friend class Place;
  void set_active(Place& place, bool active);

  CompileContext& context_;
  PyCodeObject* code_;  // strong, so that `info_` lives
  host::CodeInfo* info_;
  std::vector<std::unique_ptr<Place>> places_;  // by unit
  std::vector<std::pair<int32_t, uint32_t>> back_edges_;
  int32_t active_count_ = 0;
};

}  // namespace reprise::runtime
