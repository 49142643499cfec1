#include "runtime/place.h"

#include <algorithm>
#include <utility>

#include "entry/entry.h"
#include "guards/dispatcher.h"
#include "runtime/compile_context.h"
#include "runtime/plan_places.h"

namespace reprise::runtime {
namespace {

// Recordings whose entries have not run yet that are free; behind them the n-th waits for 2^n misses.
constexpr uint32_t kFreeRecordings = 8;
constexpr uint32_t kMaxWaitBits = 12;
// Branches of one context: a loop that ends anew at each call would make them for ever.
constexpr int32_t kMaxBranches = 256;

// Several contexts may watch one instruction: how many do, by instruction, in the CodeInfo.
using WatchCounts = std::vector<uint32_t>;

void change_watch_count(host::CodeInfo* info, int32_t index, int change) {
  if (info->client == nullptr) {
    info->client = new WatchCounts(info->instruction_count);
    info->delete_client = [](void* client) { delete static_cast<WatchCounts*>(client); };
  }
  uint32_t& count = (*static_cast<WatchCounts*>(info->client))[index];
  count += change;
  host::set_watched(info, index, count > 0);
}

#ifdef REPRISE_NO_TORCH
constexpr bool kHasTorch = false;
#else
constexpr bool kHasTorch = true;
#endif

bool calls_torch(const entry::Entry& entry) {
  for (const entry::Step& step : entry.steps()) {
    if (step.is_guard) continue;
    if (step.region >= 0) return true;
    const trace::Category category = trace::category_of(static_cast<trace::NodeKind>(step.kind));
    if (category == trace::Category::Tensor || category == trace::Category::Sync) return true;
  }
  return false;
}

bool ends_where_it_began(const trace::Trace& trace) {
  if (trace.end != trace::EndKind::Exit || trace.is_call_entry) return false;
  if (!trace.branch_frames.empty()) return trace.snapshots[trace.end_snapshot].item == 0;
  const trace::FrameState& innermost = trace.frame_states[trace.snapshots[trace.end_snapshot].frame];
  return innermost.caller < 0 && innermost.unit == trace.unit && !is_cut(trace);
}

}  // namespace

PublishedEntry::PublishedEntry(Place& place, std::unique_ptr<entry::Entry> entry, int32_t serial, std::string why)
    : serial(serial), why(std::move(why)), entry_(std::move(entry)), place_(&place) {}

PublishedEntry::~PublishedEntry() = default;

void PublishedEntry::renew(std::unique_ptr<entry::Entry> entry) {
  std::unique_ptr<entry::Entry> old = std::exchange(entry_, std::move(entry));
  entry_->statistics = old->statistics;
  if (place_ != nullptr) place_->update_dispatcher();
}

Place* PublishedEntry::find_branch(int32_t guard, int32_t snapshot) const {
  for (const Branch& branch : branches_) {
    if (branch.guard == guard && branch.snapshot == snapshot) return branch.place.get();
  }
  return nullptr;
}

Place* PublishedEntry::make_branch(int32_t guard, int32_t snapshot) {
  if (place_ == nullptr) return nullptr;
  CompileContext& context = place_->context();
  if (context.branch_count >= kMaxBranches) return nullptr;
  ++context.branch_count;
  branches_.push_back(
      {guard, snapshot,
       std::unique_ptr<Place>(new Place(place_->owner_, Place::kBranchUnit, context.take_place_serial()))});
  return branches_.back().place.get();
}

Place::Place(CodePlaces& owner, int32_t unit, int32_t serial) : owner_(owner), unit_(unit), serial_(serial) {}

Place::~Place() { reset(); }

CompileContext& Place::context() const { return owner_.context(); }

PyCodeObject* Place::code() const { return owner_.code(); }

void Place::update_activity() {
  if (is_branch()) return;
  if (is_active_ == is_idle()) {
    is_active_ = !is_active_;
    owner_.set_active(*this, is_active_);
  }
}

void Place::update_dispatcher() {
  if (entries_.size() < 2) {
    dispatcher_.reset();
    return;
  }
  if (dispatcher_ == nullptr) dispatcher_ = std::make_unique<guards::Dispatcher>();
  std::vector<guards::GuardProgram*> programs;
  for (const EntryRef& ref : entries_) programs.push_back(&ref->entry().guards());
  dispatcher_->rebuild(programs);
}

void Place::want_recording(std::string reason) {
  if (is_wanted_ || is_blacklisted) return;
  is_wanted_ = true;
  why = std::move(reason);
  update_activity();
}

bool Place::should_record() {
  if (!is_wanted_) {
    if (is_blacklisted) ++context().statistics.refused_recordings;
    return false;
  }
  ++misses_since_recording_;
  if (unused_recordings_ > kFreeRecordings) {
    uint32_t wait_bits = std::min(unused_recordings_ - kFreeRecordings, kMaxWaitBits);
    if (misses_since_recording_ < uint64_t{1} << wait_bits) {
      ++context().statistics.refused_recordings;
      return false;
    }
  }
  return true;
}

void Place::note_recording_started() {
  ++attempts;
  ++unused_recordings_;
  misses_since_recording_ = 0;
  ++context().statistics.recordings;
}

void Place::note_recording_put_off() {
  if (unused_recordings_ > 0) --unused_recordings_;
}

void Place::note_recording_failed(std::string text) {
  ++context().statistics.failed_recordings;
  last_failure = std::move(text);
  if (++failures >= kMaxFailures) {
    is_blacklisted = true;
    is_wanted_ = false;
    update_activity();
  }
}

void Place::publish(std::unique_ptr<entry::Entry> entry) {
  CompileContext& owner = context();
  if (ends_where_it_began(entry->trace())) {
    failures = kMaxFailures;
    note_recording_failed("nothing could be recorded here: " + entry->trace().end_text);
    return;
  }
  if (!is_root && !is_branch() && !owner.options.keep_plain_entries && kHasTorch && !calls_torch(*entry)) {
    note_recording_failed("nothing of PyTorch is called from here");
    return;
  }
  EntryRef published(new PublishedEntry(*this, std::move(entry), owner.take_serial(), why));
  published->last_used = ++owner.clock;
  failures = 0;
  ++owner.statistics.published_entries;
  if (entries_.size() >= static_cast<size_t>(owner.options.max_entries)) {
    auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                   [](const EntryRef& a, const EntryRef& b) { return a->last_used < b->last_used; });
    ++owner.statistics.evicted_entries;
    EntryRef evicted = *oldest;
    evicted->place_ = nullptr;
    entries_.erase(oldest);
  }
  entries_.insert(entries_.begin(), published);
  update_dispatcher();
  update_activity();
}

