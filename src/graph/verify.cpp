#include "graph/verify.h"

#include "base/check.h"
#include "graph/printer.h"

namespace reprise::graph {

namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), is_defined_(graph.values.size(), false) {}

  std::string error;

  void run() {
    check_inputs();
    for (std::size_t i = 0; i < graph_.nodes.size() && error.empty(); ++i) check_node(i);
    if (error.empty()) check_end();
  }

 private:
  bool fail(std::string text) {
    if (error.empty()) error = std::move(text);
    return false;
  }
  bool fail_at(std::size_t node, const std::string& text) {
    return fail("node " + std::to_string(node) + " (" + std::string(get_op_name(graph_, graph_.nodes[node])) +
                "): " + text);
  }

  static std::string name(ValueId id) { return id.is_valid() ? '%' + std::to_string(id.index()) : std::string("_"); }

  void check_meta(ValueId id) {
    const Value& value = graph_.get_value(id);
    if (value.kind != ValueKind::Tensor) return;
    const TensorMeta& meta = value.meta;
    if (!meta.storage.is_valid()) fail(name(id) + " has no storage");
    if (meta.storage.is_valid() && meta.storage.index() >= graph_.context->get_storage_count())
      fail(name(id) + " has storage " + std::to_string(meta.storage.index()) + " of " +
           std::to_string(graph_.context->get_storage_count()));
    for (const sym::Int size : meta.sizes()) {
      if (size.is_constant() && size.get_word() < 0) fail(name(id) + " has a negative size");
    }
    if (meta.offset.is_constant() && meta.offset.get_word() < 0) fail(name(id) + " has a negative offset");
  }

  void define_source(ValueId id, const char* what) {
    if (!id.is_valid() || id.index() >= is_defined_.size()) {
      fail(std::string(what) + " " + name(id) + " is no value of the graph");
      return;
    }
    if (is_defined_[id.index()]) fail(std::string(what) + " " + name(id) + " is defined twice");
    if (graph_.get_value(id).producer.is_valid()) fail(std::string(what) + " " + name(id) + " has a producer");
    if (!graph_.get_value(id).is_source) fail(std::string(what) + " " + name(id) + " is not marked as a source");
    is_defined_[id.index()] = true;
    check_meta(id);
  }

  void check_inputs() {
    for (const Input& input : graph_.inputs) define_source(input.value, "input");
    for (const Constant& constant : graph_.constants) define_source(constant.value, "constant");
  }

  bool check_use(std::size_t node, ValueId id) {
    if (!id.is_valid() || id.index() >= is_defined_.size()) return fail_at(node, "uses " + name(id) + ", no value");
    if (!is_defined_[id.index()]) return fail_at(node, "uses " + name(id) + " before it is computed");
    return true;
  }

  void check_node(std::size_t index) {
    const Node& node = graph_.nodes[index];
    for_each_use(node, [&](ValueId id) { check_use(index, id); });
    if (!error.empty()) return;
    check_mut(index);
    std::size_t out_count = 0;
    for (const Return& result : node.returns) out_count += result.get_count();
    if (out_count != node.outs.size())
      fail_at(index, std::to_string(node.outs.size()) + " outs, but the returns have " + std::to_string(out_count));
    const bool is_functional = graph_.form == Form::Functional;
    for_each_result(node, [&](ValueId id) {
      if (id.index() >= is_defined_.size()) {
        fail_at(index, "computes " + name(id) + ", no value");
        return;
      }
      const Value& value = graph_.get_value(id);
      if (is_defined_[id.index()]) {
        if (is_functional) {
          fail_at(index, "computes " + name(id) + " again");
          return;
        }
        bool is_argument = false;
        for_each_use(node, [&](ValueId used) { is_argument |= used == id; });
        if (!is_argument) fail_at(index, "computes " + name(id) + " again, which is no argument");
        return;
      }
      is_defined_[id.index()] = true;
      if (value.producer.index() != index)
        fail_at(index, name(id) + " has the producer " + std::to_string(value.producer.index()));
      check_meta(id);
    });
    if (error.empty() && is_view(node.op)) check_view(index);
  }

  void check_mut(std::size_t index) {
    const Node& node = graph_.nodes[index];
    std::size_t tensor_count = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      if ((node.mut >> i & 1) == 0) continue;
      if (i >= node.args.size()) {
        fail_at(index, "mut argument " + std::to_string(i) + " of " + std::to_string(node.args.size()));
        return;
      }
      const Arg& arg = node.args[i];
      if (!arg.is_value() && !arg.is_list() && !arg.is_none())
        fail_at(index, "mut argument " + std::to_string(i) + " is no tensor");
      for_each_value(arg, [&](ValueId) { ++tensor_count; });
    }
    if (graph_.form == Form::Recorded && !node.new_values.empty()) fail_at(index, "new values in the recorded form");
    if (graph_.form == Form::Functional && node.new_values.size() != tensor_count)
      fail_at(index, std::to_string(node.new_values.size()) + " new values for " + std::to_string(tensor_count) +
                         " tensors in mut arguments");
    for (const ValueId id : node.new_values) {
      if (!id.is_valid()) fail_at(index, "an absent new value");
    }
  }

  void check_view(std::size_t index) {
    const Node& node = graph_.nodes[index];
    if (node.args.empty() || !node.args[0].is_value()) {
      fail_at(index, "a view op without a tensor as argument 0");
      return;
    }
    const StorageId base = graph_.get_meta(node.args[0].get_value()).storage;
    for (const ValueId id : node.outs) {
      if (id.is_valid() && graph_.get_meta(id).storage != base)
        fail_at(index, name(id) + " does not share the storage of " + name(node.args[0].get_value()));
    }
  }

  void check_root(ValueId id, const std::string& what) {
    if (!id.is_valid() || id.index() >= is_defined_.size() || !is_defined_[id.index()])
      fail(what + " is " + name(id) + ", which is not computed");
  }

  // Views are views of values; the same object may be a value, a view or an input.
  bool may_name_output(const Output& output, std::size_t place) const {
    if (output.index >= graph_.outputs.size() || output.index == place) return false;
    const OutputKind named = graph_.outputs[output.index].kind;
    if (output.kind == OutputKind::ViewOfOutput) return named == OutputKind::Value;
    return named != OutputKind::SameOutput && named != OutputKind::None;
  }

  void check_end() {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Output& output = graph_.outputs[i];
      const std::string what = "output " + std::to_string(i);
      if (output.kind == OutputKind::None) continue;
      if (output.kind == OutputKind::Value) check_root(output.value, what);
      if (output.kind != OutputKind::Value && output.value.is_valid()) fail(what + " needs no value");
      const bool names_input = output.kind == OutputKind::ViewOfInput || output.kind == OutputKind::Input;
      const bool names_output = output.kind == OutputKind::ViewOfOutput || output.kind == OutputKind::SameOutput;
      if (names_input && output.index >= graph_.inputs.size())
        fail(what + " names input " + std::to_string(output.index));
      if (names_output && !may_name_output(output, i)) fail(what + " names output " + std::to_string(output.index));
    }
    std::vector<bool> has_effect(graph_.inputs.size(), false);
    for (const Effect& effect : graph_.effects) {
      const std::string what = std::string("effect ") + std::string(get_effect_name(effect.kind));
      if (effect.input >= graph_.inputs.size()) {
        fail(what + " on input " + std::to_string(effect.input));
        return;
      }
      if (effect.kind != EffectKind::Bump) check_root(effect.value, what);
      has_effect[effect.input] =
          has_effect[effect.input] || (effect.kind != EffectKind::Bump && effect.kind != EffectKind::SetRng);
    }
    for (std::size_t i = 0; i < graph_.inputs.size() && graph_.form == Form::Functional; ++i) {
      if (graph_.inputs[i].is_mutated != has_effect[i])
        fail("input " + std::to_string(i) +
             (has_effect[i] ? " has an effect and is not marked mutated" : " is marked mutated and has no effect"));
    }
    for (const Gradient& gradient : graph_.gradients) {
      if (gradient.value.is_valid()) check_root(gradient.value, "gradient of input " + std::to_string(gradient.input));
    }
    for (const ValueId id : graph_.saved) check_root(id, "saved value");
  }

  const Graph& graph_;
  std::vector<bool> is_defined_;
};

}  // namespace

std::string find_graph_error(const Graph& graph) {
  Verifier verifier(graph);
  verifier.run();
  return std::move(verifier.error);
}

void verify_graph(const Graph& graph) {
  const std::string error = find_graph_error(graph);
  REPRISE_CHECK(error.empty(), error + "\n" + print_graph(graph));
}

}  // namespace reprise::graph
