#include "library_calls.h"

#include <bit>
#include <cstring>

#include "graph/builder.h"
#include "graph/printer.h"

namespace reprise::test {

using graph::Arg;
using graph::Array;
using graph::Datum;
using graph::Element;
using program::Argument;
using program::ArgumentKind;
using program::SlotId;
using types::DType;

namespace {

void write_element(std::uint8_t* to, DType dtype, Element element) {
  switch (dtype) {
    case DType::Float64: {
      const double number = element.as_real();
      std::memcpy(to, &number, 8);
      return;
    }
    case DType::Float32: {
      const auto number = static_cast<float>(element.as_real());
      std::memcpy(to, &number, 4);
      return;
    }
    case DType::Int64: {
      const std::int64_t number = element.as_integer();
      std::memcpy(to, &number, 8);
      return;
    }
    case DType::Int32: {
      const auto number = static_cast<std::int32_t>(element.as_integer());
      std::memcpy(to, &number, 4);
      return;
    }
    case DType::Bool:
      *to = element.as_bool();
      return;
    default:
      REPRISE_UNREACHABLE("elements of another dtype");
  }
}

Element read_element(const std::uint8_t* from, DType dtype) {
  switch (dtype) {
    case DType::Float64: {
      double number;
      std::memcpy(&number, from, 8);
      return {true, number, 0};
    }
    case DType::Float32: {
      float number;
      std::memcpy(&number, from, 4);
      return {true, number, 0};
    }
    case DType::Int64: {
      std::int64_t number;
      std::memcpy(&number, from, 8);
      return {false, 0, number};
    }
    case DType::Int32: {
      std::int32_t number;
      std::memcpy(&number, from, 4);
      return {false, 0, number};
    }
    case DType::Bool:
      return {false, 0, *from != 0};
    default:
      REPRISE_UNREACHABLE("elements of another dtype");
  }
}

void fill(const RunValue& value, const Array& array) {
  const std::vector<std::int64_t> to = value.list_places();
  const std::vector<std::int64_t> from = array.list_places();
  REPRISE_CHECK(to.size() == from.size(), "a result of other sizes");
  for (std::size_t i = 0; i < to.size(); ++i)
    write_element(value.storage->data() + to[i], value.dtype, array.get(from[i]));
}

// The one-node graph of a step.
struct Single {
  explicit Single(ProgramRunner& owner)
      : runner(owner), context(std::make_shared<graph::Context>()), graph(context), builder(graph) {}

  graph::ValueId add_slot(SlotId slot) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] == slot) return graph.inputs[i].value;
    }
    slots.push_back(slot);
    const program::Slot& row = runner.get_row(slot);
    const RunValue& value = runner.slot(slot);
    if (!row.is_tensor) {
      const graph::ValueKind kind = row.dtype == DType::Int64  ? graph::ValueKind::Int
                                    : row.dtype == DType::Bool ? graph::ValueKind::Bool
                                                               : graph::ValueKind::Float;
      const graph::ValueId id = graph.add_value(kind);
      graph.add_input(graph::InputKind::Plain, id);
      Element element;
      element.is_float = kind == graph::ValueKind::Float;
      element.integer = value.bits;
      element.real = element.is_float ? std::bit_cast<double>(value.bits) : 0;
      inputs.push_back({element});
      return id;
    }
    std::vector<sym::Int> sizes(value.sizes.begin(), value.sizes.end());
    inputs.push_back(make_datum(value));
    return graph.add_input(graph::InputKind::Plain, context->make_meta(sizes, value.dtype));
  }

  Arg make_arg(const Argument& argument) {
    switch (argument.kind) {
      case ArgumentKind::None:
        return Arg::make_none();
      case ArgumentKind::Slot:
        return Arg::make_value(add_slot(SlotId(static_cast<std::uint32_t>(argument.number))));
      case ArgumentKind::Int:
        return Arg::make_int(argument.number);
      case ArgumentKind::Float:
        return Arg::make_float(argument.real);
      case ArgumentKind::Bool:
        return Arg::make_bool(argument.number != 0);
      case ArgumentKind::String:
        return context->make_string(argument.text);
      case ArgumentKind::DType:
        return Arg::make_dtype(static_cast<DType>(argument.number));
      case ArgumentKind::List: {
        std::vector<Arg> elements;
        for (const Argument& element : argument.elements) elements.push_back(make_arg(element));
        return context->make_list(elements);
      }
      default:
        return Arg::make_none();
    }
  }

  ProgramRunner& runner;
  std::shared_ptr<graph::Context> context;
  graph::Graph graph;
  graph::Builder builder;
  std::vector<SlotId> slots;
  std::vector<Datum> inputs;
};

}  // namespace

