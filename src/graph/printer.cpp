#include "graph/printer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace reprise::graph {

namespace {

using types::DeviceKind;

std::string_view get_layout_name(Layout layout) {
  switch (layout) {
#define X(name, text) \
  case Layout::name:  \
    return text;
#include "graph/layouts.def"
#undef X
  }
  REPRISE_UNREACHABLE("layout " + std::to_string(static_cast<int>(layout)));
}

std::string_view get_memory_format_name(MemoryFormat format) {
  switch (format) {
#define X(name, text)      \
  case MemoryFormat::name: \
    return text;
#include "graph/memory_formats.def"
#undef X
  }
  REPRISE_UNREACHABLE("memory format " + std::to_string(static_cast<int>(format)));
}

// The shortest text that reads back as the same number, always with a sign of being a float.
void print_float(double number, std::string& out) {
  if (std::isnan(number)) {
    out += std::signbit(number) ? "-nan" : "nan";
    return;
  }
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), number);
  const std::string_view written(text, static_cast<std::size_t>(end - text));
  out += written;
  if (written.find_first_of(".eni") == std::string_view::npos) out += ".0";
}

class Printer {
 public:
  // Without a graph only constants can be printed.
  Printer(const Context& context, const Graph* graph) : context_(const_cast<Context&>(context)), graph_(graph) {}

  std::string out;

  void print_id(ValueId id) {
    if (id.is_valid()) {
      out += '%';
      out += std::to_string(id.index());
    } else {
      out += '_';
    }
  }

  void print_int(sym::Int number) { context_.symbols().print_to(number, out); }

  void print_tensor(const TensorMeta& meta, bool shows_storage) {
    out += types::get_dtype_name(meta.dtype);
    out += '[';
    print_ints(meta.sizes());
    if (!is_contiguous(meta)) {
      out += "; ";
      print_ints(meta.strides());
    }
    out += ']';
    if (meta.offset != sym::Int(0)) {
      out += " @";
      print_int(meta.offset);
    }
    if (shows_storage) out += " storage " + std::to_string(meta.storage.index());
    if (meta.device != types::Device{}) out += ' ' + types::get_device_name(meta.device);
    if (meta.flags & kConjugate) out += " conj";
    if (meta.flags & kNegative) out += " neg";
  }

  void print_arg(const Arg& arg) {
    if (arg.is_wrapped()) out += "wrapped ";
    switch (arg.kind()) {
      case ArgKind::None:
        out += "none";
        return;
      case ArgKind::Value:
        print_id(arg.get_value());
        return;
      case ArgKind::Int:
        if (!arg.get_int().is_constant()) out += '{';
        print_int(arg.get_int());
        if (!arg.get_int().is_constant()) out += '}';
        return;
      case ArgKind::LowInt:
        out += std::to_string(arg.get_low_int());
        return;
      case ArgKind::Float:
        print_float(arg.get_float(), out);
        return;
      case ArgKind::Bool:
        out += arg.get_bool() ? "true" : "false";
        return;
      case ArgKind::Complex:
        out += "complex(";
        print_float(arg.get_complex().real, out);
        out += ", ";
        print_float(arg.get_complex().imaginary, out);
        out += ')';
        return;
      case ArgKind::DType:
        out += types::get_dtype_name(arg.get_dtype());
        return;
      case ArgKind::Device:
        out += types::get_device_name(arg.get_device());
        return;
      case ArgKind::Layout:
        out += get_layout_name(arg.get_layout());
        return;
      case ArgKind::MemoryFormat:
        out += get_memory_format_name(arg.get_memory_format());
        return;
      case ArgKind::String:
        print_string(arg.get_string());
        return;
      case ArgKind::List: {
        out += '[';
        bool is_first = true;
        for (const Arg& element : arg.get_list()) {
          if (!is_first) out += ", ";
          is_first = false;
          print_arg(element);
        }
        out += ']';
        return;
      }
    }
    REPRISE_UNREACHABLE("argument kind " + std::to_string(static_cast<int>(arg.kind())));
  }

  // Which storages more than one value has, and which values were printed with their type.
  void prepare() {
    storage_uses_.assign(context_.get_storage_count(), 0);
    const auto count = [&](ValueId id) {
      const Value& value = graph_->get_value(id);
      if (value.kind == ValueKind::Tensor && value.meta.storage.is_valid()) ++storage_uses_[value.meta.storage.index()];
    };
    is_defined_.assign(graph_->values.size(), false);
    const auto count_once = [&](ValueId id) {
      if (!is_defined_[id.index()]) count(id);
      is_defined_[id.index()] = true;
    };
    for (const Input& input : graph_->inputs) count_once(input.value);
    for (const Constant& constant : graph_->constants) count_once(constant.value);
    for (const Node& node : graph_->nodes) for_each_result(node, count_once);
    is_defined_.assign(graph_->values.size(), false);
  }

