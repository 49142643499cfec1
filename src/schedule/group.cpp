#include "schedule/group.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace reprise::schedule {

namespace {

using graph::ValueId;

enum class Added : std::uint8_t { Yes, No, Split, NeedsMaterial };

class Grouper {
 public:
  Grouper(const Lowered& lowered, const graph::Graph& graph, const std::vector<bool>& is_root,
          const GroupOptions& options)
      : lowered_(lowered), graph_(graph), options_(options), is_root_(is_root) {}

  Grouping run() {
    count_uses();
    choose_deferred();
    result_.item_of_op.assign(lowered_.ops.size(), -1);
    for (std::size_t i = 0; i < lowered_.ops.size(); ++i) {
      const OpIndex op(static_cast<std::uint32_t>(i));
      switch (lowered_.ops[i].kind) {
        case OpKind::View:
          break;
        case OpKind::Extern:
          place_extern(op);
          break;
        case OpKind::Loop:
          if (use_counts_[i] > 0 && !is_deferred_[i]) place(op);
          break;
      }
    }
    finish_groups();
    return std::move(result_);
  }

 private:
  // --- uses

  OpIndex get_producer(TensorId tensor) const { return lowered_.get(lowered_.get(tensor).root).producer; }
  bool is_loop(OpIndex op) const { return op.is_valid() && lowered_.get(op).kind == OpKind::Loop; }

  // Counts users of each LoopOp: other LoopOps once each; anything else makes it needed in memory.
  void count_uses() {
    use_counts_.assign(lowered_.ops.size(), 0);
    is_needed_.assign(lowered_.ops.size(), false);
    broadcasts_.assign(lowered_.ops.size(), false);
    last_user_.assign(lowered_.ops.size(), 0);
    const auto need = [&](TensorId tensor) {
      const OpIndex producer = get_producer(tensor);
      if (!producer.is_valid()) return;
      ++use_counts_[producer.index()];
      is_needed_[producer.index()] = true;
    };
    std::vector<OpIndex> seen;
    for (std::size_t i = 0; i < lowered_.ops.size(); ++i) {
      const Op& op = lowered_.ops[i];
      if (op.kind == OpKind::View) continue;
      if (op.kind == OpKind::Extern) {
        graph::for_each_use(graph_.get_node(op.node), [&](ValueId id) { need(lower::get_tensor(id)); });
        continue;
      }
      seen.clear();
      for_each_access(lowered_, op, [&](const Access& access) {
        const OpIndex producer = get_producer(access.tensor);
        if (!producer.is_valid()) return;
        for (std::size_t d = 0; d < op.sizes.rank; ++d) {
          if (access.by_dim[d] == 0 && op.sizes[d] > 1) broadcasts_[producer.index()] = true;
        }
        last_user_[producer.index()] = i;
        if (std::find(seen.begin(), seen.end(), producer) != seen.end()) return;
        seen.push_back(producer);
        ++use_counts_[producer.index()];
      });
    }
    for (std::size_t t = 0; t < is_root_.size(); ++t) {
      if (is_root_[t]) need(TensorId(static_cast<std::uint32_t>(t)));
    }
  }

  void choose_deferred() {
    is_deferred_.assign(lowered_.ops.size(), false);
    std::vector<std::uint8_t> sizes(lowered_.ops.size(), 0);  // of the tree of deferred ops
    for (std::size_t i = 0; i < lowered_.ops.size() && options_.fuse; ++i) {
      const Op& op = lowered_.ops[i];
      if (op.kind != OpKind::Loop || op.is_reduction || is_needed_[i] || use_counts_[i] == 0) continue;
      std::size_t inner = 0;
      bool has_operand = false;
      for_each_access(lowered_, op, [&](const Access& access) {
        has_operand = true;
        const OpIndex producer = get_producer(access.tensor);
        if (producer.is_valid() && is_deferred_[producer.index()]) inner += sizes[producer.index()];
      });
      if (has_operand && use_counts_[i] != 1) continue;
      if (broadcasts_[i] && (op.is_dear || inner > 2)) continue;
      if (inner + 1 > kMaxDeferred) continue;
      if (last_user_[i] - i > kNearOps && count_large_operands(op) > 1) continue;
      sizes[i] = static_cast<std::uint8_t>(inner + 1);
      is_deferred_[i] = true;
    }
  }

