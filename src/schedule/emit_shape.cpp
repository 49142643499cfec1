// Which loops a group gets: what of its variables is one, their order, the vector loop, tiles; and who computes what.
#include <algorithm>

#include "schedule/emit_impl.h"

namespace reprise::schedule {

// --- what depends on the variables

Emitter::Position Emitter::add_function(const VarIndex& function) {
  functions_.push_back(function);
  return static_cast<Position>(functions_.size() - 1);
}

void Emitter::collect_functions() {
  std::uint32_t node_count = 0;
  for (std::size_t m = 0; m < group_.members.size(); ++m) {
    const Member& member = group_.members[m];
    const Op& op = lowered_.get(member.op);
    MemberState& state = states_.emplace_back();
    state.first_node = node_count;
    node_count += op.last_expr - op.first_expr;
    for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
      const ExprNode& node = lowered_.exprs[e];
      Position position = kNone;
      if (node.op == ScalarOp::LoopVar) {
        position = add_function(member.indexes[node.payload]);
      } else if (node.op == ScalarOp::Load) {
        const Access& access = lowered_.accesses[node.payload];
        position = add_function(compose(access.constant, {access.by_dim.data(), op.sizes.rank}, member.indexes));
      }
      node_functions_.push_back(position);
    }
    if (op.result.is_valid()) state.result = add_function(member.result);
    if (op.index_result.is_valid()) state.index_result = add_function(member.index_result);
  }
  memo_.resize(node_count);
  node_vars_.resize(node_count, 0);
  sources_.resize(node_count, {kNone, false});
  stamps_.resize(node_count, 0);
}

bool Emitter::can_merge(std::size_t outer, std::size_t inner) const {
  for (const VarIndex& function : functions_) {
    if (function.by_var[outer] != function.by_var[inner] * space_.sizes[inner]) return false;
  }
  return true;
}

void Emitter::collapse() {
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (std::size_t a = 0; a < space_.count; ++a) {
      for (std::size_t b = 0; b < space_.count; ++b) {
        if (a == b || space_.sizes[a] == 1 || space_.sizes[b] == 1) continue;
        if ((cols_ >> a & 1) != (cols_ >> b & 1) || !can_merge(a, b)) continue;
        space_.sizes[b] *= space_.sizes[a];
        space_.sizes[a] = 1;
        for (VarIndex& function : functions_) function.by_var[a] = 0;
        is_changed = true;
      }
    }
  }
  for (std::size_t v = 0; v < space_.count; ++v) {
    if (space_.sizes[v] != 1) continue;
    for (VarIndex& function : functions_) function.by_var[v] = 0;
  }
}

// Rows, then columns, each from the greatest stride in the largest result to the least.
void Emitter::order_vars() {
  const VarIndex* primary = nullptr;
  std::int64_t most = -1;
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (!group_.members[m].is_stored && !group_.members[m].is_index_stored) continue;
    const Position position = states_[m].result != kNone ? states_[m].result : states_[m].index_result;
    std::int64_t count = 1;
    for (std::size_t v = 0; v < space_.count; ++v) {
      if (functions_[position].by_var[v] != 0) count *= space_.sizes[v];
    }
    if (count <= most) continue;
    most = count;
    primary = &functions_[position];
  }
  for (std::size_t v = 0; v < space_.count; ++v) {
    if (space_.sizes[v] == 1) continue;
    ((cols_ >> v & 1) != 0 ? col_vars_ : row_vars_).push_back(static_cast<std::uint8_t>(v));
  }
  const auto get_key = [&](std::uint8_t v) {
    if (primary != nullptr && primary->by_var[v] != 0) return primary->by_var[v];
    std::int64_t key = 0;
    for (const VarIndex& function : functions_) key = std::max(key, std::abs(function.by_var[v]));
    return key;
  };
  const auto is_before = [&](std::uint8_t a, std::uint8_t b) { return get_key(a) > get_key(b); };
  std::stable_sort(row_vars_.begin(), row_vars_.end(), is_before);
  std::stable_sort(col_vars_.begin(), col_vars_.end(), is_before);
}

void Emitter::choose_vector() {
  double best = -1;
  const auto consider = [&](std::uint8_t v) {
    double score = 0;
    // An access counts by the elements that it runs through.
    const auto add_score = [&](const VarIndex& function, double weight) {
      const std::int64_t stride = function.by_var[v];
      if (stride != 0 && stride != 1) return;
      for (std::size_t other = 0; other < space_.count; ++other) {
        if (function.by_var[other] != 0) weight *= static_cast<double>(space_.sizes[other]);
      }
      score += weight * (stride == 1 ? 8 : 2);
    };
    for (std::size_t m = 0; m < states_.size(); ++m) {
      const Member& member = group_.members[m];
      const Op& op = get_op(m);
      for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
        if (lowered_.exprs[e].op == ScalarOp::Load) add_score(functions_[node_functions_[get_node(m, ExprId(e))]], 1);
      }
      if (member.is_stored) add_score(functions_[states_[m].result], 2);
    }
    if (space_.sizes[v] < 8) score /= 4;
    if (score > best || (score == best && space_.sizes[v] > space_.sizes[vector_])) {
      best = score;
      vector_ = v;
    }
  };
  for (const std::uint8_t v : row_vars_) consider(v);
  for (const std::uint8_t v : col_vars_) consider(v);
  has_vector_ = best >= 0;
  is_row_vector_ = has_vector_ && (cols_ >> vector_ & 1) == 0;
}

