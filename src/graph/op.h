// Operations of the graph by id. The rows of ops.def are the known ones; any other name is interned by the graph's
// Context and is "extern": no rule, no family, everything about it comes with the node (its mut mask).
//
// A name is torch's: "aten::add.Tensor", without the dot when the overload has no name. Nodes carry all arguments of
// the schema, in its order, defaults included. Two namespaces are ours: "scalar::" computes on Python numbers, "rng::"
// on the state of a random generator.
// Constant data; safe on every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/export.h"

namespace reprise::graph {

enum class OpId : std::uint32_t {
#define X(id, name, family, writes, hidden, flags, rule) id,
#include "graph/ops.def"
#undef X
  kKnownCount,
};

constexpr std::uint32_t kKnownOpCount = static_cast<std::uint32_t>(OpId::kKnownCount);

// Bit of the ids of extern ops that draw from a generator.
constexpr std::uint32_t kExternRandom = std::uint32_t{1} << 31;

constexpr bool is_known(OpId op) { return op < OpId::kKnownCount; }

enum class OpFamily : std::uint8_t {
#define X(name, text, doc) name,
#include "graph/op_families.def"
#undef X
};

// Flags of an op; see ops.def.
enum OpFlag : std::uint16_t {
  kPlain = 0,
  kRandom = 1 << 0,      // draws from a generator: a root, in order, never merged, never computed again
  kOverwrites = 1 << 1,  // the old contents of what it writes do not matter
  kReadsData = 1 << 2,   // its backward formula looks at data: a region ends in front of it
  kKeep = 1 << 3,        // dear: the partition saves its results and does not compute them again
  kDataSizes = 1 << 4,   // the sizes of its results depend on data
  kMultiView = 1 << 5,   // a view op with a list of results
  kRoot = 1 << 6,        // lives without uses (assert, rng state)
};

class RuleCall;
// Fills in the metadata of the results; false: ask the host (nothing is known then).
using InferRule = bool (*)(RuleCall& call);

struct OpInfo {
  std::string_view name;
  OpFamily family;
  std::uint64_t writes;  // argument i is written if bit i is set; hidden ones included
  std::uint64_t hidden;  // of those, the ones that torch's schema does not say
  std::uint16_t flags;
  InferRule rule;  // ask_host: there is none
};

// The row of a known op; for an extern one a row with family Unknown and at most kRandom.
REPRISE_EXPORT const OpInfo& get_op_info(OpId op);
REPRISE_EXPORT std::optional<OpId> find_known_op(std::string_view name);

class Arg;
// The arguments that this call writes: the row's `writes`, less what is None and what the flags of the call switch off
// (batch norm in evaluation mode).
REPRISE_EXPORT std::uint64_t get_writes(OpId op, std::span<const Arg> args);

// add.Tensor for add_.Tensor, _foreach_add.List for _foreach_add_.List: the op that gives a new tensor instead. Nothing
// if there is none in the table (zero_, the fused optimisers).
REPRISE_EXPORT std::optional<OpId> find_functional_op(OpId op);

REPRISE_EXPORT std::string_view get_family_name(OpFamily family);

inline bool has_flag(OpId op, OpFlag flag) { return (get_op_info(op).flags & flag) != 0; }
inline bool is_view(OpId op) { return get_op_info(op).family == OpFamily::View; }
inline bool is_random(OpId op) { return has_flag(op, kRandom); }

}  // namespace reprise::graph
