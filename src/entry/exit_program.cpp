#include "entry/exit_program.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "entry/entry.h"
#include "host/cpython/decode.h"
#include "trace/object_text.h"

namespace reprise::entry {

using trace::Category;
using trace::FrameState;
using trace::kNoValue;
using trace::NodeKind;
using trace::ValueId;

namespace {

/// The boundary behind the instruction at `unit`.
int32_t find_next_unit(PyCodeObject* code, int32_t unit) {
  const host::CodeInfo* info = host::get_code_info(code);
  const int32_t index = info == nullptr ? -1 : info->find_index(unit);
  return index < 0 ? unit + 1 : info->instructions[index].next_unit;
}

bool has_not_started(const FrameState& state) {
  const host::CodeInfo* info = host::get_code_info(state.code);
  const host::Instruction* made_by = info == nullptr ? nullptr : info->find_before(state.unit);
  return made_by != nullptr && made_by->op == host::Op::ReturnGenerator;
}

class ExitBuilder {
 public:
  ExitBuilder(const Entry& entry, int32_t item)
      : entry_(entry), trace_(entry.trace()), liveness_(entry.liveness()), program_(std::make_unique<ExitProgram>()) {
    if (item == Entry::kEndItem) {
      snapshot_ = trace_.end_snapshot;
      bound_ = trace_.snapshots[snapshot_].item;
    } else if (item < 0) {
      snapshot_ = entry.region_plan().regions[-2 - item].snapshot;
      bound_ = trace_.snapshots[snapshot_].item;
    } else if (const int32_t region = entry.region_plan().region_in_front_of(item); region >= 0) {
      snapshot_ = entry.region_plan().regions[region].snapshot;
      bound_ = trace_.snapshots[snapshot_].item;
    } else if (const int32_t guard = trace_.items[item].guard; guard >= 0) {
      snapshot_ = trace_.guards[guard].snapshot;
      bound_ = trace_.snapshots[snapshot_].item;
    } else {
      snapshot_ = trace_.values[trace_.items[item].value].snapshot;
      bound_ = item;  // what the instruction did before it raised stays done
    }
  }

  std::unique_ptr<ExitProgram> build() {
    const trace::Snapshot& snapshot = trace_.snapshots[snapshot_];
    std::vector<int32_t> chain;
    for (int32_t frame = snapshot.frame; frame >= 0; frame = trace_.frame_states[frame].caller) chain.push_back(frame);
    std::reverse(chain.begin(), chain.end());

    for (int32_t frame : chain) {
      for_each_value(trace_.frame_states[frame], [&](ValueId id) { need(id); });
    }
    need(snapshot.handled_exception);
    find_sunk_values();
    schedule();

    for (int32_t frame : chain) add_frame(trace_.frame_states[frame], frame == snapshot.frame);
    program_->handled_exception = make_ref(snapshot.handled_exception);
    return std::move(program_);
  }

 private:
  template <class Function>
  static void for_each_value(const FrameState& state, Function function) {
    for (ValueId id : state.slots) function(id);
    function(state.mode_value);
    function(state.function_value);
    function(state.generator_value);
  }

  bool is_sunk(ValueId id) const { return !liveness_.is_live[id] && trace_.category(id) == Category::Alloc; }

  // ---- what has to be rebuilt

  struct Work {
    ValueId id = kNoValue;
    int32_t item = 0;  // its place in the order
    bool is_placeholder = false;
    int32_t advance_count = -1;  // >= 0: not the node, but taking so many elements
  };

  void need(ValueId id) {
    if (id == kNoValue || liveness_.is_live[id] || trace_.values[id].kind == NodeKind::Const) return;
    if (needed_.insert(id).second) queue_.push_back(id);
  }

