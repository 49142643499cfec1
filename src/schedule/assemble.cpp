// The essay: requirements of the memory plan.
//  1. A storage lives from the item that computes it to the last item that uses any tensor on it, views included. One
//     that the host gets (output, effect, gradient, saved) lives on and is allocated on its own; results of library
//     calls bring their own memory, but for ops with an out= overload (out_variants.def); all else is in the arena.
//  2. Places are shared one after the other: a place is given again only behind the item that used it last.
//  3. In place, in a kernel: a result may take the place of an operand that dies here if every read of it in the kernel
//     is at the position of the store, and none is in a later phase than the store.
//  4. In place, by a library op that writes its argument (`mut`): the new value takes over the argument's memory if
//     that dies here, the two have one geometry, and no other argument lies on it; else the argument is copied first.
//  5. An input whose new contents are computed here (effect Copy) is written in place by the kernel or op that computes
//     them, under the same conditions (the last use of the old contents), if nothing else may lie on the memory of the
//     input: no other input with its storage, and the value is needed for this effect only. No check of a node in
//     front of it is made later: when an error is raised, the input is what it was in eager then.
//  6. What the host gets is never the old contents of an input that an effect writes: those are copied first.
//  7. Views of what lies in the arena are views of the arena: they never leave the program.
#include "schedule/assemble.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/check.h"
#include "base/hash.h"
#include "schedule/arena.h"

namespace reprise::schedule {

namespace {

using graph::Arg;
using graph::ArgKind;
using graph::EffectKind;
using graph::Graph;
using graph::Node;
using graph::OutputKind;
using graph::ValueId;
using graph::ValueKind;
using program::Argument;
using program::ArgumentKind;
using program::Program;
using program::SlotId;
using program::SlotKind;
using program::Step;
using program::StepKind;

constexpr std::int32_t kNever = -1;

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

class Assembler {
 public:
  Assembler(const Graph& graph, const Lowered& lowered, const Grouping& grouping, std::vector<Emitted> emitted,
            const Options& options)
      : graph_(graph), lowered_(lowered), grouping_(grouping), emitted_(std::move(emitted)), options_(options) {}

  Plan run() {
    find_lives();
    plan_.effect_is_done.assign(graph_.effects.size(), false);
    if (options_.write_inputs) write_inputs();
    take_over_arguments();
    if (options_.reuse_memory) share_places();
    place_in_arena();
    add_sources();
    for (std::size_t i = 0; i < grouping_.items.size(); ++i) add_item(static_cast<std::int32_t>(i));
    add_return();
    finish_flags();
    return std::move(plan_);
  }

 private:
  // --- lives of storages

  struct Storage {
    std::int32_t first = kNever;  // the item that computes it; kNever: a source
    std::int32_t last = kNever;   // the last item that uses it
    bool is_source = false;
    bool is_shared_source = false;  // more than one input lies on it
    bool escapes = false;           // the host gets it
    bool is_library = false;        // the memory comes with the result of a library call
    bool is_kernel = false;         // computed by a kernel, or by a library call into memory of ours
    std::int64_t size_bytes = 0;
    std::uint32_t place = 0;  // the storage whose memory this one is in: itself, or one that it took over
    std::int64_t arena_offset = -1;
  };

  std::uint32_t get_storage(TensorId tensor) const { return lowered_.get(tensor).storage; }
  Storage& get_place(TensorId tensor) { return storages_[find_place(get_storage(tensor))]; }

  std::uint32_t find_place(std::uint32_t storage) {
    while (storages_[storage].place != storage) {
      storages_[storage].place = storages_[storages_[storage].place].place;
      storage = storages_[storage].place;
    }
    return storage;
  }

  // `later` lies in the memory of `earlier` from now on.
  void unite(std::uint32_t earlier, std::uint32_t later) {
    earlier = find_place(earlier);
    later = find_place(later);
    if (earlier == later) return;
    storages_[later].place = earlier;
    storages_[earlier].last = std::max(storages_[earlier].last, storages_[later].last);
    storages_[earlier].escapes |= storages_[later].escapes;
  }

  void touch(TensorId tensor, std::int32_t item) {
    Storage& storage = storages_[get_storage(tensor)];
    storage.last = std::max(storage.last, item);
  }

