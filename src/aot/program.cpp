#include "aot/program.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace reprise::aot {

using graph::Arg;
using graph::ArgKind;
using graph::Node;
using graph::ValueId;
using host::OpArg;

namespace {

constexpr int32_t kNeverUsed = -1;
constexpr int32_t kUsedAtEnd = std::numeric_limits<int32_t>::max();

host::TraceValueKind to_host_kind(graph::ValueKind kind) {
  switch (kind) {
    case graph::ValueKind::Float:
    case graph::ValueKind::Complex:
      return host::TraceValueKind::Float;
    case graph::ValueKind::Int:
      return host::TraceValueKind::Int;
    case graph::ValueKind::Bool:
      return host::TraceValueKind::Bool;
    case graph::ValueKind::RandomState:
      return host::TraceValueKind::RngState;
    case graph::ValueKind::Tensor:
      break;
  }
  return host::TraceValueKind::Tensor;
}

class ProgramMaker {
 public:
  ProgramMaker(const graph::Graph& graph, const host::TraceConstants& constants)
      : graph_(graph),
        constants_(constants),
        slots_(graph.values.size(), -1),
        last_use_(graph.values.size(), kNeverUsed),
        memory_(graph.values.size()),
        is_pinned_(graph.values.size(), 0) {
    for (size_t i = 0; i < memory_.size(); i++) memory_[i] = static_cast<uint32_t>(i);
  }

  base::Result<host::BoxedProgram> make() {
    REPRISE_CHECK(graph_.form == graph::Form::Functional, "only functional graphs become programs");
    find_ops();
    if (!failure_.empty()) return base::Unsupported{base::UnsupportedCode::UntraceableRegion, failure_};
    find_last_uses();
    find_memory();
    for (const graph::Input& input : graph_.inputs) {
      program_.add_input(slot_of(input.value), to_host_kind(graph_.get_value(input.value).kind));
      is_pinned_[memory_of(input.value)] = 1;
    }
    for (const graph::Constant& constant : graph_.constants) {
      is_pinned_[memory_of(constant.value)] = 1;
      if (last_use_[constant.value.index()] == kNeverUsed) continue;
      program_.add_constant(slot_of(constant.value), constants_, static_cast<int32_t>(constant.host_index));
    }
    for (size_t i = 0; i < graph_.nodes.size(); i++) add_node(static_cast<int32_t>(i));
    add_outputs();
    if (!failure_.empty()) return base::Unsupported{base::UnsupportedCode::UntraceableRegion, failure_};
    return std::move(program_);
  }

 private:
  void find_ops() {
    ops_.resize(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); i++) {
      const std::string_view name = graph::get_op_name(graph_, graph_.nodes[i]);
      if (name.starts_with("scalar::") || name.starts_with("rng::")) continue;
      ops_[i] = host::find_op(name);
      if (ops_[i] == nullptr) failure_ = "torch has no operator " + std::string(name);
    }
  }

  void find_last_uses() {
    for (size_t i = 0; i < graph_.nodes.size(); i++) {
      graph::for_each_use(graph_.nodes[i], [&](ValueId id) { last_use_[id.index()] = static_cast<int32_t>(i); });
    }
    visit_results([&](ValueId id) {
      if (id.is_valid()) last_use_[id.index()] = kUsedAtEnd;
    });
  }

  // Values over one memory: views and what they view.
  void find_memory() {
    memory_last_use_ = last_use_;
    for (size_t i = 0; i < graph_.nodes.size(); i++) {
      const Node& node = graph_.nodes[i];
      if (!is_viewing(i)) continue;
      ValueId source;
      graph::for_each_use(node, [&](ValueId id) {
        if (!source.is_valid()) source = id;
      });
      if (!source.is_valid()) continue;
      graph::for_each_result(node, [&](ValueId id) { join(source, id); });
    }
  }

  bool is_viewing(size_t index) const {
    const Node& node = graph_.nodes[index];
    if (node.mut != 0 || ops_[index] == nullptr) return false;
    const std::string_view name = ops_[index]->name;
    return graph::is_view(node.op) || ops_[index]->is_view || name.starts_with("aten::_unsafe_view") ||
           name.starts_with("aten::unsafe_");
  }

