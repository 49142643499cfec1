// The essay: requirements of the memory plan.
//  1. A storage lives from the item that computes it to the last item that uses any tensor on it, views included. One
//     that the host gets (output, effect, gradient, saved) lives on and is allocated on its own; results of library
//     calls bring their own memory, but for ops with an out= overload (out_variants.def); all else is in the arena.
//  2. Places are shared one after the other: a place is given again only behind the item that used it last.
//  3. In place, in a kernel: a result may take the place of an operand that dies here if every read of it in the kernel
//     is at the position of the store, and none is in a later phase than the store. Where the host gets the result, its
//     memory is allocated for the operand.
//  4. In place, by a library op that writes its argument (`mut`): the new value takes over the argument's memory if
//     that dies here, the two have one geometry, and no other argument lies on it; else the argument is copied first.
//  5. An input whose new contents are computed here (effect Copy) is written in place by the kernel or op that computes
//     them, under the same conditions (the last use of the old contents), if nothing else may lie on the memory of the
//     input: no other input with its storage, and the value is needed for this effect only. No check of a node in
//     front of it is made later: when an error is raised, the input is what it was in eager then.
//  6. What the host gets is never the old contents of an input that an effect writes: those are copied first.
//  7. Views of what lies in the arena are views of the arena: they never leave the program.
#include <algorithm>

#include "schedule/arena.h"
#include "schedule/assemble_impl.h"

