// Plan: a graph as a Program whose kernels are still kernel IR.
//
//   Plan plan = make_plan(graph, options);      // schedule.h
//   codegen turns kernels[i] into the bytes of program.codes[i]; then the program can run
//
// Callers may rely on:
// - Inputs of the program: the graph's inputs in order, then its host constants in order.
// - The return step gives, in order: one id for each output, effect, gradient and saved value of the graph. Outputs
//   that the host makes itself (a view of an input or output, an input, the same output, None) are invalid ids, and so
//   are effects without a value, absent gradients and effects that the program has done already.
// - A launch whose kernel has checks gets flags as its last buffer, and a check step stands directly behind it
//   (program.h, requirement 5); what writes an input in place and comes behind the op in the graph comes behind that.
// - Equal kernels are one code. codes[i].key is the hash of kernels[i]; codegen adds target and tier.
// - Results of an extern step are flat: lists among them are expanded, in the order of the graph's node. An in-place op
//   writes the slots it is given; results that are its arguments are invalid ids.
// - An extern step with `outs` names the out= overload ("aten::mm.out"): the arguments are the functional overload's,
//   the outs go behind them, and nothing is returned.
// - A view step may be relative: offset of its slot minus that of the source, added to where the source's data is. So
//   inputs may start anywhere in their storages.
// Plain data. Deterministic: equal graphs give equal plans.
#pragma once

#include <cstdint>
#include <vector>

#include "base/export.h"
#include "kernel/kernel.h"
#include "program/program.h"

namespace reprise::schedule {

struct Statistics {
  std::uint32_t native_ops = 0;  // nodes of the graph that became part of a kernel
  std::uint32_t extern_ops = 0;
  std::uint32_t launches = 0;
  std::int64_t temporary_bytes = 0;  // what the temporaries in the arena would take without sharing
};

struct Plan {
  program::Program program;
  std::vector<kernel::Kernel> kernels;
  std::vector<bool> effect_is_done;  // one for each effect: the program writes the input itself; only the version moves
  Statistics statistics;
};

}  // namespace reprise::schedule
