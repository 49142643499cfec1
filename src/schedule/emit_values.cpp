// The kernel's operands, the nodes of expressions, and checks.
#include <string>

#include "base/check.h"
#include "schedule/emit_impl.h"

namespace reprise::schedule {

// --- operands

std::int64_t Emitter::get_buffer_count(TensorId root) const {
  const lower::Tensor& tensor = lowered_.get(root);
  std::int64_t count = 1;
  for (std::size_t d = 0; d < tensor.sizes.rank; ++d) count += (tensor.sizes[d] - 1) * tensor.strides[d];
  return count;
}

void Emitter::add_buffers() {
  // Reads first, then what is written, each in order of first touch.
  struct Use {
    TensorId root;
    bool is_read = false;
    bool is_written = false;
    bool is_bounded = true;
  };
  std::vector<Use> uses;
  const auto get_use = [&](TensorId root) -> Use& {
    for (Use& use : uses) {
      if (use.root == root) return use;
    }
    uses.push_back({root});
    return uses.back();
  };
  for (std::size_t m = 0; m < states_.size(); ++m) {
    const Op& op = get_op(m);
    for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
      const std::uint32_t node = get_node(m, ExprId(e));
      if (lowered_.exprs[e].op != ScalarOp::Load || sources_[node].member != kNone) continue;
      const Access& access = lowered_.accesses[lowered_.exprs[e].payload];
      Use& use = get_use(lowered_.get(access.tensor).root);
      use.is_read = true;
      // A view may reach beyond the tensor that it is of, in its storage.
      const lower::Tensor& root = lowered_.get(use.root);
      std::int64_t last = functions_[node_functions_[node]].constant - root.offset;
      std::int64_t first = last;
      for (std::size_t v = 0; v < space_.count; ++v) {
        const std::int64_t reach = functions_[node_functions_[node]].by_var[v] * (space_.sizes[v] - 1);
        (reach < 0 ? first : last) += reach;
      }
      if (lowered_.exprs[e].operand_count == 0 && access.indirect.empty() &&
          (first < 0 || last >= get_buffer_count(use.root)))
        use.is_bounded = false;
    }
  }
  for (std::size_t m = 0; m < states_.size(); ++m) {
    const Op& op = get_op(m);
    if (group_.members[m].is_stored) get_use(lowered_.get(op.result).root).is_written = true;
    if (group_.members[m].is_index_stored) get_use(lowered_.get(op.index_result).root).is_written = true;
  }
  for (const Use& use : uses) {
    const bool is_read_back = use.is_written && group_.has_reduction;
    const auto how =
        use.is_written ? (use.is_read || is_read_back ? kernel::kReadWrite : kernel::kWrite) : kernel::kRead;
    buffers_.push_back(
        builder_.add_buffer(lowered_.get(use.root).dtype, how, use.is_bounded ? get_buffer_count(use.root) : -1));
    result_.buffers.push_back({use.root, use.is_written});
  }
  for (std::size_t m = 0; m < states_.size(); ++m) {
    const Op& op = get_op(m);
    for (std::uint32_t check = op.first_check; check < op.last_check; ++check) result_.checks.push_back(check);
  }
  is_checked_.assign(result_.checks.size(), false);
  if (!result_.checks.empty())
    flags_ = builder_.add_buffer(DType::Int32, kernel::kWrite, static_cast<std::int64_t>(result_.checks.size()));
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (states_[m].has_local) states_[m].local = builder_.add_local(lowered_.get(get_op(m).result).dtype, local_count_);
  }
}

BufferId Emitter::get_buffer(TensorId root) const {
  for (std::size_t i = 0; i < result_.buffers.size(); ++i) {
    if (result_.buffers[i].root == root) return buffers_[i];
  }
  REPRISE_UNREACHABLE("no buffer of %" + std::to_string(root.index()));
}

