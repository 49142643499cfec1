// From a trace to an entry: liveness, the guard program, and the live late items as flat steps over slots.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "entry/entry.h"
#include "entry/exit_program.h"

namespace reprise::entry {

using trace::Category;
using trace::FactKind;
using trace::kNeverUsed;
using trace::kNoValue;
using trace::kUsedAtEnd;
using trace::NodeKind;
using trace::ValueId;

class EntryBuilder {
 public:
  EntryBuilder(std::unique_ptr<trace::Trace> trace, const trace::RegionOptions& regions)
      : entry_(new Entry()), trace_(*trace), region_options_(regions) {
    entry_->trace_ = std::move(trace);
    entry_->region_options = regions;
  }

  std::unique_ptr<Entry> build(std::string* reason) {
    if (std::string error = run(); !error.empty()) {
      if (reason != nullptr) *reason = std::move(error);
      return nullptr;
    }
    return std::move(entry_);
  }

 private:
  std::string run() {
    if (std::string error = trace::verify_trace(trace_); !error.empty()) return "broken trace: " + error;
    entry_->liveness_ = trace::compute_liveness(trace_);
    if (region_options_.min_nodes > 0) plan_regions();
    if (std::string error = find_unsupported(); !error.empty()) return error;
    assign_early_slots();
    if (std::string error = entry_->guards_.build(trace_, kept_); !error.empty()) return error;
    sort_by_last_use();
    for (size_t i = 0; i < trace_.items.size(); i++) add_item(static_cast<int32_t>(i));
    entry_->slot_count_ = next_slot_;
    for (int32_t& operand : entry_->operands_) {
      if (operand < 0) operand = next_slot_;
    }
    if (trace_.end == trace::EndKind::Return) entry_->result_slot_ = entry_->slot_of_value_[trace_.result];
    return "";
  }

  // A node whose value leaves its region and is no tensor becomes a step of its own, and the rest is planned anew.
  void plan_regions() {
    constexpr int kTries = 4;
    trace::RegionOptions options = region_options_;
    for (int i = 0; i < kTries && !try_regions(&options); i++) {
    }
  }

  bool try_regions(trace::RegionOptions* options) {
    trace::RegionPlan plan = trace::plan_regions(trace_, entry_->liveness_, *options);
    if (plan.regions.empty()) return true;
    const size_t excluded_before = options->excluded.size();
    trace::Liveness liveness = trace::compute_liveness(trace_, &plan);
    std::vector<RegionStep> steps;
    for (size_t i = 0; i < plan.regions.size(); i++) {
      RegionStep step;
      step.region = static_cast<int32_t>(i);
      for (int32_t item : plan.regions[i].items) {
        const ValueId id = trace_.items[item].value;
        if (plan.region_of[item] != static_cast<int32_t>(i) || liveness.last_use[id] == kNeverUsed) continue;
        const trace::ValueType type = trace_.values[id].type;
        const bool is_tensor = type == trace::ValueType::Tensor || type == trace::ValueType::LateTensor;
        if (!is_tensor) options->excluded.push_back(item);
        step.values.push_back(id);
      }
      steps.push_back(std::move(step));
    }
    if (options->excluded.size() > excluded_before) return false;
    entry_->plan_ = std::move(plan);
    entry_->liveness_ = std::move(liveness);
    entry_->region_steps_ = std::move(steps);
    return true;
  }

  bool is_inside_region(int32_t item) const {
    return !entry_->region_steps_.empty() && entry_->plan_.region_of[item] >= 0;
  }

  bool is_guard_inside_region(const trace::Item& item) const {
    return is_inside_region(static_cast<int32_t>(&item - trace_.items.data()));
  }

  bool is_live(ValueId id) const { return entry_->liveness_.is_live[id] != 0; }

