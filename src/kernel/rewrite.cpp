#include <algorithm>

#include "kernel/rewrite_impl.h"

namespace reprise::kernel {

NodeId Rewriter::add_node(ScalarOp op, DType dtype, std::initializer_list<ValueId> operands, std::uint64_t payload) {
  Node node;
  node.op = op;
  node.dtype = dtype;
  node.payload = payload;
  for (const ValueId operand : operands) node.operands[node.operand_count++] = operand;
  kernel_.nodes.push_back(node);
  return NodeId(static_cast<std::uint32_t>(kernel_.nodes.size() - 1));
}

IndexId Rewriter::add_index(const Affine& affine) {
  kernel_.indexes.push_back(affine);
  return IndexId(static_cast<std::uint32_t>(kernel_.indexes.size() - 1));
}

RegionId Rewriter::add_region() {
  kernel_.regions.emplace_back();
  return RegionId(static_cast<std::uint32_t>(kernel_.regions.size() - 1));
}

LoopId Rewriter::add_loop(Loop loop) {
  const LoopId id(static_cast<std::uint32_t>(kernel_.loops.size()));
  loop.var = add_node(ScalarOp::LoopVar, DType::Int64, {}, id.index());
  kernel_.loops.push_back(loop);
  return id;
}

BufferId Rewriter::add_local(DType dtype, std::int64_t count) {
  kernel_.buffers.push_back({BufferKind::Local, dtype, true, true, count});
  return BufferId(static_cast<std::uint32_t>(kernel_.buffers.size() - 1));
}

ValueId Rewriter::add_constant(DType dtype, std::uint64_t bits) {
  for (const NodeId id : kernel_.prologue) {
    const Node& node = kernel_.get(id);
    if (node.op == ScalarOp::Const && node.dtype == dtype && node.payload == bits) return id;
  }
  kernel_.prologue.push_back(add_node(ScalarOp::Const, dtype, {}, bits));
  return kernel_.prologue.back();
}

ValueId Rewriter::add_value(const Affine& affine, std::vector<NodeId>& nodes) {
  if (affine.is_constant()) return add_constant(DType::Int64, static_cast<std::uint64_t>(affine.constant()));
  if (affine.constant() == 0 && affine.terms().size() == 1 && affine.terms()[0].coefficient == 1) {
    return affine.terms()[0].value;
  }
  nodes.push_back(add_node(ScalarOp::Index, DType::Int64, {}, add_index(affine).index()));
  return nodes.back();
}

RegionId Rewriter::strip_loop(RegionId region, std::size_t position, std::int64_t length) {
  const NodeId node = kernel_.get(region)[position];
  const LoopId inner_id(static_cast<std::uint32_t>(kernel_.get(node).payload));
  const Loop inner = kernel_.get(inner_id);
  const std::int64_t stride = inner.step * length;

  IndexId limit;  // the end of the whole range, where a strip may stick out of it
  std::vector<NodeId> ahead;
  const auto trips = find_trip_count(kernel_, inner);
  if (!trips || *trips % length != 0) {
    limit = inner.upper;
    if (inner.limit.is_valid()) {
      const ValueId upper = add_value(kernel_.get(inner.upper), ahead);
      const ValueId other = add_value(kernel_.get(inner.limit), ahead);
      ahead.push_back(add_node(ScalarOp::Min, DType::Int64, {upper, other}));
      limit = add_index(ahead.back());
    }
  }
  Loop outer = inner;
  outer.kind = LoopKind::Serial;
  outer.lanes = outer.unroll = 0;
  outer.step = stride;
  outer.body = add_region();
  const LoopId outer_id = add_loop(outer);
  const ValueId start = kernel_.get(outer_id).var;

  Loop& strip = kernel_.get(inner_id);
  strip.lower = add_index(start);
  strip.upper = add_index(Affine(start) + stride);
  strip.limit = limit;

  const NodeId outer_node = add_loop_node(outer_id);
  kernel_.get(outer.body).push_back(node);
  std::vector<NodeId>& nodes = kernel_.get(region);
  nodes[position] = outer_node;
  nodes.insert(nodes.begin() + static_cast<std::ptrdiff_t>(position), ahead.begin(), ahead.end());
  return outer.body;
}

std::optional<std::int64_t> find_most_trips(const Kernel& kernel, const Loop& loop) {
  std::optional<std::int64_t> most;
  const auto consider = [&](IndexId bound) {
    const Affine span = kernel.get(bound) - kernel.get(loop.lower);
    if (!span.is_constant()) return;
    const std::int64_t trips = span.constant() <= 0 ? 0 : (span.constant() + loop.step - 1) / loop.step;
    most = most ? std::min(*most, trips) : trips;
  };
  consider(loop.upper);
  if (loop.limit.is_valid()) consider(loop.limit);
  return most;
}

}  // namespace reprise::kernel