Datum make_datum(const RunValue& value) {
  Array array;
  array.dtype = value.dtype;
  array.sizes = value.sizes;
  array.strides.resize(value.sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = value.sizes.size(); d-- > 0;) {
    array.strides[d] = stride;
    stride *= value.sizes[d];
  }
  array.elements = std::make_shared<std::vector<std::uint64_t>>(static_cast<std::size_t>(value.count()), 0);
  const std::vector<std::int64_t> places = value.list_places();
  for (std::size_t i = 0; i < places.size(); ++i)
    array.set(static_cast<std::int64_t>(i), read_element(value.storage->data() + places[i], value.dtype));
  return {array};
}

RunValue make_run_value(const Datum& datum, const graph::Value& meta) {
  RunValue value;
  if (const auto* element = std::get_if<Element>(&datum.value)) {
    value.bits = element->is_float ? std::bit_cast<std::int64_t>(element->real) : element->integer;
    return value;
  }
  const Array& array = std::get<Array>(datum.value);
  value.dtype = meta.meta.dtype;
  value.sizes = array.sizes;
  value.strides = array.strides;
  value.offset = array.offset;
  value.storage =
      std::make_shared<std::vector<std::uint8_t>>(array.elements->size() * types::get_size_bytes(value.dtype));
  for (std::size_t i = 0; i < array.elements->size(); ++i)
    write_element(value.storage->data() + i * types::get_size_bytes(value.dtype), value.dtype,
                  array.get(static_cast<std::int64_t>(i)));
  return value;
}

std::string call_by_evaluator(ProgramRunner& runner, const program::Step& step) {
  Single single(runner);
  std::vector<Arg> args;
  for (const Argument& argument : step.arguments) args.push_back(single.make_arg(argument));
  graph::Node node;
  std::string name = step.op;
  if (!step.outs.empty()) name.resize(name.size() - std::string_view(".out").size());
  node.op = single.context->intern_op(name);
  node.mut = graph::get_writes(node.op, args);
  node.args = args;
  std::vector<graph::ValueId> outs;
  std::vector<graph::Return> returns;
  const std::vector<SlotId>& results = step.outs.empty() ? step.results : step.outs;
  for (const SlotId slot : results) {
    returns.push_back(graph::Return::make_single());
    if (!slot.is_valid()) {
      outs.emplace_back();
      continue;
    }
    const program::Slot& row = runner.get_row(slot);
    std::vector<sym::Int> sizes;
    for (const program::Size& size : row.sizes) sizes.emplace_back(size.value);
    outs.push_back(row.is_tensor ? single.graph.add_tensor(single.context->make_meta(sizes, row.dtype))
                                 : single.graph.add_value(row.dtype == DType::Int64 ? graph::ValueKind::Int
                                                                                    : graph::ValueKind::Float));
    single.builder.add_output(outs.back());
  }
  node.outs = outs;
  node.returns = returns;
  single.graph.add_node(node);
  const graph::Evaluation evaluation = graph::evaluate(single.graph, single.inputs, {});
  if (!evaluation.error.empty()) return evaluation.error + "\n" + graph::print_graph(single.graph);
  std::size_t next = 0;
  for (const SlotId slot : results) {
    if (!slot.is_valid()) continue;
    const Datum& datum = evaluation.outputs[next++];
    RunValue value = step.outs.empty() ? runner.make(slot) : runner.slot(slot);
    if (const auto* element = std::get_if<Element>(&datum.value)) {
      value.bits = element->is_float ? std::bit_cast<std::int64_t>(element->real) : element->integer;
    } else {
      fill(value, std::get<Array>(datum.value));
    }
    runner.slot(slot) = std::move(value);
  }
  for (std::size_t i = 0; i < single.slots.size(); ++i) {
    if (node.mut == 0 || !runner.get_row(single.slots[i]).is_tensor) continue;
    fill(runner.slot(single.slots[i]), std::get<Array>(single.inputs[i].value));
  }
  return {};
}

}  // namespace reprise::test
