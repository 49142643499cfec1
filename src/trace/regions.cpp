#include "trace/regions.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "host/torch/tensor.h"
#include "trace/memory_order.h"
#include "trace/region_facts.h"
#include "trace/region_gradients.h"

namespace reprise::trace {

namespace {

constexpr int32_t kNowhere = -1;
constexpr int kMaxDepth = 16;

class Planner {
 public:
  Planner(const Trace& trace, const Liveness& liveness, const RegionOptions& options, std::vector<uint8_t>& may_join)
      : trace_(trace),
        liveness_(liveness),
        options_(options),
        may_join_(may_join),
        facts_(trace, liveness, options, plan_),
        gradients_(trace, liveness, plan_),
        is_target_(gradients_.find_targets(may_join)) {}

  bool has_failed_to_join() const { return has_failed_to_join_; }

  RegionPlan run() {
    plan_.region_of.assign(trace_.items.size(), -1);
    plan_.deferred_of.assign(trace_.items.size(), -1);
    plan_.in_front_of.assign(trace_.items.size(), -1);
    plan_.step_of.assign(trace_.items.size(), -1);
    plan_.is_overwritten.assign(trace_.items.size(), 0);
    use_of_.assign(trace_.values.size(), Use::None);
    level_of_.assign(trace_.values.size(), 0);
    memory_.resize(trace_.values.size());
    for (size_t i = 0; i < trace_.items.size(); i++) add_item(static_cast<int32_t>(i));
    close();
    return std::move(plan_);
  }

 private:
  /// What the current group does with a value.
  enum class Use : uint8_t { None, Node, Step, Deferred };

  /// A region of the current group.
  struct Open {
    Region region;
    std::unordered_set<ValueId> taken;  // inputs, and carriers that it makes
    int32_t last_node = -1;
    bool has_torch_steps = false;  // among the steps behind it
    bool writes_outside = false;
  };

  bool is_live(ValueId id) const { return liveness_.is_live[id] != 0; }
  const Value& value_of(ValueId id) const { return trace_.values[id]; }
  bool is_tensor(ValueId id) const { return facts_.is_tensor(id); }
  bool has_group() const { return !open_.empty(); }
  int32_t last() const { return static_cast<int32_t>(open_.size()) - 1; }

  void use(ValueId id, Use how, int32_t level) {
    if (use_of_[id] == Use::None) used_.push_back(id);
    use_of_[id] = how;
    level_of_[id] = level;
  }

  // ---- what can be an operand

  // The first region of the group that can have it as an operand of a node, or kNowhere. `only`: the one region that
  // can, if there is only one.
  int32_t find_region_with(ValueId id, int32_t* only, int depth = 0) const {
    if (id == kNoValue || depth > kMaxDepth) return kNowhere;
    if (facts_.is_constant(id)) return 0;
    const Value& value = value_of(id);
    if (use_of_[id] == Use::Node) {
      if (facts_.is_data_sized(id)) return value.type == ValueType::Tensor ? level_of_[id] + 1 : kNowhere;
      if (value.type != ValueType::Tensor && !join(*only, level_of_[id])) return kNowhere;
      return level_of_[id];
    }
    if (facts_.is_carrier(id)) return find_region_with_all(trace_.operands(id), only, depth + 1);
    if (use_of_[id] == Use::Deferred) return kNowhere;
    if (use_of_[id] == Use::Step && value.type == ValueType::Tensor) return level_of_[id] + 1;
    if (const Gathered* gathered = facts_.find_gathered(id)) {
      return find_region_with_all(gathered->elements, only, depth + 1);
    }
    if (value.type == ValueType::Tensor) return 0;
    if (facts_.is_varying(id)) return kNowhere;
    if (value.is_late_size && options_.takes_late_numbers) return use_of_[id] == Use::Step ? level_of_[id] + 1 : 0;
    if (value.is_pre) {
      const bool is_plain = value.type == ValueType::Number || value.type == ValueType::Plain || value.varies;
      return is_plain ? 0 : kNowhere;
    }
    // Read of an object: it is seldom another one. Computed: code takes it as an input, a custom backend can't.
    const bool is_taken =
        options_.takes_late_numbers ||
        (options_.takes_sizes && category_of(value.kind) == Category::Read && use_of_[id] == Use::None);
    if (!is_taken || value.type != ValueType::Number || depth != 0) return kNowhere;
    return use_of_[id] == Use::Step ? level_of_[id] + 1 : 0;
  }

