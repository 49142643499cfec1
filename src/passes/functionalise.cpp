// How it works.
//
// 1. Each storage of the recorded graph has a base: the first value seen on it (of inputs that alias, the one that
//    covers the others). The base's current functional value is the memory's contents; a version counts the writes.
// 2. Each recorded value has a current functional value and the version that it shows. If the version is old, the view
//    is stale: the view op that made it is emitted again on its parent's current value.
// 3. A write through a view goes up the chain of views to the base, one level at a time: view ops that only rearrange
//    are undone by a view op on the new value; those that take a part become *_scatter on the parent's current value.
// 4. New values have storages of their own. A part's new value is packed (no gaps), in the order of its strides.
// 5. What is read is what was there before the node, also by the writing node itself: arguments are mapped first.
#include "passes/functionalise.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "graph/printer.h"
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

namespace {

// A reason to give up; never leaves this file.
struct Refusal {
  std::string text;
};

// The result is the contents of the argument that it shares memory with.
bool is_identity(OpId op) {
  return op == OpId::detach || op == OpId::alias || op == OpId::lift_fresh || op == OpId::set__source_Tensor;
}

class Functionaliser {
 public:
  explicit Functionaliser(const Graph& old)
      : old_(old),
        context_(*old.context),
        new_(old.context),
        value_count_(old.values.size()),
        states_(value_count_),
        storages_(context_.get_storage_count()),
        rules_(context_, new_.values) {
    new_.values = old.values;
    for (Value& value : new_.values) value.producer = NodeId();
    new_.form = graph::Form::Functional;
    new_.inputs = old.inputs;
    new_.constants = old.constants;
    new_.nodes.reserve(old.nodes.size() + old.nodes.size() / 4);
  }

  Graph run() {
    find_input_bases();
    for (std::uint32_t i = 0; i < old_.nodes.size(); ++i) add_node(i);
    finish();
    return std::move(new_);
  }

 private:
  static constexpr std::uint32_t kNoNode = 0xffffffffu;

  struct State {
    ValueId current;                  // functional value; invalid: the value itself
    std::uint32_t version = 0;        // of the storage, that `current` shows
    std::uint32_t creator = kNoNode;  // recorded view node that made it
    ValueId parent;                   // recorded value that it is a view of
    bool is_seen = false;
  };
  struct Storage {
    ValueId base;  // recorded
    std::uint32_t version = 0;
  };

  bool has_storage(ValueId id) const {
    const Value& value = old_.get_value(id);
    return value.kind == ValueKind::Tensor && value.meta.storage.is_valid();
  }
  State& state(ValueId id) { return states_[id.index()]; }
  Storage& storage(ValueId id) { return storages_[old_.get_meta(id).storage.index()]; }

  [[noreturn]] static void refuse(std::string text) { throw Refusal{std::move(text)}; }

  static std::string name(ValueId id) { return '%' + std::to_string(id.index()); }

  // --- bases ---

  void see(ValueId id) {
    if (!has_storage(id) || state(id).is_seen) return;
    state(id).is_seen = true;
    Storage& memory = storage(id);
    if (!memory.base.is_valid()) memory.base = id;
    state(id).version = memory.version;
  }

  Int get_extent(const TensorMeta& meta) {
    sym::Context& symbols = context_.symbols();
    Int extent = 1;
    for (std::size_t i = 0; i < meta.rank; ++i)
      extent = symbols.add(extent, symbols.multiply(symbols.subtract(meta.sizes()[i], 1), meta.strides()[i]));
    return symbols.add(extent, meta.offset);
  }

  void find_input_bases() {
    for (const graph::Input& input : old_.inputs) {
      if (!has_storage(input.value)) continue;
      Storage& memory = storage(input.value);
      if (memory.base.is_valid()) {
        const Int known = context_.symbols().product(old_.get_meta(memory.base).sizes());
        const Int found = context_.symbols().product(old_.get_meta(input.value).sizes());
        if (sym::is_yes(context_.symbols().is_less(known, found))) memory.base = input.value;
      } else {
        memory.base = input.value;
      }
      state(input.value).is_seen = true;
    }
    for (const graph::Constant& constant : old_.constants) see(constant.value);
  }