// A pointwise group that reads or writes along another variable than the vector loop's: tiles of both.
void Emitter::choose_tile() {
  if (group_.has_reduction || !has_vector_ || space_.sizes[vector_] < 8 || calls_library() || has_checks()) return;
  double best = 0;
  for (const std::uint8_t v : row_vars_) {
    if (v == vector_ || space_.sizes[v] < 8) continue;
    double score = 0;
    const auto add_score = [&](const VarIndex& function) {
      if (function.by_var[v] != 1 || std::abs(function.by_var[vector_]) <= 1) return;
      double weight = 1;
      for (std::size_t other = 0; other < space_.count; ++other) {
        if (function.by_var[other] != 0) weight *= static_cast<double>(space_.sizes[other]);
      }
      score += weight;
    };
    for (std::size_t m = 0; m < states_.size(); ++m) {
      const Op& op = get_op(m);
      for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
        const ExprNode& node = lowered_.exprs[e];
        if (node.op == ScalarOp::Load && node.operand_count == 0)
          add_score(functions_[node_functions_[get_node(m, ExprId(e))]]);
      }
      if (group_.members[m].is_stored) add_score(functions_[states_[m].result]);
    }
    if (score <= best) continue;
    best = score;
    tile_ = v;
    has_tile_ = true;
  }
}

bool Emitter::has_checks() const {
  return std::any_of(group_.members.begin(), group_.members.end(),
                     [&](const Member& member) { return lowered_.get(member.op).has_checks(); });
}

// Functions of MKL run in strips of an array, which a tile is not.
bool Emitter::calls_library() const {
  for (const Member& member : group_.members) {
    const Op& op = lowered_.get(member.op);
    for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
      const ExprNode& node = lowered_.exprs[e];
      if (node.op == ScalarOp::Math && static_cast<kernel::Numerics>(node.payload >> 8) == kernel::Numerics::Mkl)
        return true;
    }
  }
  return false;
}

// --- who computes what

void Emitter::find_sources() {
  shared_.resize(memo_.size());
  for (std::size_t m = 0; m < states_.size(); ++m) {
    const Member& member = group_.members[m];
    const Op& op = get_op(m);
    for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
      const ExprNode& expr = lowered_.exprs[e];
      const std::uint32_t node = get_node(m, ExprId(e));
      std::uint32_t vars = 0;
      for (std::size_t i = 0; i < expr.operand_count; ++i) vars |= node_vars_[get_node(m, expr.operands[i])];
      if (node_functions_[node] != kNone) vars |= functions_[node_functions_[node]].get_vars();
      if (expr.op == ScalarOp::Load) {
        const Access& access = lowered_.accesses[expr.payload];
        for (const lower::Indirect& term : access.indirect) vars |= node_vars_[get_node(m, term.value)];
        const VarIndex position = compose(access.constant, {access.by_dim.data(), op.sizes.rank}, member.indexes);
        const TensorId root = lowered_.get(access.tensor).root;
        for (const Touch& touch : group_.touches) {
          if (touch.member < 0 || static_cast<std::size_t>(touch.member) >= m || touch.root != root ||
              touch.position != position || !access.indirect.empty())
            continue;
          sources_[node] = {touch.member, touch.is_index};
          const Op& source = get_op(static_cast<std::size_t>(touch.member));
          if (!source.is_reduction) vars |= node_vars_[get_node(static_cast<std::size_t>(touch.member), source.value)];
        }
      }
      node_vars_[node] = vars;
      shared_[node] = find_shared(node, expr);
    }
  }
}

std::uint32_t Emitter::find_shared(std::uint32_t node, const ExprNode& expr) {
  if (expr.op != ScalarOp::Load || expr.operand_count != 0 || sources_[node].member != kNone) return node;
  const Access& access = lowered_.accesses[expr.payload];
  if (!access.indirect.empty()) return node;
  const TensorId root = lowered_.get(access.tensor).root;
  for (const PlainLoad& load : plain_loads_) {
    if (load.root == root && functions_[node_functions_[load.node]] == functions_[node_functions_[node]])
      return load.node;
  }
  plain_loads_.push_back({root, node});
  return node;
}

// Full values that a later phase reads: dear ones that are not stored get a scratch row.
void Emitter::choose_locals() {
  if (!group_.has_reduction || is_row_vector_ || col_vars_.empty()) return;
  std::vector<bool> is_reused(states_.size(), false);
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (!group_.members[m].is_full) continue;
    const Op& op = get_op(m);
    for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
      const std::int32_t source = sources_[get_node(m, ExprId(e))].member;
      if (source == kNone) continue;
      const Member& member = group_.members[static_cast<std::size_t>(source)];
      if (member.is_full && member.phase < group_.members[m].phase) is_reused[static_cast<std::size_t>(source)] = true;
    }
  }
  std::int64_t count = 1;
  for (const std::uint8_t v : col_vars_) count *= space_.sizes[v];
  std::int64_t used_bytes = 0;
  for (std::size_t m = 0; m < states_.size(); ++m) {
    const Op& op = get_op(m);
    if (!is_reused[m] || op.is_reduction || group_.members[m].is_stored || !op.is_dear) continue;
    const DType dtype = lowered_.get(op.result).dtype;
    const std::int64_t bytes = count * static_cast<std::int64_t>(types::get_size_bytes(dtype));
    if (used_bytes + bytes > kernel::kMaxLocalBytes / 2) continue;
    used_bytes += bytes;
    states_[m].has_local = true;
    local_count_ = count;
  }
}

}  // namespace reprise::schedule
