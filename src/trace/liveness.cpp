// Liveness in two phases.
//
// 1. What is live. Roots and everything they use; an allocation that is used brings the mutations attached to it. What
//    snapshots need is followed *through* allocations (they stay sunk) and makes only other late values live. Each
//    value and each frame state is followed once, without looking at when a mutation was recorded: that can only make a
//    Python operation live that no exit needs in the end.
// 2. Until when. A position is an item index. Snapshots are followed from the last one back, so that a value or a frame
//    state that was reached before needs no second look: it is needed until later. The one exception are stores that a
//    later store overwrites: their value is needed by the snapshots between the two, which is a separate event at the
//    position of the last of these. Events are taken by falling position, so both rules meet.
#include "trace/liveness.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "base/check.h"
#include "trace/regions.h"

namespace reprise::trace {

namespace {

bool is_sinkable(const Trace& trace, ValueId id) { return trace.category(id) == Category::Alloc; }

class Analysis {
 public:
  Analysis(const Trace& trace, const RegionPlan* regions) : trace_(trace), regions_(regions) {}

  Liveness run() {
    const size_t count = trace_.values.size();
    result_.is_live.assign(count, 0);
    result_.last_use.assign(count, kNeverUsed);
    attach_mutations();
    find_overwritten();
    is_followed_.assign(count, 0);
    is_frame_followed_.assign(trace_.frame_states.size(), 0);
    find_live_values();
    find_last_uses();
    return std::move(result_);
  }

 private:
  // ---- mutations by allocation

  void attach_mutations() {
    allocation_of_.assign(trace_.values.size(), kNoValue);
    std::vector<uint32_t>& first = result_.first_mutation;
    first.assign(trace_.values.size() + 1, 0);
    for (const Item& item : trace_.items) {
      if (item.guard >= 0 || trace_.category(item.value) != Category::Mutate) continue;
      const ValueId allocation = find_allocation(trace_, trace_.operands(item.value)[0]);
      allocation_of_[item.value] = allocation;
      if (allocation != kNoValue) first[allocation + 1]++;
    }
    for (size_t i = 1; i < first.size(); i++) first[i] += first[i - 1];
    result_.mutations.resize(first.back());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (const Item& item : trace_.items) {
      if (item.guard >= 0 || allocation_of_[item.value] == kNoValue) continue;
      result_.mutations[next[allocation_of_[item.value]]++] = item.value;
    }
  }

  // ---- stores that later stores overwrite

  // Whether building `user` looks into its operand `index`, instead of only keeping it.
  bool looks_into(const Value& user, size_t index) const {
    switch (user.kind) {
      case NodeKind::MutatorCall:
        return index > 0;
      case NodeKind::Object:
      case NodeKind::Iterator:
      case NodeKind::Set:
        return true;
      case NodeKind::Tuple:
        return user.object != nullptr;
      case NodeKind::Dict:
        return index % 2 == 0;
      case NodeKind::SetItem:
        return index == 1;
      default:
        return false;
    }
  }

  void find_overwritten() {
    std::vector<uint8_t> is_looked_into(trace_.values.size(), 0);
    for (const Item& item : trace_.items) {
      if (item.guard >= 0) continue;
      const std::span<const ValueId> operands = trace_.operands(item.value);
      for (size_t i = 0; i < operands.size(); i++) {
        if (operands[i] < 0 || !looks_into(trace_.values[item.value], i)) continue;
        is_looked_into[operands[i]] = 1;
        // An instance dict shows its object.
        if (const ValueId allocation = find_allocation(trace_, operands[i]); allocation >= 0)
          is_looked_into[allocation] = 1;
      }
    }
    result_.overwritten_by.assign(result_.mutations.size(), -1);
    for (const Item& item : trace_.items) {
      if (item.guard >= 0 || is_looked_into[item.value]) continue;
      const uint32_t begin = result_.first_mutation[item.value], end = result_.first_mutation[item.value + 1];
      if (end - begin > 1) find_overwritten_of(item.value, begin, end);
    }
  }