  int32_t find_region_with_all(std::span<const ValueId> ids, int32_t* only, int depth) const {
    int32_t region = 0;
    for (ValueId id : ids) {
      const int32_t other = find_region_with(id, only, depth);
      if (other == kNowhere) return kNowhere;
      region = std::max(region, other);
    }
    return region;
  }

  static bool join(int32_t& only, int32_t region) {
    if (only != kNowhere && only != region) return false;
    only = region;
    return true;
  }

  // Is it computed from a tensor of the group that the trace differentiates with respect to?
  bool uses_target(ValueId id, int depth = 0) const {
    for (ValueId operand : trace_.operands(id)) {
      if (operand == kNoValue) continue;
      if (use_of_[operand] == Use::Node && is_target_[operand] != 0) return true;
      if (facts_.is_carrier(operand) && depth < 8 && uses_target(operand, depth + 1)) return true;
    }
    return false;
  }

  // The tensors that a node gets, those in carriers too.
  void list_tensors(ValueId id, std::vector<ValueId>& found, int depth = 0) const {
    if (id == kNoValue || depth > kMaxDepth || facts_.is_constant(id)) return;
    if (value_of(id).type == ValueType::Number) return;
    if (use_of_[id] == Use::Node || use_of_[id] == Use::Step || is_tensor(id)) {
      found.push_back(id);
    } else if (const Gathered* gathered = facts_.find_gathered(id)) {
      for (ValueId element : gathered->elements) list_tensors(element, found, depth + 1);
    } else if (facts_.is_carrier(id)) {
      for (ValueId operand : trace_.operands(id)) list_tensors(operand, found, depth + 1);
    } else if (facts_.may_be_tensor(id) || (!value_of(id).is_pre && value_of(id).type == ValueType::Plain)) {
      found.push_back(id);  // whatever it holds is from outside
    }
  }

  std::vector<ValueId> list_tensors_of(ValueId id) const {
    std::vector<ValueId> found;
    for (ValueId operand : trace_.operands(id)) list_tensors(operand, found);
    return found;
  }

  // The tensors that it may write to.
  std::vector<ValueId> list_written(ValueId id, const NodeEffects& effects) const {
    if (!effects.is_known) return list_tensors_of(id);
    std::vector<ValueId> found;
    if (effects.writes_first)
      list_tensors(trace_.operands(id)[value_of(id).kind == NodeKind::TensorCall ? 1 : 0], found);
    return found;
  }

  bool writes_own_memory(ValueId id, int32_t region) const {
    const NodeEffects effects = effects_of_node(id);
    return effects.is_known && std::ranges::all_of(list_written(id, effects),
                                                   [&](ValueId tensor) { return memory_.is_made_in(tensor, region); });
  }

  // ---- nodes

  // A gradient that joins leaves nothing in `.grad` (region_gradients.h).
  NodeEffects effects_of_node(ValueId id) const {
    return gradients_.is_backward(id) ? NodeEffects() : facts_.effects_of(id);
  }

