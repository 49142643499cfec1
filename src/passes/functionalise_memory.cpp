#include <algorithm>

#include "base/check.h"
#include "passes/functionalise_impl.h"

namespace reprise::passes {

Memory::Memory(const Graph& old)
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

bool Memory::has_storage(ValueId id) const {
  const Value& value = old_.get_value(id);
  return value.kind == ValueKind::Tensor && value.meta.storage.is_valid();
}

void Memory::see(ValueId id) {
  if (!has_storage(id) || state(id).is_seen) return;
  state(id).is_seen = true;
  Storage& memory = storage(id);
  if (!memory.base.is_valid()) memory.base = id;
  state(id).version = memory.version;
}

Int Memory::get_extent(const TensorMeta& meta) {
  sym::Context& symbols = context_.symbols();
  Int extent = 1;
  for (std::size_t i = 0; i < meta.rank; ++i)
    extent = symbols.add(extent, symbols.multiply(symbols.subtract(meta.sizes()[i], 1), meta.strides()[i]));
  return symbols.add(extent, meta.offset);
}

void Memory::find_input_bases() {
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
  for (const graph::Input& input : old_.inputs) {
    if (has_storage(input.value)) storage(input.value).input = storage(input.value).base;
  }
  for (const graph::Constant& constant : old_.constants) see(constant.value);
}

ValueId Memory::read(ValueId id) {
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

Node Memory::normalise(const Node& node) {
  Node plain = node;
  switch (node.op) {
    case OpId::t_:
      plain.op = OpId::t;
      break;
    case OpId::unsafe_split_Tensor:  // views as well; only autograd takes them for tensors of their own
      plain.op = OpId::split_Tensor;
      break;
    case OpId::unsafe_split_with_sizes:
      plain.op = OpId::split_with_sizes;
      break;
    case OpId::transpose_:
      plain.op = OpId::transpose_int;
      break;
    case OpId::squeeze_:
      plain.op = OpId::squeeze;
      break;
    case OpId::squeeze__dim:
      plain.op = OpId::squeeze_dim;
      break;
    case OpId::unsqueeze_:
      plain.op = OpId::unsqueeze;
      break;
    case OpId::as_strided_:
      plain.op = OpId::as_strided;
      break;
    case OpId::_reshape_alias:
      plain.op = OpId::view;
      plain.args = node.args.first(2);
      break;
    default:
      break;
  }
  return plain;
}

void Memory::make_again(ValueId id) {
  const State& stale = state(id);
  const Node creator = stale.parent.is_valid() ? normalise(old_.nodes[stale.creator]) : Node{};
  if (!stale.parent.is_valid() || creator.op == OpId::as_strided) {
    make_alias_of_base(id);
    return;
  }
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

void Memory::emit_views(const Node& creator, std::span<const Arg> args) {
  std::vector<ValueId> outs;
  for (const graph::ResultMeta& result : rules_.results()) outs.push_back(new_.add_tensor(result.meta));
  emit(creator.op, args, creator.returns, outs);
  for (std::size_t i = 0; i < outs.size(); ++i) {
    const ValueId shown = creator.outs[i];
    if (shown.is_valid() && state(shown).creator != kNoNode) show(shown, outs[i]);
  }
}

void Memory::make_alias_of_base(ValueId id) {
  const ValueId base = storage(id).base;
  const TensorMeta& meta = old_.get_meta(id);
  const TensorMeta& base_meta = old_.get_meta(base);
  check_covers(base_meta, meta, id);
  const ValueId shown = read_plain_base(base);
  const Arg args[] = {Arg::make_value(shown), context_.make_int_list(meta.sizes()),
                      context_.make_int_list(meta.strides()),
                      Arg::make_int(context_.symbols().subtract(meta.offset, base_meta.offset))};
  show(id, emit_single(OpId::as_strided, args));
}

ValueId Memory::read_plain_base(ValueId base) {
  const ValueId shown = read(base);
  const TensorMeta& meta = new_.get_meta(shown);
  return is_contiguous(meta) && meta.offset == Int(0) ? shown : emit_clone(shown);
}

void Memory::check_covers(const TensorMeta& base, const TensorMeta& meta, ValueId id) {
  sym::Context& symbols = context_.symbols();
  const Int base_end = symbols.add(base.offset, symbols.product(base.sizes()));
  const bool is_covered = is_contiguous(base) && base.dtype == meta.dtype &&
                          sym::is_yes(symbols.is_less_equal(base.offset, meta.offset)) &&
                          sym::is_yes(symbols.is_less_equal(get_extent(meta), base_end));
  if (!is_covered) refuse(name(id) + " shares memory with " + name(storage(id).base) + ", which does not cover it");
}

bool Memory::is_contiguous(const TensorMeta& meta) {
  Int step = 1;
  for (std::size_t i = meta.rank; i-- > 0;) {
    if (meta.sizes()[i] != Int(1) && meta.strides()[i] != step) return false;
    step = context_.symbols().multiply(step, meta.sizes()[i]);
  }
  return true;
}

// What is written into a part of such a view is seen in its other parts: expand, unfold.
bool Memory::repeats_elements(const TensorMeta& meta) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride and size
  for (std::size_t i = 0; i < meta.rank; ++i) {
    if (!meta.sizes()[i].is_constant() || !meta.strides()[i].is_constant()) {
      if (meta.strides()[i] == Int(0)) return true;
      continue;
    }
    if (meta.sizes()[i].get_constant() == 0) return false;
    if (meta.sizes()[i].get_constant() != 1)
      dims.emplace_back(meta.strides()[i].get_constant(), meta.sizes()[i].get_constant());
  }
  std::ranges::sort(dims);
  std::int64_t extent = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < extent) return true;
    extent += (size - 1) * stride;
  }
  return false;
}

