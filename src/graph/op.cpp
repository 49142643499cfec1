#include "graph/op.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "graph/rules.h"

namespace reprise::graph {

// The rules are in rules/, by family; a rule of several ops is declared again.
#define X(id, name, family, writes, hidden, flags, rule) bool rule(RuleCall& call);
#include "graph/ops.def"
#undef X

bool ask_host(RuleCall&) { return false; }

namespace {

constexpr OpInfo kOps[] = {
#define X(id, name, family, writes, hidden, flags, rule) {name, OpFamily::family, writes, hidden, flags, rule},
#include "graph/ops.def"
#undef X
};

constexpr OpInfo kExternOp = {"", OpFamily::Unknown, 0, 0, kPlain, ask_host};
constexpr OpInfo kExternRandomOp = {"", OpFamily::Unknown, 0, 0, kRandom, ask_host};

// Indices of kOps in order of the names.
constexpr auto kOrder = [] {
  std::array<std::uint16_t, kKnownOpCount> order{};
  for (std::uint32_t i = 0; i < kKnownOpCount; ++i) order[i] = static_cast<std::uint16_t>(i);
  std::sort(order.begin(), order.end(), [](auto a, auto b) { return kOps[a].name < kOps[b].name; });
  return order;
}();

constexpr std::uint16_t kNoTwin = 0xffff;

// For each op, the one whose name lacks the underscore in front of the overload.
constexpr auto kTwins = [] {
  std::array<std::uint16_t, kKnownOpCount> twins{};
  for (std::uint32_t i = 0; i < kKnownOpCount; ++i) {
    twins[i] = kNoTwin;
    const std::string_view name = kOps[i].name;
    const std::size_t dot = name.find('.') == name.npos ? name.size() : name.find('.');
    if (name[dot - 1] != '_') continue;
    char text[96] = {};
    std::size_t length = 0;
    for (std::size_t k = 0; k < name.size(); ++k) {
      if (k != dot - 1) text[length++] = name[k];
    }
    const std::string_view twin(text, length);
    const auto found = std::lower_bound(kOrder.begin(), kOrder.end(), twin,
                                        [](std::uint16_t index, std::string_view t) { return kOps[index].name < t; });
    if (found != kOrder.end() && kOps[*found].name == twin) twins[i] = *found;
  }
  return twins;
}();

}  // namespace

std::optional<OpId> find_functional_op(OpId op) {
  if (!is_known(op)) return std::nullopt;
  const std::uint16_t twin = kTwins[static_cast<std::uint32_t>(op)];
  return twin == kNoTwin ? std::nullopt : std::optional(static_cast<OpId>(twin));
}

const OpInfo& get_op_info(OpId op) {
  if (is_known(op)) return kOps[static_cast<std::uint32_t>(op)];
  return (static_cast<std::uint32_t>(op) & kExternRandom) != 0 ? kExternRandomOp : kExternOp;
}

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
