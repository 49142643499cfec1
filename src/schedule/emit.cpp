#include <algorithm>

#include "base/check.h"
#include "schedule/emit_impl.h"

namespace reprise::schedule {

namespace {

constexpr std::int64_t kVectorBlock = 4096;  // elements of a vector loop in one unit of a pointwise kernel
constexpr std::int64_t kColumnBlock = 64;    // the same where columns are reduced inside of the vector loop
constexpr std::int64_t kSerialBlock = 128;   // rows that one accumulator of such a sum adds up
constexpr std::int64_t kLeastUnitWork = 1024;
constexpr std::int64_t kLeastUnits = 64;

}  // namespace

Emitted Emitter::run() {
  collect_functions();
  collapse();
  order_vars();
  choose_vector();
  choose_tile();
  find_sources();
  choose_locals();
  add_buffers();
  emit_units();
  for (const bool is_checked : is_checked_) REPRISE_CHECK(is_checked, "a check of the group is not in its kernel");
  result_.kernel = std::move(builder_).finish();
  return std::move(result_);
}

const Op& Emitter::get_op(std::size_t member) const { return lowered_.get(group_.members[member].op); }

std::uint32_t Emitter::get_node(std::size_t member, ExprId expr) const {
  return states_[member].first_node + (expr.index() - get_op(member).first_expr);
}

// The same for all plain loads of one element.
std::uint32_t Emitter::get_shared_node(std::size_t member, ExprId expr) const {
  return shared_[get_node(member, expr)];
}

// --- loops

Emitter::Scope Emitter::open(std::uint8_t var, ValueId value) {
  const Scope scope{trail_.size(), open_vars_};
  vars_[var] = value;
  open_vars_ |= 1u << var;
  return scope;
}

void Emitter::close(const Scope& scope) {
  builder_.end_loop();
  forget(scope.trail);
  for (std::size_t v = 0; v < kMaxVars; ++v) {
    if (((open_vars_ & ~scope.open_vars) >> v & 1) != 0) vars_[v] = ValueId();
  }
  open_vars_ = scope.open_vars;
}

void Emitter::emit_units() {
  std::vector<std::uint8_t> outer;
  for (const std::uint8_t v : row_vars_) {
    if ((!is_row_vector_ || v != vector_) && (!has_tile_ || v != tile_)) outer.push_back(v);
  }
  std::int64_t block = 1;
  std::int64_t block_count = 1;
  const std::int64_t extent = has_vector_ ? space_.sizes[vector_] : 1;
  if (is_row_vector_) {
    block = std::min(extent, group_.has_reduction ? kColumnBlock : has_tile_ ? kTile : kVectorBlock);
    block_count = (extent + block - 1) / block;
  }
  const std::int64_t tile_extent = has_tile_ ? space_.sizes[tile_] : 1;
  const std::int64_t tile_count = (tile_extent + kTile - 1) / kTile;
  std::int64_t units = block_count * tile_count;
  for (const std::uint8_t v : outer) units *= space_.sizes[v];
  std::int64_t work = (is_row_vector_ ? block : 1) * std::min(tile_extent, kTile);
  for (const std::uint8_t v : col_vars_) work *= space_.sizes[v];
  // Short vector loops: some of the outer loops run inside of a unit.
  std::vector<std::uint8_t> serial;
  while (!outer.empty() && work < kLeastUnitWork && units / space_.sizes[outer.back()] >= kLeastUnits) {
    units /= space_.sizes[outer.back()];
    work *= space_.sizes[outer.back()];
    serial.insert(serial.begin(), outer.back());
    outer.pop_back();
  }
  result_.units = units;
  result_.unit_work = std::max<std::int64_t>(work, 1);

  const ValueId unit = builder_.begin_parallel(units);
  // The number of a unit, taken apart from the inner to the outer variables.
  ValueId rest = unit;
  std::int64_t left = units;
  const auto take = [&](std::int64_t size) {
    if (left == size) return rest;
    left /= size;
    if (size == 1) return builder_.constant(DType::Int64, 0);
    const ValueId factor = builder_.constant(DType::Int64, size);
    const ValueId part = builder_.op(ScalarOp::RemTrunc, rest, factor);
    rest = builder_.op(ScalarOp::DivTrunc, rest, factor);
    return part;
  };
  ValueId block_index;
  if (block_count > 1) block_index = take(block_count);
  ValueId tile_index;
  if (tile_count > 1) tile_index = take(tile_count);
  for (std::size_t i = outer.size(); i-- > 0;) {
    vars_[outer[i]] = take(space_.sizes[outer[i]]);
    open_vars_ |= 1u << outer[i];
  }
  std::vector<Scope> scopes;
  for (const std::uint8_t v : serial) {
    hoist_all();
    scopes.push_back(open(v, builder_.begin_loop(LoopKind::Serial, 0, space_.sizes[v])));
  }
  if (has_tile_) {
    hoist_all();
    scopes.push_back(open(tile_, begin_block(LoopKind::TileRows, kTile, tile_count, tile_index, tile_extent)));
  }
  if (is_row_vector_) {
    if (!has_tile_) hoist_all();  // a tile holds its vector loop and nothing else
    scopes.push_back(open(vector_, begin_block(LoopKind::Vector, block, block_count, block_index, extent)));
  }
  emit_phases();
  while (!scopes.empty()) {
    close(scopes.back());
    scopes.pop_back();
  }
  builder_.end_loop();
}

ValueId Emitter::begin_block(LoopKind kind, std::int64_t block, std::int64_t block_count, ValueId block_index,
                             std::int64_t extent) {
  if (block_count == 1) return builder_.begin_loop(kind, 0, extent);
  const Affine first = Affine(block_index) * block;
  if (extent % block == 0) return builder_.begin_loop(kind, first, first + block);
  return builder_.begin_loop_with_limit(kind, first, first + block, extent);
}

// In front of the outer loops only what every phase may compute: nothing that waits for a reduction.
void Emitter::hoist_all() {
  if (group_.has_reduction) return;
  ++stamp_;
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (group_.members[m].is_stored) hoist(m, get_op(m).value);
    hoist_checks(m);
  }
}