  void find_sunk_values() {
    while (!queue_.empty()) {
      const ValueId id = queue_.back();
      queue_.pop_back();
      if (trace_.category(id) == Category::Mutate) {  // the result of a mutation of a sunk object
        need(trace::find_allocation(trace_, trace_.operands(id)[0]));
        continue;
      }
      if (trace_.values[id].kind == NodeKind::InstanceDict) {
        need(trace_.operands(id)[0]);
        work_.push_back({id, trace_.values[id].item});
        continue;
      }
      REPRISE_CHECK(is_sunk(id), "an exit needs %" + std::to_string(id) + ", which is neither live nor sunk");
      for (ValueId operand : trace_.operands(id)) need(operand);
      find_mutations(id);
    }
  }

  void find_mutations(ValueId id) {
    Work self{id, trace_.values[id].item};
    int32_t advance_count = 0, last_advance = 0;
    const int32_t end = static_cast<int32_t>(liveness_.first_mutation[id + 1]);
    for (int32_t row = static_cast<int32_t>(liveness_.first_mutation[id]); row < end; row++) {
      const ValueId mutation = liveness_.mutations[row];
      const trace::Value& value = trace_.values[mutation];
      if (value.item >= bound_) break;
      if (value.kind == NodeKind::Advance) {
        advance_count++;
        last_advance = value.item;
        continue;
      }
      const int32_t other = liveness_.overwritten_by[row];
      const bool is_overwritten = other >= 0 && trace_.values[liveness_.mutations[other]].item < bound_;
      if (is_overwritten) {
        if (value.kind == NodeKind::SetCell || value.kind == NodeKind::Suspend) continue;
        need_operand(mutation, 0);
        if (value.kind == NodeKind::SetItem) need_operand(mutation, 1);
        work_.push_back({mutation, value.item, true});
        continue;
      }
      for (ValueId operand : trace_.operands(mutation)) need(operand);
      if (value.kind == NodeKind::Suspend) {
        if (value.n >= 0) for_each_value(trace_.frame_states[value.n], [&](ValueId inner) { need(inner); });
        suspend_of_[id] = mutation;
        self.item = value.item;  // made in the state that it has at the exit
        continue;
      }
      work_.push_back({mutation, value.item});
    }
    if (advance_count > 0 && carries_position(id)) {
      work_.push_back({id, last_advance, false, advance_count});
    } else if (advance_count > 0) {
      enumerate_counts_[id] = advance_count;
    }
    work_.push_back(self);
  }

  void need_operand(ValueId id, size_t index) { need(trace_.operands(id)[index]); }

  // Whether an iterator has a position of its own, or shows that of the iterators that it was made from.
  bool carries_position(ValueId id) const {
    if (trace_.values[id].object == nullptr) return true;
    for (ValueId source : trace_.operands(id)) {
      const NodeKind kind = trace_.values[source].kind;
      if (kind == NodeKind::Iterator || kind == NodeKind::Generator) return false;
    }
    return true;
  }

  // ---- the order

  // Trace order; but what contains a generator waits for it, as a generator is made in its last state.
  void schedule() {
    std::sort(work_.begin(), work_.end(), [](const Work& a, const Work& b) {
      if (a.item != b.item) return a.item < b.item;
      return (a.advance_count >= 0) < (b.advance_count >= 0);
    });
    std::vector<Work> waiting(std::move(work_));
    while (!waiting.empty()) {
      std::vector<Work> later;
      std::unordered_set<ValueId> held_back;  // objects with a step that waits: theirs keep their order
      for (const Work& work : waiting) {
        if (can_run(work, held_back)) {
          add_step(work);
        } else {
          later.push_back(work);
          held_back.insert(trace_.category(work.id) == Category::Mutate
                               ? trace::find_allocation(trace_, trace_.operands(work.id)[0])
                               : work.id);
        }
      }
      REPRISE_CHECK(later.size() < waiting.size(), "an exit would have to rebuild a generator that holds itself");
      waiting = std::move(later);
    }
  }

  bool is_available(ValueId id) const {
    return id == kNoValue || liveness_.is_live[id] || trace_.values[id].kind == NodeKind::Const ||
           result_of_.contains(id);
  }

