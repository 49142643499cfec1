// Regions: runs of torch calls that can become one piece of native code.
//
// A region is a set of torch and torch-state nodes. What else stands among them (allocations, stores into Python
// objects) is *deferred*: it runs behind the region, in order. Tuples, lists and slices that only carry arguments are
// made inside, once for each region that needs them; so are those that existed before and whose elements the guards
// name. When native code fails, nothing of the region has happened: the frames of `snapshot`, in front of its first
// node, go on in CPython, which raises where eager raises. So a region begins at a node whose snapshot is exact.
//
// Regions that stand in one *group* share that snapshot, and nothing outside sees anything of a group before it has
// run. So its nodes are planned by what they need, not by where they stand: a node joins the first region that can have
// its operands. Behind each region run the group's *steps*: reads of tensor data, late guards on what was read, what
// follows from it in Python, torch calls whose sizes depend on data. When a step or a region fails, torch's state and
// random numbers are put back and the same frames go on. What a group must not do ahead of a step that can fail is
// write to a tensor from outside; random numbers, torch's state and writes to one memory keep their order.
//
// Reads of Python objects, and facts about them, that need nothing of the region and that nothing deferred changes run
// *in front* of it: where such a fact does not hold, nothing has happened, and the same frames go on.
//
// What follows from the sizes of tensors (numbers, tuples of them) is computed inside, too, by every region that needs
// it, and so are the facts about it: code is made for given sizes, so they are decided when it is made.
//
// Plain data. No Python is called.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trace/liveness.h"
#include "trace/trace.h"

namespace reprise::trace {

struct Region {
  std::vector<int32_t> items;     // its nodes, and the carriers they need, in an order that can be executed
  std::vector<ValueId> tensors;   // from outside; by first use
  std::vector<ValueId> numbers;   // from outside: numbers and tuples of pre ones, not known from the guards
  std::vector<int32_t> steps;     // items of its group that run directly behind it, without snapshots
  std::vector<int32_t> deferred;  // items that run behind its group; the group's last region has them
  std::vector<int32_t> in_front;  // items that run in front of its group; the group's first region has them
  std::vector<int32_t> guards;    // items, facts about sizes: they hold or not where code is made
  int32_t first_item = -1;        // of its nodes
  int32_t last_item = -1;         // of its group: where its work counts as done
  int32_t snapshot = -1;          // of its group
  int32_t group = -1;             // the group's first region
  int32_t tensor_node_count = 0;
  bool has_writes = false;      // of its nodes, to tensors
  bool has_data_sizes = false;  // of its results
  bool has_gradients = false;   // among its nodes
  bool needs_undo = false;  // a group's first region: what fails behind it has to take back torch's state and numbers
  bool has_guards = false;  // its group has late guards among its steps
};

/// A list, or a tuple with tensors in it, that existed before the trace: regions make it of its elements.
struct Gathered {
  NodeKind kind = NodeKind::Tuple;
  std::vector<ValueId> elements;
};

struct RegionPlan {
  std::vector<Region> regions;
  std::vector<int32_t> region_of;       // by item: the region it runs in, or -1
  std::vector<int32_t> deferred_of;     // by item: the region it runs behind, or -1
  std::vector<int32_t> in_front_of;     // by item: the first region of the group in front of which it runs
  std::vector<int32_t> step_of;         // by item: the region of whose group it is a step
  std::vector<uint8_t> is_overwritten;  // by item: a deferred store that another one behind the same group hides
  std::vector<PyObject*> constants;     // by value: what the entry guards (or the value itself) say it is; borrowed
  std::unordered_map<ValueId, Gathered> gathered;

  int32_t region_in_front_of(int32_t item) const {
    return static_cast<size_t>(item) < in_front_of.size() ? in_front_of[item] : -1;
  }

  int32_t step_region(int32_t item) const {
    return item >= 0 && static_cast<size_t>(item) < step_of.size() ? step_of[item] : -1;
  }

  /// Where an item's work is done: the last item of its group, or itself.
  int32_t position_of(int32_t item) const {
    if (item < 0 || static_cast<size_t>(item) >= region_of.size()) return item;
    const int32_t region = region_of[item] >= 0 ? region_of[item] : std::max(deferred_of[item], step_of[item]);
    return region >= 0 ? regions[region].last_item : item;
  }
};

struct RegionOptions {
  int32_t min_nodes = 0;            // torch nodes that make a region; 0: no regions
  std::vector<int32_t> excluded;    // items that run as steps of their own
  std::vector<int32_t> cuts;        // items that are no steps of a group: it ends in front of them
  std::vector<ValueId> varying;     // numbers that change from run to run: what uses them runs as steps
  bool takes_late_numbers = false;  // numbers that steps in front of the region computed
  bool takes_sizes = false;         // what follows from sizes is computed inside, and facts about it are decided there
  bool takes_gradients = false;     // a gradient joins the region that has all that it is computed from
  bool takes_data_sizes = false;  // results whose sizes depend on data may leave a region; none of its nodes uses them
};

/// `liveness` is that of the trace without regions. Values that are no tensors may leave a region: see make_entry.
RegionPlan plan_regions(const Trace& trace, const Liveness& liveness, const RegionOptions& options);

}  // namespace reprise::trace