  // The region of the group that the node can run in; open_.size(): a new one; kNowhere: none.
  int32_t find_region_for(ValueId id) const {
    const Value& value = value_of(id);
    if (facts_.is_bookkeeping(id)) return kNowhere;
    if (value.kind == NodeKind::SequenceItem) {
      const ValueId sequence = trace_.operands(id)[0];
      const bool is_inside = use_of_[sequence] == Use::Node && !changed_objects_.contains(sequence);
      return is_inside && is_tensor(id) ? level_of_[sequence] : kNowhere;
    }
    if (!facts_.is_region_node(id)) return kNowhere;
    const bool is_gradient = gradients_.is_backward(id);
    if (is_gradient && may_join_[id] == 0) return kNowhere;
    const bool is_call = value.kind == NodeKind::TensorCall || value.kind == NodeKind::StateCall;
    const std::span<const ValueId> operands = trace_.operands(id).subspan(is_call ? 1 : 0);
    int32_t only = kNowhere;
    int32_t region = find_region_with_all(operands, &only, 0);
    if (region == kNowhere || !has_group()) return region;
    if (value.kind == NodeKind::StateCall) {
      // State nodes are run by themselves when native code stands for the region.
      for (ValueId operand : operands) {
        const bool is_known = facts_.is_constant(operand) || value_of(operand).kind == NodeKind::StateCall;
        if (!is_known && !value.is_level) return kNowhere;
      }
      region = std::max(region, last() + (open_.back().has_torch_steps ? 1 : 0));
    } else {
      const NodeEffects effects = effects_of_node(id);
      region = std::max({region, state_floor_, effects.draws || !effects.is_known ? random_floor_ : 0});
      for (ValueId tensor : list_tensors_of(id)) region = std::max(region, memory_.first_region_to_read(tensor));
      bool is_outside = !effects.is_known;
      for (ValueId tensor : list_written(id, effects)) {
        region = std::max(region, memory_.first_region_to_write(tensor));
        is_outside = is_outside || memory_.is_outside(tensor);
      }
      // Nothing that can fail may run behind it.
      if (is_outside) {
        region = std::max({region, memory_.first_region_to_write_outside(), last()});
        if (region == last() && !open_.back().region.steps.empty()) region++;
      }
    }
    if (region > last() && open_.back().writes_outside) return kNowhere;
    if (only != kNowhere && region != only) {
      if (region > only) return kNowhere;
      region = only;
    }
    if (is_gradient && !can_join(id, region)) return kNowhere;
    return region;
  }

  // All that a gradient is computed from is in the region.
  bool can_join(ValueId id, int32_t region) const {
    if (region > last()) return false;
    std::vector<uint8_t> is_inside(trace_.values.size(), 0);
    for (ValueId used : used_) is_inside[used] = use_of_[used] == Use::Node && level_of_[used] == region;
    for (ValueId taken : open_[region].taken)
      is_inside[taken] |= facts_.is_carrier(taken) || facts_.find_gathered(taken);
    for (ValueId operand : trace_.operands(id)) {
      if (operand != kNoValue && (facts_.is_carrier(operand) || facts_.find_gathered(operand))) is_inside[operand] = 1;
    }
    return gradients_.can_join(id, is_inside, open_[region].region.first_item);
  }

  bool can_start_at(ValueId id) const {
    const int32_t snapshot = value_of(id).snapshot;
    const bool can_be_first =
        value_of(id).kind != NodeKind::StateCall || trace_.find_transform(value_of(id).item) != nullptr;
    return snapshot >= 0 && trace_.snapshots[snapshot].is_exact && can_be_first;
  }

  bool add_node(int32_t index, ValueId id) {
    if (facts_.is_excluded(index)) return false;
    const int32_t region = find_region_for(id);
    if (region == kNowhere) return false;
    if (facts_.is_write_of_data_sizes(id) && !writes_own_memory(id, region)) return false;
    if (!has_group() && !can_start_at(id)) return false;
    if (region > last()) open_.emplace_back();
    Open& open = open_[region];
    const Value& value = value_of(id);
    for (ValueId operand : trace_.operands(id)) take_operand(open, operand);
    open.region.items.push_back(index);
    if (open.region.first_item < 0) open.region.first_item = index;
    if (snapshot_ < 0) snapshot_ = value.snapshot;
    open.last_node = index;
    open.region.tensor_node_count += category_of(value.kind) == Category::Tensor;
    note_effects(open, id, region);
    use(id, Use::Node, region);
    return true;
  }