ValueId Emitter::get_number(std::uint64_t value) {
  for (std::size_t i = 0; i < result_.numbers.size(); ++i) {
    if (result_.numbers[i].index() == value) return numbers_[i];
  }
  const graph::ValueId id(static_cast<std::uint32_t>(value));
  DType dtype = DType::Float64;
  if (graph_.get_value(id).kind == graph::ValueKind::Int) dtype = DType::Int64;
  if (graph_.get_value(id).kind == graph::ValueKind::Bool) dtype = DType::Bool;
  result_.numbers.push_back(id);
  numbers_.push_back(builder_.add_param(dtype));
  return numbers_.back();
}

Affine Emitter::make_affine(const VarIndex& function, std::int64_t shift) const {
  Affine affine(function.constant + shift);
  for (std::size_t v = 0; v < space_.count; ++v) {
    if (function.by_var[v] == 0) continue;
    REPRISE_CHECK(vars_[v].is_valid(), "variable " + std::to_string(v) + " has no loop here");
    affine += Affine(vars_[v]) * function.by_var[v];
  }
  return affine;
}

Affine Emitter::make_position(Position position, TensorId root) const {
  return make_affine(functions_[position], -lowered_.get(root).offset);
}

Affine Emitter::make_local_index() const {
  Affine affine;
  std::int64_t stride = 1;
  for (std::size_t i = col_vars_.size(); i-- > 0;) {
    affine += Affine(vars_[col_vars_[i]]) * stride;
    stride *= space_.sizes[col_vars_[i]];
  }
  return affine;
}

// --- expressions

ValueId Emitter::remember(std::uint32_t node, ValueId value) {
  memo_[node] = value;
  trail_.push_back(node);
  return value;
}

void Emitter::forget(std::size_t length) {
  while (trail_.size() > length) {
    memo_[trail_.back()] = ValueId();
    trail_.pop_back();
  }
}

ValueId Emitter::emit_source(const Source& source) {
  const auto m = static_cast<std::size_t>(source.member);
  const Member& member = group_.members[m];
  const Op& op = get_op(m);
  if (op.is_reduction) {
    const ValueId value = source.is_index ? states_[m].index_value : states_[m].value;
    REPRISE_CHECK(value.is_valid(), "a reduction is read before its phase has run");
    return value;
  }
  if (group_.has_reduction && member.is_full && member.phase < phase_) {
    if (states_[m].has_local) return builder_.load(states_[m].local, make_local_index());
    const TensorId root = lowered_.get(op.result).root;
    if (member.is_stored) return builder_.load(get_buffer(root), make_position(states_[m].result, root));
  }
  return emit(m, op.value);
}

ValueId Emitter::emit(std::size_t m, ExprId expr) {
  const std::uint32_t number = get_shared_node(m, expr);
  if (memo_[number].is_valid()) return memo_[number];
  const ExprNode& node = lowered_.get(expr);
  switch (node.op) {
    case ScalarOp::Const:
      return builder_.constant_bits(node.dtype, node.payload);
    case ScalarOp::Param:
      return get_number(node.payload);
    case ScalarOp::LoopVar:
      return remember(number, builder_.index(make_affine(functions_[node_functions_[number]])));
    case ScalarOp::Load:
      return remember(number, emit_load(m, number, node));
    case ScalarOp::Cast:
      return remember(number, emit_cast(emit(m, node.operands[0]), node.dtype));
    case ScalarOp::Bitcast:
      return remember(number, builder_.bitcast(emit(m, node.operands[0]), node.dtype));
    case ScalarOp::Math: {
      const ValueId a = emit(m, node.operands[0]);
      const ValueId b = node.operand_count > 1 ? emit(m, node.operands[1]) : ValueId();
      return remember(number, builder_.math(static_cast<kernel::MathFunction>(node.payload & 0xff),
                                            static_cast<kernel::Numerics>(node.payload >> 8), a, b));
    }
    default: {
      ValueId operands[3];
      for (std::size_t i = 0; i < node.operand_count; ++i) operands[i] = emit(m, node.operands[i]);
      return remember(number, builder_.op(node.op, operands[0], operands[1], operands[2]));
    }
  }
}