  // --- items

  std::int64_t get_bytes(TensorId tensor) const {
    const lower::Tensor& row = lowered_.get(tensor);
    return row.sizes.count() * static_cast<std::int64_t>(types::get_size_bytes(row.dtype));
  }

  std::size_t count_large_operands(const Op& op) const {
    std::size_t count = 0;
    for_each_access(lowered_, op, [&](const Access& access) { count += get_bytes(access.tensor) > kSmallBytes; });
    return count;
  }

  bool is_near(std::int32_t item, const Op& op) const {
    const auto now = static_cast<std::int32_t>(result_.items.size());
    return now - item <= kNearItems || !op.result.is_valid() || get_bytes(op.result) <= kSmallBytes;
  }

  std::int32_t add_item(const Item& item) {
    result_.items.push_back(item);
    return static_cast<std::int32_t>(result_.items.size() - 1);
  }

  bool is_waiting(OpIndex op) const {
    return is_loop(op) && is_deferred_[op.index()] && result_.item_of_op[op.index()] < 0;
  }

  void place_extern(OpIndex index) { result_.item_of_op[index.index()] = add_item({true, index, 0}); }

  // The last item that computes something that the op reads, itself or through deferred ops; -1 if none does.
  std::int32_t get_least_item(const Op& op) const {
    std::int32_t least = -1;
    for_each_access(lowered_, op, [&](const Access& access) {
      const OpIndex producer = get_producer(access.tensor);
      if (!producer.is_valid()) return;
      least = std::max(
          least, is_waiting(producer) ? get_least_item(lowered_.get(producer)) : result_.item_of_op[producer.index()]);
    });
    for_each_number(lowered_, op, [&](TensorId number) {
      const OpIndex producer = lowered_.get(number).producer;
      if (producer.is_valid()) least = std::max(least, result_.item_of_op[producer.index()]);
    });
    return least;
  }

  void collect_candidates(const Op& op, std::int32_t least, std::vector<std::int32_t>& candidates) const {
    for_each_access(lowered_, op, [&](const Access& access) {
      const OpIndex producer = get_producer(access.tensor);
      if (is_waiting(producer)) {
        collect_candidates(lowered_.get(producer), least, candidates);
        return;
      }
      const TensorId root = lowered_.get(access.tensor).root;
      if (root.index() >= last_reader_.size()) return;
      const std::int32_t reader = last_reader_[root.index()];
      if (reader < least || reader < 0 || candidates.size() >= kMaxCandidates) return;
      if (std::find(candidates.begin(), candidates.end(), reader) == candidates.end()) candidates.push_back(reader);
    });
  }

  void place(OpIndex index) {
    const Op& op = lowered_.get(index);
    for (;;) {
      const std::int32_t least = get_least_item(op);
      std::vector<std::int32_t> candidates;
      if (options_.fuse) {
        if (least >= 0 && !result_.items[least].is_extern) candidates.push_back(least);
        collect_candidates(op, least, candidates);
        std::erase_if(candidates, [&](std::int32_t item) { return !is_near(item, op); });
      }
      bool is_again = false;
      for (const std::int32_t candidate : candidates) {
        const Added added = join(candidate, index);
        if (added == Added::Yes) return;
        if (added == Added::NeedsMaterial) {
          place(needed_);
          is_again = true;
          break;
        }
      }
      if (is_again) continue;
      const Added added = start(index);
      if (added == Added::Yes) return;
      REPRISE_CHECK(added == Added::NeedsMaterial, "an op does not fit into a group of its own");
      place(needed_);
    }
  }