  uint32_t memory_of(ValueId id) {
    uint32_t root = id.index();
    while (memory_[root] != root) root = memory_[root] = memory_[memory_[root]];
    return root;
  }
  void join(ValueId a, ValueId b) {
    const uint32_t x = memory_of(a), y = memory_of(b);
    if (x == y) return;
    memory_[y] = x;
    memory_last_use_[x] = std::max(memory_last_use_[x], memory_last_use_[y]);
    is_pinned_[x] = is_pinned_[x] | is_pinned_[y];
  }

  template <typename Visit>
  void visit_results(Visit&& visit) const {
    for (const graph::Output& output : graph_.outputs) {
      visit(output.kind == graph::OutputKind::Value ? output.value : ValueId());
    }
    for (const graph::Effect& effect : graph_.effects) visit(effect.value);
    for (const ValueId id : graph_.saved) visit(id);
    for (const graph::Gradient& gradient : graph_.gradients) visit(gradient.value);
  }

  int32_t slot_of(ValueId id) {
    int32_t& slot = slots_[id.index()];
    if (slot < 0) slot = program_.add_slot();
    return slot;
  }

  OpArg to_host(host::OpCall& call, const Arg& arg) {
    OpArg result;
    result.is_wrapped_number = arg.is_wrapped();
    switch (arg.kind()) {
      case ArgKind::None:
        break;
      case ArgKind::Value:
        result.kind = OpArg::Kind::Value;
        if (slots_[arg.get_value().index()] < 0) {
          failure_ = "value %" + std::to_string(arg.get_value().index()) + " is used before it is computed";
        }
        result.id = slot_of(arg.get_value());
        break;
      case ArgKind::Int:
        result.kind = OpArg::Kind::Int;
        if (!arg.get_int().is_constant()) {
          failure_ = "a symbolic size";
          break;
        }
        result.integer = arg.get_int().get_constant();
        break;
      case ArgKind::LowInt:
        result.kind = OpArg::Kind::Int;
        result.integer = arg.get_low_int();
        break;
      case ArgKind::Float:
        result.kind = OpArg::Kind::Float;
        result.real = arg.get_float();
        break;
      case ArgKind::Bool:
        result.kind = OpArg::Kind::Bool;
        result.integer = arg.get_bool() ? 1 : 0;
        break;
      case ArgKind::Complex:
        result.kind = OpArg::Kind::Complex;
        result.real = arg.get_complex().real;
        result.imaginary = arg.get_complex().imaginary;
        break;
      case ArgKind::DType:
        result.kind = OpArg::Kind::DType;
        result.integer = host::torch_number_of(arg.get_dtype());
        break;
      case ArgKind::Device: {
        const auto [type, index] = host::torch_numbers_of(arg.get_device());
        result.kind = OpArg::Kind::Device;
        result.integer = static_cast<int64_t>(type) << 8 | static_cast<uint8_t>(index);
        break;
      }
      case ArgKind::Layout:
        result.kind = OpArg::Kind::Layout;
        result.integer = static_cast<int64_t>(arg.get_layout());
        break;
      case ArgKind::MemoryFormat:
        result.kind = OpArg::Kind::MemoryFormat;
        result.integer = static_cast<int64_t>(arg.get_memory_format());
        break;
      case ArgKind::String:
        result.kind = OpArg::Kind::Text;
        result.id = static_cast<int32_t>(call.texts.size());
        call.texts.emplace_back(arg.get_string());
        break;
      case ArgKind::List: {
        const std::span<const Arg> elements = arg.get_list();
        result.kind = OpArg::Kind::List;
        result.count = static_cast<int32_t>(elements.size());
        result.id = static_cast<int32_t>(call.pool.size());
        call.pool.resize(call.pool.size() + elements.size());
        for (size_t i = 0; i < elements.size(); i++) {
          const OpArg element = to_host(call, elements[i]);  // may grow the pool
          call.pool[static_cast<size_t>(result.id) + i] = element;
        }
        break;
      }
    }
    return result;
  }

  int32_t result_slot(ValueId id) { return id.is_valid() && last_use_[id.index()] != kNeverUsed ? slot_of(id) : -1; }

