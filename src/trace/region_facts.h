// RegionFacts: what the planner of regions knows of each value and item, wherever it stands: see regions.h.
//
// Constants, carriers, gathered containers, and what a torch call does besides giving its result. Plain data computed
// in one go, linear in the trace. No Python is called.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/liveness.h"
#include "trace/regions.h"
#include "trace/trace.h"

namespace reprise::trace {

/// What a torch node does to memory and to generators.
struct NodeEffects {
  bool is_known = true;       // else it may do anything to any tensor
  bool writes_first = false;  // to its first tensor operand
  bool draws = false;         // random numbers
  bool makes_memory = false;  // its results share memory with no operand
};

/// Kinds of changes of Python objects; bits.
enum ObjectChange : uint32_t {
  kChangesCell = 1,
  kChangesFunction = 2,  // what Python keeps of one, or another name of its own
  kChangesName = 4,      // an attribute or an entry of a dict of a known name
  kChangesContainer = 8,
  kChangesOther = 16,
};

class RegionFacts {
 public:
  /// Fills `plan.constants` and `plan.gathered`; more constants are added while the plan is made.
  RegionFacts(const Trace& trace, const Liveness& liveness, const RegionOptions& options, RegionPlan& plan);

  bool is_constant(ValueId id) const { return id >= 0 && plan_.constants[id] != nullptr; }
  /// A constant that is known as an object only: what is in it may change.
  bool is_container(ValueId id) const {
    PyObject* object = plan_.constants[id];
    return PyList_Check(object) || PyDict_Check(object) || PySet_Check(object) || PyByteArray_Check(object);
  }
  /// A tuple, list or slice that nobody changes, and what follows from sizes: each region makes its own.
  bool is_carrier(ValueId id) const { return is_carrier_[id] != 0; }
  const Gathered* find_gathered(ValueId id) const {
    const auto place = plan_.gathered.find(id);
    return place == plan_.gathered.end() ? nullptr : &place->second;
  }
  /// A result whose sizes depend on data, or an element of one: code is made for given sizes of what goes in, so what
  /// uses it belongs to another region.
  bool is_data_sized(ValueId id) const { return is_data_sized_[id] != 0; }
  /// A tensor, of known metadata or not.
  bool is_tensor(ValueId id) const {
    return value_of(id).type == ValueType::Tensor || value_of(id).type == ValueType::LateTensor;
  }
  bool is_excluded(int32_t item) const { return is_excluded_[item] != 0; }
  bool is_cut(int32_t item) const { return is_cut_[item] != 0; }
  bool is_varying(ValueId id) const { return is_varying_[id] != 0; }
  static bool is_computed_of_sizes(const Value& value);
  /// A callable that gives the number in a tensor, and does nothing else.
  static bool reads_number(PyObject* callable);

  /// It may run as a node of a region, if its operands can be had there. Calls of the autograd engine may too, where
  /// region_gradients.h says so.
  bool is_region_node(ValueId id) const;
  /// Native code of sizes that depend on data is served by PyTorch's kernels at first: not where something from
  /// outside is written, which could not be taken back.
  bool is_write_of_data_sizes(ValueId id) const;
  NodeEffects effects_of(ValueId id) const;
  /// A read of data, something that follows from what was read, or a torch node that draws no numbers and writes to
  /// its first operand at most: it may run anywhere behind its operands.
  bool is_free_step(ValueId id) const;
  /// Work that may wait until a region has run: it changes Python objects only.
  bool can_be_deferred(ValueId id) const;
  /// A count that torch keeps of nested contexts: no result depends on it.
  bool is_bookkeeping(ValueId id) const;
  /// Of a mutation, and those that a read or an operation can see.
  uint32_t changes_of(ValueId id) const;
  static uint32_t changes_seen_by(NodeKind kind);
  /// The name that a mutation changes, or that a read looks for: it sees changes of that name only. nullptr: another.
  PyObject* find_name(ValueId id) const;
  /// A guard that stands in front of what is asked about from now on.
  void note_passed(const Guard& guard);
  bool is_call_on_text(ValueId id) const;
  bool may_be_tensor(ValueId id) const {
    const Value& value = value_of(id);
    return is_tensor(id) || (value.type == ValueType::Unknown && is_other_[id] == 0);
  }
  bool is_change(ValueId id) const {
    const Category category = category_of(trace_.values[id].kind);
    return category == Category::Mutate || category == Category::State;
  }

 private:
  const Value& value_of(ValueId id) const { return trace_.values[id]; }
  void find_constants();
  void find_carriers();
  void find_gathered();
  bool has_tensors(ValueId id, int depth = 0) const;
  void find_data_sized();
  bool varies_with_data(ValueId id, int depth) const;
  bool is_unseen_state(ValueId id) const;
  bool is_wrapped_leaf(ValueId id) const;
  bool is_copy_of_context(ValueId id) const;
  bool is_switched_off(ValueId id) const;
  ValueId find_argument(ValueId call, size_t position, const char* name) const;
  bool is_off(ValueId argument) const;
  bool keeps_statistics(ValueId id) const;

  const Trace& trace_;
  const Liveness& liveness_;
  const RegionOptions& options_;
  RegionPlan& plan_;
  std::vector<uint8_t> is_excluded_, is_cut_;                     // by item
  std::vector<uint8_t> is_varying_, is_data_sized_, is_carrier_;  // by value
  std::vector<uint8_t> is_other_;                                 // by value: of a type that is no tensor's
};

}  // namespace reprise::trace
