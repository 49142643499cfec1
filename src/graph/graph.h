// Graph: the tensor IR. A list of nodes in program order over typed values; names of ops are torch's.
//
// Two forms, told apart by `form`:
// Recorded: as the ops were called, in-place ops included. `mut` of a node says which arguments it writes; views see
//   it. A result that is an argument itself (add_ returns its self) has the argument's id. A result with other metadata
//   on an argument's storage (resize_) is a new value.
// Functional: every value is computed once and never changes. A node with a `mut` mask takes over (or copies) those
//   arguments and gives their new contents as `new_values`: one id for each tensor in each mut argument, in order. A
//   result that was the argument itself is absent in `outs`. View ops stay views.
// Values are dense ids. Everything a node points to is in the arena of the Context, and spans there are never changed
// in place: who rewrites an argument makes a new span. Graphs are copyable (flat vectors; the arena is shared).
// `verify_graph` (verify.h) is the list of invariants. One thread at a time for all graphs of a Context.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/export.h"
#include "graph/arg.h"
#include "graph/context.h"
#include "graph/op.h"
#include "graph/value.h"

namespace reprise::graph {

enum class Phase : std::uint8_t { Forward, Backward };
enum class Form : std::uint8_t { Recorded, Functional };

// How many values one return of the op's schema has. Node::outs is flat, in order of the returns.
class Return {
 public:
  static constexpr Return make_single() { return Return(kSingle); }
  static constexpr Return make_list(std::uint32_t count) { return Return(count); }

  constexpr Return() = default;
  constexpr bool is_list() const { return word_ != kSingle; }
  constexpr std::uint32_t get_count() const { return is_list() ? word_ : 1; }
  constexpr bool operator==(const Return&) const = default;

 private:
  static constexpr std::uint32_t kSingle = 0xffffffffu;
  constexpr explicit Return(std::uint32_t word) : word_(word) {}
  std::uint32_t word_ = kSingle;
};

struct Node {
  OpId op{};
  Phase phase = Phase::Forward;
  std::uint64_t mut = 0;  // argument i is written if bit i is set (lists as a whole)
  std::span<const Arg> args;
  std::span<const Return> returns;
  std::span<const ValueId> outs;        // an id may be invalid: None, or an argument itself (functional form)
  std::span<const ValueId> new_values;  // functional form only
  SourceId source;
};

enum class InputKind : std::uint8_t {
#define X(name, text) name,
#include "graph/input_kinds.def"
#undef X
};

struct Input {
  ValueId value;
  InputKind kind = InputKind::Plain;
  bool is_mutated = false;  // its contents differ at the end; then there is an effect
};

// A tensor that the host holds.
struct Constant {
  ValueId value;
  std::uint32_t host_index = 0;
};

enum class OutputKind : std::uint8_t {
  Value,         // a tensor of its own, or a number
  ViewOfInput,   // made by the host as a strided view of input `index`
  ViewOfOutput,  // the same on output `index`, which is of kind Value and covers it
  Input,         // the object that was passed as input `index`
  SameOutput,    // the object that is output `index`
  None,
};

struct Output {
  OutputKind kind = OutputKind::Value;
  ValueId value;  // of kind Value only
  std::uint32_t index = 0;
  // Sizes, strides and offset that the user sees, the offset counted in the storage of the input or output that is
  // viewed. Of a Value, they may differ from the value's own: then the host copies.
  TensorMeta meta;
};

enum class EffectKind : std::uint8_t {
#define X(name, text, doc) name,
#include "graph/effects.def"
#undef X
};

// What the host does after the graph ran, in order.
struct Effect {
  EffectKind kind;
  std::uint32_t input = 0;
  ValueId value;  // may be invalid if the effect needs none
};

struct Gradient {
  ValueId value;  // invalid: none
  std::uint32_t input = 0;
};

struct REPRISE_EXPORT Graph {
  explicit Graph(std::shared_ptr<Context> shared) : context(std::move(shared)) {}

  std::shared_ptr<Context> context;
  Form form = Form::Recorded;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Input> inputs;  // of a joint graph the tangents too (InputKind::Tangent)
  std::vector<Constant> constants;
  std::vector<Output> outputs;
  std::vector<Effect> effects;
  std::vector<Gradient> gradients;  // of a joint or backward graph
  std::vector<ValueId> saved;       // of a forward graph: kept for the backward, in the order of its Saved inputs