  // --- reading ---

  // The functional value that shows what is in `id` now.
  ValueId read(ValueId id) {
    if (!has_storage(id)) return id;
    State& known = state(id);
    if (known.version == storage(id).version) return known.current.is_valid() ? known.current : id;
    // Stale views are made again from the outermost one on.
    std::vector<ValueId> chain;
    for (ValueId at = id; state(at).version != storage(at).version;) {
      chain.push_back(at);
      if (!state(at).parent.is_valid()) break;
      at = state(at).parent;
    }
    while (!chain.empty()) {
      const ValueId at = chain.back();
      chain.pop_back();
      if (state(at).version != storage(at).version) make_again(at);
    }
    return state(id).current.is_valid() ? state(id).current : id;
  }

  void make_again(ValueId id) {
    const State& stale = state(id);
    if (!stale.parent.is_valid()) {
      make_alias_of_base(id);
      return;
    }
    const Node& creator = old_.nodes[stale.creator];
    const ValueId parent = read(stale.parent);
    if (is_identity(creator.op)) {
      show(id, parent);
      return;
    }
    const std::span<const Arg> args = with_argument_0(creator.args, parent);
    if (!graph::infer(creator.op, args, rules_) || rules_.results().size() != creator.outs.size()) {
      // The parent's layout changed, or the op has no rule: from a plain copy.
      const ValueId copy = emit_clone(parent);
      const std::span<const Arg> copy_args = with_argument_0(creator.args, copy);
      if (!graph::infer(creator.op, copy_args, rules_) || rules_.results().size() != creator.outs.size())
        refuse("the view " + name(id) + " cannot be made again");
      emit_views(creator, copy_args);
      return;
    }
    emit_views(creator, args);
  }

  // Emits the inferred view node; its outs show what the creator's outs showed.
  void emit_views(const Node& creator, std::span<const Arg> args) {
    std::vector<ValueId> outs;
    for (const graph::ResultMeta& result : rules_.results()) outs.push_back(new_.add_tensor(result.meta));
    emit(creator.op, args, creator.returns, outs);
    for (std::size_t i = 0; i < outs.size(); ++i) {
      const ValueId shown = creator.outs[i];
      if (shown.is_valid() && state(shown).creator != kNoNode) show(shown, outs[i]);
    }
  }

  // An input on the memory of another one that covers it.
  void make_alias_of_base(ValueId id) {
    const ValueId base = storage(id).base;
    const TensorMeta& meta = old_.get_meta(id);
    const TensorMeta& base_meta = old_.get_meta(base);
    check_covers(base_meta, meta, id);
    const ValueId shown = read(base);
    const Arg args[] = {Arg::make_value(shown), context_.make_int_list(meta.sizes()),
                        context_.make_int_list(meta.strides()),
                        Arg::make_int(context_.symbols().subtract(meta.offset, base_meta.offset))};
    show(id, emit_single(OpId::as_strided, args));
  }

  void check_covers(const TensorMeta& base, const TensorMeta& meta, ValueId id) {
    sym::Context& symbols = context_.symbols();
    const Int base_end = symbols.add(base.offset, symbols.product(base.sizes()));
    const bool is_covered = is_contiguous(base) && base.dtype == meta.dtype &&
                            sym::is_yes(symbols.is_less_equal(base.offset, meta.offset)) &&
                            sym::is_yes(symbols.is_less_equal(get_extent(meta), base_end));
    if (!is_covered) refuse("input " + name(id) + " shares memory with an input that does not cover it");
  }

  bool is_contiguous(const TensorMeta& meta) {
    Int step = 1;
    for (std::size_t i = meta.rank; i-- > 0;) {
      if (meta.sizes()[i] != Int(1) && meta.strides()[i] != step) return false;
      step = context_.symbols().multiply(step, meta.sizes()[i]);
    }
    return true;
  }

  void show(ValueId id, ValueId functional) {
    state(id).current = functional;
    state(id).version = storage(id).version;
  }

  // --- emitting ---

  std::span<const Arg> with_argument_0(std::span<const Arg> args, ValueId id) {
    std::span<Arg> copy = context_.arena().copy(args);
    copy[0] = Arg::make_value(id);
    return copy;
  }