  Added start(OpIndex index) {
    const Op& op = lowered_.get(index);
    Group group;
    Indexes indexes;
    std::int64_t stride = 1;
    std::int64_t row_stride = 1;
    for (std::size_t d = op.sizes.rank; d-- > 0;) {
      if (op.sizes[d] == 1) continue;
      const std::size_t var = group.space.count++;
      group.space.sizes[var] = op.sizes[d];
      indexes[d].by_var[var] = 1;
      group.linear.by_var[var] = stride;
      stride *= op.sizes[d];
      if (op.is_reduced(d)) {
        group.cols |= 1u << var;
      } else {
        group.row_linear.by_var[var] = row_stride;
        row_stride *= op.sizes[d];
      }
    }
    group.has_reduction = op.is_reduction;
    for (;;) {
      Group trial = group;
      is_starting_ = true;
      const Added added = add_member(trial, index, indexes, true);
      is_starting_ = false;
      if (added == Added::Split) {
        // The split is in the trial: take its space over, without members.
        group = std::move(trial);
        group.members.clear();
        group.touches.clear();
        group.node_count = 0;
        for (std::size_t d = 0; d < op.sizes.rank; ++d)
          split(indexes[d], split_var_, split_factor_, group.space.count - 1u);
        continue;
      }
      if (added != Added::Yes) return added;
      const auto group_index = static_cast<std::uint32_t>(result_.groups.size());
      result_.groups.push_back(std::move(trial));
      note_members(add_item({false, OpIndex(), group_index}), 0);
      return Added::Yes;
    }
  }

  // Members from `first` on are new in the item.
  void note_members(std::int32_t item, std::size_t first) {
    Group& group = result_.groups[result_.items[item].group];
    for (std::size_t m = first; m < group.members.size(); ++m) {
      const OpIndex op = group.members[m].op;
      // What is repeated in every user stays deferred.
      if (!is_deferred_[op.index()] || use_counts_[op.index()] == 1) result_.item_of_op[op.index()] = item;
    }
    for (const Touch& touch : group.touches) {
      if (touch.root.index() >= last_reader_.size()) last_reader_.resize(lowered_.tensors.size(), -1);
      last_reader_[touch.root.index()] = item;
    }
  }

  // --- joining a group

  void apply_split(Group& group, std::size_t var, std::int64_t factor) {
    const std::size_t fresh = group.space.count++;
    group.space.sizes[fresh] = factor;
    group.space.sizes[var] /= factor;
    if ((group.cols >> var & 1) != 0) group.cols |= 1u << fresh;
    for (Member& member : group.members) {
      for (VarIndex& index : member.indexes) split(index, var, factor, fresh);
      split(member.result, var, factor, fresh);
      split(member.index_result, var, factor, fresh);
    }
    for (Touch& touch : group.touches) split(touch.position, var, factor, fresh);
    split(group.linear, var, factor, fresh);
    split(group.row_linear, var, factor, fresh);
    split_var_ = var;
    split_factor_ = factor;
  }