  void note_effects(Open& open, ValueId id, int32_t region) {
    if (value_of(id).kind == NodeKind::StateCall) {
      state_floor_ = region;
      touches_state_ = true;
      return;
    }
    const NodeEffects effects = effects_of_node(id);
    const std::vector<ValueId> tensors = list_tensors_of(id);
    if (effects.draws || !effects.is_known) {
      random_floor_ = region;
      touches_state_ = true;
    }
    for (ValueId tensor : tensors) memory_.note_node_read(tensor, region);
    const std::vector<ValueId> written = list_written(id, effects);
    for (ValueId tensor : written) {
      memory_.note_write(tensor, region);
      open.writes_outside = open.writes_outside || memory_.is_outside(tensor);
    }
    if (!effects.is_known) {
      memory_.note_write_outside(region);
      open.writes_outside = true;
    }
    has_writes_ |= effects.writes_first || !effects.is_known;
    open.region.has_writes |= effects.writes_first || !effects.is_known;
    open.region.has_data_sizes |= value_of(id).is_data_sized;
    open.region.has_gradients |= gradients_.is_backward(id);
    // What is written to is what comes back.
    memory_.add_result(id, effects.is_known && effects.writes_first ? written : tensors,
                       effects.is_known && effects.makes_memory, region);
  }

  void take_operand(Open& open, ValueId id) {
    if (id == kNoValue || facts_.is_constant(id)) return;
    if (use_of_[id] == Use::Node && &open_[level_of_[id]] == &open) return;
    const Gathered* gathered = facts_.find_gathered(id);
    const bool is_made = use_of_[id] != Use::Node && (facts_.is_carrier(id) || gathered != nullptr);
    if (open.taken.contains(id)) return;
    if (is_made) {
      const std::span<const ValueId> elements = gathered != nullptr && !facts_.is_carrier(id)
                                                    ? std::span<const ValueId>(gathered->elements)
                                                    : trace_.operands(id);
      for (ValueId element : elements) take_operand(open, element);
      open.region.items.push_back(value_of(id).item);
    } else {
      (is_tensor(id) ? open.region.tensors : open.region.numbers).push_back(id);
    }
    open.taken.insert(id);
  }

  // ---- steps of the group

  // Behind which region the value is there for a step; kNowhere: not before the group has run.
  int32_t find_level(ValueId id) const {
    switch (use_of_[id]) {
      case Use::None:
        return 0;
      case Use::Node:
        return is_tensor(id) ? level_of_[id] : kNowhere;
      case Use::Step:
        return level_of_[id];
      case Use::Deferred:
        break;
    }
    return kNowhere;
  }

  // A carrier that was deferred may be made as soon as its elements are there.
  int32_t find_level_of_operand(ValueId id, int depth = 0) const {
    if (id == kNoValue) return 0;
    if (use_of_[id] != Use::Deferred || !facts_.is_carrier(id) || depth > kMaxDepth) return find_level(id);
    int32_t level = 0;
    for (ValueId operand : trace_.operands(id)) {
      const int32_t other = find_level_of_operand(operand, depth + 1);
      if (other == kNowhere) return kNowhere;
      level = std::max(level, other);
    }
    return level;
  }

  void make_operand(ValueId id) {
    if (id == kNoValue || use_of_[id] != Use::Deferred) return;
    for (ValueId operand : trace_.operands(id)) make_operand(operand);
    const int32_t level = find_level_of_operand(id);
    use(id, Use::Step, level);
    open_[level].region.steps.push_back(value_of(id).item);
  }

  // What was deferred changes nothing that can be seen in it.
  bool is_steady(ValueId id) const {
    if (changed_ == 0 || id == kNoValue) return true;
    if (facts_.is_constant(id)) return !facts_.is_container(id);
    const Value& value = value_of(id);
    if (value.type == ValueType::Number || is_tensor(id)) return true;
    if (use_of_[id] == Use::None) return false;
    switch (category_of(value.kind)) {
      case Category::Tensor:  // a tuple or list of results
        return !changed_objects_.contains(id);
      case Category::Alloc:
        return facts_.is_carrier(id);
      case Category::Py:
        return value.kind != NodeKind::GetItem && value.kind != NodeKind::Binary && value.kind != NodeKind::Call;
      default:
        return value.kind == NodeKind::InstanceDict;
    }
  }