  void find_overwritten_of(ValueId allocation, uint32_t begin, uint32_t end) {
    const bool is_dict = trace_.values[allocation].kind == NodeKind::Dict;
    for (uint32_t row = begin; row < end; row++) {
      const ValueId id = result_.mutations[row];
      switch (trace_.values[id].kind) {
        case NodeKind::SetItem:
          if (!is_dict || trace_.values[trace_.operands(id)[1]].kind != NodeKind::Const) return;
          break;
        case NodeKind::DeleteItem:
        case NodeKind::DeleteAttribute:
        case NodeKind::MutatorCall:
          return;
        default:
          break;
      }
    }
    int32_t last_cell = -1, last_suspend = -1;
    std::unordered_map<PyObject*, int32_t> last_store;  // by attribute name or key
    for (uint32_t row = begin; row < end; row++) {
      const ValueId id = result_.mutations[row];
      const Value& value = trace_.values[id];
      int32_t* last = nullptr;
      if (value.kind == NodeKind::SetCell) last = &last_cell;
      if (value.kind == NodeKind::Suspend) last = &last_suspend;
      if (value.kind == NodeKind::SetAttribute) last = &last_store.try_emplace(value.object, -1).first->second;
      if (value.kind == NodeKind::SetItem) {
        last = &last_store.try_emplace(trace_.values[trace_.operands(id)[1]].object, -1).first->second;
      }
      if (last == nullptr) continue;
      if (*last >= 0) result_.overwritten_by[*last] = static_cast<int32_t>(row);
      *last = static_cast<int32_t>(row);
    }
  }

  bool is_dict_of_allocation(ValueId id) const {
    return trace_.values[id].kind == NodeKind::InstanceDict && find_allocation(trace_, id) != kNoValue;
  }

  bool is_effect(ValueId id) const { return trace_.category(id) == Category::Mutate && allocation_of_[id] == kNoValue; }

  // ---- regions

  const Region* find_region(ValueId id) const {
    const int32_t item = trace_.values[id].item;
    if (regions_ == nullptr || item < 0 || regions_->region_of[item] < 0) return nullptr;
    return &regions_->regions[regions_->region_of[item]];
  }
  // A guard that its region decides.
  bool is_inside_region(const Item& item) const {
    return regions_ != nullptr && regions_->region_of[static_cast<size_t>(&item - trace_.items.data())] >= 0;
  }
  bool is_deferred(ValueId id) const {
    const int32_t item = trace_.values[id].item;
    return regions_ != nullptr && item >= 0 && regions_->deferred_of[item] >= 0;
  }
  bool is_hidden(ValueId id) const {
    return regions_ != nullptr && !regions_->is_overwritten.empty() &&
           regions_->is_overwritten[static_cast<size_t>(trace_.values[id].item)] != 0;
  }
  // It exits to the region's snapshot, which is there until the region has run.
  bool is_in_front(int32_t item) const { return regions_ != nullptr && regions_->region_in_front_of(item) >= 0; }
  // It fails by taking its group back, to that snapshot.
  bool is_group_step(int32_t item) const { return regions_ != nullptr && regions_->step_region(item) >= 0; }
  int32_t position_of(int32_t item) const { return regions_ == nullptr ? item : regions_->position_of(item); }

  // ---- phase 1

  void find_live_values() {
    for (const Item& item : trace_.items) {
      if (item.guard >= 0) {
        const Guard& guard = trace_.guards[item.guard];
        if (trace_.values[guard.value].is_pre || is_inside_region(item)) continue;
        mark_live(guard.value);
        if (guard.fact == FactKind::Same || guard.fact == FactKind::Different) mark_live(static_cast<ValueId>(guard.n));
        const auto index = static_cast<int32_t>(&item - trace_.items.data());
        if (!is_in_front(index) && !is_group_step(index)) follow_snapshot(guard.snapshot);
        continue;
      }
      switch (trace_.category(item.value)) {
        case Category::Tensor:
        case Category::State:
        case Category::Sync:
          mark_live(item.value);
          break;
        case Category::Mutate:
          if (is_effect(item.value) && !is_hidden(item.value)) mark_live(item.value);
          break;
        case Category::Root:
        case Category::Read:
        case Category::Py:
        case Category::Alloc:
          break;
      }
    }
    if (trace_.end == EndKind::Return) {
      mark_live(trace_.result);
    } else {
      follow_snapshot(trace_.end_snapshot);
    }
    drain();
  }