  // Elements from the base of a root tensor to its last one.
  std::int64_t get_extent(TensorId id) const {
    const lower::Tensor& tensor = lowered_.get(id);
    std::int64_t count = 1;
    for (std::size_t d = 0; d < tensor.sizes.rank; ++d) {
      if (tensor.sizes[d] == 0) return 0;
      count += (tensor.sizes[d] - 1) * tensor.strides[d];
    }
    return count;
  }

  void set_size(TensorId tensor) {
    const std::int64_t bytes =
        get_extent(tensor) * static_cast<std::int64_t>(types::get_size_bytes(lowered_.get(tensor).dtype));
    Storage& storage = storages_[get_storage(tensor)];
    storage.size_bytes = std::max(storage.size_bytes, bytes);
  }

  // Whether the node's only result is computed into memory that the program gives.
  bool has_planned_result(const Node& node) const {
    if (options_.only_extern || node.mut != 0 || node.outs.size() != 1 || !node.outs[0].is_valid()) return false;
    const lower::Tensor& result = lowered_.get(lower::get_tensor(node.outs[0]));
    return result.is_plain && result.offset == 0 && !find_out_variant(node.op).empty();
  }

  void find_lives() {
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

  bool has_same_geometry(TensorId a, TensorId b) const {
    const graph::TensorMeta& x = graph_.get_meta(ValueId(a.index()));
    const graph::TensorMeta& y = graph_.get_meta(ValueId(b.index()));
    return x.rank == y.rank && x.dtype == y.dtype && x.flags == y.flags && x.device == y.device &&
           std::equal(x.sizes().begin(), x.sizes().end(), y.sizes().begin()) &&
           std::equal(x.strides().begin(), x.strides().end(), y.strides().begin());
  }

  // The argument of an extern node that `value` is the new contents of; and that no other argument lies on.
  TensorId find_written_argument(const Node& node, ValueId value) const {
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
  void write_inputs() {
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

  bool write_input(TensorId input, TensorId value) {
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

  // Whether a node in front of `node` has checks that are made at the item or behind it.
  bool has_earlier_check(std::int32_t item, graph::NodeId node) const {
    return first_checks_[static_cast<std::size_t>(item)] < node.index();
  }

  void find_first_checks() {
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
  bool can_write_in_place(std::uint32_t group_index, TensorId result, TensorId operand) const {
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

  // Requirement 3 for temporaries: results of kernels in the place of operands that die there.
  void share_places() {
    for (std::size_t i = 0; i < grouping_.items.size(); ++i) {
      const Item& item = grouping_.items[i];
      if (item.is_extern) continue;
      const Emitted& emitted = emitted_[item.group];
      std::vector<bool> is_taken(emitted.buffers.size(), false);
      for (const EmittedBuffer& result : emitted.buffers) {
        if (!result.is_written || !can_lie_in_arena(result.root)) continue;
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

  bool can_lie_in_arena(TensorId tensor) {
    const Storage& storage = get_place(tensor);
    return storage.is_kernel && !storage.escapes && !storage.is_source && lowered_.get(tensor).root == tensor;
  }

  // Requirement 4.
  void take_over_arguments() {
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

  void place_in_arena() {
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

  // --- slots

  program::Size make_size(sym::Int number) const {
    program::Size size;
    if (number.is_constant()) {
      size.value = number.get_constant();
    } else {
      size.value = graph_.context->symbols().evaluate_hint(number).value_or(0);
      size.expression = static_cast<std::int32_t>(number.get_expression());
    }
    return size;
  }

  SlotId add_slot(TensorId tensor, SlotKind kind) {
    program::Slot slot;
    slot.kind = kind;
    const lower::Tensor& row = lowered_.get(tensor);
    slot.is_tensor = row.is_tensor;
    if (row.is_tensor && tensor.index() < graph_.values.size()) {
      const graph::TensorMeta& meta = graph_.get_meta(ValueId(tensor.index()));
      slot.dtype = meta.dtype;
      slot.device = meta.device;
      std::int64_t extent = 1;
      bool is_empty = false;
      for (std::size_t d = 0; d < meta.rank; ++d) {
        slot.sizes.push_back(make_size(meta.sizes()[d]));
        slot.strides.push_back(make_size(meta.strides()[d]));
        is_empty |= slot.sizes.back().value == 0;
        extent += (slot.sizes.back().value - 1) * slot.strides.back().value;
      }
      slot.storage_offset = make_size(meta.offset);
      slot.size_bytes = is_empty ? 0 : extent * static_cast<std::int64_t>(types::get_size_bytes(meta.dtype));
    } else if (row.is_tensor) {
      slot.dtype = row.dtype;
      for (std::size_t d = 0; d < row.sizes.rank; ++d) {
        slot.sizes.emplace_back(row.sizes[d]);
        slot.strides.emplace_back(row.strides[d]);
      }
      slot.size_bytes = get_extent(tensor) * static_cast<std::int64_t>(types::get_size_bytes(row.dtype));
    } else {
      switch (graph_.values[tensor.index()].kind) {
        case ValueKind::Int:
          slot.dtype = types::DType::Int64;
          break;
        case ValueKind::Bool:
          slot.dtype = types::DType::Bool;
          break;
        case ValueKind::Complex:
          slot.dtype = types::DType::Complex128;
          break;
        case ValueKind::Float:
        case ValueKind::Tensor:
        case ValueKind::RandomState:
          slot.dtype = types::DType::Float64;
          break;
      }
    }
    plan_.program.slots.push_back(std::move(slot));
    return SlotId(static_cast<std::uint32_t>(plan_.program.slots.size() - 1));
  }

  void set_slot(TensorId tensor, SlotId slot) {
    slots_[tensor.index()] = slot;
    place_slots_[find_place(get_storage(tensor))].push_back(slot);
  }

  void add_sources() {
    slots_.resize(lowered_.tensors.size());
    place_slots_.resize(storages_.size());
    for (const graph::Input& input : graph_.inputs)
      slots_[input.value.index()] = add_slot(lower::get_tensor(input.value), SlotKind::Input);
    for (const graph::Constant& constant : graph_.constants)
      slots_[constant.value.index()] = add_slot(lower::get_tensor(constant.value), SlotKind::Input);
    plan_.program.inputs = static_cast<std::uint32_t>(plan_.program.slots.size());
  }

  Step& add_step(StepKind kind) {
    Step& step = plan_.program.steps.emplace_back();
    step.kind = kind;
    return step;
  }

  // Memory for a tensor that a kernel or an in-place op is about to write.
  SlotId make_memory(TensorId tensor) {
    const std::uint32_t place = find_place(get_storage(tensor));
    const Storage& storage = storages_[place];
    if (storage.is_source) {  // an input that is written in place
      for (const graph::Input& input : graph_.inputs) {
        const TensorId source = lower::get_tensor(input.value);
        if (get_storage(source) != place) continue;
        slots_[tensor.index()] = slots_[source.index()];
        return slots_[tensor.index()];
      }
    }
    SlotId slot;
    if (storage.arena_offset >= 0) {
      slot = add_slot(tensor, SlotKind::Temporary);
      plan_.program.slots[slot.index()].arena_offset = storage.arena_offset;
    } else {
      slot = add_slot(tensor, storage.escapes ? SlotKind::Output : SlotKind::Temporary);
      add_step(StepKind::Allocate).slot = slot;
    }
    set_slot(tensor, slot);
    return slot;
  }

  bool has_same_shape(TensorId a, TensorId b) const {
    const graph::TensorMeta& x = graph_.get_meta(ValueId(a.index()));
    const graph::TensorMeta& y = graph_.get_meta(ValueId(b.index()));
    return x.rank == y.rank && std::equal(x.sizes().begin(), x.sizes().end(), y.sizes().begin());
  }

  SlotId make_resized(TensorId from, TensorId to) {
    const Storage& storage = storages_[find_place(get_storage(to))];
    const SlotId slot = add_slot(from, storage.escapes ? SlotKind::Output : SlotKind::Temporary);
    plan_.program.slots[slot.index()].storage_offset = 0;
    add_step(StepKind::Allocate).slot = slot;
    set_slot(to, slot);
    return slot;
  }

  // The slot of a tensor that is read now; views are made when first asked for.
  SlotId get_slot(TensorId tensor) {
    if (slots_[tensor.index()].is_valid()) return slots_[tensor.index()];
    const OpIndex producer = lowered_.get(tensor).producer;
    REPRISE_CHECK(producer.is_valid() && lowered_.get(producer).kind == OpKind::View,
                  "%" + std::to_string(tensor.index()) + " is read before it is computed");
    const Node& node = graph_.get_node(lowered_.get(producer).node);
    const TensorId base = lower::get_tensor(node.args[0].get_value());
    if (is_plain_view(tensor, base)) {
      const SlotId source = get_slot(lowered_.get(tensor).root);
      const SlotId slot = add_slot(tensor, SlotKind::View);
      Step& step = add_step(StepKind::View);
      step.slot = slot;
      step.source = source;
      set_slot(tensor, slot);
      return slot;
    }
    call_library(node);
    REPRISE_CHECK(slots_[tensor.index()].is_valid(), "a view op did not give its view");
    return slots_[tensor.index()];
  }

  // Whether sizes, strides and offset over the root's memory say all about the view.
  bool is_plain_view(TensorId tensor, TensorId) const {
    const graph::TensorMeta& meta = graph_.get_meta(ValueId(tensor.index()));
    const graph::TensorMeta& root = graph_.get_meta(ValueId(lowered_.get(tensor).root.index()));
    return meta.dtype == root.dtype && meta.flags == 0 && root.flags == 0;
  }

  // --- steps

  Argument make_argument(const Arg& arg) {
    Argument result;
    switch (arg.kind()) {
      case ArgKind::None:
        break;
      case ArgKind::Value:
        result.kind = ArgumentKind::Slot;
        result.number = slots_[arg.get_value().index()].index();
        break;
      case ArgKind::Int:
        result.kind = ArgumentKind::Int;
        result.number = make_size(arg.get_int()).value;
        break;
      case ArgKind::LowInt:
        result.kind = ArgumentKind::Int;
        result.number = arg.get_low_int();
        break;
      case ArgKind::Float:
        result.kind = ArgumentKind::Float;
        result.real = arg.get_float();
        break;
      case ArgKind::Bool:
        result.kind = ArgumentKind::Bool;
        result.number = arg.get_bool();
        break;
      case ArgKind::Complex:
        result.kind = ArgumentKind::Complex;
        result.real = arg.get_complex().real;
        result.number = std::bit_cast<std::int64_t>(arg.get_complex().imaginary);
        break;
      case ArgKind::DType:
        result.kind = ArgumentKind::DType;
        result.number = static_cast<std::int64_t>(arg.get_dtype());
        break;
      case ArgKind::Device:
        result.kind = ArgumentKind::Device;
        result.number = static_cast<std::int64_t>(arg.bits());
        break;
      case ArgKind::Layout:
        result.kind = ArgumentKind::Layout;
        result.number = static_cast<std::int64_t>(arg.get_layout());
        break;
      case ArgKind::MemoryFormat:
        result.kind = ArgumentKind::MemoryFormat;
        result.number = static_cast<std::int64_t>(arg.get_memory_format());
        break;
      case ArgKind::String:
        result.kind = ArgumentKind::String;
        result.text = arg.get_string();
        break;
      case ArgKind::List:
        result.kind = ArgumentKind::List;
        for (const Arg& element : arg.get_list()) result.elements.push_back(make_argument(element));
        break;
    }
    return result;
  }

  // The step of a node; what it writes goes to memory that is the new values' own.
  void call_library(const Node& node) {
    graph::for_each_use(node, [&](ValueId id) { get_slot(lower::get_tensor(id)); });
    std::vector<std::pair<ValueId, SlotId>> written;  // arguments that stand for new values
    std::size_t next = 0;
    for (std::size_t i = 0; i < node.args.size() && i < 64 && !node.new_values.empty(); ++i) {
      if ((node.mut >> i & 1) == 0) continue;
      graph::for_each_value(node.args[i], [&](ValueId id) {
        const TensorId from = lower::get_tensor(id);
        const TensorId to = lower::get_tensor(node.new_values[next++]);
        if (find_place(get_storage(from)) == find_place(get_storage(to))) {
          slots_[to.index()] = slots_[from.index()];
          return;
        }
        const SlotId source = slots_[from.index()];
        // An op that changes sizes (resize_) gets a copy with the old ones.
        const bool is_resized = !has_same_shape(from, to);
        const SlotId copy = is_resized ? make_resized(from, to) : make_memory(to);
        if (is_resized || !graph::has_flag(node.op, graph::kOverwrites)) {
          Step& step = add_step(StepKind::Copy);
          step.slot = copy;
          step.source = source;
        }
        written.emplace_back(id, copy);
      });
    }
    // While the arguments are made, what is written stands in its new memory.
    std::vector<SlotId> old_slots;
    for (const auto& [id, slot] : written) {
      old_slots.push_back(slots_[id.index()]);
    }
    Step step;
    step.kind = StepKind::Extern;
    step.op = graph::get_op_name(graph_, node);
    for (std::size_t i = 0; i < node.args.size(); ++i) {
      const bool is_written = i < 64 && (node.mut >> i & 1) != 0;
      if (is_written) {
        for (const auto& [id, slot] : written) slots_[id.index()] = slot;
      }
      step.arguments.push_back(make_argument(node.args[i]));
      if (is_written) {
        for (std::size_t w = 0; w < written.size(); ++w) slots_[written[w].first.index()] = old_slots[w];
      }
    }
    if (has_planned_result(node)) {
      step.op = find_out_variant(node.op);
      step.outs.push_back(make_memory(lower::get_tensor(node.outs[0])));
      plan_.program.steps.push_back(std::move(step));
      return;
    }
    for (const ValueId id : node.outs) {
      if (!id.is_valid()) {
        step.results.emplace_back();
        continue;
      }
      const TensorId tensor = lower::get_tensor(id);
      const SlotId slot = add_slot(tensor, SlotKind::Extern);
      set_slot(tensor, slot);
      step.results.push_back(slot);
    }
    plan_.program.steps.push_back(std::move(step));
  }

  void add_item(std::int32_t number) {
    const Item& item = grouping_.items[static_cast<std::size_t>(number)];
    if (item.is_extern) {
      ++plan_.statistics.extern_ops;
      call_library(graph_.get_node(lowered_.get(item.op).node));
    } else {
      launch(item.group);
    }
    free_behind(number);
  }

  void launch(std::uint32_t group) {
    Emitted& emitted = emitted_[group];
    ++plan_.statistics.launches;
    plan_.statistics.native_ops += static_cast<std::uint32_t>(grouping_.groups[group].members.size());
    Step step;
    step.kind = StepKind::Launch;
    for (const EmittedBuffer& buffer : emitted.buffers)
      step.buffers.push_back({buffer.is_written ? make_memory(buffer.root) : get_slot(buffer.root), 0});
    for (const ValueId id : emitted.numbers) {
      program::Word word;
      word.slot = get_slot(lower::get_tensor(id));
      step.words.push_back(word);
    }
    const std::size_t first_check = plan_.program.checks.size();
    if (!emitted.checks.empty()) {
      if (!flags_.is_valid()) flags_ = add_flags();
      step.buffers.push_back({flags_, static_cast<std::int64_t>(first_check)});
      for (const std::uint32_t i : emitted.checks)
        plan_.program.checks.push_back({lowered_.checks[i].is_index_error, lowered_.checks[i].text});
    }
    step.units = emitted.units;
    step.unit_work = emitted.unit_work;
    step.code = add_code(std::move(emitted.kernel));
    plan_.program.steps.push_back(std::move(step));
    if (emitted.checks.empty()) return;
    Step& check = add_step(StepKind::Check);
    check.slot = flags_;
    check.first_check = static_cast<std::uint32_t>(first_check);
    check.check_count = static_cast<std::uint32_t>(emitted.checks.size());
  }

  SlotId add_flags() {
    program::Slot slot;
    slot.kind = SlotKind::Flags;
    slot.dtype = types::DType::Int32;
    plan_.program.slots.push_back(std::move(slot));
    return SlotId(static_cast<std::uint32_t>(plan_.program.slots.size() - 1));
  }

  void finish_flags() {
    if (!flags_.is_valid()) return;
    program::Slot& slot = plan_.program.slots[flags_.index()];
    const auto count = static_cast<std::int64_t>(plan_.program.checks.size());
    slot.sizes.emplace_back(count);
    slot.strides.emplace_back(1);
    slot.size_bytes = count * 4;
  }

  program::CodeId add_code(kernel::Kernel kernel) {
    const base::Hash128 key = kernel::get_hash(kernel);
    const auto [found, is_new] = codes_.emplace(key, static_cast<std::uint32_t>(plan_.kernels.size()));
    if (!is_new) {
      REPRISE_CHECK(kernel::are_equal(plan_.kernels[found->second], kernel),
                    "two kernels have the hash " + key.get_text());
      return program::CodeId(found->second);
    }
    plan_.kernels.push_back(std::move(kernel));
    program::Code code;
    code.key = key;
    code.symbols.emplace_back("kernel");
    plan_.program.codes.push_back(std::move(code));
    return program::CodeId(found->second);
  }

  // Gives back what was used last here and is not in the arena, views first.
  void free_behind(std::int32_t number) {
    if (ends_.empty()) {
      ends_.resize(grouping_.items.size());
      for (std::uint32_t s = 0; s < storages_.size(); ++s) {
        const Storage& storage = storages_[s];
        if (storage.place == s && !storage.is_source && !storage.escapes && storage.last != kNever &&
            storage.first != kNever && storage.arena_offset < 0)
          ends_[static_cast<std::size_t>(storage.last)].push_back(s);
      }
    }
    for (const std::uint32_t s : ends_[static_cast<std::size_t>(number)]) {
      std::vector<SlotId>& slots = place_slots_[s];
      for (std::size_t i = slots.size(); i-- > 0;) add_step(StepKind::Free).slot = slots[i];
      slots.clear();
    }
  }

  void add_return() {
    find_overwritten();
    std::vector<SlotId> results;
    const auto add_result = [&](ValueId id) { results.push_back(id.is_valid() ? return_slot(id) : SlotId()); };
    for (const graph::Output& output : graph_.outputs)
      add_result(output.kind == OutputKind::Value ? output.value : ValueId());
    for (std::size_t e = 0; e < graph_.effects.size(); ++e)
      add_result(plan_.effect_is_done[e] ? ValueId() : graph_.effects[e].value);
    for (const graph::Gradient& gradient : graph_.gradients) add_result(gradient.value);
    for (const ValueId id : graph_.saved) add_result(id);
    add_step(StepKind::Return).results = std::move(results);
  }

  // Old contents of an input that the host will write: copied, or an effect would change what a later one reads.
  SlotId return_slot(ValueId id) {
    const TensorId tensor = lower::get_tensor(id);
    const SlotId source = get_slot(tensor);
    if (!is_overwritten_[get_storage(tensor)]) return source;
    const SlotId slot = add_slot(tensor, SlotKind::Output);
    plan_.program.slots[slot.index()].storage_offset = 0;
    add_step(StepKind::Allocate).slot = slot;
    Step& step = add_step(StepKind::Copy);
    step.slot = slot;
    step.source = source;
    return slot;
  }

  void find_overwritten() {
    is_overwritten_.assign(storages_.size(), false);
    for (std::size_t e = 0; e < graph_.effects.size(); ++e) {
      const graph::Effect& effect = graph_.effects[e];
      if (effect.kind == EffectKind::Bump || effect.kind == EffectKind::SetRng) continue;
      is_overwritten_[get_storage(lower::get_tensor(graph_.inputs[effect.input].value))] = true;
    }
  }

  const Graph& graph_;
  const Lowered& lowered_;
  const Grouping& grouping_;
  std::vector<Emitted> emitted_;
  const Options& options_;
  Plan plan_;
  std::vector<Storage> storages_;
  std::vector<std::int32_t> root_counts_;  // by storage: how many outputs, effects, gradients, saved lie on it
  std::vector<SlotId> slots_;              // by tensor
  std::vector<std::vector<SlotId>> place_slots_;
  std::vector<std::vector<std::uint32_t>> ends_;
  std::vector<std::uint32_t> first_checks_;  // by item: the first node with a check in it or behind it
  SlotId flags_;
  std::vector<bool> is_overwritten_;                        // by storage: inputs that effects write
  std::unordered_map<base::Hash128, std::uint32_t> codes_;  // by key; never iterated
};

}  // namespace

std::vector<bool> find_roots(const Graph& graph) {
  std::vector<bool> is_root(graph.values.size(), false);
  const auto add = [&](ValueId id) {
    if (id.is_valid()) is_root[id.index()] = true;
  };
  for (const graph::Output& output : graph.outputs) {
    if (output.kind == OutputKind::Value) add(output.value);
  }
  for (const graph::Effect& effect : graph.effects) add(effect.value);
  for (const graph::Gradient& gradient : graph.gradients) add(gradient.value);
  for (const ValueId id : graph.saved) add(id);
  return is_root;
}

Plan assemble(const Graph& graph, const Lowered& lowered, const Grouping& grouping, std::vector<Emitted> emitted,
              const Options& options) {
  return Assembler(graph, lowered, grouping, std::move(emitted), options).run();
}

}  // namespace reprise::schedule