  void emit(OpId op, std::span<const Arg> args, std::span<const Return> returns, std::span<const ValueId> outs) {
    Node node;
    node.op = op;
    node.phase = phase_;
    node.source = source_;
    node.args = args;
    node.returns = returns;
    node.outs = outs;
    new_.add_node(node);
  }

  ValueId emit_single(OpId op, std::span<const Arg> args) {
    REPRISE_CHECK(graph::infer(op, args, rules_) && rules_.results().size() == 1,
                  "no rule for " + std::string(context_.get_op_name(op)));
    return emit_inferred(op, args);
  }

  ValueId emit_inferred(OpId op, std::span<const Arg> args) {
    const graph::ResultMeta& result = rules_.results()[0];
    TensorMeta meta = result.meta;
    if (result.kind == graph::ResultKind::Fresh) meta.storage = context_.make_storage();
    const ValueId out = new_.add_tensor(meta);
    emit(op, args, rules_.returns(), {&out, 1});
    return out;
  }

  ValueId emit_clone(ValueId id) {
    const Arg args[] = {Arg::make_value(id), Arg::make_memory_format(graph::MemoryFormat::Contiguous)};
    return emit_single(OpId::clone, args);
  }

  // --- writing ---

  // The memory seen through `id` has the contents of the functional value `contents` now.
  void write(ValueId id, ValueId contents) {
    std::vector<std::pair<ValueId, ValueId>> shown = {{id, contents}};
    ValueId at = id;
    const ValueId base = storage(id).base;
    while (at != base) {
      if (!state(at).parent.is_valid()) {
        contents = scatter_into_base(at, contents);
        at = base;
      } else {
        const ValueId parent = state(at).parent;
        contents = undo_view(at, contents);
        at = parent;
      }
      shown.push_back({at, contents});
    }
    ++storage(id).version;
    for (const auto& [seen, value] : shown) show(seen, value);
  }

  // An aliased input: by place in the base.
  ValueId scatter_into_base(ValueId id, ValueId contents) {
    const ValueId base = storage(id).base;
    const TensorMeta& meta = old_.get_meta(id);
    const TensorMeta& base_meta = old_.get_meta(base);
    check_covers(base_meta, meta, id);
    return emit_as_strided_scatter(read(base), contents, meta,
                                   context_.symbols().subtract(meta.offset, base_meta.offset));
  }

  ValueId emit_as_strided_scatter(ValueId whole, ValueId part, const TensorMeta& place, Int offset) {
    const Arg args[] = {Arg::make_value(whole), Arg::make_value(part), context_.make_int_list(place.sizes()),
                        context_.make_int_list(place.strides()), Arg::make_int(offset)};
    if (!graph::infer(OpId::as_strided_scatter, args, rules_)) refuse("a write into " + name(whole));
    return emit_inferred(OpId::as_strided_scatter, args);
  }

