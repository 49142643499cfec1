// The emitter's class, shared by emit.cpp (loops and phases), emit_shape.cpp (which loops, who computes what) and
// emit_values.cpp (operands, expressions, checks). What it does stands in emit.h. One emitter, one group, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernel/builder.h"
#include "schedule/emit.h"

namespace reprise::schedule {

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

inline constexpr std::int64_t kTile = 64;  // rows and columns of a transposed block in one unit
inline constexpr std::int32_t kNone = -1;  // no position, no member

class Emitter {
 public:
  Emitter(const Lowered& lowered, const graph::Graph& graph, const Group& group, bool keep_rounding)
      : lowered_(lowered),
        graph_(graph),
        group_(group),
        keep_rounding_(keep_rounding),
        space_(group.space),
        cols_(group.cols) {}

  Emitted run();

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

  struct PlainLoad {
    TensorId root;
    std::uint32_t node = 0;
  };

  struct Source {
    std::int32_t member = kNone;
    bool is_index = false;
  };

  struct Scope {
    std::size_t trail;
    std::uint32_t open_vars;
  };

  const Op& get_op(std::size_t member) const;
  std::uint32_t get_node(std::size_t member, ExprId expr) const;
  std::uint32_t get_shared_node(std::size_t member, ExprId expr) const;

  // --- what depends on the variables (emit_shape.cpp)
  Position add_function(const VarIndex& function);
  void collect_functions();
  bool can_merge(std::size_t outer, std::size_t inner) const;
  void collapse();
  void order_vars();
  void choose_vector();
  void choose_tile();
  bool has_checks() const;
  bool calls_library() const;

  // --- who computes what (emit_shape.cpp)
  void find_sources();
  std::uint32_t find_shared(std::uint32_t node, const ExprNode& expr);
  void choose_locals();

  // --- operands (emit_values.cpp)
  std::int64_t get_buffer_count(TensorId root) const;
  void add_buffers();
  BufferId get_buffer(TensorId root) const;
  ValueId get_number(std::uint64_t value);
  Affine make_affine(const VarIndex& function, std::int64_t shift = 0) const;
  Affine make_position(Position position, TensorId root) const;
  Affine make_local_index() const;

  // --- expressions (emit_values.cpp)
  ValueId remember(std::uint32_t node, ValueId value);
  void forget(std::size_t length);
  ValueId emit_source(const Source& source);
  ValueId emit(std::size_t m, ExprId expr);
  ValueId emit_cast(ValueId value, DType dtype);
  ValueId emit_load(std::size_t m, std::uint32_t number, const ExprNode& node);
  void hoist(std::size_t m, ExprId expr);

  // --- checks (emit_values.cpp)
  void emit_checks(std::size_t m);
  void hoist_checks(std::size_t m);

  // --- loops (emit.cpp)
  Scope open(std::uint8_t var, ValueId value);
  void close(const Scope& scope);
  void emit_units();
  ValueId begin_block(LoopKind kind, std::int64_t block, std::int64_t block_count, ValueId block_index,
                      std::int64_t extent);
  void hoist_all();
  void emit_phases();
  bool is_full_root(std::size_t m) const;
  bool is_full_check(std::size_t m) const;
  bool has_full_work() const;
  void store(std::size_t m, ValueId value);
  void store_rows();
  void emit_pass();
  bool is_blocked(std::size_t m) const;
  void hoist_pass();

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

}  // namespace reprise::schedule