  Added join(std::int32_t item, OpIndex index) {
    Group& group = result_.groups[result_.items[item].group];
    const Op& op = lowered_.get(index);
    if (group.members.size() >= kMaxMembers || group.node_count + (op.last_expr - op.first_expr) > kMaxNodes)
      return Added::No;
    const std::size_t first_member = group.members.size();
    const std::size_t first_touch = group.touches.size();
    const std::uint32_t node_count = group.node_count;
    bool is_split = true;
    for (int round = 0; round < 16 && is_split; ++round) {
      is_split = false;
      Decomposition map;
      const auto try_map = [&](const VarIndex& position, std::int64_t base, std::span<const std::int64_t> strides) {
        map = decompose(position, group.space, base, strides, op.sizes.span());
        if (map.outcome == Outcome::Failed) return Added::No;
        if (map.outcome == Outcome::Split) {
          apply_split(group, map.var, map.factor);
          return Added::Split;
        }
        const std::uint32_t cols = group.cols;
        const bool has_reduction = group.has_reduction;
        const Added added = add_member(group, index, map.indexes, true);
        if (added == Added::Yes) {
          note_members(item, first_member);
          return added;
        }
        group.members.resize(first_member);
        group.touches.resize(first_touch);
        group.node_count = node_count;
        if (added != Added::Split) {
          group.cols = cols;
          group.has_reduction = has_reduction;
        } else {
          // A split may have divided a column; a reduction that did not get in leaves no columns.
          group.has_reduction = has_reduction;
          if (!has_reduction) group.cols = 0;
        }
        return added;
      };
      // Anchors: what the op and the group both touch says where the op's indexes are.
      bool is_anchored = false;
      for (std::uint32_t e = op.first_expr; e < op.last_expr && !is_split; ++e) {
        if (lowered_.exprs[e].op != lower::ScalarOp::Load) continue;
        const Access& access = lowered_.accesses[lowered_.exprs[e].payload];
        if (!access.indirect.empty()) continue;
        const TensorId root = lowered_.get(access.tensor).root;
        for (std::size_t t = 0; t < first_touch && t < group.touches.size() && !is_split; ++t) {
          if (group.touches[t].root != root || group.touches[t].is_indirect) continue;
          is_anchored = true;
          const VarIndex position = group.touches[t].position;
          const Added added = try_map(position, access.constant, {access.by_dim.data(), op.sizes.rank});
          if (added == Added::Yes || added == Added::NeedsMaterial) return added;
          is_split = added == Added::Split;
        }
      }
      if (is_split) continue;
      if (!is_anchored && !reads_through(group, op)) return Added::No;
      const Added added = try_shape(group, op, try_map);
      if (added == Added::Yes || added == Added::NeedsMaterial) return added;
      is_split = added == Added::Split;
    }
    return Added::No;
  }

  // Whether a deferred operand (at any depth) reads what the group touches: then the shapes may fit.
  bool reads_through(const Group& group, const Op& op) const {
    bool is_found = false;
    for_each_access(lowered_, op, [&](const Access& access) {
      if (is_found) return;
      const OpIndex producer = get_producer(access.tensor);
      if (is_waiting(producer)) {
        is_found = reads_through(group, lowered_.get(producer));
        return;
      }
      const TensorId root = lowered_.get(access.tensor).root;
      for (const Touch& touch : group.touches) is_found |= touch.root == root;
    });
    return is_found;
  }

  template <class TryMap>
  Added try_shape(Group& group, const Op& op, TryMap&& try_map) {
    const lower::Dims strides = lower::make_contiguous_strides(op.sizes);
    const std::int64_t count = op.sizes.count();
    std::int64_t all = 1;
    std::int64_t rows = 1;
    for (std::size_t v = 0; v < group.space.count; ++v) {
      all *= group.space.sizes[v];
      if ((group.cols >> v & 1) == 0) rows *= group.space.sizes[v];
    }
    if (count == all) {
      const VarIndex linear = group.linear;
      return try_map(linear, 0, strides.span());
    }
    if (group.has_reduction && count == rows && !op.is_reduction) {
      const VarIndex linear = group.row_linear;
      return try_map(linear, 0, strides.span());
    }
    return Added::No;
  }

  // Puts the op at these indexes into the group, with the deferred ops that it reads. On anything but Yes, the caller
  // takes back members and touches; on Split, the space of the group has changed (split_var_, split_factor_).
  Added add_member(Group& group, OpIndex index, const Indexes& indexes, bool is_placed) {
    const Op& op = lowered_.get(index);
    if (is_placed && !fits(group, op, indexes)) return Added::No;
    for (std::uint32_t e = op.first_expr; e < op.last_expr; ++e) {
      if (lowered_.exprs[e].op != lower::ScalarOp::Load) continue;
      const Access& access = lowered_.accesses[lowered_.exprs[e].payload];
      const Added added = add_operand(group, op, access, indexes);
      if (added != Added::Yes) return added;
    }
    const auto number = static_cast<std::int32_t>(group.members.size());
    Member& member = group.members.emplace_back();
    member.op = index;
    member.indexes = indexes;
    member.is_deferred = !is_placed;
    if (op.result.is_valid()) {
      member.result = compose(lowered_.get(op.result).offset, op.result_strides.span(), indexes);
      group.touches.push_back({lowered_.get(op.result).root, member.result, number, false, false});
    }
    if (op.index_result.is_valid()) {
      member.index_result = compose(lowered_.get(op.index_result).offset, op.index_result_strides.span(), indexes);
      group.touches.push_back({lowered_.get(op.index_result).root, member.index_result, number, true, false});
    }
    group.node_count += op.last_expr - op.first_expr;
    return Added::Yes;
  }