  // The parent's contents after the view `id` of it was given `contents`.
  ValueId undo_view(ValueId id, ValueId contents) {
    const Node& creator = old_.nodes[state(id).creator];
    const ValueId parent = state(id).parent;
    const TensorMeta& parent_meta = old_.get_meta(parent);
    const Arg whole = Arg::make_value(parent);
    const Arg part = Arg::make_value(contents);
    const std::span<const Arg> args = creator.args;
    switch (creator.op) {
      case OpId::detach:
      case OpId::alias:
      case OpId::lift_fresh:
      case OpId::set__source_Tensor:
        return contents;
      case OpId::t: {
        const Arg undo[] = {part};
        return emit_single(OpId::t, undo);
      }
      case OpId::transpose_int: {
        const Arg undo[] = {part, args[1], args[2]};
        return emit_single(OpId::transpose_int, undo);
      }
      case OpId::permute: {
        const auto order = args[1].get_list();
        std::vector<Int> back(order.size(), 0);
        for (std::size_t i = 0; i < order.size(); ++i) {
          const std::int64_t d = order[i].get_int().get_constant();
          back[static_cast<std::size_t>(d < 0 ? d + static_cast<std::int64_t>(order.size()) : d)] =
              static_cast<std::int64_t>(i);
        }
        const Arg undo[] = {part, context_.make_int_list(back)};
        return emit_single(OpId::permute, undo);
      }
      case OpId::view:
      case OpId::_unsafe_view:
      case OpId::unsqueeze:
      case OpId::squeeze:
      case OpId::squeeze_dim:
      case OpId::squeeze_dims:
        return emit_view_as(contents, parent_meta);
      case OpId::_reshape_alias:
      case OpId::as_strided:
        // Of all elements in the same order: a plain view.
        if (is_contiguous(old_.get_meta(id)) && is_contiguous(parent_meta) &&
            sym::is_yes(context_.symbols().is_equal(context_.symbols().product(old_.get_meta(id).sizes()),
                                                    context_.symbols().product(parent_meta.sizes()))))
          return emit_view_as(contents, parent_meta);
        return undo_by_place(id, contents);
      case OpId::_conj:
      case OpId::_neg_view: {
        const Arg undo[] = {part};
        return emit_single(creator.op, undo);
      }
      case OpId::view_as_real: {
        const Arg undo[] = {part};
        return emit_single(OpId::view_as_complex, undo);
      }
      case OpId::view_as_complex: {
        const Arg undo[] = {part};
        return emit_single(OpId::view_as_real, undo);
      }
      case OpId::view_dtype: {
        const Arg undo[] = {part, Arg::make_dtype(parent_meta.dtype)};
        return emit_single(OpId::view_dtype, undo);
      }
      case OpId::slice_Tensor: {
        const Arg put[] = {Arg::make_value(read(parent)), part, args[1], args[2], args[3], args[4]};
        return emit_scatter(OpId::slice_scatter, put, id, contents);
      }
      case OpId::select_int: {
        const Arg put[] = {Arg::make_value(read(parent)), part, args[1], args[2]};
        return emit_scatter(OpId::select_scatter, put, id, contents);
      }
      case OpId::diagonal: {
        const Arg put[] = {Arg::make_value(read(parent)), part, args[1], args[2], args[3]};
        return emit_scatter(OpId::diagonal_scatter, put, id, contents);
      }
      case OpId::unbind_int: {
        const Arg put[] = {Arg::make_value(read(parent)), part, args[1],
                           Arg::make_int(static_cast<std::int64_t>(find_out(creator, id)))};
        return emit_scatter(OpId::select_scatter, put, id, contents);
      }
      case OpId::split_Tensor:
      case OpId::split_with_sizes: {
        const Int start = find_split_start(creator, id);
        const std::int64_t dim = args[2].get_int().get_constant();
        const std::size_t d = static_cast<std::size_t>(dim < 0 ? dim + parent_meta.rank : dim);
        const Int end = context_.symbols().add(start, old_.get_meta(id).sizes()[d]);
        const Arg put[] = {
            Arg::make_value(read(parent)), part, args[2], Arg::make_int(start), Arg::make_int(end), Arg::make_int(1)};
        return emit_scatter(OpId::slice_scatter, put, id, contents);
      }
      default:
        (void)whole;
        return undo_by_place(id, contents);
    }
  }

  ValueId emit_view_as(ValueId contents, const TensorMeta& like) {
    const Arg args[] = {Arg::make_value(contents), context_.make_int_list(like.sizes())};
    if (graph::infer(OpId::view, args, rules_)) return emit_inferred(OpId::view, args);
    const Arg copied[] = {Arg::make_value(emit_clone(contents)), args[1]};
    return emit_single(OpId::view, copied);
  }

  ValueId emit_scatter(OpId op, std::span<const Arg> args, ValueId id, ValueId contents) {
    if (graph::infer(op, args, rules_)) return emit_inferred(op, args);
    return undo_by_place(id, contents);
  }