  void mark_live(ValueId id) {
    if (id == kNoValue || result_.is_live[id]) return;
    result_.is_live[id] = 1;
    live_queue_.push_back(id);
  }

  void follow_snapshot(int32_t index) {
    if (index < 0) return;
    const Snapshot& snapshot = trace_.snapshots[index];
    follow(snapshot.handled_exception);
    for (int32_t frame = snapshot.frame; frame >= 0 && !is_frame_followed_[frame];) {
      is_frame_followed_[frame] = 1;
      for_each_value(trace_.frame_states[frame], [&](ValueId id) { follow(id); });
      frame = trace_.frame_states[frame].caller;
    }
  }

  template <class Function>
  void for_each_mutation(ValueId allocation, Function function) const {
    for (uint32_t row = result_.first_mutation[allocation]; row < result_.first_mutation[allocation + 1]; row++) {
      function(result_.mutations[row]);
    }
  }

  template <class Function>
  static void for_each_value(const FrameState& state, Function function) {
    for (ValueId id : state.slots) function(id);
    function(state.mode_value);
    function(state.function_value);
    function(state.generator_value);
  }

  void follow(ValueId id) {
    if (id == kNoValue || is_followed_[id]) return;
    is_followed_[id] = 1;
    follow_queue_.push_back(id);
  }

  void drain() {
    while (!live_queue_.empty() || !follow_queue_.empty()) {
      if (!live_queue_.empty()) {
        const ValueId id = live_queue_.back();
        live_queue_.pop_back();
        expand_live(id);
      } else {
        const ValueId id = follow_queue_.back();
        follow_queue_.pop_back();
        expand_followed(id);
      }
    }
  }

  void expand_live(ValueId id) {
    const Value& value = trace_.values[id];
    if (value.is_pre) return;  // the guard program reads it, with all its operands
    if (const Region* region = find_region(id)) {
      for (ValueId input : region->tensors) mark_live(input);
      for (ValueId input : region->numbers) mark_live(input);
      follow_snapshot(region->snapshot);
      return;
    }
    if (is_deferred(id)) {
      for (ValueId operand : trace_.operands(id)) mark_live(operand);
      for_each_mutation(id, [&](ValueId mutation) { mark_live(mutation); });
      return;
    }
    for (ValueId operand : trace_.operands(id)) mark_live(operand);
    for_each_mutation(id, [&](ValueId mutation) { mark_live(mutation); });
    if (!is_in_front(value.item) && !is_group_step(value.item)) follow_snapshot(value.snapshot);
  }

  void expand_followed(ValueId id) {
    if (is_sinkable(trace_, id)) {
      for (ValueId operand : trace_.operands(id)) follow(operand);
      for_each_mutation(id,
                        [&](ValueId mutation) { for_each_needed(mutation, [&](ValueId needed) { follow(needed); }); });
    } else if (trace_.category(id) == Category::Mutate && allocation_of_[id] != kNoValue) {
      follow(allocation_of_[id]);  // the result of a mutation of a sunk object: the exit repeats both
    } else if (is_dict_of_allocation(id)) {
      follow(trace_.operands(id)[0]);
    } else {
      mark_live(id);
    }
  }

  // ---- phase 2

  /// A place where a snapshot may be needed.
  struct SnapshotUse {
    int32_t position = 0;
    int32_t snapshot = -1;
    int32_t bound = 0;  // mutations recorded before this item are seen; made to never fall
  };
  /// `id` is needed by the exit at `position`, whose snapshot was taken in front of item `bound`.
  struct Event {
    int32_t position = 0;
    int32_t bound = 0;
    ValueId id = kNoValue;
    bool operator<(const Event& other) const { return position < other.position; }
  };