  bool can_run(const Work& work, const std::unordered_set<ValueId>& held_back) const {
    if (work.advance_count >= 0) return is_available(work.id);
    const std::span<const ValueId> operands = trace_.operands(work.id);
    const size_t count = work.is_placeholder ? operands.size() - 1 : operands.size();
    for (size_t i = 0; i < count; i++) {
      if (!is_available(operands[i]) || held_back.contains(operands[i])) return false;
    }
    bool is_ready = true;
    if (auto suspend = suspend_of_.find(work.id);
        suspend != suspend_of_.end() && trace_.values[suspend->second].n >= 0) {
      for_each_value(trace_.frame_states[trace_.values[suspend->second].n], [&](ValueId id) {
        if (id != work.id) is_ready = is_ready && is_available(id);
      });
    }
    return is_ready;
  }

  // ---- steps and frames

  Ref make_ref(ValueId id) {
    if (id == kNoValue) return {};
    const trace::Value& value = trace_.values[id];
    if (value.kind == NodeKind::Const) return make_constant_ref(value.object);
    if (liveness_.is_live[id]) {
      const int32_t slot = entry_.slot_of(id);
      REPRISE_CHECK(slot >= 0, "an exit needs %" + std::to_string(id) + ", which has no slot");
      return {Ref::Kind::Slot, slot};
    }
    const auto found = result_of_.find(id);
    REPRISE_CHECK(found != result_of_.end(), "an exit needs %" + std::to_string(id) + ", which is not rebuilt");
    return {Ref::Kind::Rebuilt, found->second};
  }

  Ref make_constant_ref(PyObject* object) {
    auto [found, is_new] = constant_of_.try_emplace(object, static_cast<int32_t>(program_->constants.size()));
    if (is_new) program_->constants.push_back(object);
    return {Ref::Kind::Constant, found->second};
  }

  void add_step(const Work& work) {
    const trace::Value& value = trace_.values[work.id];
    RebuildStep step;
    step.node = value.kind;
    step.n = value.n;
    step.object = value.object;
    std::vector<Ref> operands;
    if (work.advance_count >= 0) {
      step.kind = RebuildStep::Kind::Advance;
      step.n = work.advance_count;
      operands.push_back(make_ref(work.id));
    } else if (value.kind == NodeKind::Generator) {
      make_generator(work.id, &step, &operands);
    } else {
      if (work.is_placeholder) step.kind = RebuildStep::Kind::Placeholder;
      const std::span<const ValueId> ids = trace_.operands(work.id);
      for (size_t i = 0; i < ids.size() - (work.is_placeholder ? 1 : 0); i++) operands.push_back(make_ref(ids[i]));
      if (auto count = enumerate_counts_.find(work.id);
          count != enumerate_counts_.end() && value.object == reinterpret_cast<PyObject*>(&PyEnum_Type)) {
        step.kind = RebuildStep::Kind::Enumerate;
        step.n = count->second;
      }
    }
    step.operands = static_cast<uint32_t>(program_->refs.size());
    step.operand_count = static_cast<uint32_t>(operands.size());
    program_->refs.insert(program_->refs.end(), operands.begin(), operands.end());
    program_->max_operand_count = std::max(program_->max_operand_count, step.operand_count);
    if (work.advance_count < 0 && !work.is_placeholder) {
      step.result = program_->rebuilt_count++;
      result_of_[work.id] = step.result;
    }
    program_->steps.push_back(step);
  }

  void make_generator(ValueId id, RebuildStep* step, std::vector<Ref>* operands) {
    step->kind = RebuildStep::Kind::Generator;
    const auto found = suspend_of_.find(id);
    REPRISE_CHECK(found != suspend_of_.end(), "generator %" + std::to_string(id) + " has no state");
    const trace::Value& suspend = trace_.values[found->second];
    const FrameState* state = suspend.n >= 0 ? &trace_.frame_states[suspend.n] : nullptr;
    const ValueId function = trace_.operands(id).empty() ? kNoValue : trace_.operands(id)[0];
    if (function != kNoValue) {
      operands->push_back(make_ref(function));
    } else {
      REPRISE_CHECK(state != nullptr, "a finished generator of an unknown function");
      operands->push_back(make_constant_ref(state->function));
    }
    if (state == nullptr) {
      step->unit = -1;
      return;
    }
    step->unit = state->unit;
    step->state = has_not_started(*state) ? host::GeneratorState::Created : host::GeneratorState::Suspended;
    for (ValueId slot : state->slots) operands->push_back(make_ref(slot));
  }