  void add_node(int32_t index) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    host::BoxedInstruction instruction;
    instruction.op = ops_[static_cast<size_t>(index)];
    instruction.call.op = instruction.op;
    if (instruction.op == nullptr) {
      const auto op = host::find_scalar_op(graph::get_op_name(graph_, node));
      if (!op) {
        failure_ = "no boxed form of " + std::string(graph::get_op_name(graph_, node));
        return;
      }
      instruction.scalar_op = *op;
    }
    instruction.call.pool.resize(node.args.size());
    for (size_t i = 0; i < node.args.size(); i++) {
      const OpArg arg = to_host(instruction.call, node.args[i]);
      instruction.call.pool[i] = arg;
    }
    if (!node.args.empty() && node.args[0].is_value()) {
      const graph::Value& first = graph_.get_value(node.args[0].get_value());
      if (first.kind == graph::ValueKind::Tensor && first.meta.offset.is_constant()) {
        instruction.traced_offset = first.meta.offset.get_constant();
      }
    }
    instruction.mut = node.mut;
    size_t written = 0;
    for (size_t i = 0; i < node.args.size(); i++) {
      if (((node.mut >> i) & 1) == 0) continue;
      graph::for_each_value(node.args[i], [&](ValueId id) {
        const ValueId after = node.new_values[written++];
        const uint32_t memory = memory_of(id);
        const bool is_consumed =
            is_pinned_[memory] == 0 && memory_last_use_[memory] <= index && has_same_layout(id, after);
        instruction.is_consumed.push_back(is_consumed ? 1 : 0);
        instruction.new_values.push_back(result_slot(after));
        if (is_consumed) join(id, after);
      });
    }
    size_t out = 0;
    for (const graph::Return& value : node.returns) {
      std::vector<int32_t>& targets = instruction.results.emplace_back();
      for (uint32_t k = 0; k < value.get_count(); k++) targets.push_back(result_slot(node.outs[out++]));
    }
    graph::for_each_use(node, [&](ValueId id) {
      if (last_use_[id.index()] == index) instruction.frees.push_back(slots_[id.index()]);
    });
    std::sort(instruction.frees.begin(), instruction.frees.end());
    instruction.frees.erase(std::unique(instruction.frees.begin(), instruction.frees.end()), instruction.frees.end());
    program_.add_instruction(std::move(instruction));
  }

  // The new value is laid out as the graph says: a packed copy of a view with gaps, for one.
  bool has_same_layout(ValueId a, ValueId b) const {
    const std::span<const sym::Int> x = graph_.get_meta(a).strides(), y = graph_.get_meta(b).strides();
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  }

  void add_outputs() {
    std::vector<uint8_t> is_fresh(graph_.values.size(), 0);
    for (const graph::Constant& constant : graph_.constants) is_fresh[constant.value.index()] = 1;
    // Saved as they were at entry: the effect comes behind.
    for (const graph::Input& input : graph_.inputs) is_fresh[input.value.index()] |= input.is_mutated ? 1 : 0;
    visit_results([&](ValueId id) {
      if (!id.is_valid()) return program_.add_output(-1, false);
      if (slots_[id.index()] < 0) {
        failure_ = "result %" + std::to_string(id.index()) + " is not computed";
        return;
      }
      program_.add_output(slots_[id.index()], is_fresh[id.index()] != 0);
    });
  }

  const graph::Graph& graph_;
  const host::TraceConstants& constants_;
  host::BoxedProgram program_;
  std::vector<const host::OpInfo*> ops_;
  std::vector<int32_t> slots_;
  std::vector<int32_t> last_use_;         // of the value
  std::vector<uint32_t> memory_;          // a forest: the root stands for the memory
  std::vector<int32_t> memory_last_use_;  // of roots
  std::vector<uint8_t> is_pinned_;        // of roots: may not be written to
  std::string failure_;
};

}  // namespace

base::Result<host::BoxedProgram> make_boxed_program(const graph::Graph& graph, const host::TraceConstants& constants) {
  return ProgramMaker(graph, constants).make();
}

}  // namespace reprise::aot