  void note_use(ValueId id, int32_t position) {
    if (id != kNoValue) result_.last_use[id] = std::max(result_.last_use[id], position);
  }

  void find_last_uses() {
    std::vector<SnapshotUse>& uses = snapshot_uses_;
    for (size_t i = 0; i < trace_.items.size(); i++) {
      const Item& item = trace_.items[i];
      const auto position = static_cast<int32_t>(i);
      if (item.guard >= 0) {
        const Guard& guard = trace_.guards[item.guard];
        if (trace_.values[guard.value].is_pre || is_inside_region(item)) continue;
        const int32_t checked_at = position_of(position);
        note_use(guard.value, checked_at);
        if (guard.fact == FactKind::Same || guard.fact == FactKind::Different)
          note_use(static_cast<ValueId>(guard.n), checked_at);
        if (!is_in_front(position) && !is_group_step(position))
          uses.push_back({position, guard.snapshot, trace_.snapshots[guard.snapshot].item});
      } else if (const Region* region = find_region(item.value)) {
        if (region->first_item != position) continue;
        for (ValueId input : region->tensors) note_use(input, region->last_item);
        for (ValueId input : region->numbers) note_use(input, region->last_item);
        uses.push_back({region->last_item, region->snapshot, trace_.snapshots[region->snapshot].item});
      } else if (result_.is_live[item.value] && (is_deferred(item.value) || is_group_step(position))) {
        for (ValueId operand : trace_.operands(item.value)) note_use(operand, position_of(position));
        note_use(item.value, position_of(position));
      } else if (result_.is_live[item.value] && !trace_.values[item.value].is_pre) {
        for (ValueId operand : trace_.operands(item.value)) note_use(operand, position);
        note_use(item.value, position);
        // An error exit shows all that happened before, also within the instruction that raised.
        if (trace_.values[item.value].snapshot >= 0 && !is_in_front(position))
          uses.push_back({position, trace_.values[item.value].snapshot, position});
      }
    }
    if (trace_.end == EndKind::Return) {
      note_use(trace_.result, kUsedAtEnd);
    } else {
      uses.push_back({kUsedAtEnd, trace_.end_snapshot, trace_.snapshots[trace_.end_snapshot].item});
    }
    prepare_bounds();

    is_followed_.assign(trace_.values.size(), 0);
    is_frame_followed_.assign(trace_.frame_states.size(), 0);
    for (size_t i = uses.size(); i-- > 0;) {
      take_events_above(uses[i].position);
      reach_snapshot(uses[i]);
    }
    take_events_above(-1);
  }

  // Bounds need not be sorted by position: "the last use whose bound is at most b" is a prefix maximum over uses sorted
  // by bound.
  void prepare_bounds() {
    int32_t largest = 0;
    use_by_bound_.reserve(snapshot_uses_.size());
    for (SnapshotUse& use : snapshot_uses_) {
      use_by_bound_.push_back({use.bound, use.position});
      largest = std::max(largest, use.bound);
      use.bound = largest;
    }
    std::sort(use_by_bound_.begin(), use_by_bound_.end(),
              [](const BoundUse& a, const BoundUse& b) { return a.bound < b.bound; });
    for (size_t i = 1; i < use_by_bound_.size(); i++) {
      use_by_bound_[i].position = std::max(use_by_bound_[i].position, use_by_bound_[i - 1].position);
    }
  }

  void reach_snapshot(const SnapshotUse& use) {
    const Snapshot& snapshot = trace_.snapshots[use.snapshot];
    reach(snapshot.handled_exception, use.position, use.bound);
    for (int32_t frame = snapshot.frame; frame >= 0 && !is_frame_followed_[frame];) {
      is_frame_followed_[frame] = 1;
      for_each_value(trace_.frame_states[frame], [&](ValueId id) { reach(id, use.position, use.bound); });
      frame = trace_.frame_states[frame].caller;
    }
  }

