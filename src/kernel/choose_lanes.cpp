#include <algorithm>

#include "kernel/analysis.h"
#include "kernel/prepare.h"

namespace reprise::kernel {
namespace {

class LaneChooser {
 public:
  LaneChooser(Kernel& kernel, int budget, int register_bytes)
      : kernel_(kernel), analysis_(kernel), budget_(budget), register_bytes_(register_bytes) {}

  void run() {
    const bool is_narrow = std::all_of(kernel_.nodes.begin(), kernel_.nodes.end(), [&](const Node& node) {
      if (node.op == ScalarOp::Result || node.op == ScalarOp::Reduce) return types::get_size_bytes(node.dtype) <= 4;
      if (node.op != ScalarOp::Load && node.op != ScalarOp::Store) return true;
      const auto id = NodeId(static_cast<std::uint32_t>(&node - kernel_.nodes.data()));
      return !analysis_.is_varying(id) || types::get_size_bytes(node.dtype) <= 2;
    });
    // A tile has as many parts as lanes.
    const bool has_tiles = std::any_of(kernel_.loops.begin(), kernel_.loops.end(),
                                       [](const Loop& loop) { return loop.kind == LoopKind::TileRows; });
    const bool is_wide = register_bytes_ > kLeastRegisterBytes && !has_tiles && !is_narrow;
    for (Loop& loop : kernel_.loops) {
      if (loop.kind != LoopKind::Vector || loop.lanes != 0) continue;
      const auto count = find_trip_count(kernel_, loop);
      const bool is_wide_loop = is_wide && !(count && *count < 16);
      loop.lanes = is_narrow || is_wide_loop ? 16 : 8;
      loop.unroll = is_wide_loop ? 2 : 4;
      const int weight = weigh(loop.body, loop.lanes, is_wide_loop ? register_bytes_ : kLeastRegisterBytes);
      while (loop.unroll > 1 && loop.unroll * weight > budget_) loop.unroll /= 2;
      while (count && loop.unroll > 1 && *count < loop.lanes * loop.unroll) loop.unroll /= 2;
    }
  }

 private:
  // Vector registers' worth of instructions for one lane set.
  int weigh(RegionId region, int lanes, int register_bytes) const {
    int weight = 0;
    for (const NodeId id : kernel_.get(region)) {
      const Node& node = kernel_.get(id);
      if (node.op == ScalarOp::Loop) {
        weight += weigh(kernel_.get_loop(node).body, lanes, register_bytes);
        continue;
      }
      const bool is_carried = node.op == ScalarOp::Reduce || node.op == ScalarOp::Scan;
      if (!is_carried && !analysis_.is_varying(id)) continue;
      weight += get_weight(node) * get_registers(node, lanes, register_bytes);
    }
    return weight;
  }

  int get_weight(const Node& node) const {
    switch (node.op) {
      case ScalarOp::Math:
        return Kernel::get_math_function(node) == MathFunction::Exp && Kernel::get_numerics(node) == Numerics::Sleef
                   ? 20
                   : get_row(node.op).weight;
      case ScalarOp::Cast: {
        const DType from = kernel_.get(node.operands[0]).dtype;
        return node.dtype == DType::BFloat16 ? 8 : from == DType::BFloat16 ? 1 : get_row(node.op).weight;
      }
      case ScalarOp::Reduce:
      case ScalarOp::Scan: {
        const Combine combine = Kernel::get_combine(kernel_.get(node.operands[0]));
        const bool is_sum = combine == Combine::Sum || combine == Combine::Prod;
        return is_sum ? 1 : combine == Combine::ArgMax || combine == Combine::ArgMin ? 8 : 3;
      }
      default:
        return get_row(node.op).weight;
    }
  }

  static int get_registers(const Node& node, int lanes, int register_bytes) {
    return std::max(1, lanes * static_cast<int>(types::get_size_bytes(node.dtype)) / register_bytes);
  }

  Kernel& kernel_;
  Analysis analysis_;
  int budget_;
  int register_bytes_;
};

}  // namespace

void choose_lanes(Kernel& kernel, int budget, int register_bytes) { LaneChooser(kernel, budget, register_bytes).run(); }

void prepare(Kernel& kernel, int register_bytes) {
  strip_mine_math(kernel);
  block_reductions(kernel);
  choose_lanes(kernel, 64, register_bytes);
}

}  // namespace reprise::kernel