ValueId Emitter::emit_cast(ValueId value, DType dtype) {
  const kernel::Node& node = builder_.peek().get(value);
  const bool is_half = node.dtype == DType::Float16 || node.dtype == DType::BFloat16;
  if (!keep_rounding_ && is_half && node.op == ScalarOp::Cast && builder_.get_dtype(node.operands[0]) == dtype)
    return node.operands[0];
  return builder_.cast(value, dtype);
}

ValueId Emitter::emit_load(std::size_t m, std::uint32_t number, const ExprNode& node) {
  const Access& access = lowered_.accesses[node.payload];
  const ValueId mask = node.operand_count > 0 ? emit(m, node.operands[0]) : ValueId();
  if (sources_[number].member != kNone) {
    const ValueId value = emit_source(sources_[number]);
    if (!mask.is_valid()) return value;
    return builder_.op(ScalarOp::Select, mask, value, builder_.constant_bits(node.dtype, 0));
  }
  const TensorId root = lowered_.get(access.tensor).root;
  Affine index = make_position(node_functions_[number], root);
  for (const lower::Indirect& term : access.indirect) index += Affine(emit(m, term.value)) * term.coefficient;
  return builder_.load(get_buffer(root), index, mask);
}

// Computes what is needed for the node and depends on open loops only: in front of the loop that opens next.
void Emitter::hoist(std::size_t m, ExprId expr) {
  const std::uint32_t number = get_shared_node(m, expr);
  if (stamps_[number] == stamp_ || memo_[number].is_valid()) return;
  stamps_[number] = stamp_;
  const ExprNode& node = lowered_.get(expr);
  if (node.op == ScalarOp::Const || node.op == ScalarOp::Param) return;
  if ((node_vars_[number] & ~open_vars_) == 0) {
    emit(m, expr);
    return;
  }
  for (std::size_t i = 0; i < node.operand_count; ++i) hoist(m, node.operands[i]);
  if (node.op != ScalarOp::Load) return;
  for (const lower::Indirect& term : lowered_.accesses[node.payload].indirect) hoist(m, term.value);
  const std::int32_t source = sources_[number].member;
  if (source == kNone) return;
  const Member& member = group_.members[static_cast<std::size_t>(source)];
  const Op& op = get_op(static_cast<std::size_t>(source));
  if (op.is_reduction) return;
  if (group_.has_reduction && member.is_full && member.phase < phase_ &&
      (member.is_stored || states_[static_cast<std::size_t>(source)].has_local))
    return;
  hoist(static_cast<std::size_t>(source), op.value);
}

// --- checks

// Emits the checks of a member that depend on open loops only; at the end of the innermost loop, on what is open is
// all. Each is emitted once: what it does not depend on need not be open.
void Emitter::emit_checks(std::size_t m) {
  for (std::size_t i = 0; i < result_.checks.size(); ++i) {
    const Op& op = get_op(m);
    const std::uint32_t check = result_.checks[i];
    if (is_checked_[i] || check < op.first_check || check >= op.last_check) continue;
    const ExprId fails = lowered_.checks[check].fails;
    if ((node_vars_[get_node(m, fails)] & ~open_vars_) != 0) continue;
    is_checked_[i] = true;
    builder_.store(flags_, static_cast<std::int64_t>(i), builder_.constant(DType::Int32, 1), emit(m, fails));
  }
}

// In front of the loop that opens next: the checks that are ripe, and what others need and is.
void Emitter::hoist_checks(std::size_t m) {
  const Op& op = get_op(m);
  for (std::uint32_t check = op.first_check; check < op.last_check; ++check) hoist(m, lowered_.checks[check].fails);
  emit_checks(m);
}

}  // namespace reprise::schedule