  bool add_step(int32_t index, ValueId id) {
    if (!has_group() || facts_.is_cut(index) || !facts_.is_free_step(id)) return false;
    const Value& value = value_of(id);
    const std::span<const ValueId> operands = trace_.operands(id);
    const Category category = category_of(value.kind);
    const bool is_result = category == Category::Read && use_of_[operands[0]] == Use::Step &&
                           category_of(value_of(operands[0]).kind) == Category::Tensor;
    if (value.kind != NodeKind::InstanceDict &&
        !std::ranges::all_of(operands, [&](ValueId operand) { return is_steady(operand); })) {
      return false;
    }
    int32_t level = category == Category::Tensor ? state_floor_ : 0;
    if (category == Category::State) level = last();
    for (ValueId operand : operands) {
      const int32_t other = find_level_of_operand(operand);
      if (other == kNowhere) return false;
      level = std::max(level, other);
    }
    const std::vector<ValueId> tensors = list_tensors_of(id);
    for (ValueId tensor : tensors) level = std::max(level, memory_.first_step_to_read(tensor));
    std::vector<ValueId> written;
    if (category == Category::Tensor) written = list_written(id, facts_.effects_of(id));
    for (ValueId tensor : written) {
      if (memory_.is_outside(tensor)) return false;
      level = std::max(level, memory_.first_step_to_write(tensor));
    }
    if (level == last() && open_.back().writes_outside) return false;
    for (ValueId operand : operands) make_operand(operand);
    for (ValueId tensor : tensors) memory_.note_step_read(tensor, level);
    for (ValueId tensor : written) memory_.note_step_write(tensor, level);
    has_writes_ |= !written.empty();
    if (category == Category::Tensor || is_result) {
      open_[level].has_torch_steps = true;
      memory_.add_result(id, written.empty() ? tensors : written,
                         category == Category::Tensor && facts_.effects_of(id).makes_memory, MemoryOrder::kStep);
    }
    if (category == Category::State) touches_state_ = true;
    open_[level].region.steps.push_back(index);
    use(id, Use::Step, level);
    return true;
  }

  bool add_step(int32_t index, const Guard& guard) {
    if (!has_group() || facts_.is_cut(index)) return false;
    const bool looks_inside = guard.fact == FactKind::Truth || guard.fact == FactKind::Length ||
                              guard.fact == FactKind::Keys || guard.fact == FactKind::Code;
    if (use_of_[guard.value] == Use::None || (looks_inside && !is_steady(guard.value))) return false;
    int32_t level = find_level_of_operand(guard.value);
    if (level == kNowhere) return false;
    if (guard.fact == FactKind::Same || guard.fact == FactKind::Different) {
      const auto other = static_cast<ValueId>(guard.n);
      const int32_t other_level = find_level_of_operand(other);
      if (other_level == kNowhere) return false;
      level = std::max(level, other_level);
      if (level == last() && open_.back().writes_outside) return false;
      make_operand(other);
    }
    if (level == last() && open_.back().writes_outside) return false;
    make_operand(guard.value);
    open_[level].region.steps.push_back(index);
    return true;
  }

  // ---- in front of the group, and behind it

  // Python has it before the group runs.
  bool is_outside(ValueId id) const {
    return id == kNoValue || facts_.is_constant(id) || value_of(id).is_pre || use_of_[id] == Use::None;
  }

  bool sees_changes(ValueId id) const {
    const NodeKind kind = value_of(id).kind;
    if ((changed_ & RegionFacts::changes_seen_by(kind)) != 0) return true;
    if ((changed_ & kChangesName) == 0 || (kind != NodeKind::DictItem && kind != NodeKind::Slot)) return false;
    PyObject* name = facts_.find_name(id);
    if (name == nullptr) return true;
    return std::ranges::any_of(changed_names_, [&](PyObject* other) { return PyUnicode_Compare(name, other) == 0; });
  }

