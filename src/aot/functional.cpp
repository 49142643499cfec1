// Functionalisation, below autograd: versions were counted and CopySlices made while tracing, so this is bookkeeping.
//
// 1. Each storage has a base value and a version; each recorded value has its current functional id and the version
//    that it was current at. A view that is stale is made again by its node on the current parent.
// 2. An operation that writes keeps its name, its `mut` mask and gets new values. A write to a view goes back to the
//    base: by the same geometry, a reshape, a slice or select scatter, an inverse view, or as_strided_scatter.
// 3. What outputs and effects are is decided where the forward ends.
#include "aot/functional.h"

#include <algorithm>

#include "base/check.h"

namespace reprise::aot {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::TensorMeta;
using graph::ValueId;

namespace {

bool is_same_geometry(const TensorMeta& a, const TensorMeta& b) {
  return a.rank == b.rank && a.dtype == b.dtype && a.offset == b.offset && a.flags == b.flags &&
         std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin()) &&
         std::equal(a.strides().begin(), a.strides().end(), b.strides().begin());
}

int64_t count_elements(const TensorMeta& meta) {
  int64_t count = 1;
  for (const sym::Int size : meta.sizes()) count *= size.get_constant();
  return count;
}

bool is_contiguous(const TensorMeta& meta) {
  int64_t expected = 1;
  for (size_t d = meta.rank; d-- > 0;) {
    const int64_t size = meta.sizes()[d].get_constant();
    if (size != 1 && !meta.strides()[d].is_constant(expected)) return false;
    expected *= size;
  }
  return true;
}

class Functionaliser {
 public:
  explicit Functionaliser(const RegionTrace& trace)
      : source_(trace.graph),
        forward_node_count_(trace.forward_node_count),
        forward_value_count_(trace.forward_value_count),
        out_(trace.graph.context) {}

  base::Result<Graph> run() {
    start();
    for (size_t i = 0; i < source_.nodes.size() && failure_.empty(); i++) {
      if (i == forward_node_count_) end_forward();
      phase_ = source_.nodes[i].phase;
      add_node(i);
    }
    if (source_.nodes.size() == forward_node_count_) end_forward();
    phase_ = Phase::Backward;
    for (const graph::Gradient& gradient : source_.gradients) {
      out_.gradients.push_back({gradient.value.is_valid() ? current(gradient.value) : ValueId(), gradient.input});
    }
    if (!failure_.empty()) return base::Unsupported{base::UnsupportedCode::UntraceableRegion, failure_};
    drop_aliases();
    out_.reset_producers();
    return std::move(out_);
  }

 private:
  struct Storage {
    ValueId base;
    uint32_t version = 0;
  };
  struct State {
    ValueId now;  // its current functional value
    uint32_t version = 0;
    int32_t creator = -1;  // the recorded node that made it
    ValueId parent;        // what it is a view of
    int32_t input = -1;
  };

  void start() {
    out_.form = graph::Form::Functional;
    // New values of the forward stand behind its recorded ones, the recorded ones of the backward behind those: so the
    // forward has the same ids whatever the backward is.
    out_.values.assign(source_.values.begin(), source_.values.begin() + static_cast<ptrdiff_t>(forward_value_count_));
    for (const graph::Input& input : source_.inputs) {
      if (input.value.index() < forward_value_count_) out_.inputs.push_back(input);
    }
    out_.constants = source_.constants;
    states_.resize(source_.values.size());
    for (size_t i = 0; i < states_.size(); i++) states_[i].now = ValueId(static_cast<uint32_t>(i));
    storages_.resize(source_.context->get_storage_count());
    for (size_t i = 0; i < source_.inputs.size(); i++) {
      const ValueId id = source_.inputs[i].value;
      state(id).input = static_cast<int32_t>(i);
      if (!is_tensor(id)) continue;
      ValueId& base = storage(id).base;
      if (!base.is_valid() || count_elements(meta(id)) > count_elements(meta(base))) base = id;
    }
    for (const graph::Constant& constant : source_.constants) note_base(constant.value);
  }

