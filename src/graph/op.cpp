#include "graph/op.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "graph/rules.h"

namespace reprise::graph {

namespace {

constexpr InferRule Ask = nullptr;

constexpr OpInfo kOps[] = {
#define X(id, name, family, writes, hidden, flags, rule) {name, OpFamily::family, writes, hidden, flags, nullptr},
#include "graph/ops.def"
#undef X
};

constexpr OpInfo kExternOp = {"", OpFamily::Unknown, 0, 0, kPlain, Ask};

// Indices of kOps in order of the names.
constexpr auto kOrder = [] {
  std::array<std::uint16_t, kKnownOpCount> order{};
  for (std::uint32_t i = 0; i < kKnownOpCount; ++i) order[i] = static_cast<std::uint16_t>(i);
  std::sort(order.begin(), order.end(), [](auto a, auto b) { return kOps[a].name < kOps[b].name; });
  return order;
}();

}  // namespace

const OpInfo& get_op_info(OpId op) { return is_known(op) ? kOps[static_cast<std::uint32_t>(op)] : kExternOp; }

std::optional<OpId> find_known_op(std::string_view name) {
  const auto found =
      std::lower_bound(kOrder.begin(), kOrder.end(), name,
                       [](std::uint16_t index, std::string_view text) { return kOps[index].name < text; });
  if (found == kOrder.end() || kOps[*found].name != name) return std::nullopt;
  return static_cast<OpId>(*found);
}

std::uint64_t get_writes(OpId op, std::span<const Arg> args) {
  std::uint64_t writes = get_op_info(op).writes;
  if (writes == 0) return 0;
  // (input, weight, bias, running_mean, running_var, training, ...)
  const bool is_batch_norm = op == OpId::native_batch_norm || op == OpId::_native_batch_norm_legit ||
                             op == OpId::cudnn_batch_norm || op == OpId::miopen_batch_norm;
  if (is_batch_norm && args.size() > 5 && args[5].kind() == ArgKind::Bool && !args[5].get_bool()) return 0;
  for (std::size_t i = 0; i < args.size() && i < 64; ++i) {
    if (!args[i].is_value() && !args[i].is_list()) writes &= ~(std::uint64_t{1} << i);
  }
  return writes;
}

std::string_view get_family_name(OpFamily family) {
  switch (family) {
#define X(name, text, doc) \
  case OpFamily::name:     \
    return text;
#include "graph/op_families.def"
#undef X
  }
  REPRISE_UNREACHABLE("op family " + std::to_string(static_cast<int>(family)));
}

}  // namespace reprise::graph