  bool can_run_in_front(ValueId id) const {
    const Value& value = value_of(id);
    const std::span<const ValueId> operands = trace_.operands(id);
    if (!std::ranges::all_of(operands, [&](ValueId operand) { return is_outside(operand); })) return false;
    switch (value.kind) {
      case NodeKind::InstanceDict:
      case NodeKind::Identical:
      case NodeKind::Distinct:
        return true;
      case NodeKind::Referent:  // dies with a tensor
      case NodeKind::TensorSize:
        return false;
      default:
        break;
    }
    const Category category = category_of(value.kind);
    if ((category != Category::Read && category != Category::Py) || sees_changes(id)) return false;
    // Torch calls may change what is read of tensors.
    const bool may_ask_tensor =
        (category == Category::Py && !facts_.is_call_on_text(id)) || value.kind == NodeKind::Slot;
    return std::ranges::none_of(operands, [&](ValueId operand) {
      return operand != kNoValue && (is_tensor(operand) || (may_ask_tensor && facts_.may_be_tensor(operand)));
    });
  }

  bool can_run_in_front(const Guard& guard) const {
    switch (guard.fact) {
      case FactKind::Same:
      case FactKind::Different:
        return is_outside(guard.value) && is_outside(static_cast<ValueId>(guard.n));
      case FactKind::Type:
      case FactKind::Identity:
      case FactKind::Absent:
      case FactKind::Present:
      case FactKind::Equal:
        return is_outside(guard.value);
      case FactKind::Truth:
      case FactKind::Length:
      case FactKind::Keys:
        return is_outside(guard.value) && changed_ == 0 && !is_tensor(guard.value);
      case FactKind::Code:
        return is_outside(guard.value) && (changed_ & facts_.changes_seen_by(NodeKind::FunctionField)) == 0;
      case FactKind::TensorMeta:
      case FactKind::TensorLike:
        // Writing in place may make a tensor require grad.
        return is_outside(guard.value) && !has_writes_;
    }
    return false;
  }

  bool add_in_front(int32_t index, bool can_run) {
    if (!has_group() || !can_run) return false;
    in_front_.push_back(index);
    return true;
  }

  // An object that the group will make: what is read ahead of that can't be of it.
  bool changes_own_object(ValueId id) const {
    if (category_of(value_of(id).kind) != Category::Mutate) return false;
    const ValueId made = find_allocation(trace_, trace_.operands(id)[0]);
    return made != kNoValue && use_of_[made] == Use::Deferred;
  }

  bool defer(int32_t index, ValueId id) {
    if (!has_group() || !facts_.can_be_deferred(id)) return false;
    if (value_of(id).kind == NodeKind::InstanceDict && can_run_in_front(id)) return false;
    deferred_.push_back(index);
    if (facts_.is_change(id) && !changes_own_object(id)) {
      changed_ |= facts_.changes_of(id);
      changed_objects_.insert(trace_.operands(id)[0]);
      if (PyObject* name = facts_.find_name(id)) changed_names_.push_back(name);
    }
    use(id, Use::Deferred, 0);
    return true;
  }

  // A fact about sizes, or about how many results a call gave that depend on them.
  bool take_guard(int32_t index, const Guard& guard) {
    if (!has_group() || !options_.takes_sizes || !value_of(guard.value).varies) return false;
    const bool is_value_fact = guard.fact == FactKind::Identity || guard.fact == FactKind::Equal ||
                               guard.fact == FactKind::Truth || guard.fact == FactKind::Type;
    const bool is_number =
        facts_.is_carrier(guard.value) && RegionFacts::is_computed_of_sizes(value_of(guard.value)) && is_value_fact;
    const bool is_sequence = use_of_[guard.value] == Use::Node && guard.fact == FactKind::Length;
    if (!is_number && !is_sequence) return false;
    int32_t only = kNowhere;
    const int32_t region = find_region_with(guard.value, &only);
    if (region == kNowhere || region > last()) return false;
    take_operand(open_[region], guard.value);
    open_[region].region.guards.push_back(index);
    return true;
  }

  // ---- items in order