  void print_type(ValueId id) {
    if (!id.is_valid() || is_defined_[id.index()]) {
      out += '_';
      return;
    }
    is_defined_[id.index()] = true;
    const Value& value = graph_->get_value(id);
    switch (value.kind) {
      case ValueKind::Tensor:
        print_tensor(value.meta, storage_uses_.empty() || storage_uses_[value.meta.storage.index()] > 1);
        return;
      case ValueKind::Int:
        out += "int";
        if (value.number != sym::Int(0)) {
          out += " {";
          print_int(value.number);
          out += '}';
        }
        return;
      case ValueKind::Float:
        out += "float";
        return;
      case ValueKind::Bool:
        out += "bool";
        return;
      case ValueKind::Complex:
        out += "complex";
        return;
      case ValueKind::RandomState:
        out += "rng";
        return;
    }
    REPRISE_UNREACHABLE("value kind " + std::to_string(static_cast<int>(value.kind)));
  }

  void print_node(const Node& node) {
    bool is_first = true;
    std::size_t next = 0;
    for (const Return& result : node.returns) {
      if (!is_first) out += ", ";
      is_first = false;
      print_return(result, next, [&](ValueId id) { print_id(id); }, node);
    }
    if (!node.returns.empty()) out += " = ";
    out += context_.get_op_name(node.op);
    out += '(';
    std::size_t next_new = 0;
    for (std::size_t i = 0; i < node.args.size(); ++i) {
      if (i > 0) out += ", ";
      const bool is_mut = i < 64 && (node.mut >> i & 1) != 0;
      if (is_mut && node.new_values.empty()) out += "mut ";
      print_arg(node.args[i]);
      if (is_mut && !node.new_values.empty()) print_new_values(node, node.args[i], next_new);
    }
    out += ')';
    print_types(node);
    if (node.source.is_valid()) out += " !" + std::to_string(node.source.index());
  }

  void print_graph() {
    prepare();
    out += graph_->form == Form::Functional ? "graph functional {\n" : "graph {\n";
    print_symbols();
    for (const Input& input : graph_->inputs) {
      out += "  ";
      print_id(input.value);
      out += " = ";
      out += get_input_kind_name(input.kind);
      if (input.is_mutated) out += " mutated";
      out += " : ";
      print_type(input.value);
      out += '\n';
    }
    for (const Constant& constant : graph_->constants) {
      out += "  ";
      print_id(constant.value);
      out += " = constant " + std::to_string(constant.host_index) + " : ";
      print_type(constant.value);
      out += '\n';
    }
    Phase phase = Phase::Forward;
    for (const Node& node : graph_->nodes) {
      if (node.phase != phase) out += node.phase == Phase::Backward ? "  backward:\n" : "  forward:\n";
      phase = node.phase;
      out += "  ";
      print_node(node);
      out += '\n';
    }
    print_end();
    out += "}\n";
  }