namespace reprise::schedule {

// The out= overload of an op, or "".
std::string_view find_out_variant(graph::OpId op) {
  switch (op) {
#define X(id, overload) \
  case graph::OpId::id: \
    return overload;
#include "schedule/out_variants.def"
#undef X
    default:
      return {};
  }
}

// --- lives of storages

std::uint32_t Assembler::get_storage(TensorId tensor) const { return lowered_.get(tensor).storage; }

Assembler::Storage& Assembler::get_place(TensorId tensor) { return storages_[find_place(get_storage(tensor))]; }

std::uint32_t Assembler::find_place(std::uint32_t storage) {
  while (storages_[storage].place != storage) {
    storages_[storage].place = storages_[storages_[storage].place].place;
    storage = storages_[storage].place;
  }
  return storage;
}

// `later` lies in the memory of `earlier` from now on.
void Assembler::unite(std::uint32_t earlier, std::uint32_t later) {
  earlier = find_place(earlier);
  later = find_place(later);
  if (earlier == later) return;
  storages_[later].place = earlier;
  storages_[earlier].last = std::max(storages_[earlier].last, storages_[later].last);
  storages_[earlier].escapes |= storages_[later].escapes;
}

void Assembler::touch(TensorId tensor, std::int32_t item) {
  Storage& storage = storages_[get_storage(tensor)];
  storage.last = std::max(storage.last, item);
}

// Elements from the base of a root tensor to its last one.
std::int64_t Assembler::get_extent(TensorId id) const {
  const lower::Tensor& tensor = lowered_.get(id);
  std::int64_t count = 1;
  for (std::size_t d = 0; d < tensor.sizes.rank; ++d) {
    if (tensor.sizes[d] == 0) return 0;
    count += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  return count;
}

void Assembler::set_size(TensorId tensor) {
  const std::int64_t bytes =
      get_extent(tensor) * static_cast<std::int64_t>(types::get_size_bytes(lowered_.get(tensor).dtype));
  Storage& storage = storages_[get_storage(tensor)];
  storage.size_bytes = std::max(storage.size_bytes, bytes);
}

// Whether the node's only result is computed into memory that the program gives.
bool Assembler::has_planned_result(const Node& node) const {
  if (options_.only_extern || node.mut != 0 || node.outs.size() != 1 || !node.outs[0].is_valid()) return false;
  const lower::Tensor& result = lowered_.get(lower::get_tensor(node.outs[0]));
  return result.is_plain && result.offset == 0 && !find_out_variant(node.op).empty();
}

void Assembler::find_lives() {
  storages_.resize(lowered_.storage_count);
  for (std::size_t s = 0; s < storages_.size(); ++s) storages_[s].place = static_cast<std::uint32_t>(s);
  const auto add_source = [&](ValueId value) {
    Storage& storage = storages_[get_storage(lower::get_tensor(value))];
    storage.is_shared_source |= storage.is_source;
    storage.is_source = true;
  };
  for (const graph::Input& input : graph_.inputs) add_source(input.value);
  for (const graph::Constant& constant : graph_.constants) add_source(constant.value);
  for (std::size_t i = 0; i < grouping_.items.size(); ++i) {
    const auto number = static_cast<std::int32_t>(i);
    const Item& item = grouping_.items[i];
    const auto define = [&](TensorId tensor, bool is_kernel) {
      Storage& storage = storages_[get_storage(tensor)];
      storage.last = std::max(storage.last, number);
      if (storage.first != kNever || storage.is_source) return;
      storage.first = number;
      storage.is_kernel = is_kernel;
      storage.is_library = !is_kernel;
    };
    if (item.is_extern) {
      const Node& node = graph_.get_node(lowered_.get(item.op).node);
      graph::for_each_use(node, [&](ValueId id) { touch(lower::get_tensor(id), number); });
      const bool is_planned = has_planned_result(node);
      graph::for_each_result(node, [&](ValueId id) { define(lower::get_tensor(id), is_planned); });
      if (is_planned) set_size(lower::get_tensor(node.outs[0]));
      continue;
    }
    for (const EmittedBuffer& buffer : emitted_[item.group].buffers) {
      if (buffer.is_written) {
        define(buffer.root, true);
        set_size(buffer.root);
      } else {
        touch(buffer.root, number);
      }
    }
    for (const ValueId id : emitted_[item.group].numbers) touch(lower::get_tensor(id), number);
  }
  const std::vector<bool> is_root = find_roots(graph_);
  root_counts_.assign(lowered_.storage_count, 0);
  for (std::size_t t = 0; t < is_root.size(); ++t) {
    if (!is_root[t]) continue;
    storages_[get_storage(TensorId(static_cast<std::uint32_t>(t)))].escapes = true;
  }
  Graph& graph = const_cast<Graph&>(graph_);
  graph::for_each_root(graph, [&](ValueId& id) { ++root_counts_[get_storage(lower::get_tensor(id))]; });
}

// --- memory taken over

bool Assembler::has_same_geometry(TensorId a, TensorId b) const {
  const graph::TensorMeta& x = graph_.get_meta(ValueId(a.index()));
  const graph::TensorMeta& y = graph_.get_meta(ValueId(b.index()));
  return x.rank == y.rank && x.dtype == y.dtype && x.flags == y.flags && x.device == y.device &&
         std::equal(x.sizes().begin(), x.sizes().end(), y.sizes().begin()) &&
         std::equal(x.strides().begin(), x.strides().end(), y.strides().begin());
}

// The argument of an extern node that `value` is the new contents of; and that no other argument lies on.
TensorId Assembler::find_written_argument(const Node& node, ValueId value) const {
  TensorId found;
  std::size_t next = 0;
  for (std::size_t i = 0; i < node.args.size(); ++i) {
    if (i >= 64 || (node.mut >> i & 1) == 0) continue;
    graph::for_each_value(node.args[i], [&](ValueId argument) {
      if (next < node.new_values.size() && node.new_values[next] == value) found = lower::get_tensor(argument);
      ++next;
    });
  }
  if (!found.is_valid()) return found;
  int count = 0;
  graph::for_each_use(
      node, [&](ValueId argument) { count += get_storage(lower::get_tensor(argument)) == get_storage(found); });
  return count == 1 ? found : TensorId();
}

// Requirement 5.
void Assembler::write_inputs() {
  find_first_checks();
  std::vector<std::int32_t> effect_counts(graph_.inputs.size(), 0);
  for (const graph::Effect& effect : graph_.effects) ++effect_counts[effect.input];
  for (std::size_t e = 0; e < graph_.effects.size(); ++e) {
    const graph::Effect& effect = graph_.effects[e];
    if (effect.kind != EffectKind::Copy || effect_counts[effect.input] != 1) continue;
    plan_.effect_is_done[e] =
        write_input(lower::get_tensor(graph_.inputs[effect.input].value), lower::get_tensor(effect.value));
  }
}

bool Assembler::write_input(TensorId input, TensorId value) {
  const std::uint32_t target = get_storage(input);
  if (storages_[target].is_shared_source || storages_[target].escapes) return false;
  if (lowered_.get(value).root != value || root_counts_[get_storage(value)] != 1) return false;
  if (!has_same_geometry(input, value)) return false;
  std::vector<TensorId> chain;
  TensorId current = value;
  for (;;) {
    const OpIndex producer = lowered_.get(current).producer;
    if (!producer.is_valid()) return false;
    const std::int32_t item = grouping_.item_of_op[producer.index()];
    if (item == kNever || lowered_.get(current).root != current) return false;
    if (current != value && root_counts_[get_storage(current)] != 0) return false;
    chain.push_back(current);
    if (!grouping_.items[static_cast<std::size_t>(item)].is_extern) {
      if (storages_[target].last > item) return false;
      if (!can_write_in_place(grouping_.items[static_cast<std::size_t>(item)].group, current, input)) return false;
      break;
    }
    const Node& node = graph_.get_node(lowered_.get(producer).node);
    const TensorId argument = find_written_argument(node, ValueId(current.index()));
    if (!argument.is_valid() || !has_same_geometry(argument, current)) return false;
    if (storages_[get_storage(argument)].last > item) return false;
    if (argument == input) break;
    current = argument;
  }
  const std::int32_t first = grouping_.item_of_op[lowered_.get(chain.back()).producer.index()];
  if (has_earlier_check(first, lowered_.get(lowered_.get(value).producer).node)) return false;
  for (const TensorId link : chain) unite(target, get_storage(link));
  return true;
}

// Whether `node` or one in front of it has checks that are made at the item or behind it.
bool Assembler::has_earlier_check(std::int32_t item, graph::NodeId node) const {
  return first_checks_[static_cast<std::size_t>(item)] <= node.index();
}

void Assembler::find_first_checks() {
  first_checks_.assign(grouping_.items.size() + 1, UINT32_MAX);
  for (std::size_t i = grouping_.items.size(); i-- > 0;) {
    first_checks_[i] = first_checks_[i + 1];
    if (grouping_.items[i].is_extern) continue;
    for (const Member& member : grouping_.groups[grouping_.items[i].group].members) {
      const Op& op = lowered_.get(member.op);
      if (op.has_checks()) first_checks_[i] = std::min(first_checks_[i], op.node.index());
    }
  }
}

// Requirement 3: every read of `operand` in the group is at the position where `result` is stored.
bool Assembler::can_write_in_place(std::uint32_t group_index, TensorId result, TensorId operand) const {
  const Group& group = grouping_.groups[group_index];
  const lower::Tensor& to = lowered_.get(result);
  const lower::Tensor& from = lowered_.get(operand);
  if (!from.is_plain || from.root != operand || from.dtype != to.dtype) return false;
  const Touch* store = nullptr;
  for (const Touch& touch : group.touches) {
    if (touch.member >= 0 && touch.root == result) store = &touch;
  }
  if (store == nullptr) return false;
  const Member& writer = group.members[static_cast<std::size_t>(store->member)];
  VarIndex position = store->position;
  position.constant += from.offset - to.offset;
  for (const Touch& touch : group.touches) {
    if (get_storage(touch.root) != from.storage) continue;
    if (touch.root != operand || touch.is_indirect) return false;
    if (touch.position != position) return false;
  }
  if (!group.has_reduction) return true;
  // A value is computed where it is first needed. What reads the operand is needed in front of the store: the writer
  // itself, or anything if no later phase could be the first to need it. A reduction is stored at the end of its
  // pass, in front of the members of the row.
  bool has_later = false;
  for (const Member& member : group.members) has_later |= member.phase > writer.phase;
  const bool is_reduction = lowered_.get(writer.op).is_reduction;
  for (const Member& member : group.members) {
    bool is_reader = false;
    for_each_access(lowered_, lowered_.get(member.op),
                    [&](const Access& access) { is_reader |= get_storage(access.tensor) == from.storage; });
    if (!is_reader || &member == &writer) continue;
    if (has_later || (is_reduction && !member.is_full)) return false;
  }
  return true;
}

// Requirement 3: results of kernels in the place of operands that die there.
void Assembler::share_places() {
  for (std::size_t i = 0; i < grouping_.items.size(); ++i) {
    const Item& item = grouping_.items[i];
    if (item.is_extern) continue;
    const Emitted& emitted = emitted_[item.group];
    std::vector<bool> is_taken(emitted.buffers.size(), false);
    for (const EmittedBuffer& result : emitted.buffers) {
      if (!result.is_written || !(can_lie_in_arena(result.root) || is_own_output(result.root))) continue;
      for (std::size_t b = 0; b < emitted.buffers.size(); ++b) {
        const EmittedBuffer& operand = emitted.buffers[b];
        if (operand.is_written || is_taken[b] || !can_lie_in_arena(operand.root)) continue;
        const Storage& from = get_place(operand.root);
        if (from.last != static_cast<std::int32_t>(i)) continue;
        if (from.size_bytes != storages_[get_storage(result.root)].size_bytes) continue;
        if (!can_write_in_place(item.group, result.root, operand.root)) continue;
        unite(get_storage(operand.root), get_storage(result.root));
        is_taken[b] = true;
        break;
      }
    }
  }
}

bool Assembler::can_lie_in_arena(TensorId tensor) {
  const Storage& storage = get_place(tensor);
  return storage.is_kernel && !storage.escapes && !storage.is_source && lowered_.get(tensor).root == tensor;
}

// Computed by a kernel for the host, in memory of its own so far.
bool Assembler::is_own_output(TensorId tensor) const {
  const std::uint32_t own = get_storage(tensor);
  const Storage& storage = storages_[own];
  return storage.is_kernel && storage.escapes && !storage.is_source && storage.place == own &&
         lowered_.get(tensor).root == tensor;
}

// Requirement 4.
void Assembler::take_over_arguments() {
  for (std::size_t i = 0; i < grouping_.items.size(); ++i) {
    const Item& item = grouping_.items[i];
    if (!item.is_extern) continue;
    const Node& node = graph_.get_node(lowered_.get(item.op).node);
    for (const ValueId value : node.new_values) {
      const TensorId tensor = lower::get_tensor(value);
      const TensorId argument = find_written_argument(node, value);
      if (!argument.is_valid() || lowered_.get(argument).root != argument) continue;
      const std::uint32_t from = find_place(get_storage(argument));
      if (from == find_place(get_storage(tensor))) continue;  // an input that is written in place
      const Storage& storage = storages_[from];
      if (storage.is_source || storage.escapes || storage.last != static_cast<std::int32_t>(i)) continue;
      if (!has_same_geometry(argument, tensor)) continue;
      unite(from, get_storage(tensor));
    }
  }
}

void Assembler::place_in_arena() {
  std::vector<std::vector<std::uint32_t>> starts(grouping_.items.size());
  std::vector<std::vector<std::uint32_t>> ends(grouping_.items.size());
  for (std::uint32_t s = 0; s < storages_.size(); ++s) {
    const Storage& storage = storages_[s];
    if (storage.is_kernel && !storage.escapes && storage.place == s)
      plan_.statistics.temporary_bytes += Arena::round_up(storage.size_bytes);
    if (storage.place != s || storage.escapes || storage.is_source || !storage.is_kernel) continue;
    starts[static_cast<std::size_t>(storage.first)].push_back(s);
    ends[static_cast<std::size_t>(storage.last)].push_back(s);
  }
  Arena arena;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    for (const std::uint32_t s : starts[i]) storages_[s].arena_offset = arena.allocate(storages_[s].size_bytes);
    if (!options_.reuse_memory) continue;
    for (const std::uint32_t s : ends[i]) arena.release(storages_[s].arena_offset, storages_[s].size_bytes);
  }
  plan_.program.arena_bytes = arena.get_size_bytes();
}

}  // namespace reprise::schedule