  void add_item(int32_t index) {
    const Item& item = trace_.items[index];
    if (item.guard >= 0) {
      const Guard& guard = trace_.guards[item.guard];
      if (!value_of(guard.value).is_pre && !take_guard(index, guard) && !add_in_front(index, can_run_in_front(guard)) &&
          !add_step(index, guard)) {
        close();
      }
      facts_.note_passed(guard);
      // The guard has passed where something behind it runs, or what that made is thrown away.
      const bool is_fixed = guard.fact == FactKind::Identity || guard.fact == FactKind::Equal;
      const Value& value = value_of(guard.value);
      if (is_fixed && !value.is_pre && !value.varies && use_of_[guard.value] != Use::Node)
        plan_.constants[guard.value] = guard.object;
      return;
    }
    const ValueId id = item.value;
    if (value_of(id).is_pre || !is_live(id)) return;
    if (has_group() && category_of(value_of(id).kind) == Category::Tensor && uses_target(id)) close();
    const bool is_dict = value_of(id).kind == NodeKind::InstanceDict;
    if (is_dict && !is_outside(trace_.operands(id)[0]) && add_step(index, id)) return;
    if (add_node(index, id) || defer(index, id) || add_in_front(index, can_run_in_front(id)) || add_step(index, id)) {
      return;
    }
    if (may_join_[id] != 0 && gradients_.is_backward(id)) {
      may_join_[id] = 0;
      has_failed_to_join_ = true;
    }
    if (!has_group()) return;
    close();
    add_node(index, id);  // what the group deferred, or has done, may be what kept it out
  }

  // ---- the end of a group

  void close() {
    while (has_group() && open_.back().region.tensor_node_count == 0) open_.pop_back();
    const bool is_kept =
        open_.size() > 1 || (open_.size() == 1 && open_[0].region.tensor_node_count >= options_.min_nodes);
    if (is_kept) keep_group();
    for (ValueId id : used_) use_of_[id] = Use::None;
    used_.clear();
    open_.clear();
    deferred_.clear();
    in_front_.clear();
    memory_.forget();
    snapshot_ = -1;
    state_floor_ = random_floor_ = 0;
    changed_ = 0;
    changed_objects_.clear();
    changed_names_.clear();
    has_writes_ = touches_state_ = false;
  }

  void keep_group() {
    const auto first = static_cast<int32_t>(plan_.regions.size());
    int32_t last_item = -1;
    for (const Open& open : open_) last_item = std::max(last_item, open.last_node);
    const auto is_behind = [&](int32_t item) { return item > last_item; };  // of the last node: it need not wait
    bool has_guards = false;
    size_t step_count = 0;
    for (size_t i = 0; i < open_.size(); i++) {
      Region& region = open_[i].region;
      const int32_t number = first + static_cast<int32_t>(i);
      for (int32_t item : region.items) {
        const ValueId id = trace_.items[item].value;
        if (use_of_[id] == Use::Node) plan_.region_of[item] = number;
      }
      for (int32_t item : region.guards) plan_.region_of[item] = number;
      std::erase_if(region.steps, is_behind);
      for (int32_t item : region.steps) {
        plan_.step_of[item] = number;
        has_guards = has_guards || trace_.items[item].guard >= 0;
      }
      step_count += region.steps.size();
      region.last_item = last_item;
      region.snapshot = snapshot_;
      region.group = first;
    }
    std::erase_if(in_front_, is_behind);
    for (int32_t item : in_front_) plan_.in_front_of[item] = first;
    std::erase_if(deferred_,
                  [&](int32_t item) { return is_behind(item) || use_of_[trace_.items[item].value] != Use::Deferred; });
    for (int32_t item : deferred_) plan_.deferred_of[item] = first + last();
    hide_overwritten();
    open_[0].region.in_front = in_front_;
    open_[0].region.needs_undo = touches_state_ && (open_.size() > 1 || step_count > 0);
    open_.back().region.deferred = deferred_;
    for (Open& open : open_) {
      open.region.has_guards = has_guards;
      plan_.regions.push_back(std::move(open.region));
    }
  }