 private:
  void print_ints(std::span<const sym::Int> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (i > 0) out += ", ";
      print_int(numbers[i]);
    }
  }

  bool is_contiguous(const TensorMeta& meta) {
    sym::Context& symbols = context_.symbols();
    sym::Int step = 1;
    for (std::size_t i = meta.rank; i-- > 0;) {
      if (meta.strides()[i] != step) return false;
      step = symbols.multiply(step, symbols.max(meta.sizes()[i], 1));
    }
    return true;
  }

  static bool has_same_layout(const TensorMeta& a, const TensorMeta& b) {
    return a.rank == b.rank && a.offset == b.offset &&
           std::equal(a.sizes_and_strides, a.sizes_and_strides + 2 * a.rank, b.sizes_and_strides);
  }

  void print_string(std::string_view text) {
    out += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\n') {
        out += "\\n";
      } else {
        out += c;
      }
    }
    out += '"';
  }

  template <class Print>
  void print_return(const Return& result, std::size_t& next, Print&& print, const Node& node) {
    if (!result.is_list()) {
      print(node.outs[next++]);
      return;
    }
    out += '[';
    for (std::uint32_t k = 0; k < result.get_count(); ++k) {
      if (k > 0) out += ", ";
      print(node.outs[next++]);
    }
    out += ']';
  }

  void print_new_values(const Node& node, const Arg& arg, std::size_t& next) {
    out += " => ";
    if (!arg.is_list()) {
      if (!arg.is_none()) print_id(node.new_values[next++]);
      return;
    }
    out += '[';
    bool is_first = true;
    for (const Arg& element : arg.get_list()) {
      if (!is_first) out += ", ";
      is_first = false;
      if (element.is_value()) {
        print_id(node.new_values[next++]);
      } else {
        out += '_';
      }
    }
    out += ']';
  }

  void print_types(const Node& node) {
    bool has_type = false;
    for_each_result(node, [&](ValueId id) { has_type |= !is_defined_[id.index()]; });
    if (!has_type) return;
    out += " : ";
    std::size_t next = 0;
    bool is_first = true;
    for (const Return& result : node.returns) {
      if (!is_first) out += ", ";
      is_first = false;
      print_return(result, next, [&](ValueId id) { print_type(id); }, node);
    }
    for (const ValueId id : node.new_values) {
      if (!is_first) out += ", ";
      is_first = false;
      print_type(id);
    }
  }

  void print_symbols() {
    const sym::Context& symbols = context_.symbols();
    for (std::size_t i = 0; i < symbols.get_symbol_count(); ++i) {
      const sym::Symbol& symbol = symbols.get_symbol(sym::SymbolId(static_cast<std::uint32_t>(i)));
      out += "  symbol ";
      out += symbol.name;
      if (symbol.range != sym::Range{}) {
        const auto print_end = [&](std::int64_t end) {
          out += end == sym::Range::kNoLeast || end == sym::Range::kNoMost ? "?" : std::to_string(end);
        };
        out += " in [";
        print_end(symbol.range.least);
        out += ", ";
        print_end(symbol.range.most);
        out += ']';
      }
      if (symbol.hint) out += " hint " + std::to_string(*symbol.hint);
      out += '\n';
    }
  }

  void print_end() {
    if (!graph_->outputs.empty()) out += "  return ";
    bool is_first = true;
    for (const Output& output : graph_->outputs) {
      if (!is_first) out += ", ";
      is_first = false;
      const std::string index = std::to_string(output.index);
      switch (output.kind) {
        case OutputKind::Value:
          break;
        case OutputKind::ViewOfInput:
          out += "view of input " + index + " as ";
          print_tensor(output.meta, false);
          continue;
        case OutputKind::ViewOfOutput:
          out += "view of output " + index + " as ";
          print_tensor(output.meta, false);
          continue;
        case OutputKind::Input:
          out += "input " + index;
          continue;
        case OutputKind::SameOutput:
          out += "output " + index;
          continue;
        case OutputKind::None:
          out += "none";
          continue;
      }
      print_id(output.value);
      const Value& value = graph_->get_value(output.value);
      const bool is_given = output.meta.sizes_and_strides != nullptr && value.kind == ValueKind::Tensor;
      if (is_given && !has_same_layout(output.meta, value.meta)) {
        out += " as ";
        print_tensor(output.meta, false);
      }
    }
    if (!graph_->outputs.empty()) out += '\n';
    for (const Effect& effect : graph_->effects) {
      out += "  effect ";
      out += get_effect_name(effect.kind);
      out += " input " + std::to_string(effect.input);
      if (effect.value.is_valid()) {
        out += " <- ";
        print_id(effect.value);
      }
      out += '\n';
    }
    for (const Gradient& gradient : graph_->gradients) {
      out += "  gradient of input " + std::to_string(gradient.input) + ": ";
      print_id(gradient.value);
      out += '\n';
    }
    if (!graph_->saved.empty()) out += "  save ";
    is_first = true;
    for (const ValueId id : graph_->saved) {
      if (!is_first) out += ", ";
      is_first = false;
      print_id(id);
    }
    if (!graph_->saved.empty()) out += '\n';
  }

  Context& context_;  // asking the symbols interns expressions; nothing else changes
  const Graph* graph_;
  std::vector<std::uint32_t> storage_uses_;
  std::vector<bool> is_defined_;
};

}  // namespace

std::string print_graph(const Graph& graph) {
  Printer printer(*graph.context, &graph);
  printer.print_graph();
  return std::move(printer.out);
}

std::string print_node(const Graph& graph, const Node& node) {
  Printer printer(*graph.context, &graph);
  printer.prepare();
  printer.print_node(node);
  return std::move(printer.out);
}

std::string print_meta(const Context& context, const TensorMeta& meta) {
  Printer printer(context, nullptr);
  printer.print_tensor(meta, false);
  return std::move(printer.out);
}

std::string print_arg(const Context& context, const Arg& arg) {
  Printer printer(context, nullptr);
  printer.print_arg(arg);
  return std::move(printer.out);
}

}  // namespace reprise::graph