void Emitter::emit_phases() {
  if (!group_.has_reduction) {
    // Checks, all values, then all stores: a result may lie where an operand is.
    for (std::size_t m = 0; m < states_.size(); ++m) emit_checks(m);
    std::vector<ValueId> values(states_.size());
    for (std::size_t m = 0; m < states_.size(); ++m) {
      if (group_.members[m].is_stored) values[m] = emit(m, get_op(m).value);
    }
    for (std::size_t m = 0; m < states_.size(); ++m) {
      if (values[m].is_valid()) store(m, values[m]);
    }
    return;
  }
  std::int32_t last = -1;
  for (const Member& member : group_.members) last = std::max(last, member.phase);
  phase_ = -1;
  store_rows();
  for (phase_ = 0; phase_ <= last; ++phase_) {
    if (!has_full_work()) {
      store_rows();
      continue;
    }
    emit_pass();
    store_rows();
  }
}

bool Emitter::is_full_root(std::size_t m) const {
  const Member& member = group_.members[m];
  if (!member.is_full || member.phase != phase_) return false;
  return get_op(m).is_reduction || member.is_stored || states_[m].has_local;
}

// Whether the pass of this phase is over all columns for this member's checks.
bool Emitter::is_full_check(std::size_t m) const {
  const Member& member = group_.members[m];
  return member.is_full && member.phase == phase_ && get_op(m).has_checks();
}

bool Emitter::has_full_work() const {
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (is_full_root(m) || is_full_check(m)) return true;
  }
  return false;
}

void Emitter::store(std::size_t m, ValueId value) {
  const TensorId root = lowered_.get(get_op(m).result).root;
  builder_.store(get_buffer(root), make_position(states_[m].result, root), value);
}

void Emitter::store_rows() {
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (!group_.members[m].is_full && group_.members[m].phase == phase_) emit_checks(m);
  }
  std::vector<ValueId> values(states_.size());
  for (std::size_t m = 0; m < states_.size(); ++m) {
    const Member& member = group_.members[m];
    if (!member.is_full && member.phase == phase_ && member.is_stored) values[m] = emit(m, get_op(m).value);
  }
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (values[m].is_valid()) store(m, values[m]);
  }
}