  const Value& get_value(ValueId id) const { return values[id.index()]; }
  Value& get_value(ValueId id) { return values[id.index()]; }
  const TensorMeta& get_meta(ValueId id) const { return values[id.index()].meta; }
  const Node& get_node(NodeId id) const { return nodes[id.index()]; }

  // --- making --------------------------------------------------------------------------------------------------------

  ValueId add_tensor(const TensorMeta& meta);
  ValueId add_value(ValueKind kind, sym::Int number = 0);
  ValueId add_input(InputKind kind, const TensorMeta& meta);
  void add_input(InputKind kind, ValueId value);  // a value that was just added, such as a number
  ValueId add_constant(std::uint32_t host_index, const TensorMeta& meta);
  // Copies the spans of `node` into the arena and makes it the producer of its outs and new_values that have none and
  // are no sources (in the recorded form, a result may be an argument).
  NodeId add_node(const Node& node);

  // Recomputes Value::producer from the nodes: after nodes were moved or dropped.
  void reset_producers();
};

// Calls visit(ValueId) for every value that the node uses, in order, with repetitions.
template <class Visit>
void for_each_use(const Node& node, Visit&& visit) {
  for (const Arg& arg : node.args) for_each_value(arg, visit);
}

// Calls visit(ValueId) for every value that the node computes (absent ones left out).
template <class Visit>
void for_each_result(const Node& node, Visit&& visit) {
  for (const ValueId id : node.outs) {
    if (id.is_valid()) visit(id);
  }
  for (const ValueId id : node.new_values) visit(id);
}

// Calls visit(ValueId&) for every value that the graph needs at its end: outputs, effects, gradients, saved.
template <class Visit>
void for_each_root(Graph& graph, Visit&& visit) {
  for (Output& output : graph.outputs) {
    if (output.value.is_valid()) visit(output.value);
  }
  for (Effect& effect : graph.effects) {
    if (effect.value.is_valid()) visit(effect.value);
  }
  for (Gradient& gradient : graph.gradients) {
    if (gradient.value.is_valid()) visit(gradient.value);
  }
  for (ValueId& id : graph.saved) visit(id);
}

// The argument with every value v replaced by map(v); lists are copied into the arena only if something changed.
template <class Map>
Arg map_values(Context& context, const Arg& arg, Map&& map);

template <class Map>
std::span<const Arg> map_values(Context& context, std::span<const Arg> args, Map&& map) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Arg mapped = map_values(context, args[i], map);
    if (mapped.bits() == args[i].bits() && mapped.kind() == args[i].kind()) continue;
    std::span<Arg> copy = context.arena().make_array<Arg>(args.size());
    for (std::size_t k = 0; k < i; ++k) copy[k] = args[k];
    copy[i] = mapped;
    for (std::size_t k = i + 1; k < args.size(); ++k) copy[k] = map_values(context, args[k], map);
    return copy;
  }
  return args;
}

template <class Map>
Arg map_values(Context& context, const Arg& arg, Map&& map) {
  if (arg.is_value()) {
    const Arg mapped = Arg::make_value(map(arg.get_value()));
    return arg.is_wrapped() ? mapped.as_wrapped() : mapped;
  }
  if (arg.is_list()) {
    const std::span<const Arg> old = arg.get_list();
    const std::span<const Arg> mapped = map_values(context, old, map);
    return mapped.data() == old.data() ? arg : Arg::make_list(mapped);
  }
  return arg;
}

REPRISE_EXPORT std::string_view get_op_name(const Graph& graph, const Node& node);
REPRISE_EXPORT std::string_view get_input_kind_name(InputKind kind);
REPRISE_EXPORT std::string_view get_effect_name(EffectKind kind);

// Inputs that share storage with another input, grouped, each group in order of the inputs: what a guard has to hold
// for as soon as an input is mutated or returned as a view.
REPRISE_EXPORT std::vector<std::vector<std::uint32_t>> find_aliased_inputs(const Graph& graph);

}  // namespace reprise::graph