  std::string find_unsupported() const {
    for (const trace::Item& item : trace_.items) {
      if (item.guard >= 0 || !is_live(item.value)) continue;
      const trace::Value& value = trace_.values[item.value];
      if (value.kind == NodeKind::Generator) return "a generator that was made in the trace reaches compiled code";
      // Its position and that of its sources would both be replayed.
      if (value.kind == NodeKind::Iterator) {
        for (ValueId source : trace_.operands(item.value)) {
          if (trace_.values[source].kind == NodeKind::Iterator)
            return "an iterator over iterators reaches compiled code";
        }
      }
    }
    return "";
  }

  // Constants that steps use, and pre values that steps or exits need.
  void assign_early_slots() {
    std::vector<int32_t>& slot_of = entry_->slot_of_value_;
    slot_of.assign(trace_.values.size(), -1);
    std::vector<uint8_t> is_used(trace_.values.size(), 0);
    auto use = [&](ValueId id) {
      if (id != kNoValue) is_used[id] = 1;
    };
    for (const trace::Item& item : trace_.items) {
      if (item.guard >= 0) {
        const trace::Guard& guard = trace_.guards[item.guard];
        if (trace_.values[guard.value].is_pre || is_guard_inside_region(item)) continue;
        if (guard.fact == FactKind::Same || guard.fact == FactKind::Different) use(static_cast<ValueId>(guard.n));
      } else if (is_inside_region(trace_.values[item.value].item)) {
        continue;
      } else if (is_live(item.value) && !trace_.values[item.value].is_pre) {
        for (ValueId operand : trace_.operands(item.value)) use(operand);
      }
    }
    if (trace_.end == trace::EndKind::Return) use(trace_.result);
    for (size_t id = 0; id < trace_.values.size(); id++) {
      if (trace_.values[id].kind != NodeKind::Const || !is_used[id]) continue;
      slot_of[id] = next_slot_++;
      entry_->constants_.push_back(trace_.values[id].object);
    }
    for (size_t id = 0; id < trace_.values.size(); id++) {
      const trace::Value& value = trace_.values[id];
      if (!value.is_pre || value.kind == NodeKind::Const || value.item < 0) continue;
      if (!is_live(static_cast<ValueId>(id)) || entry_->liveness_.last_use[id] == kNeverUsed) continue;
      slot_of[id] = next_slot_++;
      kept_.push_back(static_cast<ValueId>(id));
    }
    entry_->first_late_slot_ = next_slot_;
  }

  void sort_by_last_use() {
    for (size_t id = 0; id < trace_.values.size(); id++) {
      const int32_t last = entry_->liveness_.last_use[id];
      const trace::Value& value = trace_.values[id];
      if (last == kNeverUsed || last == kUsedAtEnd || value.kind == NodeKind::Const ||
          !is_live(static_cast<ValueId>(id)))
        continue;
      dying_.push_back({last, static_cast<ValueId>(id)});
    }
    std::sort(dying_.begin(), dying_.end());
    has_died_in_group_.assign(trace_.values.size(), 0);
  }

