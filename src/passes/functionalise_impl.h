// Memory: what the functionaliser knows of storages and views, how it reads and writes through them. The rules stand in
// functionalise.cpp. Used by one functionalise() call; a Refusal leaves it and ends the pass.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/rules.h"

namespace reprise::passes {

using graph::Arg;
using graph::Context;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpId;
using graph::Return;
using graph::StorageId;
using graph::TensorMeta;
using graph::Value;
using graph::ValueId;
using graph::ValueKind;
using sym::Int;

// A reason to give up.
struct Refusal {
  std::string text;
};

// The result is the contents of the argument that it shares memory with.
inline bool is_identity(OpId op) {
  return op == OpId::detach || op == OpId::alias || op == OpId::lift_fresh || op == OpId::set__source_Tensor;
}

class Memory {
 protected:
  explicit Memory(const Graph& old);

  static constexpr std::uint32_t kNoNode = 0xffffffffu;

  struct State {
    ValueId current;                  // functional value; invalid: the value itself
    std::uint32_t version = 0;        // of the storage, that `current` shows
    std::uint32_t creator = kNoNode;  // recorded view node that made it
    ValueId parent;                   // recorded value that it is a view of
    bool is_seen = false;
  };
  struct Storage {
    ValueId base;   // recorded
    ValueId input;  // the input that was the base at the start, if one was
    std::uint32_t version = 0;
  };

  bool has_storage(ValueId id) const;
  State& state(ValueId id) { return states_[id.index()]; }
  Storage& storage(ValueId id) { return storages_[old_.get_meta(id).storage.index()]; }
  [[noreturn]] static void refuse(std::string text) { throw Refusal{std::move(text)}; }
  static std::string name(ValueId id) { return '%' + std::to_string(id.index()); }

  // The node with a plain view op: t for t_, view for _reshape_alias.
  Node normalise(const Node& node);

  // --- reading: rules 1 and 2 ---

  void see(ValueId id);
  Int get_extent(const TensorMeta& meta);
  void find_input_bases();
  // The functional value that shows what is in `id` now.
  ValueId read(ValueId id);
  void make_again(ValueId id);
  // Emits the inferred view node; its outs show what the creator's outs showed.
  void emit_views(const Node& creator, std::span<const Arg> args);
  // By its place in the base: an aliased input, an as_strided view.
  void make_alias_of_base(ValueId id);
  ValueId read_plain_base(ValueId base);
  void check_covers(const TensorMeta& base, const TensorMeta& meta, ValueId id);
  static bool repeats_elements(const TensorMeta& meta);
  bool is_contiguous(const TensorMeta& meta);
  void show(ValueId id, ValueId functional);

  // --- emitting ---

  std::span<const Arg> with_argument_0(std::span<const Arg> args, ValueId id);
  void emit(OpId op, std::span<const Arg> args, std::span<const Return> returns, std::span<const ValueId> outs);
  ValueId emit_single(OpId op, std::span<const Arg> args);
  ValueId emit_inferred(OpId op, std::span<const Arg> args);
  ValueId emit_clone(ValueId id);

  // --- writing: rules 3 and 4 ---

  // The memory seen through `id` has the contents of the functional value `contents` now.
  void write(ValueId id, ValueId contents);
  // The same, for writing.
  ValueId scatter_into_base(ValueId id, ValueId contents);
  ValueId emit_as_strided_scatter(ValueId whole, ValueId part, const TensorMeta& place, Int offset);
  // The parent's contents after the view `id` of it was given `contents`.
  ValueId undo_view(ValueId id, ValueId contents);
  ValueId emit_view_as(ValueId contents, const TensorMeta& like);
  ValueId emit_scatter(OpId op, std::span<const Arg> args, ValueId id, ValueId contents);
  // By the place of the view's elements in the parent's memory. The parent's current value may be laid out in another
  // way than the recorded one: then from a copy that has the recorded layout.
  ValueId undo_by_place(ValueId id, ValueId contents);
  static std::size_t find_out(const Node& node, ValueId id);
  Int find_split_start(const Node& creator, ValueId id);

  const Graph& old_;
  Context& context_;
  Graph new_;
  std::size_t value_count_;
  std::vector<State> states_;  // by recorded value
  std::vector<Storage> storages_;
  graph::RuleCall rules_;
  graph::Phase phase_ = graph::Phase::Forward;  // of emitted nodes
  graph::SourceId source_;
};

}  // namespace reprise::passes