  void take_events_above(int32_t position) {
    while (!events_.empty() && events_.top().position >= position) {
      const Event event = events_.top();
      events_.pop();
      reach(event.id, event.position, event.bound);
    }
  }

  void reach(ValueId id, int32_t position, int32_t bound) {
    if (id == kNoValue) return;
    reach_queue_.push_back(id);
    while (!reach_queue_.empty()) {
      const ValueId next = reach_queue_.back();
      reach_queue_.pop_back();
      if (next == kNoValue || is_followed_[next]) continue;
      is_followed_[next] = 1;
      if (result_.is_live[next]) {
        note_use(next, position);
      } else if (is_sinkable(trace_, next)) {
        reach_sunk(next, position, bound);
      } else if (trace_.category(next) == Category::Mutate && allocation_of_[next] != kNoValue) {
        reach_queue_.push_back(allocation_of_[next]);
      } else if (is_dict_of_allocation(next)) {
        reach_queue_.push_back(trace_.operands(next)[0]);
      }
    }
  }

  void reach_sunk(ValueId id, int32_t position, int32_t bound) {
    for (ValueId operand : trace_.operands(id)) reach_queue_.push_back(operand);
    for (uint32_t row = result_.first_mutation[id]; row < result_.first_mutation[id + 1]; row++) {
      const ValueId mutation = result_.mutations[row];
      const int32_t stored_at = trace_.values[mutation].item;
      if (stored_at >= bound) break;
      int32_t until = position;
      int32_t until_bound = bound;
      if (const int32_t other = result_.overwritten_by[row]; other >= 0) {
        const int32_t overwritten_at = trace_.values[result_.mutations[other]].item;
        if (overwritten_at < bound && !find_last_use_between(stored_at, overwritten_at, &until, &until_bound)) continue;
      }
      for_each_needed(mutation, [&](ValueId needed) {
        if (until == position) {
          reach_queue_.push_back(needed);
        } else if (needed != kNoValue && !is_followed_[needed]) {
          events_.push({until, until_bound, needed});
        }
      });
    }
  }

  template <class Function>
  void for_each_needed(ValueId mutation, Function function) const {
    for (ValueId operand : trace_.operands(mutation)) function(operand);
    const Value& value = trace_.values[mutation];
    if (value.kind == NodeKind::Suspend && value.n >= 0) for_each_value(trace_.frame_states[value.n], function);
  }

  // The last place whose snapshot was taken between the two items.
  bool find_last_use_between(int32_t stored_at, int32_t overwritten_at, int32_t* position, int32_t* bound) const {
    auto after = std::upper_bound(use_by_bound_.begin(), use_by_bound_.end(), overwritten_at,
                                  [](int32_t limit, const BoundUse& use) { return limit < use.bound; });
    if (after == use_by_bound_.begin()) return false;
    --after;
    if (after->bound <= stored_at) return false;
    *position = std::min(*position, after->position);
    *bound = after->bound;
    return true;
  }

  const Trace& trace_;
  const RegionPlan* regions_;
  Liveness result_;
  std::vector<ValueId> allocation_of_;  // of mutations
  std::vector<uint8_t> is_followed_;    // phase 1: through snapshots; phase 2: reached
  std::vector<uint8_t> is_frame_followed_;
  std::vector<ValueId> live_queue_, follow_queue_, reach_queue_;
  std::vector<SnapshotUse> snapshot_uses_;  // by position
  struct BoundUse {
    int32_t bound, position;
  };
  std::vector<BoundUse> use_by_bound_;
  std::priority_queue<Event> events_;
};

}  // namespace

ValueId find_allocation(const Trace& trace, ValueId target) {
  ValueId id = target;
  while (id >= 0 && trace.values[id].kind == NodeKind::InstanceDict) id = trace.operands(id)[0];
  return id >= 0 && trace.category(id) == Category::Alloc ? id : kNoValue;
}

Liveness compute_liveness(const Trace& trace, const RegionPlan* regions) { return Analysis(trace, regions).run(); }

}  // namespace reprise::trace