  void add_backward_values() {
    const size_t offset = out_.values.size() - forward_value_count_;
    out_.values.insert(out_.values.end(), source_.values.begin() + static_cast<ptrdiff_t>(forward_value_count_),
                       source_.values.end());
    for (size_t i = forward_value_count_; i < states_.size(); i++) {
      states_[i].now = ValueId(static_cast<uint32_t>(i + offset));
    }
    backward_offset_ = static_cast<uint32_t>(offset);
    for (const graph::Input& input : source_.inputs) {
      if (input.value.index() < forward_value_count_) continue;
      out_.inputs.push_back({own_id(input.value), input.kind, input.is_mutated});
    }
    for (graph::Constant& constant : out_.constants) constant.value = own_id(constant.value);
  }

  // The functional id of a recorded value as it was made.
  ValueId own_id(ValueId id) const {
    return id.index() < forward_value_count_ ? id : ValueId(id.index() + backward_offset_);
  }

  State& state(ValueId id) { return states_[id.index()]; }
  const TensorMeta& meta(ValueId id) const { return source_.get_meta(id); }
  Storage& storage(ValueId id) { return storages_[meta(id).storage.index()]; }
  bool is_tensor(ValueId id) const { return source_.get_value(id).kind == graph::ValueKind::Tensor; }
  void note_base(ValueId id) {
    if (is_tensor(id) && !storage(id).base.is_valid()) storage(id).base = id;
  }
  void fail(std::string text) {
    if (failure_.empty()) failure_ = std::move(text);
  }

  // The functional value that a recorded one has now.
  ValueId current(ValueId id) {
    State& wanted = state(id);
    if (!is_tensor(id) || wanted.version == storage(id).version) return wanted.now;
    if (wanted.input >= 0 && wanted.creator < 0) return view_of_aliased_input(id);
    if (wanted.creator < 0 || !wanted.parent.is_valid()) {
      fail("a tensor over memory that was resized or replaced is used again");
      return wanted.now;
    }
    return regenerate(id);
  }

  ValueId regenerate(ValueId id) {
    const Node& made = source_.nodes[static_cast<size_t>(state(id).creator)];
    const ValueId parent = state(id).parent, now = current(parent);
    Node node = made;
    node.phase = phase_;
    node.args =
        graph::map_values(*out_.context, made.args, [&](ValueId arg) { return arg == parent ? now : current(arg); });
    std::vector<ValueId> outs;
    for (const ValueId out : made.outs) {
      if (!out.is_valid()) {
        outs.push_back(out);
        continue;
      }
      outs.push_back(out_.add_tensor(meta(out)));
      state(out).now = outs.back();
      state(out).version = storage(out).version;
    }
    node.outs = outs;
    out_.add_node(node);
    return state(id).now;
  }

  // Another input over the same memory was written to.
  ValueId view_of_aliased_input(ValueId id) {
    const ValueId base = storage(id).base;
    const TensorMeta &view = meta(id), &whole = meta(base);
    int64_t last = view.offset.get_constant();
    for (size_t d = 0; d < view.rank; d++) {
      last += (view.sizes()[d].get_constant() - 1) * view.strides()[d].get_constant();
    }
    if (!is_contiguous(whole) || !whole.offset.is_constant(0) || whole.dtype != view.dtype ||
        last >= count_elements(whole)) {
      fail("inputs that share memory, one of them written to, and none of them holds all of it");
      return state(id).now;
    }
    State& wanted = state(id);
    wanted.now =
        add_call("aten::as_strided",
                 {Arg::make_value(current(base)), sizes_of(view), strides_of(view), Arg::make_int(view.offset)}, view);
    wanted.version = storage(id).version;
    return wanted.now;
  }

  Arg sizes_of(const TensorMeta& meta) { return out_.context->make_int_list(meta.sizes()); }
  Arg strides_of(const TensorMeta& meta) { return out_.context->make_int_list(meta.strides()); }