  // `f.weight = w`, then `f.weight = old`: behind the group nobody has seen the first. A name that is there already
  // keeps its place in the dict.
  void hide_overwritten() {
    std::map<std::pair<ValueId, std::string_view>, int32_t> last;
    for (int32_t item : deferred_) {
      const ValueId id = trace_.items[item].value;
      const Value& value = value_of(id);
      const bool looks = value.kind == NodeKind::MutatorCall || value.kind == NodeKind::DeleteItem ||
                         value.kind == NodeKind::Set || (value.kind == NodeKind::Tuple && value.object != nullptr);
      if (looks) last.clear();
      if (value.kind != NodeKind::SetItem) continue;
      const ValueId container = trace_.operands(id)[0];
      const std::string_view name = text_of_constant(trace_.operands(id)[1]);
      if (name.empty() || find_allocation(trace_, container) != kNoValue || !has_item(container, name)) continue;
      const auto [place, is_new] = last.try_emplace({container, name}, item);
      if (!is_new) plan_.is_overwritten[static_cast<size_t>(std::exchange(place->second, item))] = 1;
    }
  }

  std::string_view text_of_constant(ValueId id) const {
    PyObject* const object = value_of(id).kind == NodeKind::Const ? value_of(id).object : nullptr;
    const char* const text = object != nullptr && PyUnicode_CheckExact(object) ? PyUnicode_AsUTF8(object) : nullptr;
    return text == nullptr ? std::string_view() : std::string_view(text);
  }

  // At entry, the guards say, and nothing is taken out of what existed before.
  bool has_item(ValueId container, std::string_view name) {
    if (!has_known_items_) {
      has_known_items_ = true;
      const auto may_remove = [&](const Item& item) {
        const NodeKind kind = value_of(item.value).kind;
        return item.guard < 0 && (kind == NodeKind::DeleteItem || kind == NodeKind::MutatorCall) &&
               find_allocation(trace_, trace_.operands(item.value)[0]) == kNoValue;
      };
      if (std::ranges::any_of(trace_.items, may_remove)) return false;
      for (const Guard& guard : trace_.guards) {
        const Value& value = value_of(guard.value);
        if (guard.fact != FactKind::Present || value.kind != NodeKind::DictItem || !value.is_pre) continue;
        const char* const text = PyUnicode_CheckExact(value.object) ? PyUnicode_AsUTF8(value.object) : nullptr;
        if (text != nullptr) known_items_.emplace(trace_.operands(guard.value)[0], text);
      }
    }
    return known_items_.contains({container, name});
  }

  const Trace& trace_;
  const Liveness& liveness_;
  const RegionOptions& options_;
  std::vector<uint8_t>& may_join_;  // by value: it may be a gradient in a region
  bool has_failed_to_join_ = false;
  RegionPlan plan_;
  RegionFacts facts_;
  RegionGradients gradients_;
  std::vector<uint8_t> is_target_;  // by value

  // The current group.
  std::vector<Open> open_;
  std::vector<int32_t> deferred_, in_front_;
  std::vector<ValueId> used_;
  std::vector<Use> use_of_;        // by value
  std::vector<int32_t> level_of_;  // by value: its region, or the one that it is a step behind
  MemoryOrder memory_;
  int32_t snapshot_ = -1;
  int32_t state_floor_ = 0;   // nodes behind a change of torch's state run in this region or behind it
  int32_t random_floor_ = 0;  // the same of random numbers
  uint32_t changed_ = 0;      // what deferred items change in Python: ObjectChange
  std::unordered_set<ValueId> changed_objects_;
  std::vector<PyObject*> changed_names_;
  bool has_writes_ = false, touches_state_ = false;

  bool has_known_items_ = false;
  std::set<std::pair<ValueId, std::string_view>> known_items_;  // of dicts of the entry state
};

}  // namespace

// Gradients are taken to join the region of what they are computed from. Those that turn out not to are planned anew,
// as ends of regions.
RegionPlan plan_regions(const Trace& trace, const Liveness& liveness, const RegionOptions& options) {
  constexpr int kTries = 8;
  std::vector<uint8_t> may_join(trace.values.size(), options.takes_gradients);
  for (int i = 0; i < kTries; i++) {
    Planner planner(trace, liveness, options, may_join);
    RegionPlan plan = planner.run();
    if (!planner.has_failed_to_join()) return plan;
  }
  std::fill(may_join.begin(), may_join.end(), uint8_t{0});
  return Planner(trace, liveness, options, may_join).run();
}

}  // namespace reprise::trace
