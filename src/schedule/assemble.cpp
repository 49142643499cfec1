// Slots and steps of the program, once it is known what lies where (assemble_memory.cpp).
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "schedule/assemble_impl.h"

namespace reprise::schedule {

Plan Assembler::run() {
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

// --- slots

program::Size Assembler::make_size(sym::Int number) const {
  program::Size size;
  if (number.is_constant()) {
    size.value = number.get_constant();
  } else {
    size.value = graph_.context->symbols().evaluate_hint(number).value_or(0);
    size.expression = static_cast<std::int32_t>(number.get_expression());
  }
  return size;
}

SlotId Assembler::add_slot(TensorId tensor, SlotKind kind) {
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

void Assembler::set_slot(TensorId tensor, SlotId slot) {
  slots_[tensor.index()] = slot;
  place_slots_[find_place(get_storage(tensor))].push_back(slot);
}

void Assembler::add_sources() {
  slots_.resize(lowered_.tensors.size());
  place_slots_.resize(storages_.size());
  for (const graph::Input& input : graph_.inputs)
    slots_[input.value.index()] = add_slot(lower::get_tensor(input.value), SlotKind::Input);
  for (const graph::Constant& constant : graph_.constants)
    slots_[constant.value.index()] = add_slot(lower::get_tensor(constant.value), SlotKind::Input);
  plan_.program.inputs = static_cast<std::uint32_t>(plan_.program.slots.size());
}

Step& Assembler::add_step(StepKind kind) {
  Step& step = plan_.program.steps.emplace_back();
  step.kind = kind;
  return step;
}

// Memory for a tensor that a kernel or an in-place op is about to write.
SlotId Assembler::make_memory(TensorId tensor) {
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
  if (storage.escapes && !place_slots_[place].empty()) {  // allocated for an operand in whose place it is
    slot = add_slot(tensor, SlotKind::View);
    Step& step = add_step(StepKind::View);
    step.slot = slot;
    step.source = place_slots_[place].front();
  } else if (storage.arena_offset >= 0) {
    slot = add_slot(tensor, SlotKind::Temporary);
    plan_.program.slots[slot.index()].arena_offset = storage.arena_offset;
  } else {
    slot = add_slot(tensor, storage.escapes ? SlotKind::Output : SlotKind::Temporary);
    add_step(StepKind::Allocate).slot = slot;
  }
  set_slot(tensor, slot);
  return slot;
}

bool Assembler::has_same_shape(TensorId a, TensorId b) const {
  const graph::TensorMeta& x = graph_.get_meta(ValueId(a.index()));
  const graph::TensorMeta& y = graph_.get_meta(ValueId(b.index()));
  return x.rank == y.rank && std::equal(x.sizes().begin(), x.sizes().end(), y.sizes().begin());
}

SlotId Assembler::make_resized(TensorId from, TensorId to) {
  const Storage& storage = storages_[find_place(get_storage(to))];
  const SlotId slot = add_slot(from, storage.escapes ? SlotKind::Output : SlotKind::Temporary);
  plan_.program.slots[slot.index()].storage_offset = 0;
  add_step(StepKind::Allocate).slot = slot;
  set_slot(to, slot);
  return slot;
}

// The slot of a tensor that is read now; views are made when first asked for.
SlotId Assembler::get_slot(TensorId tensor) {
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
bool Assembler::is_plain_view(TensorId tensor, TensorId) const {
  const graph::TensorMeta& meta = graph_.get_meta(ValueId(tensor.index()));
  const graph::TensorMeta& root = graph_.get_meta(ValueId(lowered_.get(tensor).root.index()));
  return meta.dtype == root.dtype && meta.flags == 0 && root.flags == 0;
}

// --- steps

Argument Assembler::make_argument(const Arg& arg) {
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
void Assembler::call_library(const Node& node) {
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

void Assembler::add_item(std::int32_t number) {
  const Item& item = grouping_.items[static_cast<std::size_t>(number)];
  if (item.is_extern) {
    ++plan_.statistics.extern_ops;
    call_library(graph_.get_node(lowered_.get(item.op).node));
  } else {
    launch(item.group);
  }
  free_behind(number);
}

void Assembler::launch(std::uint32_t group) {
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

SlotId Assembler::add_flags() {
  program::Slot slot;
  slot.kind = SlotKind::Flags;
  slot.dtype = types::DType::Int32;
  plan_.program.slots.push_back(std::move(slot));
  return SlotId(static_cast<std::uint32_t>(plan_.program.slots.size() - 1));
}

void Assembler::finish_flags() {
  if (!flags_.is_valid()) return;
  program::Slot& slot = plan_.program.slots[flags_.index()];
  const auto count = static_cast<std::int64_t>(plan_.program.checks.size());
  slot.sizes.emplace_back(count);
  slot.strides.emplace_back(1);
  slot.size_bytes = count * 4;
}

program::CodeId Assembler::add_code(kernel::Kernel kernel) {
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
void Assembler::free_behind(std::int32_t number) {
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

void Assembler::add_return() {
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
SlotId Assembler::return_slot(ValueId id) {
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

void Assembler::find_overwritten() {
  is_overwritten_.assign(storages_.size(), false);
  for (std::size_t e = 0; e < graph_.effects.size(); ++e) {
    const graph::Effect& effect = graph_.effects[e];
    if (effect.kind == EffectKind::Bump || effect.kind == EffectKind::SetRng) continue;
    is_overwritten_[get_storage(lower::get_tensor(graph_.inputs[effect.input].value))] = true;
  }
}

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