  // Requirements 1, 2 and 6 for an op that is not deferred. Sets the columns if it is the first reduction.
  bool fits(Group& group, const Op& op, const Indexes& indexes) {
    const std::uint32_t all = (1u << group.space.count) - 1;
    std::uint32_t cols = 0;
    if (op.is_reduction) {
      for (std::size_t d = 0; d < op.sizes.rank; ++d) {
        if (op.is_reduced(d)) cols |= indexes[d].get_vars();
      }
      if (group.has_reduction && cols != group.cols) return false;
      if (!is_bijection(indexes, op.sizes.span(), group.space, all)) return false;
      if (!group.has_reduction && !group.members.empty() && is_narrow(group.space, cols)) return false;
      group.has_reduction = true;
      group.cols = cols;
      return true;
    }
    if (is_bijection(indexes, op.sizes.span(), group.space, all))
      return !group.has_reduction || !is_narrow(group.space, group.cols) || group.members.empty() || group.cols == 0 ||
             all == group.cols;
    return group.has_reduction && is_bijection(indexes, op.sizes.span(), group.space, all & ~group.cols);
  }

  // Few rows of many elements: too little to share among threads once the rows are the units.
  static bool is_narrow(const VarSpace& space, std::uint32_t cols) {
    std::int64_t rows = 1;
    std::int64_t all = 1;
    for (std::size_t v = 0; v < space.count; ++v) {
      all *= space.sizes[v];
      if ((cols >> v & 1) == 0) rows *= space.sizes[v];
    }
    return rows < 16 && all > 32768;
  }

  Added add_operand(Group& group, const Op& op, const Access& access, const Indexes& indexes) {
    const TensorId root = lowered_.get(access.tensor).root;
    const OpIndex producer = lowered_.get(root).producer;
    const VarIndex position = compose(access.constant, {access.by_dim.data(), op.sizes.rank}, indexes);
    const bool is_indirect = !access.indirect.empty();
    bool is_inside = false;
    std::size_t root_count = 0;
    for (const Touch& touch : group.touches) {
      if (touch.root != root) {
        ++root_count;
        continue;
      }
      if (touch.position == position && touch.is_indirect == is_indirect) {
        if (touch.member < 0 || !is_indirect) return Added::Yes;
      }
      is_inside |= touch.member >= 0;
    }
    if (is_waiting(producer)) {
      if (is_indirect) return need(producer);
      const Op& source = lowered_.get(producer);
      const Decomposition map = decompose(position, group.space, lowered_.get(source.result).offset,
                                          source.result_strides.span(), source.sizes.span());
      if (map.outcome == Outcome::Failed) return need(producer);
      if (map.outcome == Outcome::Split) {
        apply_split(group, map.var, map.factor);
        return Added::Split;
      }
      // Every index is checked, whatever is read.
      if (source.has_checks() && !covers(map.indexes, source, group.space)) return need(producer);
      return add_member(group, producer, map.indexes, false);
    }
    // Requirement 3; an op of this group that is not deferred is somewhere else.
    if (is_inside) return Added::No;
    if (root_count > kMaxTouches && !is_starting_) return Added::No;
    group.touches.push_back({root, position, -1, false, is_indirect});
    return Added::Yes;
  }

  // Whether some iteration meets every element of the op's box.
  static bool covers(const Indexes& indexes, const Op& op, const VarSpace& space) {
    std::uint32_t vars = 0;
    for (std::size_t d = 0; d < op.sizes.rank; ++d) vars |= indexes[d].get_vars();
    return is_bijection(indexes, op.sizes.span(), space, vars);
  }