  // By the place of the view's elements in the parent's memory. The parent's current value may be laid out in another
  // way than the recorded one: then from a copy that has the recorded layout.
  ValueId undo_by_place(ValueId id, ValueId contents) {
    const ValueId parent = state(id).parent;
    const TensorMeta& meta = old_.get_meta(id);
    const TensorMeta& parent_meta = old_.get_meta(parent);
    if (meta.dtype != parent_meta.dtype) refuse("a write through the view " + name(id) + " of another dtype");
    ValueId whole = read(parent);
    const TensorMeta& current = new_.get_meta(whole);
    const bool is_same = std::equal(current.strides().begin(), current.strides().end(), parent_meta.strides().begin(),
                                    parent_meta.strides().end());
    if (!is_same) {
      if (!is_contiguous(parent_meta)) refuse("a write through the view " + name(id) + " of a rearranged tensor");
      whole = emit_clone(whole);
    }
    return emit_as_strided_scatter(whole, contents, meta, context_.symbols().subtract(meta.offset, parent_meta.offset));
  }

  static std::size_t find_out(const Node& node, ValueId id) {
    return static_cast<std::size_t>(std::find(node.outs.begin(), node.outs.end(), id) - node.outs.begin());
  }

  Int find_split_start(const Node& creator, ValueId id) {
    const std::size_t index = find_out(creator, id);
    if (creator.op == OpId::split_Tensor)
      return context_.symbols().multiply(creator.args[1].get_int(), static_cast<std::int64_t>(index));
    Int start = 0;
    for (std::size_t i = 0; i < index; ++i)
      start = context_.symbols().add(start, creator.args[1].get_list()[i].get_int());
    return start;
  }

  // --- nodes ---

  void add_node(std::uint32_t index) {
    const Node& node = old_.nodes[index];
    phase_ = node.phase;
    source_ = node.source;
    note_views(index);
    if (is_identity(node.op) && node.outs.size() == 1) {
      if (!state(node.outs[0]).parent.is_valid()) return;  // the argument itself
      show(node.outs[0], read(state(node.outs[0]).parent));
      return;
    }
    const std::span<const Arg> args = graph::map_values(context_, node.args, [&](ValueId id) { return read(id); });
    if (node.mut == 0) {
      add_plain(index, args);
    } else {
      add_writing(node, args);
    }
  }

  // Remembers how the node's outs that share an argument's memory were made.
  void note_views(std::uint32_t index) {
    const Node& node = old_.nodes[index];
    for (const ValueId out : node.outs) {
      if (!out.is_valid() || !has_storage(out) || state(out).is_seen) continue;
      if (!storage(out).base.is_valid()) {
        see(out);
        continue;
      }
      const StorageId shared = old_.get_meta(out).storage;
      ValueId parent;
      graph::for_each_use(node, [&](ValueId used) {
        if (!parent.is_valid() && has_storage(used) && old_.get_meta(used).storage == shared) parent = used;
      });
      see(out);
      if (!parent.is_valid()) continue;
      state(out).creator = index;
      state(out).parent = parent;
    }
  }

  // A node that writes nothing. An out that is an argument (an op that returns its input) is that argument.
  void add_plain(std::uint32_t index, std::span<const Arg> args) {
    const Node& node = old_.nodes[index];
    std::vector<ValueId> outs(node.outs.begin(), node.outs.end());
    for (ValueId& out : outs) {
      if (out.is_valid() && old_.get_value(out).producer != NodeId(index)) out = ValueId();
    }
    // A view of changed memory has the new value's metadata.
    const bool is_moved = graph::is_view(node.op) && node.args[0].is_value() && has_storage(node.args[0].get_value()) &&
                          new_.get_meta(args[0].get_value()).storage != old_.get_meta(node.args[0].get_value()).storage;
    if (is_moved) {
      if (!graph::infer(node.op, args, rules_) || rules_.results().size() != outs.size()) {
        args = with_argument_0(args, emit_clone(args[0].get_value()));
        if (!graph::infer(node.op, args, rules_) || rules_.results().size() != outs.size())
          refuse("a view of changed memory: " + std::string(context_.get_op_name(node.op)));
      }
      for (std::size_t i = 0; i < outs.size(); ++i) {
        if (outs[i].is_valid()) new_.get_value(outs[i]).meta = rules_.results()[i].meta;
      }
    }
    emit(node.op, args, node.returns, outs);
  }