  void add_frame(const FrameState& state, bool is_innermost) {
    ExitFrame frame;
    frame.is_function_made = state.function == nullptr;
    if (state.function_value != kNoValue) {
      frame.function_value = make_ref(state.function_value);
    } else {
      frame.function = state.function;
    }
    frame.next_unit = state.unit;
    frame.raise_unit = is_innermost ? find_next_unit(state.code, state.unit) : state.unit;
    frame.slots = static_cast<uint32_t>(program_->refs.size());
    frame.slot_count = static_cast<uint32_t>(state.slots.size());
    for (ValueId id : state.slots) program_->refs.push_back(make_ref(id));
    frame.mode = state.mode;
    frame.mode_value = make_ref(state.mode_value);
    frame.generator = make_ref(state.generator_value);
    program_->frames.push_back(frame);
  }

  const Entry& entry_;
  const trace::Trace& trace_;
  const trace::Liveness& liveness_;
  std::unique_ptr<ExitProgram> program_;
  int32_t snapshot_ = -1;
  int32_t bound_ = 0;  // mutations recorded from this item on have not happened
  std::unordered_set<ValueId> needed_;
  std::vector<ValueId> queue_;
  std::vector<Work> work_;
  std::unordered_map<ValueId, ValueId> suspend_of_;  // generator -> its last state
  std::unordered_map<ValueId, int32_t> enumerate_counts_;
  std::unordered_map<ValueId, int32_t> result_of_;
  std::unordered_map<PyObject*, int32_t> constant_of_;
};

}  // namespace

std::unique_ptr<ExitProgram> make_exit_program(const Entry& entry, int32_t item) {
  return ExitBuilder(entry, item).build();
}

std::string print_exit_program(const ExitProgram& program) {
  auto ref_text = [&](const Ref& ref) -> std::string {
    switch (ref.kind()) {
      case Ref::Kind::Null:
        return "-";
      case Ref::Kind::Slot:
        return "r" + std::to_string(ref.index());
      case Ref::Kind::Rebuilt:
        return "x" + std::to_string(ref.index());
      case Ref::Kind::Constant:
        return trace::describe_object(program.constants[ref.index()]);
    }
    REPRISE_UNREACHABLE("kind of reference");
  };
  auto refs_text = [&](uint32_t first, uint32_t count) {
    std::string text;
    for (uint32_t i = 0; i < count; i++) text += " " + ref_text(program.refs[first + i]);
    return text;
  };
  std::string text;
  for (const RebuildStep& step : program.steps) {
    text += "  ";
    if (step.result >= 0) text += "x" + std::to_string(step.result) + " = ";
    switch (step.kind) {
      case RebuildStep::Kind::Node:
        text += trace::text_of(step.node);
        break;
      case RebuildStep::Kind::Placeholder:
        text += std::string("place of ") + trace::text_of(step.node);
        break;
      case RebuildStep::Kind::Enumerate:
        text += "enumerate from " + std::to_string(step.n);
        break;
      case RebuildStep::Kind::Advance:
        text += "advance by " + std::to_string(step.n);
        break;
      case RebuildStep::Kind::Generator:
        text += "generator at unit " + std::to_string(step.unit);
        break;
    }
    text += refs_text(step.operands, step.operand_count);
    if (step.object != nullptr) text += " " + trace::describe_object(step.object);
    text += "\n";
  }
  for (const ExitFrame& frame : program.frames) {
    text += "  frame " +
            (frame.function != nullptr ? trace::name_of_callable(frame.function) : ref_text(frame.function_value)) +
            " unit " + std::to_string(frame.next_unit) + " [";
    const std::string slots = refs_text(frame.slots, frame.slot_count);
    text += (slots.empty() ? slots : slots.substr(1)) + "]\n";
  }
  return text;
}

}  // namespace reprise::entry
