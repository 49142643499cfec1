// Entry: what one recording became: a guard program, flat steps, exits, and the trace they came from.
//
// Immutable after make_entry but for statistics, exit programs (made when an exit is first taken) and heap stamps.
// Ownership: holds its trace and through it constants, types and functions, nothing that the program made or was given.
// Threads: the GIL is held.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "guards/guard_program.h"
#include "trace/liveness.h"
#include "trace/regions.h"
#include "trace/trace.h"

namespace reprise::entry {

struct ExitProgram;  // exit_program.h

/// One step. Operands and frees are slots of the run; see Entry for their layout.
struct Step {
  uint8_t kind = 0;  // NodeKind, or FactKind of a late guard
  bool is_guard = false;
  uint32_t operand_count = 0;
  uint32_t operands = 0;       // into Entry::operands
  uint32_t free_count = 0;     // slots that are dead behind the step
  uint32_t frees = 0;          // into Entry::frees
  int32_t slot = -1;           // what a node fills or a guard looks at
  int32_t n = 0;               // payload; Same and Different: the other slot
  int32_t snapshot = -1;       // of the trace
  int32_t item = -1;           // of the trace; a region: Entry::item_of_region
  int32_t group = -1;          // a step of the group of regions that begins there: where it fails, nothing has happened
  int32_t region = -1;         // into Entry::regions: its operands are the region's tensors, then its numbers
  PyObject* object = nullptr;  // borrowed from the trace
};

/// Runs one region. Made by the driver; see trace/regions.h.
class RegionRunner {
 public:
  virtual ~RegionRunner() = default;
  /// `operands`: borrowed, tensors then numbers. `results`: new references, in the order of RegionStep::values.
  /// False: nothing has happened, and no exception is set; the frames in front of the region go on, and PyTorch raises
  /// where it raises.
  virtual bool run(PyObject* const* operands, PyObject** results) = 0;
  /// Will not run any more: its nodes had better be steps of their own ...
  virtual bool is_given_up() const = 0;
  /// ... or those that use these numbers (indices into Region::numbers), if there are any.
  virtual std::vector<int32_t> list_varying_numbers() const = 0;
  /// The last run was false because this fact about sizes (into Trace::guards) does not hold for its operands; -1: for
  /// another reason.
  virtual int32_t refused_guard() const { return -1; }
  /// It has given up because of this item of the trace, which cannot be a part of any region; -1: of another reason.
  virtual int32_t blamed_item() const { return -1; }
  /// It has given up because the results of these items of the trace cannot leave a region.
  virtual std::vector<int32_t> list_refused_items() const { return {}; }
  /// It has given up, and regions without what its backend may not take (results whose sizes depend on data, gradients)
  /// are worth a try.
  virtual bool is_asked_too_much() const { return false; }
  /// It has given up because its code raised, in a group that has guards: one of them may keep eager from getting
  /// there.
  virtual bool has_raised_ahead() const { return false; }
  /// One line for explain.
  virtual std::string describe() const = 0;
};

struct RegionStep {
  int32_t region = -1;                   // into RegionPlan::regions
  std::vector<trace::ValueId> values;    // that leave it
  std::vector<int32_t> slots;            // of these
  std::unique_ptr<RegionRunner> runner;  // nullptr until the driver has given one
};

class Entry {
 public:
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  const trace::Trace& trace() const { return *trace_; }
  /// To make another entry of it. This one must not be used any more.
  std::unique_ptr<trace::Trace> take_trace() { return std::move(trace_); }
  /// A region has given up: see RegionRunner. Or a guard has failed for which a group of regions was taken back.
  bool needs_renewal() const;
  /// Transforms of torch.func that no region has as a whole: Transform::place of each. The entry must not run then.
  std::vector<const void*> list_broken_transforms() const;
  /// Those guards: items of the trace.
  std::vector<int32_t> list_failing_guards() const;
  const trace::Liveness& liveness() const { return liveness_; }
  guards::GuardProgram& guards() { return guards_; }