// One pass over the columns: the reductions and stores of this phase.
void Emitter::emit_pass() {
  std::vector<ValueId> accumulators(states_.size());
  bool has_long_sum = false;
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (!is_full_root(m) || !get_op(m).is_reduction) continue;
    const Op& op = get_op(m);
    const DType dtype = lowered_.get(op.value).dtype;
    accumulators[m] = builder_.accumulator(op.combine, dtype);
    has_long_sum |= op.combine == Combine::Sum && types::is_float(dtype);
  }
  std::vector<std::uint8_t> serial;
  for (const std::uint8_t v : col_vars_) {
    if (is_row_vector_ || v != vector_) serial.push_back(v);
  }
  std::vector<Scope> scopes;
  std::vector<ValueId> outer_accumulators;
  for (std::size_t i = 0; i < serial.size(); ++i) {
    hoist_pass();
    const std::uint8_t v = serial[i];
    const std::int64_t extent = space_.sizes[v];
    const bool is_last = i + 1 == serial.size();
    if (is_row_vector_ && is_last && has_long_sum && extent > 2 * kSerialBlock) {
      // Blocks with accumulators of their own: rounding errors grow with the length of one chain.
      const std::int64_t block_count = (extent + kSerialBlock - 1) / kSerialBlock;
      const ValueId block = builder_.begin_loop(LoopKind::Serial, 0, block_count);
      scopes.push_back({trail_.size(), open_vars_});
      outer_accumulators = accumulators;
      for (std::size_t m = 0; m < states_.size(); ++m) {
        if (accumulators[m].is_valid() && is_blocked(m))
          accumulators[m] = builder_.accumulator(get_op(m).combine, builder_.get_dtype(accumulators[m]));
      }
      scopes.push_back(open(v, begin_block(LoopKind::Serial, kSerialBlock, block_count, block, extent)));
    } else {
      scopes.push_back(open(v, builder_.begin_loop(LoopKind::Serial, 0, extent)));
    }
  }
  if (has_vector_ && !is_row_vector_) {
    hoist_pass();
    scopes.push_back(open(vector_, builder_.begin_loop(LoopKind::Vector, 0, space_.sizes[vector_])));
  }
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (is_full_check(m)) emit_checks(m);
  }
  std::vector<ValueId> values(states_.size());
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (!is_full_root(m)) continue;
    const Op& op = get_op(m);
    values[m] = emit(m, op.value);
    if (op.is_reduction)
      builder_.reduce(accumulators[m], values[m], op.index_value.is_valid() ? emit(m, op.index_value) : ValueId());
  }
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (!values[m].is_valid() || get_op(m).is_reduction) continue;
    if (group_.members[m].is_stored) store(m, values[m]);
    if (states_[m].has_local) builder_.store(states_[m].local, make_local_index(), values[m]);
  }
  while (!scopes.empty()) {
    close(scopes.back());
    scopes.pop_back();
    if (!outer_accumulators.empty()) {  // the inner of the two loops of blocks was closed
      for (std::size_t m = 0; m < states_.size(); ++m) {
        if (accumulators[m].is_valid() && is_blocked(m))
          builder_.reduce(outer_accumulators[m], builder_.result(accumulators[m]));
      }
      accumulators = std::move(outer_accumulators);
      outer_accumulators.clear();
    }
  }
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (!accumulators[m].is_valid()) continue;
    const Op& op = get_op(m);
    if (op.result.is_valid()) states_[m].value = builder_.result(accumulators[m]);
    if (op.index_result.is_valid()) states_[m].index_value = builder_.result_index(accumulators[m]);
    if (group_.members[m].is_stored) store(m, states_[m].value);
    if (group_.members[m].is_index_stored) {
      const TensorId root = lowered_.get(op.index_result).root;
      builder_.store(get_buffer(root), make_position(states_[m].index_result, root), states_[m].index_value);
    }
  }
}

bool Emitter::is_blocked(std::size_t m) const {
  return get_op(m).combine == Combine::Sum && types::is_float(lowered_.get(get_op(m).value).dtype);
}

void Emitter::hoist_pass() {
  ++stamp_;
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (is_full_check(m)) hoist_checks(m);
    if (!is_full_root(m)) continue;
    hoist(m, get_op(m).value);
    if (get_op(m).index_value.is_valid()) hoist(m, get_op(m).index_value);
  }
}

Emitted emit_group(const Lowered& lowered, const graph::Graph& graph, const Group& group, bool keep_rounding) {
  return Emitter(lowered, graph, group, keep_rounding).run();
}

}  // namespace reprise::schedule