  int32_t take_slot() {
    if (free_slots_.empty()) return next_slot_++;
    const int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  // All regions of the group at once, each with the steps behind it, then what was deferred.
  void add_group(int32_t first) {
    const std::vector<trace::Region>& regions = entry_->plan_.regions;
    const int32_t last_item = regions[first].last_item;
    find_last_uses_in_group(first);
    auto end = static_cast<size_t>(first);
    for (; end < regions.size() && regions[end].group == first; end++) {
      add_region(static_cast<int32_t>(end));
      add_group_frees();
      for (int32_t item : regions[end].steps) {
        if (trace_.items[item].guard < 0 && !is_live(trace_.items[item].value)) continue;
        if (!add_step(item)) continue;
        entry_->steps_.back().snapshot = regions[first].snapshot;
        entry_->steps_.back().group = first;
        add_group_frees();
      }
    }
    for (int32_t item : regions[end - 1].deferred) {
      if (!is_live(trace_.items[item].value)) continue;
      add_step(item);
      entry_->steps_.back().snapshot = -1;
    }
    add_frees(last_item);
  }

  // Values that are made and used in the group only die there, too: by the last step (counted in add_group) that needs
  // them.
  void find_last_uses_in_group(int32_t first) {
    const std::vector<trace::Region>& regions = entry_->plan_.regions;
    const int32_t last_item = regions[first].last_item;
    std::unordered_map<ValueId, int32_t> last;
    int32_t count = 0;
    const auto note = [&](ValueId id) {
      if (id != kNoValue) last[id] = count;
    };
    auto end = static_cast<size_t>(first);
    for (; end < regions.size() && regions[end].group == first; end++) {
      for (ValueId id : regions[end].tensors) note(id);
      for (ValueId id : regions[end].numbers) note(id);
      for (ValueId id : entry_->region_steps_[end].values) note(id);
      count++;
      for (int32_t item : regions[end].steps) {
        const trace::Item& step = trace_.items[item];
        if (step.guard < 0 && !is_live(step.value)) continue;
        note(step.value);
        if (step.guard < 0) {
          for (ValueId operand : trace_.operands(step.value)) note(operand);
        } else if (compares(trace_.guards[step.guard])) {
          note(static_cast<ValueId>(trace_.guards[step.guard].n));
        }
        count++;
      }
    }
    for (int32_t item : regions[end - 1].deferred) {
      for (ValueId operand : trace_.operands(trace_.items[item].value)) last.erase(operand);
    }
    group_step_ = 0;
    dying_in_group_.assign(static_cast<size_t>(count), {});
    for (const auto& [id, step] : last) {
      const int32_t item = trace_.values[id].item;
      const bool is_made_here =
          item >= 0 && !trace_.values[id].is_pre &&
          (is_in_group(entry_->plan_.region_of[item], first) || is_in_group(entry_->plan_.step_region(item), first));
      if (is_made_here && entry_->liveness_.last_use[id] == last_item) dying_in_group_[step].push_back(id);
    }
    for (std::vector<ValueId>& ids : dying_in_group_) std::sort(ids.begin(), ids.end());
  }

  bool is_in_group(int32_t region, int32_t first) const {
    return region >= 0 && entry_->plan_.regions[region].group == first;
  }

  static bool compares(const trace::Guard& guard) {
    return guard.fact == FactKind::Same || guard.fact == FactKind::Different;
  }

  void add_group_frees() {
    Step& step = entry_->steps_.back();
    step.frees = static_cast<uint32_t>(entry_->frees_.size());
    for (ValueId id : dying_in_group_[group_step_++]) {
      has_died_in_group_[id] = 1;
      free_slot_of(id, step);
    }
  }

  void add_region(int32_t index) {
    RegionStep& region = entry_->region_steps_[index];
    const trace::Region& plan = entry_->plan_.regions[index];
    Step step;
    step.item = Entry::item_of_region(index);
    step.region = index;
    step.snapshot = plan.snapshot;
    step.operands = static_cast<uint32_t>(entry_->operands_.size());
    for (ValueId id : plan.tensors) entry_->operands_.push_back(slot_of(id));
    for (ValueId id : plan.numbers) entry_->operands_.push_back(slot_of(id));
    step.operand_count = static_cast<uint32_t>(plan.tensors.size() + plan.numbers.size());
    entry_->max_operand_count_ = std::max(entry_->max_operand_count_, step.operand_count);
    for (ValueId id : region.values) {
      region.slots.push_back(take_slot());
      entry_->slot_of_value_[id] = region.slots.back();
    }
    entry_->steps_.push_back(step);
  }

  void add_item(int32_t index) {
    if (is_inside_region(index)) {
      const int32_t region = entry_->plan_.region_of[index];
      if (entry_->plan_.regions[region].last_item == index) add_group(entry_->plan_.regions[region].group);
      return;
    }
    if (is_deferred(index) || entry_->plan_.step_region(index) >= 0) return;
    if (add_step(index)) add_frees(index);
  }

  // False: it is no step.
  bool add_step(int32_t index) {
    const trace::Item& item = trace_.items[index];
    Step step;
    step.item = index;
    if (item.guard >= 0) {
      const trace::Guard& guard = trace_.guards[item.guard];
      if (trace_.values[guard.value].is_pre) return false;
      step.is_guard = true;
      step.kind = static_cast<uint8_t>(guard.fact);
      step.slot = slot_of(guard.value);
      step.object = guard.object;
      step.snapshot = snapshot_of(index, guard.snapshot);
      step.n = compares(guard) ? slot_of(static_cast<ValueId>(guard.n)) : static_cast<int32_t>(guard.n);
    } else {
      const trace::Value& value = trace_.values[item.value];
      if (value.is_pre || !is_live(item.value)) return false;
      step.kind = static_cast<uint8_t>(value.kind);
      step.n = value.n;
      step.object = value.object;
      step.snapshot = snapshot_of(index, value.snapshot);
      const std::span<const ValueId> operands = trace_.operands(item.value);
      step.operands = static_cast<uint32_t>(entry_->operands_.size());
      step.operand_count = static_cast<uint32_t>(operands.size());
      entry_->max_operand_count_ = std::max(entry_->max_operand_count_, step.operand_count);
      for (ValueId operand : operands) entry_->operands_.push_back(operand == kNoValue ? -1 : slot_of(operand));
      // A result that dies at once needs no slot.
      if (entry_->liveness_.last_use[item.value] != index || is_deferred(index) ||
          entry_->plan_.step_region(index) >= 0) {
        step.slot = take_slot();
        entry_->slot_of_value_[item.value] = step.slot;
      }
    }
    entry_->steps_.push_back(step);
    return true;
  }

  // What runs in front of a region exits in front of it.
  int32_t snapshot_of(int32_t item, int32_t own) const {
    const int32_t region = entry_->plan_.region_in_front_of(item);
    return region < 0 ? own : entry_->plan_.regions[region].snapshot;
  }

  // What is used last at `index` dies behind the step that was added last.
  void add_frees(int32_t index) {
    Step& step = entry_->steps_.back();
    if (step.free_count == 0) step.frees = static_cast<uint32_t>(entry_->frees_.size());
    for (; next_dying_ < dying_.size() && dying_[next_dying_].first <= index; next_dying_++) {
      const ValueId id = dying_[next_dying_].second;
      if (has_died_in_group_[id] == 0) free_slot_of(id, step);
    }
  }

  void free_slot_of(ValueId id, Step& step) {
    const int32_t slot = entry_->slot_of_value_[id];
    if (slot < 0) return;
    entry_->frees_.push_back(slot);
    step.free_count++;
    if (slot >= entry_->first_late_slot_) free_slots_.push_back(slot);
  }

  int32_t slot_of(ValueId id) const {
    const int32_t slot = entry_->slot_of_value_[id];
    REPRISE_CHECK(slot >= 0, "%" + std::to_string(id) + " is used but has no slot");
    return slot;
  }

  std::unique_ptr<Entry> entry_;
  bool is_deferred(int32_t item) const {
    return !entry_->region_steps_.empty() && entry_->plan_.deferred_of[item] >= 0;
  }

  const trace::Trace& trace_;
  const trace::RegionOptions& region_options_;
  std::vector<ValueId> kept_;
  std::vector<std::pair<int32_t, ValueId>> dying_;  // by the item that uses a value last
  size_t next_dying_ = 0;
  std::vector<uint8_t> has_died_in_group_;            // by value
  std::vector<std::vector<ValueId>> dying_in_group_;  // by step of the group that is being added
  size_t group_step_ = 0;
  std::vector<int32_t> free_slots_;
  int32_t next_slot_ = 0;
};

std::unique_ptr<Entry> make_entry(std::unique_ptr<trace::Trace> trace, std::string* reason,
                                  const trace::RegionOptions& regions) {
  return EntryBuilder(std::move(trace), regions).build(reason);
}

}  // namespace reprise::entry