  Added need(OpIndex op) {
    needed_ = op;
    is_deferred_[op.index()] = false;
    return Added::NeedsMaterial;
  }

  // --- the end

  void finish_groups() {
    std::vector<bool> is_stored = is_needed_;
    std::vector<bool> is_index_stored(is_needed_.size(), false);
    for (const Group& group : result_.groups) {
      for (const Touch& touch : group.touches) {
        const OpIndex producer = lowered_.get(touch.root).producer;
        if (touch.member < 0 && producer.is_valid()) is_stored[producer.index()] = true;
      }
    }
    for (Group& group : result_.groups) {
      for (std::size_t m = 0; m < group.members.size(); ++m) finish_member(group, m, is_stored);
    }
  }

  void finish_member(Group& group, std::size_t number, const std::vector<bool>& is_stored) {
    Member& member = group.members[number];
    const Op& op = lowered_.get(member.op);
    std::uint32_t vars = 0;
    for (std::size_t d = 0; d < op.sizes.rank; ++d) vars |= member.indexes[d].get_vars();
    member.is_full = op.is_reduction || (vars & group.cols) != 0 || !group.has_reduction;
    if (is_stored[member.op.index()] && !member.is_deferred) {
      member.is_stored = op.result.is_valid();
      member.is_index_stored = op.index_result.is_valid();
    }
    std::int32_t phase = member.is_full ? 0 : -1;
    for_each_access(lowered_, op, [&](const Access& access) {
      const TensorId root = lowered_.get(access.tensor).root;
      const VarIndex position = compose(access.constant, {access.by_dim.data(), op.sizes.rank}, member.indexes);
      for (const Touch& touch : group.touches) {
        if (touch.member < 0 || touch.root != root || touch.position != position) continue;
        const Member& source = group.members[static_cast<std::size_t>(touch.member)];
        const bool is_of_row = !source.is_full || lowered_.get(source.op).is_reduction;
        phase = std::max(phase, source.phase + (is_of_row && member.is_full ? 1 : 0));
      }
    });
    member.phase = phase;
  }

  const Lowered& lowered_;
  const graph::Graph& graph_;
  const GroupOptions options_;
  const std::vector<bool>& is_root_;
  Grouping result_;
  std::vector<std::uint32_t> use_counts_;
  std::vector<bool> is_needed_;
  std::vector<bool> broadcasts_;
  std::vector<std::size_t> last_user_;  // the last LoopOp that reads it
  std::vector<bool> is_deferred_;
  std::vector<std::int32_t> last_reader_;  // by root: the last item that touches it
  OpIndex needed_;
  bool is_starting_ = false;
  std::size_t split_var_ = 0;
  std::int64_t split_factor_ = 0;
};

}  // namespace

Grouping make_groups(const Lowered& lowered, const graph::Graph& graph, const std::vector<bool>& is_root,
                     const GroupOptions& options) {
  return Grouper(lowered, graph, is_root, options).run();
}

std::string print(const Grouping& grouping, const Lowered& lowered) {
  std::string out;
  for (std::size_t i = 0; i < grouping.items.size(); ++i) {
    const Item& item = grouping.items[i];
    if (item.is_extern) {
      out += "extern node " + std::to_string(lowered.get(item.op).node.index()) + "\n";
      continue;
    }
    const Group& group = grouping.groups[item.group];
    out += "group [";
    for (std::size_t v = 0; v < group.space.count; ++v) {
      if (v > 0) out += ", ";
      if ((group.cols >> v & 1) != 0) out += "col ";
      out += std::to_string(group.space.sizes[v]);
    }
    out += "]:";
    for (const Member& member : group.members) {
      const Op& op = lowered.get(member.op);
      out += " %" + std::to_string((op.result.is_valid() ? op.result : op.index_result).index());
      if (!member.is_full) out += " row";
      if (group.has_reduction) out += " phase " + std::to_string(member.phase);
      if (member.is_stored || member.is_index_stored) out += " stored";
      out += ";";
    }
    out += "\n";
  }
  return out;
}

}  // namespace reprise::schedule