  // The metadata of a written tensor's new value: its geometry, packed, on memory of its own.
  TensorMeta make_new_meta(const TensorMeta& meta) {
    const ValueId probe_id = new_.add_tensor(meta);
    new_.values.back().meta.flags = graph::kNoTensorFlags;
    const Arg probe[] = {Arg::make_value(probe_id), Arg::make_none()};
    const bool is_known = graph::infer(OpId::clone, probe, rules_);
    new_.values.pop_back();
    if (!is_known) return context_.make_meta(meta.sizes(), meta.dtype, meta.device);
    TensorMeta packed = rules_.results()[0].meta;
    packed.storage = context_.make_storage();
    packed.flags = meta.flags;
    return packed;
  }

  void add_writing(const Node& node, std::span<const Arg> args) {
    struct Write {
      ValueId target;  // recorded
      ValueId contents;
    };
    std::vector<Write> writes;
    std::vector<ValueId> new_values;
    std::vector<ValueId> outs(node.outs.begin(), node.outs.end());
    for (std::size_t i = 0; i < node.args.size() && i < 64; ++i) {
      if ((node.mut >> i & 1) == 0) continue;
      graph::for_each_value(node.args[i], [&](ValueId id) {
        ValueId target = id;
        // resize_ and its kin: the result is the same memory with other metadata.
        for (ValueId& out : outs) {
          if (!out.is_valid()) continue;
          const bool is_other = out != id && !is_source_or_known(node, out) && has_storage(out) && has_storage(id) &&
                                old_.get_meta(out).storage == old_.get_meta(id).storage;
          if (is_other) {
            target = out;
            out = ValueId();
          } else if (out == id) {
            out = ValueId();
          }
        }
        const ValueId contents = new_.add_tensor(make_new_meta(old_.get_meta(target)));
        new_values.push_back(contents);
        writes.push_back({target, contents});
        if (target != id) {
          storage(target).base = target;
          state(target).parent = ValueId();
          state(target).creator = kNoNode;
        }
      });
    }
    Node added = node;
    added.args = args;
    added.outs = outs;
    added.new_values = new_values;
    new_.add_node(added);
    for (const Write& done : writes) write(done.target, done.contents);
  }

  static bool is_source_or_known(const Node& node, ValueId out) {
    bool is_argument = false;
    graph::for_each_use(node, [&](ValueId used) { is_argument = is_argument || used == out; });
    return is_argument;
  }

  // --- the end ---

  void finish() {
    phase_ = graph::Phase::Forward;
    add_outputs();
    for (std::uint32_t i = 0; i < old_.inputs.size(); ++i) {
      const ValueId id = old_.inputs[i].value;
      new_.inputs[i].is_mutated = false;
      if (!has_storage(id) || storage(id).version == 0 || storage(id).base != id) continue;
      if (has_set_data(i)) continue;
      new_.effects.push_back({graph::EffectKind::Copy, i, read(id)});
    }
    for (const graph::Effect& effect : old_.effects) {
      graph::Effect mapped = effect;
      if (mapped.value.is_valid()) mapped.value = read(mapped.value);
      new_.effects.push_back(mapped);
    }
    for (const graph::Effect& effect : new_.effects) {
      if (effect.kind != graph::EffectKind::Bump && effect.kind != graph::EffectKind::SetRng)
        new_.inputs[effect.input].is_mutated = true;
    }
    phase_ = old_.gradients.empty() ? graph::Phase::Forward : graph::Phase::Backward;
    for (const graph::Gradient& gradient : old_.gradients) {
      graph::Gradient mapped = gradient;
      if (mapped.value.is_valid()) mapped.value = read(mapped.value);
      new_.gradients.push_back(mapped);
    }
    for (const ValueId id : old_.saved) new_.saved.push_back(read(id));
  }

  bool has_set_data(std::uint32_t input) const {
    for (const graph::Effect& effect : old_.effects) {
      if (effect.input == input && effect.kind == graph::EffectKind::SetData) return true;
    }
    return false;
  }