  /// Slots of a run: [0, constant_count) constants, borrowed; [constant_count, first_late_slot) pre values, filled by
  /// the guard program; the rest filled by steps. One more, at slot_count, is always NULL: a missing operand.
  std::span<const Step> steps() const { return steps_; }
  std::span<RegionStep> regions() { return region_steps_; }
  std::span<const RegionStep> regions() const { return region_steps_; }
  const trace::RegionPlan& region_plan() const { return plan_; }
  std::span<const int32_t> operands() const { return operands_; }
  std::span<const int32_t> frees() const { return frees_; }
  std::span<PyObject* const> constants() const { return constants_; }
  int32_t constant_count() const { return static_cast<int32_t>(constants_.size()); }
  int32_t first_late_slot() const { return first_late_slot_; }
  int32_t slot_count() const { return slot_count_; }
  /// Of any step.
  uint32_t max_operand_count() const { return max_operand_count_; }
  int32_t result_slot() const { return result_slot_; }
  /// Slot of a trace value, or -1. Slots are used again: it holds the value until its last use only.
  int32_t slot_of(trace::ValueId id) const { return slot_of_value_[id]; }

  /// How to rebuild the frames at an exit in front of `item` (a late guard, or a node that raised; kEndItem: the end of
  /// the trace). Made at the first call.
  const ExitProgram& get_exit_program(int32_t item);
  static constexpr int32_t kEndItem = -1;
  static constexpr int32_t item_of_region(int32_t region) { return -2 - region; }

  /// Memory for the slots of one run: constants in place, all others NULL, and so it must come back. One block is kept:
  /// runs that do not overlap allocate nothing.
  PyObject** take_slots();
  void give_back_slots(PyObject** slots);

  struct Statistics {
    uint64_t runs = 0;  // guards held
    uint64_t guard_failures = 0;
    uint64_t end_exits = 0;
    uint64_t error_exits = 0;
    uint64_t region_exits = 0;          // native code that could not go on
    std::vector<uint32_t> guard_exits;  // by index in Trace::guards
  };
  Statistics statistics;
  trace::RegionOptions region_options;    // what it was made with
  std::vector<std::string> region_notes;  // regions that were dissolved, and why

  /// Why the guard program refused the last call it refused.
  std::string describe_last_failure() const { return guards_.describe_failure(); }
  /// The steps, one a line, then the exits of late guards and of the end with their rebuild steps.
  std::string print() const;
  size_t size_bytes() const;

  /// For the cycle collector: visits every Python reference that the entry holds.
  int traverse(visitproc visit, void* argument) const { return trace_->traverse(visit, argument); }

 private:
  friend class EntryBuilder;
  Entry();
  std::string print_exit(int32_t snapshot, int32_t item) const;

  std::unique_ptr<trace::Trace> trace_;
  trace::Liveness liveness_;
  trace::RegionPlan plan_;
  std::vector<RegionStep> region_steps_;
  guards::GuardProgram guards_;
  std::vector<Step> steps_;
  std::vector<int32_t> operands_;
  std::vector<int32_t> frees_;
  std::vector<PyObject*> constants_;
  std::vector<int32_t> slot_of_value_;
  std::unordered_map<int32_t, std::unique_ptr<ExitProgram>> exit_programs_;  // by item
  int32_t first_late_slot_ = 0;
  int32_t slot_count_ = 0;
  int32_t result_slot_ = -1;
  uint32_t max_operand_count_ = 0;
  PyObject** spare_slots_ = nullptr;
};

/// nullptr and the reason (if asked for) when the trace cannot become an entry. Its regions have no runners yet.
std::unique_ptr<Entry> make_entry(std::unique_ptr<trace::Trace> trace, std::string* reason = nullptr,
                                  const trace::RegionOptions& regions = {});

}  // namespace reprise::entry
