#include "kernel/analysis.h"

#include <algorithm>
#include <numeric>

namespace reprise::kernel {

Analysis::Analysis(const Kernel& kernel)
    : kernel_(kernel),
      vector_loop_(kernel.nodes.size()),
      varying_(kernel.nodes.size(), false),
      reached_(kernel.nodes.size(), false) {
  for (const ValueId id : kernel.param_values) reached_[id.index()] = true;
  visit_nodes(kernel.prologue, LoopId());
  for (const LoopId body : kernel.bodies) visit_loop(body, LoopId());
}

bool Analysis::is_varying(const Affine& affine) const {
  return std::any_of(affine.terms().begin(), affine.terms().end(),
                     [&](const Term& term) { return is_varying(term.value); });
}

void Analysis::visit_loop(LoopId id, LoopId vector_loop) {
  const Loop& loop = kernel_.get(id);
  if (loop.kind == LoopKind::Vector) vector_loop = id;
  const std::uint32_t var = loop.var.index();
  reached_[var] = true;
  vector_loop_[var] = vector_loop;
  varying_[var] = loop.kind == LoopKind::Vector;
  visit_nodes(kernel_.get(loop.body), vector_loop);
}

void Analysis::visit_nodes(const std::vector<NodeId>& nodes, LoopId vector_loop) {
  for (const NodeId id : nodes) {
    const Node& node = kernel_.get(id);
    reached_[id.index()] = true;
    vector_loop_[id.index()] = vector_loop;
    if (node.op == ScalarOp::Loop) {
      visit_loop(LoopId(static_cast<std::uint32_t>(node.payload)), vector_loop);
      continue;
    }
    bool varies = node.op == ScalarOp::Accumulator && vector_loop.is_valid();
    for (int i = 0; i < node.operand_count; ++i) varies = varies || varying_[node.operands[i].index()];
    if (node.op == ScalarOp::Load || node.op == ScalarOp::Store) {
      varies = varies || is_varying(kernel_.get(kernel_.get_access(node).index));
    }
    if (node.op == ScalarOp::Index) {
      varies = is_varying(kernel_.get(IndexId(static_cast<std::uint32_t>(node.payload))));
    }
    varying_[id.index()] = varies;
  }
}

std::optional<std::int64_t> find_trip_count(const Kernel& kernel, const Loop& loop) {
  const Affine span = kernel.get(loop.upper) - kernel.get(loop.lower);
  if (!span.is_constant()) return std::nullopt;
  std::int64_t count = span.constant();
  if (loop.limit.is_valid()) {
    const Affine rest = kernel.get(loop.limit) - kernel.get(loop.lower);
    if (!rest.is_constant()) return std::nullopt;
    count = std::min(count, rest.constant());
  }
  return count <= 0 ? 0 : (count + loop.step - 1) / loop.step;
}

namespace {

// A number that divides every value of the expression; 0 if it is 0. Variables of strips are multiples of their step.
std::int64_t get_divisor(const Kernel& kernel, const Affine& affine) {
  std::int64_t divisor = affine.constant();
  for (const Term& term : affine.terms()) {
    const Node& node = kernel.get(term.value);
    std::int64_t of_value = 1;
    if (node.op == ScalarOp::LoopVar) {
      const Loop& loop = kernel.get_loop(node);
      of_value = std::gcd(loop.step, get_divisor(kernel, kernel.get(loop.lower)));
    }
    divisor = std::gcd(divisor, term.coefficient * of_value);
  }
  return divisor < 0 ? -divisor : divisor;
}

}  // namespace

std::int64_t get_trip_divisor(const Kernel& kernel, const Loop& loop) {
  if (const auto count = find_trip_count(kernel, loop)) return *count;
  // Each bound alone gives a multiple of the divisor, so their minimum does.
  std::int64_t divisor = get_divisor(kernel, kernel.get(loop.upper) - kernel.get(loop.lower));
  if (loop.limit.is_valid()) {
    divisor = std::gcd(divisor, get_divisor(kernel, kernel.get(loop.limit) - kernel.get(loop.lower)));
  }
  return std::max<std::int64_t>(divisor, 1);
}

}  // namespace reprise::kernel