void Place::learn_varying(PyObject* const* args) {
  constexpr size_t kMaxEntries = 8;
  if (!is_wanted_ || is_blacklisted || unused_recordings_ > kFreeRecordings) return;
  std::vector<guards::GuardProgram::Varying> found;
  for (size_t i = 0; i < entries_.size() && i < kMaxEntries; i++) {
    guards::GuardProgram& guards = entries_[i]->entry().guards();
    found.clear();
    if (!guards.find_varying(args, &found)) continue;
    for (const guards::GuardProgram::Varying& one : found) {
      varying_.found[trace::describe_value(guards.trace(), one.value)] |= one.dimensions;
    }
    return;
  }
}

void Place::note_run(PublishedEntry& entry) {
  if (entry.run_count++ == 0) unused_recordings_ /= 2;
  entry.last_used = ++context().clock;
}

void Place::drop(PublishedEntry& entry) {
  if (entry.place_ != this) return;
  EntryRef keep(&entry);
  entry.place_ = nullptr;
  std::erase_if(entries_, [&](const EntryRef& ref) { return ref.get() == &entry; });
  ++context().statistics.dropped_entries;
  update_dispatcher();
  update_activity();
}

void Place::reset() {
  // Freeing an entry may run Python code, which may look at this place.
  std::vector<EntryRef> dropped = std::move(entries_);
  entries_.clear();
  dispatcher_.reset();
  for (EntryRef& ref : dropped) ref->place_ = nullptr;
  context().statistics.dropped_entries += dropped.size();
  is_wanted_ = false;
  is_blacklisted = false;
  attempts = failures = 0;
  exits = 0;
  misses = misses_since_recording_ = 0;
  unused_recordings_ = 0;
  varying_ = {};
  why.clear();
  last_failure.clear();
  update_activity();
}

CodePlaces::CodePlaces(CompileContext& context, PyCodeObject* code, host::CodeInfo* info)
    : context_(context), code_(code), info_(info) {
  Py_INCREF(code);
}

CodePlaces::~CodePlaces() {
  places_.clear();
  Py_DECREF(code_);
}

Place* CodePlaces::find(int32_t unit) const {
  auto found = std::lower_bound(places_.begin(), places_.end(), unit,
                                [](const std::unique_ptr<Place>& place, int32_t key) { return place->unit() < key; });
  return found != places_.end() && (*found)->unit() == unit ? found->get() : nullptr;
}

Place& CodePlaces::get(int32_t unit) {
  auto found = std::lower_bound(places_.begin(), places_.end(), unit,
                                [](const std::unique_ptr<Place>& place, int32_t key) { return place->unit() < key; });
  if (found == places_.end() || (*found)->unit() != unit) {
    found = places_.insert(found, std::unique_ptr<Place>(new Place(*this, unit, context_.next_place_serial_++)));
  }
  return **found;
}

uint32_t CodePlaces::count_back_edge(int32_t unit) {
  for (auto& [target, count] : back_edges_) {
    if (target == unit) return ++count;
  }
  back_edges_.emplace_back(unit, 1);
  return 1;
}

void CodePlaces::set_active(Place& place, bool active) {
  int change = active ? 1 : -1;
  active_count_ += change;
  context_.active_place_count_ += change;
  int32_t index = info_->find_index(place.unit());
  if (index >= 0 && !place.is_call_entry()) change_watch_count(info_, index, change);
}

}  // namespace reprise::runtime