void Memory::show(ValueId id, ValueId functional) {
  state(id).current = functional;
  state(id).version = storage(id).version;
}

std::span<const Arg> Memory::with_argument_0(std::span<const Arg> args, ValueId id) {
  std::span<Arg> copy = context_.arena().copy(args);
  copy[0] = Arg::make_value(id);
  return copy;
}

void Memory::emit(OpId op, std::span<const Arg> args, std::span<const Return> returns, std::span<const ValueId> outs) {
  Node node;
  node.op = op;
  node.phase = phase_;
  node.source = source_;
  node.args = args;
  node.returns = returns;
  node.outs = outs;
  new_.add_node(node);
}

ValueId Memory::emit_single(OpId op, std::span<const Arg> args) {
  REPRISE_CHECK(graph::infer(op, args, rules_) && rules_.results().size() == 1,
                "no rule for " + std::string(context_.get_op_name(op)));
  return emit_inferred(op, args);
}

ValueId Memory::emit_inferred(OpId op, std::span<const Arg> args) {
  const graph::ResultMeta& result = rules_.results()[0];
  TensorMeta meta = result.meta;
  if (result.kind == graph::ResultKind::Fresh) meta.storage = context_.make_storage();
  const ValueId out = new_.add_tensor(meta);
  emit(op, args, rules_.returns(), {&out, 1});
  return out;
}

ValueId Memory::emit_clone(ValueId id) {
  const Arg args[] = {Arg::make_value(id), Arg::make_memory_format(graph::MemoryFormat::Contiguous)};
  return emit_single(OpId::clone, args);
}

void Memory::write(ValueId id, ValueId contents) {
  std::vector<std::pair<ValueId, ValueId>> shown = {{id, contents}};
  ValueId at = id;
  const ValueId base = storage(id).base;
  while (at != base) {
    const bool is_by_place = !state(at).parent.is_valid() || old_.nodes[state(at).creator].op == OpId::as_strided ||
                             old_.nodes[state(at).creator].op == OpId::as_strided_ ||
                             repeats_elements(old_.get_meta(state(at).parent));
    if (is_by_place) {
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

ValueId Memory::scatter_into_base(ValueId id, ValueId contents) {
  const ValueId base = storage(id).base;
  const TensorMeta& meta = old_.get_meta(id);
  const TensorMeta& base_meta = old_.get_meta(base);
  check_covers(base_meta, meta, id);
  return emit_as_strided_scatter(read_plain_base(base), contents, meta,
                                 context_.symbols().subtract(meta.offset, base_meta.offset));
}

ValueId Memory::emit_as_strided_scatter(ValueId whole, ValueId part, const TensorMeta& place, Int offset) {
  const Arg args[] = {Arg::make_value(whole), Arg::make_value(part), context_.make_int_list(place.sizes()),
                      context_.make_int_list(place.strides()), Arg::make_int(offset)};
  if (!graph::infer(OpId::as_strided_scatter, args, rules_)) refuse("a write into " + name(whole));
  return emit_inferred(OpId::as_strided_scatter, args);
}

ValueId Memory::undo_view(ValueId id, ValueId contents) {
  const Node creator = normalise(old_.nodes[state(id).creator]);
  const ValueId parent = state(id).parent;
  const TensorMeta& parent_meta = old_.get_meta(parent);
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
      return undo_by_place(id, contents);
  }
}

ValueId Memory::emit_view_as(ValueId contents, const TensorMeta& like) {
  const Arg args[] = {Arg::make_value(contents), context_.make_int_list(like.sizes())};
  if (graph::infer(OpId::view, args, rules_)) return emit_inferred(OpId::view, args);
  const Arg copied[] = {Arg::make_value(emit_clone(contents)), args[1]};
  return emit_single(OpId::view, copied);
}

ValueId Memory::emit_scatter(OpId op, std::span<const Arg> args, ValueId id, ValueId contents) {
  if (graph::infer(op, args, rules_)) return emit_inferred(op, args);
  // The parent is itself a part of something.
  const std::span<const Arg> copied = with_argument_0(args, emit_clone(args[0].get_value()));
  if (graph::infer(op, copied, rules_)) return emit_inferred(op, copied);
  return undo_by_place(id, contents);
}

ValueId Memory::undo_by_place(ValueId id, ValueId contents) {
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
  } else if (current.offset != Int(0)) {
    whole = emit_clone(whole);
  }
  return emit_as_strided_scatter(whole, contents, meta, context_.symbols().subtract(meta.offset, parent_meta.offset));
}

std::size_t Memory::find_out(const Node& node, ValueId id) {
  return static_cast<std::size_t>(std::find(node.outs.begin(), node.outs.end(), id) - node.outs.begin());
}

Int Memory::find_split_start(const Node& creator, ValueId id) {
  const std::size_t index = find_out(creator, id);
  if (creator.op == OpId::split_Tensor)
    return context_.symbols().multiply(creator.args[1].get_int(), static_cast<std::int64_t>(index));
  Int start = 0;
  for (std::size_t i = 0; i < index; ++i)
    start = context_.symbols().add(start, creator.args[1].get_list()[i].get_int());
  return start;
}

}  // namespace reprise::passes
