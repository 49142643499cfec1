#include "schedule/emit.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "kernel/builder.h"

namespace reprise::schedule {

namespace {

using kernel::Affine;
using kernel::BufferId;
using kernel::Combine;
using kernel::KernelBuilder;
using kernel::LoopKind;
using kernel::ScalarOp;
using kernel::Term;
using kernel::ValueId;
using lower::ExprNode;
using types::DType;

constexpr std::int64_t kVectorBlock = 4096;  // elements of a vector loop in one unit of a pointwise kernel
constexpr std::int64_t kColumnBlock = 64;    // the same where columns are reduced inside of the vector loop
constexpr std::int64_t kTile = 64;           // rows and columns of a transposed block in one unit
constexpr std::int64_t kSerialBlock = 128;   // rows that one accumulator of such a sum adds up
constexpr std::int64_t kLeastUnitWork = 1024;
constexpr std::int64_t kLeastUnits = 64;
constexpr std::int32_t kNone = -1;

class Emitter {
 public:
  Emitter(const Lowered& lowered, const graph::Graph& graph, const Group& group, bool keep_rounding)
      : lowered_(lowered),
        graph_(graph),
        group_(group),
        keep_rounding_(keep_rounding),
        space_(group.space),
        cols_(group.cols) {}

  Emitted run() {
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

 private:
  using Position = std::int32_t;  // index of functions_

  struct MemberState {
    std::uint32_t first_node = 0;  // of memo_ and node_functions_
    Position result = kNone;
    Position index_result = kNone;
    ValueId value;  // of a reduction, once its phase has run
    ValueId index_value;
    BufferId local;
    bool has_local = false;
  };

  const Op& get_op(std::size_t member) const { return lowered_.get(group_.members[member].op); }
  std::uint32_t get_node(std::size_t member, ExprId expr) const {
    return states_[member].first_node + (expr.index() - get_op(member).first_expr);
  }
  // The same for all plain loads of one element.
  std::uint32_t get_shared_node(std::size_t member, ExprId expr) const { return shared_[get_node(member, expr)]; }

  // --- what depends on the variables

  Position add_function(const VarIndex& function) {
    functions_.push_back(function);
    return static_cast<Position>(functions_.size() - 1);
  }

  void collect_functions() {
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

  bool can_merge(std::size_t outer, std::size_t inner) const {
    for (const VarIndex& function : functions_) {
      if (function.by_var[outer] != function.by_var[inner] * space_.sizes[inner]) return false;
    }
    return true;
  }

  void collapse() {
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
  void order_vars() {
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

  void choose_vector() {
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
  void choose_tile() {
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

  bool has_checks() const {
    return std::any_of(group_.members.begin(), group_.members.end(),
                       [&](const Member& member) { return lowered_.get(member.op).has_checks(); });
  }

  // Functions of MKL run in strips of an array, which a tile is not.
  bool calls_library() const {
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

  struct PlainLoad {
    TensorId root;
    std::uint32_t node = 0;
  };
  struct Source {
    std::int32_t member = kNone;
    bool is_index = false;
  };

  void find_sources() {
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
            if (!source.is_reduction)
              vars |= node_vars_[get_node(static_cast<std::size_t>(touch.member), source.value)];
          }
        }
        node_vars_[node] = vars;
        shared_[node] = find_shared(node, expr);
      }
    }
  }

  std::uint32_t find_shared(std::uint32_t node, const ExprNode& expr) {
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
  void choose_locals() {
    if (!group_.has_reduction || is_row_vector_ || col_vars_.empty()) return;
    std::vector<bool> is_reused(states_.size(), false);
    for (std::size_t m = 0; m < states_.size(); ++m) {
      if (!group_.members[m].is_full) continue;
      const Op& op = get_op(m);
      for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
        const std::int32_t source = sources_[get_node(m, ExprId(e))].member;
        if (source == kNone) continue;
        const Member& member = group_.members[static_cast<std::size_t>(source)];
        if (member.is_full && member.phase < group_.members[m].phase)
          is_reused[static_cast<std::size_t>(source)] = true;
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

  // --- operands

  std::int64_t get_buffer_count(TensorId root) const {
    const lower::Tensor& tensor = lowered_.get(root);
    std::int64_t count = 1;
    for (std::size_t d = 0; d < tensor.sizes.rank; ++d) count += (tensor.sizes[d] - 1) * tensor.strides[d];
    return count;
  }

  void add_buffers() {
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
      if (states_[m].has_local)
        states_[m].local = builder_.add_local(lowered_.get(get_op(m).result).dtype, local_count_);
    }
  }

  BufferId get_buffer(TensorId root) const {
    for (std::size_t i = 0; i < result_.buffers.size(); ++i) {
      if (result_.buffers[i].root == root) return buffers_[i];
    }
    REPRISE_UNREACHABLE("no buffer of %" + std::to_string(root.index()));
  }

  ValueId get_number(std::uint64_t value) {
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

  Affine make_affine(const VarIndex& function, std::int64_t shift = 0) const {
    Affine affine(function.constant + shift);
    for (std::size_t v = 0; v < space_.count; ++v) {
      if (function.by_var[v] == 0) continue;
      REPRISE_CHECK(vars_[v].is_valid(), "variable " + std::to_string(v) + " has no loop here");
      affine += Affine(vars_[v]) * function.by_var[v];
    }
    return affine;
  }

  Affine make_position(Position position, TensorId root) const {
    return make_affine(functions_[position], -lowered_.get(root).offset);
  }

  Affine make_local_index() const {
    Affine affine;
    std::int64_t stride = 1;
    for (std::size_t i = col_vars_.size(); i-- > 0;) {
      affine += Affine(vars_[col_vars_[i]]) * stride;
      stride *= space_.sizes[col_vars_[i]];
    }
    return affine;
  }

  // --- expressions

  ValueId remember(std::uint32_t node, ValueId value) {
    memo_[node] = value;
    trail_.push_back(node);
    return value;
  }

  void forget(std::size_t length) {
    while (trail_.size() > length) {
      memo_[trail_.back()] = ValueId();
      trail_.pop_back();
    }
  }

  ValueId emit_source(const Source& source) {
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

  ValueId emit(std::size_t m, ExprId expr) {
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

  ValueId emit_cast(ValueId value, DType dtype) {
    const kernel::Node& node = builder_.peek().get(value);
    const bool is_half = node.dtype == DType::Float16 || node.dtype == DType::BFloat16;
    if (!keep_rounding_ && is_half && node.op == ScalarOp::Cast && builder_.get_dtype(node.operands[0]) == dtype)
      return node.operands[0];
    return builder_.cast(value, dtype);
  }

  ValueId emit_load(std::size_t m, std::uint32_t number, const ExprNode& node) {
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
  void hoist(std::size_t m, ExprId expr) {
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
  void emit_checks(std::size_t m) {
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
  void hoist_checks(std::size_t m) {
    const Op& op = get_op(m);
    for (std::uint32_t check = op.first_check; check < op.last_check; ++check) hoist(m, lowered_.checks[check].fails);
    emit_checks(m);
  }

  // --- loops

  struct Scope {
    std::size_t trail;
    std::uint32_t open_vars;
  };

  Scope open(std::uint8_t var, ValueId value) {
    const Scope scope{trail_.size(), open_vars_};
    vars_[var] = value;
    open_vars_ |= 1u << var;
    return scope;
  }

  void close(const Scope& scope) {
    builder_.end_loop();
    forget(scope.trail);
    for (std::size_t v = 0; v < kMaxVars; ++v) {
      if (((open_vars_ & ~scope.open_vars) >> v & 1) != 0) vars_[v] = ValueId();
    }
    open_vars_ = scope.open_vars;
  }

  void emit_units() {
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

  ValueId begin_block(LoopKind kind, std::int64_t block, std::int64_t block_count, ValueId block_index,
                      std::int64_t extent) {
    if (block_count == 1) return builder_.begin_loop(kind, 0, extent);
    const Affine first = Affine(block_index) * block;
    if (extent % block == 0) return builder_.begin_loop(kind, first, first + block);
    return builder_.begin_loop_with_limit(kind, first, first + block, extent);
  }

  // In front of the outer loops only what every phase may compute: nothing that waits for a reduction.
  void hoist_all() {
    if (group_.has_reduction) return;
    ++stamp_;
    for (std::size_t m = 0; m < states_.size(); ++m) {
      if (group_.members[m].is_stored) hoist(m, get_op(m).value);
      hoist_checks(m);
    }
  }

  void emit_phases() {
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

  bool is_full_root(std::size_t m) const {
    const Member& member = group_.members[m];
    if (!member.is_full || member.phase != phase_) return false;
    return get_op(m).is_reduction || member.is_stored || states_[m].has_local;
  }

  // Whether the pass of this phase is over all columns for this member's checks.
  bool is_full_check(std::size_t m) const {
    const Member& member = group_.members[m];
    return member.is_full && member.phase == phase_ && get_op(m).has_checks();
  }

  bool has_full_work() const {
    for (std::size_t m = 0; m < states_.size(); ++m) {
      if (is_full_root(m) || is_full_check(m)) return true;
    }
    return false;
  }

  void store(std::size_t m, ValueId value) {
    const TensorId root = lowered_.get(get_op(m).result).root;
    builder_.store(get_buffer(root), make_position(states_[m].result, root), value);
  }

  void store_rows() {
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
  void emit_pass() {
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

  bool is_blocked(std::size_t m) const {
    return get_op(m).combine == Combine::Sum && types::is_float(lowered_.get(get_op(m).value).dtype);
  }

  void hoist_pass() {
    ++stamp_;
    for (std::size_t m = 0; m < states_.size(); ++m) {
      if (is_full_check(m)) hoist_checks(m);
      if (!is_full_root(m)) continue;
      hoist(m, get_op(m).value);
      if (get_op(m).index_value.is_valid()) hoist(m, get_op(m).index_value);
    }
  }

  const Lowered& lowered_;
  const graph::Graph& graph_;
  const Group& group_;
  const bool keep_rounding_;
  VarSpace space_;
  std::uint32_t cols_;
  Emitted result_;
  KernelBuilder builder_;
  std::vector<VarIndex> functions_;
  std::vector<Position> node_functions_;  // by node
  std::vector<std::uint32_t> node_vars_;
  std::vector<Source> sources_;
  std::vector<std::uint32_t> shared_;
  std::vector<PlainLoad> plain_loads_;
  std::vector<ValueId> memo_;
  std::vector<std::uint32_t> trail_;
  std::vector<std::uint32_t> stamps_;
  std::uint32_t stamp_ = 0;
  std::vector<MemberState> states_;
  std::vector<std::uint8_t> row_vars_;
  std::vector<std::uint8_t> col_vars_;
  std::uint8_t vector_ = 0;
  std::uint8_t tile_ = 0;
  bool has_vector_ = false;
  bool has_tile_ = false;
  bool is_row_vector_ = false;
  std::int64_t local_count_ = 0;
  std::vector<BufferId> buffers_;
  std::vector<ValueId> numbers_;
  BufferId flags_;
  std::vector<bool> is_checked_;  // by check of the group: emitted
  std::array<ValueId, kMaxVars> vars_{};
  std::uint32_t open_vars_ = 0;
  std::int32_t phase_ = 0;
};

}  // namespace

Emitted emit_group(const Lowered& lowered, const graph::Graph& graph, const Group& group, bool keep_rounding) {
  return Emitter(lowered, graph, group, keep_rounding).run();
}

}  // namespace reprise::schedule
