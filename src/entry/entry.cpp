#include "entry/entry.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "entry/exit_program.h"
#include "trace/object_text.h"

namespace reprise::entry {

Entry::Entry() = default;

Entry::~Entry() { std::free(spare_slots_); }

const ExitProgram& Entry::get_exit_program(int32_t item) {
  std::unique_ptr<ExitProgram>& program = exit_programs_[item];
  if (program == nullptr) program = make_exit_program(*this, item);
  return *program;
}

bool Entry::needs_renewal() const {
  for (const RegionStep& step : region_steps_) {
    if (step.runner != nullptr && step.runner->is_given_up()) return true;
  }
  return !list_failing_guards().empty();
}

std::vector<const void*> Entry::list_broken_transforms() const {
  std::vector<const void*> broken;
  for (const trace::Transform& transform : trace_->transforms) {
    bool has_levels = false, is_whole = true;
    int32_t region = -1;
    for (int32_t item = transform.first_item; item <= transform.last_item; item++) {
      if (trace_->items[item].guard >= 0) continue;
      const trace::ValueId id = trace_->items[item].value;
      const trace::Category category = trace_->category(id);
      const trace::Value& value = trace_->values[id];
      has_levels = has_levels || value.is_level;
      const bool is_torch = category == trace::Category::Tensor || category == trace::Category::Sync || value.is_level;
      if (!is_torch || liveness_.is_live[id] == 0 || value.is_pre) continue;
      const int32_t here = region_steps_.empty() ? -1 : plan_.region_of[item];
      if (region < 0) region = here;
      is_whole = is_whole && here >= 0 && here == region;
    }
    if (has_levels && !is_whole) broken.push_back(transform.place);
  }
  return broken;
}

std::vector<int32_t> Entry::list_failing_guards() const {
  std::vector<int32_t> items;
  if (statistics.guard_exits.empty()) return items;
  for (const trace::Region& region : plan_.regions) {
    for (int32_t item : region.steps) {
      const int32_t guard = trace_->items[item].guard;
      if (guard >= 0 && statistics.guard_exits[guard] > 0) items.push_back(item);
    }
  }
  return items;
}

PyObject** Entry::take_slots() {
  if (spare_slots_ != nullptr) {
    PyObject** slots = spare_slots_;
    spare_slots_ = nullptr;
    return slots;
  }
  auto** slots = static_cast<PyObject**>(std::calloc(static_cast<size_t>(slot_count_) + 1, sizeof(PyObject*)));
  if (slots == nullptr) throw std::bad_alloc();
  if (!constants_.empty()) std::memcpy(slots, constants_.data(), constants_.size() * sizeof(PyObject*));
  return slots;
}

void Entry::give_back_slots(PyObject** slots) {
  if (spare_slots_ == nullptr) {
    spare_slots_ = slots;
  } else {
    std::free(slots);
  }
}

std::string Entry::print() const {
  auto slot_text = [this](int32_t slot) {
    return slot < 0 || slot == slot_count_ ? std::string("-") : "r" + std::to_string(slot);
  };
  std::string text = "entry: " + std::to_string(constants_.size()) + " constants, " +
                     std::to_string(first_late_slot_ - constant_count()) + " pre values, " +
                     std::to_string(slot_count_) + " slots\n";
  for (size_t i = 0; i < constants_.size(); i++) {
    text += slot_text(static_cast<int32_t>(i)) + " = const " + trace::describe_object(constants_[i]) + "\n";
  }
  for (size_t i = 0; i < trace_->values.size(); i++) {
    const int32_t slot = slot_of_value_[i];
    if (slot < constant_count() || !trace_->values[i].is_pre) continue;
    text += slot_text(slot) + " = pre " + trace::describe_value(*trace_, static_cast<trace::ValueId>(i)) + "\n";
  }
  for (const Step& step : steps_) {
    if (step.is_guard) {
      const trace::Guard& guard = trace_->guards[trace_->items[step.item].guard];
      text += "guard " + slot_text(step.slot) + " " + trace::text_of(guard.fact);
      if (guard.object != nullptr) text += " " + trace::describe_object(guard.object);
    } else if (step.region >= 0) {
      for (int32_t slot : region_steps_[step.region].slots) text += slot_text(slot) + " ";
      text += "= region " + std::to_string(step.region) + " of " +
              std::to_string(plan_.regions[step.region].tensor_node_count) + " torch nodes";
      for (uint32_t i = 0; i < step.operand_count; i++) text += " " + slot_text(operands_[step.operands + i]);
    } else {
      text += slot_text(step.slot) + " = " + trace::text_of(static_cast<trace::NodeKind>(step.kind));
      for (uint32_t i = 0; i < step.operand_count; i++) text += " " + slot_text(operands_[step.operands + i]);
      if (step.object != nullptr) text += " " + trace::describe_object(step.object);
    }
    if (step.group >= 0) {
      text += " takes back";
    } else if (step.snapshot >= 0) {
      text += " @s" + std::to_string(step.snapshot);
    }
    for (uint32_t i = 0; i < step.free_count; i++)
      text += (i == 0 ? " free " : " ") + slot_text(frees_[step.frees + i]);
    text += "\n";
  }
  if (trace_->end == trace::EndKind::Return) {
    text += "return " + slot_text(result_slot_) + "\n";
  } else {
    text += "exit @s" + std::to_string(trace_->end_snapshot) + "\n";
  }
  // Those of nodes that raise are many and look alike.
  for (const Step& step : steps_) {
    if (step.is_guard && step.group < 0) text += print_exit(step.snapshot, step.item);
  }
  if (trace_->end != trace::EndKind::Return) text += print_exit(trace_->end_snapshot, kEndItem);
  return text;
}

std::string Entry::print_exit(int32_t snapshot, int32_t item) const {
  return "exit s" + std::to_string(snapshot) + ":\n" + print_exit_program(*make_exit_program(*this, item));
}

size_t Entry::size_bytes() const {
  size_t size = sizeof *this + steps_.size() * sizeof(Step) + (operands_.size() + frees_.size()) * sizeof(int32_t) +
                constants_.size() * sizeof(void*) + slot_of_value_.size() * sizeof(int32_t) +
                static_cast<size_t>(slot_count_) * sizeof(void*) + guards_.size_bytes();
  size += trace_->values.size() * sizeof(trace::Value) + trace_->operand_pool.size() * sizeof(trace::ValueId) +
          trace_->items.size() * sizeof(trace::Item) + trace_->guards.size() * sizeof(trace::Guard) +
          trace_->snapshots.size() * sizeof(trace::Snapshot);
  for (const trace::FrameState& state : trace_->frame_states) {
    size += sizeof state + state.slots.size() * sizeof(trace::ValueId);
  }
  size += liveness_.is_live.size() + (liveness_.last_use.size() + liveness_.first_mutation.size()) * sizeof(int32_t) +
          liveness_.mutations.size() * 2 * sizeof(int32_t);
  return size;
}

}  // namespace reprise::entry
