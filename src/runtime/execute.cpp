#include "runtime/execute.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "guards/facts.h"
#include "host/torch/tensor.h"
#include "host/torch/trace_tensor.h"
#include "runtime/exit.h"
#include "runtime/run_node.h"

namespace reprise::runtime {

using entry::Entry;
using entry::Step;
using trace::FactKind;

namespace {

constexpr int kStepsBetweenSignals = 256;
constexpr uint32_t kMaxOperandsOnStack = 512;

struct StepsResult {
  ExitKind kind = ExitKind::None;  // None, Guard or Error
  const Step* step = nullptr;
};

bool check_late_guard(const trace::Trace& trace, const Step& step, PyObject* const* slots) {
  const auto fact = static_cast<FactKind>(step.kind);
  const host::TensorMeta* meta = trace::has_meta(fact) ? trace.tensor_metas[step.n].get() : nullptr;
  PyObject* other = fact == FactKind::Same || fact == FactKind::Different ? slots[step.n] : nullptr;
  return guards::check_fact(fact, slots[step.slot], step.object, step.n, meta, other);
}

StepsResult run_steps(Entry& entry, PyObject** slots) {
  const trace::Trace& trace = entry.trace();
  const int32_t* const operands = entry.operands().data();
  const int32_t* const frees = entry.frees().data();
  std::vector<PyObject*> large;
  PyObject** gathered;
  if (entry.max_operand_count() <= kMaxOperandsOnStack) {
    gathered = static_cast<PyObject**>(__builtin_alloca((entry.max_operand_count() + 1) * sizeof(PyObject*)));
  } else {
    large.resize(entry.max_operand_count());
    gathered = large.data();
  }
  std::vector<PyObject*> results;  // of regions
  std::optional<host::UndoPoint> undo;
  // Nothing that the group of regions did can be seen, but for torch's state.
  const auto take_back = [&](const Step& step) -> StepsResult {
    PyErr_Clear();  // what raises does so again where the frames go on
    if (undo && (step.region >= 0 || step.group >= 0)) undo->restore();
    return {ExitKind::Region, &step};
  };
  int steps_to_signals = kStepsBetweenSignals;
  for (const Step& step : entry.steps()) {
    if (step.region >= 0) {
      for (uint32_t i = 0; i < step.operand_count; i++) gathered[i] = slots[operands[step.operands + i]];
      entry::RegionStep& region = entry.regions()[step.region];
      results.resize(std::max(results.size(), region.slots.size()));
      const trace::Region& plan = entry.region_plan().regions[step.region];
      if (plan.group == step.region) undo.reset();
      if (plan.needs_undo) undo.emplace();
      if (!region.runner->run(gathered, results.data())) return take_back(step);
      for (size_t i = 0; i < region.slots.size(); i++) slots[region.slots[i]] = results[i];
    } else if (step.is_guard) {
      if (!check_late_guard(trace, step, slots)) {
        if (step.group >= 0) return take_back(step);
        return {ExitKind::Guard, &step};
      }
    } else {
      for (uint32_t i = 0; i < step.operand_count; i++) gathered[i] = slots[operands[step.operands + i]];
      if (--steps_to_signals <= 0 && step.snapshot >= 0 && step.group < 0) {
        steps_to_signals = kStepsBetweenSignals;
        if (PyErr_CheckSignals() < 0) return {ExitKind::Error, &step};
      }
      PyObject* result =
          run_node(static_cast<trace::NodeKind>(step.kind), step.n, step.object, gathered, step.operand_count);
      if (result == nullptr && PyErr_Occurred()) {
        if (step.group >= 0 || entry.region_plan().region_in_front_of(step.item) >= 0) return take_back(step);
        return {ExitKind::Error, &step};
      }
      if (step.slot >= 0) {
        slots[step.slot] = result;
      } else {
        Py_XDECREF(result);
      }
    }
    for (uint32_t i = 0; i < step.free_count; i++) Py_CLEAR(slots[frees[step.frees + i]]);
  }
  return {};
}

PyObject* leave_root(PyThreadState* thread, host::Frame* root_frame, PyObject* value) {
  return root_frame == nullptr ? value : host::finish_frame(thread, root_frame, value);
}

// The run holds what it needs; a tensor in a local that it overwrites would otherwise live until the exit.
void drop_tensors(host::Frame* frame) {
  if (host::has_frame_object(frame)) return;
  PyObject** locals = host::get_locals(frame);
  for (int32_t i = 0; i < host::get_slot_count(frame); i++) {
    if (locals[i] != nullptr && host::is_plain_tensor(locals[i])) Py_CLEAR(locals[i]);
  }
}

PyObject* take_result(Entry& entry, RunState& state) {
  PyObject*& slot = state.slots[entry.result_slot()];
  if (entry.result_slot() < entry.constant_count()) return Py_NewRef(slot);
  PyObject* result = slot;
  slot = nullptr;
  return result;
}

}  // namespace

void RunState::clear() {
  if (entry == nullptr) return;
  for (int32_t i = entry->constant_count(); i < entry->slot_count(); i++) Py_CLEAR(slots[i]);
  give_back();
}

void RunState::give_back() {
  entry->give_back_slots(slots);
  entry = nullptr;
  slots = nullptr;
}

bool check_guards(Entry& entry, PyObject* const* args, RunState& state) {
  state.slots = entry.take_slots();
  state.entry = &entry;
  if (entry.guards().check(args, state.slots + entry.constant_count())) return true;
  ++entry.statistics.guard_failures;
  state.give_back();
  return false;
}

PyObject* run_entry(PyThreadState* thread, Entry& entry, RunState& state, host::Frame* root_frame,
                    host::ContinueFrame continue_frame, void* context, ExitInfo* exit_info) {
  ExitInfo own_info;
  ExitInfo& info = exit_info != nullptr ? *exit_info : own_info;
  const trace::Trace& trace = entry.trace();
  ++entry.statistics.runs;
  if (root_frame != nullptr) drop_tensors(root_frame);
  const StepsResult end = run_steps(entry, state.slots);
  info.kind = end.kind;
  switch (end.kind) {
    case ExitKind::None:
    case ExitKind::End:
      if (trace.end == trace::EndKind::Return) {
        PyObject* result = take_result(entry, state);
        state.give_back();  // every other value has died at its last use
        info.status = RunStatus::Returned;
        return leave_root(thread, root_frame, result);
      }
      ++entry.statistics.end_exits;
      info.kind = ExitKind::End;
      info.item = Entry::kEndItem;
      info.snapshot = trace.end_snapshot;
      break;
    case ExitKind::Guard:
      info.guard = trace.items[end.step->item].guard;
      info.item = end.step->item;
      info.snapshot = end.step->snapshot;
      break;
    case ExitKind::Region: {
      const Step& step = *end.step;
      if (step.region >= 0) info.guard = entry.regions()[step.region].runner->refused_guard();
      if (step.is_guard) info.guard = trace.items[step.item].guard;
      info.is_taken_back = step.region < 0;
      if (info.guard < 0) ++entry.statistics.region_exits;  // else it is counted as an exit at the guard
      info.item = step.group >= 0 ? Entry::item_of_region(step.group) : step.item;
      info.snapshot = step.snapshot;
      break;
    }
    case ExitKind::Error:
      ++entry.statistics.error_exits;
      info.item = end.step->item;
      info.snapshot = end.step->snapshot;
      break;
  }
  info.status = RunStatus::Exited;
  return take_exit(thread, entry, state, root_frame, continue_frame, context, info);
}

}  // namespace reprise::runtime