  ValueId add_call(std::string_view name, std::initializer_list<Arg> args, const TensorMeta& result) {
    const ValueId id = out_.add_tensor(result);
    const graph::Return single = graph::Return::make_single();
    Node node;
    node.op = out_.context->intern_op(name);
    node.phase = phase_;
    node.args = {args.begin(), args.size()};
    node.returns = {&single, 1};
    node.outs = {&id, 1};
    out_.add_node(node);
    return id;
  }

  // `value` is the new contents of the recorded `id`.
  void write(ValueId id, ValueId value) {
    Storage& memory = storage(id);
    const ValueId base = memory.base;
    if (meta(id).dtype != meta(base).dtype && state(id).parent.is_valid()) {
      if (write_through_dtype(id, value)) return;
    }
    const ValueId whole = id == base || is_same_geometry(meta(id), meta(base)) ? value : scatter(id, value, base);
    memory.version++;
    state(base).now = whole;
    state(base).version = memory.version;
    state(id).now = value;
    state(id).version = memory.version;
  }

  bool write_through_dtype(ValueId id, ValueId value) {
    const ValueId parent = state(id).parent;
    const std::string_view name = graph::get_op_name(source_, source_.nodes[static_cast<size_t>(state(id).creator)]);
    ValueId whole;
    if (name == "aten::view_as_complex") {
      whole = add_call("aten::view_as_real", {Arg::make_value(value)}, meta(parent));
    } else if (name == "aten::view_as_real") {
      whole = add_call("aten::view_as_complex", {Arg::make_value(value)}, meta(parent));
    } else if (meta(parent).dtype == meta(id).dtype) {
      return false;
    } else {
      fail("a write through " + std::string(name));
      return true;
    }
    write(parent, whole);
    state(id).now = value;
    state(id).version = storage(id).version;
    return true;
  }

  ValueId scatter(ValueId id, ValueId value, ValueId base) {
    const TensorMeta &view = meta(id), &whole = meta(base);
    if (is_contiguous(view) && is_contiguous(whole) && count_elements(view) == count_elements(whole) &&
        view.dtype == whole.dtype) {
      return add_call("aten::view", {Arg::make_value(value), sizes_of(whole)}, whole);
    }
    const Arg now = Arg::make_value(current(base)), part = Arg::make_value(value);
    if (state(id).parent == base && state(id).creator >= 0) {
      const Node& made = source_.nodes[static_cast<size_t>(state(id).creator)];
      const std::string_view name = graph::get_op_name(source_, made);
      if (name == "aten::slice.Tensor") {
        return add_call("aten::slice_scatter", {now, part, made.args[1], made.args[2], made.args[3], made.args[4]},
                        whole);
      }
      if (name == "aten::select.int") {
        return add_call("aten::select_scatter", {now, part, made.args[1], made.args[2]}, whole);
      }
    }
    if (view.dtype != whole.dtype) fail("a write through a view of another dtype");
    return add_call("aten::as_strided_scatter",
                    {now, part, sizes_of(view), strides_of(view), Arg::make_int(view.offset)}, whole);
  }

  void add_node(size_t index) {
    const Node& source = source_.nodes[index];
    note_creation(index);
    Node node = source;
    node.args = graph::map_values(*out_.context, source.args, [&](ValueId id) { return current(id); });
    std::vector<ValueId> outs(source.outs.begin(), source.outs.end());
    if (source.mut == 0) {
      for (ValueId& out : outs) out = out.is_valid() ? own_id(out) : out;
      node.outs = outs;
      out_.add_node(node);
      return;
    }
    std::vector<ValueId> new_values;
    std::vector<std::pair<ValueId, ValueId>> writes;
    for (size_t i = 0; i < source.args.size(); i++) {
      if (((source.mut >> i) & 1) == 0) continue;
      graph::for_each_value(source.args[i], [&](ValueId id) {
        const ValueId after = find_resized(source, id);
        new_values.push_back(out_.add_tensor(meta(after)));
        if (after != id) storage(id).base = after;
        writes.emplace_back(after, new_values.back());
      });
    }
    for (ValueId& out : outs) {
      bool is_written = !out.is_valid();
      for (const auto& [written, value] : writes) is_written |= out == written;
      out = is_written ? ValueId() : own_id(out);
    }
    node.new_values = new_values;
    node.outs = outs;
    out_.add_node(node);
    for (const auto& [written, value] : writes) write(written, value);
  }