  void add_outputs() {
    std::vector<std::uint32_t> input_of(value_count_, kNoNode);  // by recorded value
    std::vector<std::uint32_t> input_on(storages_.size(), kNoNode);
    std::vector<std::uint32_t> output_of(value_count_, kNoNode);
    std::vector<std::uint32_t> output_on(storages_.size(), kNoNode);
    for (std::uint32_t i = 0; i < old_.inputs.size(); ++i) {
      const ValueId id = old_.inputs[i].value;
      input_of[id.index()] = i;
      if (has_storage(id) && storage(id).base == id) input_on[old_.get_meta(id).storage.index()] = i;
    }
    // Of outputs on one memory that is no input's, the widest is the base (the first of equals).
    for (std::uint32_t i = 0; i < old_.outputs.size(); ++i) {
      const graph::Output& output = old_.outputs[i];
      if (output.kind != graph::OutputKind::Value || !has_storage(output.value)) continue;
      std::uint32_t& widest = output_on[old_.get_meta(output.value).storage.index()];
      if (widest == kNoNode || is_wider(output.value, old_.outputs[widest].value)) widest = i;
    }
    for (std::uint32_t i = 0; i < old_.outputs.size(); ++i) {
      graph::Output output = old_.outputs[i];
      if (output.kind == graph::OutputKind::None) {
        new_.outputs.push_back(output);
        continue;
      }
      const ValueId id = output.value;
      if (output.kind == graph::OutputKind::Value && old_.get_value(id).kind == ValueKind::Tensor) {
        const std::uint32_t memory = old_.get_meta(id).storage.index();
        if (input_of[id.index()] != kNoNode) {
          output.kind = graph::OutputKind::Input;
          output.index = input_of[id.index()];
        } else if (output_of[id.index()] != kNoNode) {
          output.kind = graph::OutputKind::SameOutput;
          output.index = output_of[id.index()];
        } else if (input_on[memory] != kNoNode) {
          output.kind = graph::OutputKind::ViewOfInput;
          output.index = input_on[memory];
        } else if (output_on[memory] != i && is_covered(old_.outputs[output_on[memory]].value, id)) {
          output.kind = graph::OutputKind::ViewOfOutput;
          output.index = output_on[memory];
        }
        if (output_of[id.index()] == kNoNode) output_of[id.index()] = i;
      }
      if (old_.get_value(id).kind == ValueKind::Tensor) output.meta = old_.get_meta(id);
      output.value = output.kind == graph::OutputKind::Value ? read(id) : ValueId();
      new_.outputs.push_back(output);
    }
    // An object that is a view and stands twice: the second one is another view object of the same kind.
    for (graph::Output& output : new_.outputs) {
      if (output.kind != graph::OutputKind::SameOutput) continue;
      const graph::Output& first = new_.outputs[output.index];
      if (first.kind != graph::OutputKind::Value) output = first;
    }
  }

  // Whether a view of `base` can have all elements of `id`, which is on the same memory.
  bool is_covered(ValueId base, ValueId id) {
    sym::Context& symbols = context_.symbols();
    const TensorMeta& whole = old_.get_meta(base);
    const TensorMeta& part = old_.get_meta(id);
    return whole.dtype == part.dtype && whole.flags == part.flags && is_contiguous(whole) &&
           sym::is_yes(symbols.is_less_equal(whole.offset, part.offset)) &&
           sym::is_yes(
               symbols.is_less_equal(get_extent(part), symbols.add(whole.offset, symbols.product(whole.sizes()))));
  }

  bool is_wider(ValueId a, ValueId b) {
    sym::Context& symbols = context_.symbols();
    return sym::is_yes(
        symbols.is_less(symbols.product(old_.get_meta(b).sizes()), symbols.product(old_.get_meta(a).sizes())));
  }

  const Graph& old_;
  Context& context_;
  Graph new_;
  std::size_t value_count_;
  std::vector<State> states_;  // by recorded value
  std::vector<Storage> storages_;
  graph::RuleCall rules_;
  graph::Phase phase_ = graph::Phase::Forward;
  graph::SourceId source_;
};

}  // namespace

std::optional<base::Unsupported> functionalise(Graph& graph) {
  if (graph.form == graph::Form::Functional) return std::nullopt;
  Functionaliser functionaliser(graph);
  try {
    graph = functionaliser.run();
  } catch (const Refusal& refusal) {
    return base::Unsupported{base::UnsupportedCode::AliasedMutation, refusal.text};
  }
  return std::nullopt;
}

}  // namespace reprise::passes
