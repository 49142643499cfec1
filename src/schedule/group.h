// Groups: which LoopOps run in one kernel, at which index of its loops, and in which order kernels and library calls
// run.
//
// The essay: requirements of fusion.
//  1. A group is a box of loop variables (VarSpace) and members: ops with the index of each of their dimensions as an
//     affine function of the variables. In a group with reductions, `cols` are the variables that are reduced; the
//     others are rows. All reductions of a group reduce the same cols.
//  2. A member is full (computed for each row and column) or of a row. A member whose result is stored meets every
//     element of it exactly once.
//  3. A member may read what another member computes only at the position where that one computes it: no iteration
//     needs what another iteration made. A result of a row may be read by full members of later phases.
//  4. Items (groups and extern nodes) run in order; an op may join an item only at or behind the last item that
//     computes one of its operands. So there are no cycles, and nothing has to be searched.
//  5. An op is deferred if it is cheap to put off: pointwise, used by one other LoopOp, not needed outside. It goes
//     where its user goes, and gets an item of its own only if its user cannot take it in. Ops without operands
//     (constants, index arithmetic) are repeated in every user. An op with checks goes only where all of
//     it is read: eager looks at every index, whatever becomes of the result.
//  6. Cost: joining saves the store and the loads of what is passed on, or the second load of what both read, and
//     never adds memory traffic; so an op joins where it can. Limits: kMaxMembers, kMaxTouches and kMaxNodes a group
//     (compile time, registers); a dear op is not deferred into a user that repeats it (broadcast); reductions that
//     keep few elements of many do not take in stored full ops (they would be left with few units of work).
//     Neither does an op with a large result join an item far in front (its result would be kept for long), nor is one
//     with several large operands deferred to a user far behind (they would be).
//  7. Near-linear: an op tries the item of its last operand and the last readers of its operands, kMaxCandidates in
//     all; a trial is linear in the group's size, which is bounded.
// Deterministic: order comes from the order of ops only.
#pragma once

#include <vector>

#include "lower/lowered.h"
#include "schedule/index.h"

namespace reprise::schedule {

using lower::Access;
using lower::ExprId;
using lower::Lowered;
using lower::Op;
using lower::OpIndex;
using lower::OpKind;
using lower::TensorId;

inline constexpr std::size_t kMaxMembers = 64;
inline constexpr std::size_t kMaxTouches = 96;
inline constexpr std::uint32_t kMaxNodes = 200;  // of expressions; larger kernels cost more than their share to compile
inline constexpr std::size_t kMaxCandidates = 6;
inline constexpr std::int32_t kNearItems = 8;  // requirement 6: what is near
inline constexpr std::size_t kNearOps = 48;
inline constexpr std::int64_t kSmallBytes = 64 * 1024;
inline constexpr std::size_t kMaxDeferred = 24;

struct Member {
  OpIndex op;
  Indexes indexes;
  VarIndex result;        // position of the result's element in its storage
  VarIndex index_result;  // of argmax and argmin
  bool is_deferred = false;
  // --- set by finish_groups()
  bool is_full = false;  // its element depends on a column
  bool is_stored = false;
  bool is_index_stored = false;
  std::int32_t phase = 0;  // of the passes over the columns; a row member runs behind pass `phase`, -1: before all
};

// A storage that the group touches, and where.
struct Touch {
  TensorId root;
  VarIndex position;
  std::int32_t member = -1;  // that computes it; -1: read from memory
  bool is_index = false;     // the index result of the member
  bool is_indirect = false;  // the position is not all
};

struct Group {
  VarSpace space;
  std::uint32_t cols = 0;
  bool has_reduction = false;
  std::vector<Member> members;  // in an order that computes before it uses
  std::vector<Touch> touches;
  VarIndex linear;               // row-major index in the box of the first op
  VarIndex row_linear;           // the same over the kept dimensions of the first reduction
  std::uint32_t node_count = 0;  // of the members' expressions
};

struct Item {
  bool is_extern = false;
  OpIndex op;               // of an extern
  std::uint32_t group = 0;  // else
};

struct Grouping {
  std::vector<Item> items;
  std::vector<Group> groups;
  std::vector<std::int32_t> item_of_op;  // -1: in no item (views), or repeated in its users
};

struct GroupOptions {
  bool fuse = true;  // false: one group for each op
};

// `is_root[t]`: tensor t is needed behind the last item.
Grouping make_groups(const Lowered& lowered, const graph::Graph& graph, const std::vector<bool>& is_root,
                     const GroupOptions& options = {});

// One line a group: variables, then members; for tests and the log.
REPRISE_EXPORT std::string print(const Grouping& grouping, const Lowered& lowered);

// Calls visit(const Access&) for every access of the op's expression.
template <class Visit>
void for_each_access(const Lowered& lowered, const Op& op, Visit&& visit) {
  for (std::uint32_t i = op.first_expr; i < op.last_expr; ++i) {
    if (lowered.exprs[i].op == lower::ScalarOp::Load) visit(lowered.accesses[lowered.exprs[i].payload]);
  }
}

// Calls visit(TensorId) for every number of the graph that the op's expression uses (the row of its value).
template <class Visit>
void for_each_number(const Lowered& lowered, const Op& op, Visit&& visit) {
  for (std::uint32_t i = op.first_expr; i < op.last_expr; ++i) {
    if (lowered.exprs[i].op == lower::ScalarOp::Param)
      visit(TensorId(static_cast<std::uint32_t>(lowered.exprs[i].payload)));
  }
}

}  // namespace reprise::schedule