  // A result on the argument's storage that is another value: the argument was resized.
  ValueId find_resized(const Node& node, ValueId argument) {
    for (const ValueId out : node.outs) {
      if (out.is_valid() && out != argument && meta(out).storage == meta(argument).storage && state(out).creator < 0 &&
          state(out).input < 0) {
        return out;
      }
    }
    return argument;
  }

  void note_creation(size_t index) {
    const Node& node = source_.nodes[index];
    if (node.mut != 0) return note_results_of_write(index);
    for (const ValueId out : node.outs) {
      if (!out.is_valid() || !is_tensor(out) || state(out).creator >= 0 || state(out).input >= 0) continue;
      ValueId parent;
      bool is_argument = false;
      graph::for_each_use(node, [&](ValueId id) {
        is_argument |= id == out;
        if (!parent.is_valid() && is_tensor(id) && meta(id).storage == meta(out).storage) parent = id;
      });
      if (is_argument) continue;
      state(out).creator = static_cast<int32_t>(index);
      state(out).parent = parent;
      note_base(out);
      state(out).version = storage(out).version;
    }
  }

  // Results with memory of their own: what else a writing operation returns.
  void note_results_of_write(size_t index) {
    const Node& node = source_.nodes[index];
    for (const ValueId out : node.outs) {
      if (!out.is_valid() || !is_tensor(out) || storage(out).base.is_valid()) continue;
      state(out).creator = static_cast<int32_t>(index);
      note_base(out);
      state(out).version = storage(out).version;
    }
  }

  void end_forward() {
    phase_ = Phase::Forward;
    for (graph::Output output : source_.outputs) {
      // Views of inputs and outputs are made by the host.
      if (output.kind == graph::OutputKind::Value) output.value = current(output.value);
      out_.outputs.push_back(output);
    }
    for (uint32_t i = 0; i < source_.inputs.size(); i++) {
      const graph::Input& input = source_.inputs[i];
      if (input.kind == graph::InputKind::Tangent || !is_tensor(input.value)) continue;
      if (storage(input.value).version == 0 || storage(input.value).base != input.value) continue;
      out_.inputs[i].is_mutated = true;
      out_.effects.push_back({graph::EffectKind::Copy, i, current(input.value)});
    }
    for (const graph::Effect& effect : source_.effects) {
      std::erase_if(out_.effects, [&](const graph::Effect& other) { return other.input == effect.input; });
      out_.effects.push_back({effect.kind, effect.input, current(effect.value)});
    }
    add_backward_values();
  }

  // detach(x), alias(x), lift_fresh(x) -> x
  void drop_aliases() {
    std::vector<ValueId> renamed(out_.values.size());
    for (size_t i = 0; i < renamed.size(); i++) renamed[i] = ValueId(static_cast<uint32_t>(i));
    const auto rename = [&](ValueId id) { return renamed[id.index()]; };
    std::vector<Node> kept;
    for (Node& node : out_.nodes) {
      node.args = graph::map_values(*out_.context, node.args, rename);
      const std::string_view name = graph::get_op_name(out_, node);
      if (name == "aten::detach" || name == "aten::alias" || name == "aten::lift_fresh") {
        renamed[node.outs[0].index()] = node.args[0].get_value();
      } else {
        kept.push_back(node);
      }
    }
    out_.nodes = std::move(kept);
    graph::for_each_root(out_, [&](ValueId& id) { id = rename(id); });
  }

  const Graph& source_;
  size_t forward_node_count_;
  size_t forward_value_count_;
  uint32_t backward_offset_ = 0;
  Graph out_;
  Phase phase_ = Phase::Forward;
  std::vector<State> states_;
  std::vector<Storage> storages_;
  std::string failure_;
};

}  // namespace

base::Result<Graph> make_functional(const RegionTrace& trace) { return Functionaliser(trace).run(); }

}  // namespace reprise::aot
