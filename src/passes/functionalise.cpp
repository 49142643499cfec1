// How it works.
//
// 1. Each storage of the recorded graph has a base: the first value seen on it (of inputs that alias, the one that
//    covers the others). The base's current functional value is the memory's contents; a version counts the writes.
// 2. Each recorded value has a current functional value and the version that it shows. If the version is old, the view
//    is stale: the view op that made it is emitted again on its parent's current value.
// 3. A write through a view goes up the chain of views to the base, one level at a time: view ops that only rearrange
//    are undone by a view op on the new value; those that take a part become *_scatter on the parent's current value.
// 4. New values have storages of their own. A part's new value is packed (no gaps), in the order of its strides.
// 5. What is read is what was there before the node, also by the writing node itself: arguments are mapped first.
#include "passes/functionalise.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "passes/functionalise_impl.h"
#include "passes/rewriter.h"

namespace reprise::passes {

namespace {

class Functionaliser : private Memory {
 public:
  explicit Functionaliser(const Graph& old) : Memory(old) {}

  Graph run() {
    find_input_bases();
    for (std::uint32_t i = 0; i < old_.nodes.size(); ++i) add_node(i);
    finish();
    return std::move(new_);
  }

 private:
  // --- nodes ---

  void add_node(std::uint32_t index) {
    const Node& node = old_.nodes[index];
    phase_ = node.phase;
    source_ = node.source;
    note_views(index);
    if (is_identity(node.op) && node.outs.size() == 1) {
      if (!state(node.outs[0]).parent.is_valid()) return;  // the argument itself
      show(node.outs[0], read(state(node.outs[0]).parent));
      return;
    }
    if (node.mut != 0 && is_entangled(node)) {
      add_one_by_one(node);
    } else if (node.mut == 0) {
      add_plain(index, read_all(node.args));
    } else {
      add_writing(node, read_all(node.args));
    }
  }

  std::span<const Arg> read_all(std::span<const Arg> args) {
    return graph::map_values(context_, args, [&](ValueId id) { return read(id); });
  }

  // A list of tensors is written, and an element's memory is also that of something else than its own operands: PyTorch
  // goes through the lists in order, so what is written first is read by what comes behind it.
  bool is_entangled(const Node& node) const {
    if (node.mut != 1 || node.args.empty() || !node.args[0].is_list()) return false;
    const std::span<const Arg> written = node.args[0].get_list();
    std::unordered_map<std::uint32_t, std::size_t> places;  // of the written elements, by memory
    const auto memory_of = [&](const Arg& arg) {
      return arg.is_value() && has_storage(arg.get_value()) ? old_.get_meta(arg.get_value()).storage.index() : kNoNode;
    };
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (memory_of(written[i]) != kNoNode && !places.emplace(memory_of(written[i]), i).second) return true;
    }
    for (const Arg& arg : node.args) {
      if (!arg.is_list()) {
        if (places.contains(memory_of(arg))) return true;
        continue;
      }
      const std::span<const Arg> elements = arg.get_list();
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const auto found = places.find(memory_of(elements[i]));
        if (found != places.end() && found->second != i) return true;
      }
    }
    return false;
  }

  // op_([a, b], [c, d], n) -> op_([a], [c], n), op_([b], [d], n)
  void add_one_by_one(const Node& node) {
    const std::size_t count = node.args[0].get_list().size();
    for (const Arg& arg : node.args) {
      if (arg.is_list() && arg.get_list().size() != count) refuse("lists that share memory, of several lengths");
    }
    if (!node.returns.empty()) refuse("lists that share memory, of an op with results");
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Arg> args;
      for (const Arg& arg : node.args) {
        args.push_back(arg.is_list() ? context_.make_list(arg.get_list().subspan(i, 1)) : arg);
      }
      Node one = node;
      one.args = context_.arena().copy(std::span<const Arg>(args));
      add_writing(one, read_all(one.args));
    }
  }

  // Remembers how the node's outs that share an argument's memory were made.
  void note_views(std::uint32_t index) {
    const Node& node = old_.nodes[index];
    for (const ValueId out : node.outs) {
      if (!out.is_valid() || !has_storage(out) || state(out).is_seen) continue;
      if (!storage(out).base.is_valid()) {
        see(out);
        continue;
      }
      const StorageId shared = old_.get_meta(out).storage;
      ValueId parent;
      graph::for_each_use(node, [&](ValueId used) {
        if (!parent.is_valid() && has_storage(used) && old_.get_meta(used).storage == shared) parent = used;
      });
      see(out);
      if (!parent.is_valid()) continue;
      state(out).creator = index;
      state(out).parent = parent;
    }
  }

  // A node that writes nothing. An out that is an argument (an op that returns its input) is that argument.
  void add_plain(std::uint32_t index, std::span<const Arg> args) {
    const Node node = normalise(old_.nodes[index]);
    args = args.first(node.args.size());
    std::vector<ValueId> outs(node.outs.begin(), node.outs.end());
    for (ValueId& out : outs) {
      if (out.is_valid() && old_.get_value(out).producer != NodeId(index)) out = ValueId();
    }
    // A view of changed memory has the new value's metadata.
    const bool is_moved = graph::is_view(node.op) && node.args[0].is_value() && has_storage(node.args[0].get_value()) &&
                          new_.get_meta(args[0].get_value()).storage != old_.get_meta(node.args[0].get_value()).storage;
    if (is_moved && node.op == OpId::as_strided) {
      make_alias_of_base(outs[0]);
      return;
    }
    if (is_moved) {
      if (!graph::infer(node.op, args, rules_) || rules_.results().size() != outs.size()) {
        args = with_argument_0(args, emit_clone(args[0].get_value()));
        if (!graph::infer(node.op, args, rules_) || rules_.results().size() != outs.size())
          refuse("a view of changed memory: " + std::string(context_.get_op_name(node.op)));
      }
      for (std::size_t i = 0; i < outs.size(); ++i) {
        if (outs[i].is_valid()) new_.get_value(outs[i]).meta = rules_.results()[i].meta;
      }
    }
    emit(node.op, args, node.returns, outs);
  }

  // The metadata of a written tensor's new value: its geometry, packed, on memory of its own.
  TensorMeta make_new_meta(const TensorMeta& meta) {
    const ValueId probe_id = new_.add_tensor(meta);
    new_.values.back().meta.flags = graph::kNoTensorFlags;
    const Arg probe[] = {Arg::make_value(probe_id), Arg::make_none()};
    const bool is_known = graph::infer(OpId::clone, probe, rules_);
    new_.values.pop_back();
    if (!is_known) return context_.make_meta(meta.sizes(), meta.dtype, meta.device);
    TensorMeta packed = rules_.results()[0].meta;
    packed.storage = context_.make_storage();
    packed.flags = meta.flags;
    return packed;
  }

  void add_writing(const Node& node, std::span<const Arg> args) {
    struct Write {
      ValueId target;  // recorded
      ValueId contents;
    };
    check_overlaps(node);
    std::vector<Write> writes;
    std::vector<ValueId> new_values;
    std::vector<ValueId> outs(node.outs.begin(), node.outs.end());
    for (std::size_t i = 0; i < node.args.size() && i < 64; ++i) {
      if ((node.mut >> i & 1) == 0) continue;
      graph::for_each_value(node.args[i], [&](ValueId id) {
        ValueId target = id;
        // resize_ and its kin: the result is the same memory with other metadata.
        for (ValueId& out : outs) {
          if (!out.is_valid()) continue;
          const bool is_other = out != id && !is_source_or_known(node, out) && has_storage(out) && has_storage(id) &&
                                old_.get_meta(out).storage == old_.get_meta(id).storage;
          if (is_other) {
            target = out;
            out = ValueId();
          } else if (out == id) {
            out = ValueId();
          }
        }
        const ValueId contents = new_.add_tensor(make_new_meta(old_.get_meta(target)));
        new_values.push_back(contents);
        writes.push_back({target, contents});
        if (target != id) {
          storage(target).base = target;
          state(target).parent = ValueId();
          state(target).creator = kNoNode;
        }
      });
    }
    Node added = node;
    added.args = args;
    added.outs = outs;
    added.new_values = new_values;
    new_.add_node(added);
    for (const Write& done : writes) write(done.target, done.contents);
  }

  // What PyTorch refuses to do: a write to elements that lie in one place, or that the op reads as others. It is left
  // to PyTorch to say so.
  void check_overlaps(const Node& node) {
    sym::Context& symbols = context_.symbols();
    for (std::size_t i = 0; i < node.args.size() && i < 64; ++i) {
      if ((node.mut >> i & 1) == 0) continue;
      graph::for_each_value(node.args[i], [&](ValueId written) {
        if (!has_storage(written)) return;
        const TensorMeta& target = old_.get_meta(written);
        for (std::size_t k = 0; k < target.sizes().size(); ++k) {
          if (sym::is_yes(symbols.is_equal(target.strides()[k], 0)) &&
              sym::is_yes(symbols.is_less(1, target.sizes()[k])))
            refuse("a write to elements that lie in one place");
        }
        graph::for_each_use(node, [&](ValueId used) {
          const bool is_other = used != written && has_storage(used) && old_.get_meta(used).storage == target.storage;
          if (is_other && is_shifted(target, old_.get_meta(used)))
            refuse("a write to memory that the operation reads at other places");
        });
      });
    }
  }

  // Two tensors without gaps that share elements, and not each with its own.
  bool is_shifted(const TensorMeta& a, const TensorMeta& b) {
    sym::Context& symbols = context_.symbols();
    const auto has_gaps = [&](const TensorMeta& meta) {
      return !sym::is_yes(symbols.is_equal(get_extent(meta), symbols.add(meta.offset, symbols.product(meta.sizes()))));
    };
    if (has_gaps(a) || has_gaps(b) || !sym::is_yes(symbols.is_less(a.offset, get_extent(b))) ||
        !sym::is_yes(symbols.is_less(b.offset, get_extent(a))))
      return false;
    return !sym::is_yes(symbols.is_equal(a.offset, b.offset)) || !is_same_layout(a, b);
  }

  static bool is_source_or_known(const Node& node, ValueId out) {
    bool is_argument = false;
    graph::for_each_use(node, [&](ValueId used) { is_argument = is_argument || used == out; });
    return is_argument;
  }

  // --- the end ---

  void finish() {
    phase_ = graph::Phase::Forward;
    add_outputs();
    for (std::uint32_t i = 0; i < old_.inputs.size(); ++i) {
      const ValueId id = old_.inputs[i].value;
      new_.inputs[i].is_mutated = false;
      if (!has_storage(id) || storage(id).version == 0 || storage(id).input != id) continue;
      if (has_set_data(i)) continue;
      // resize_ made another base on the input's memory.
      const ValueId base = storage(id).base;
      const auto sizes = old_.get_meta(id).sizes();
      const auto now = old_.get_meta(base).sizes();
      const bool is_resized = !std::equal(sizes.begin(), sizes.end(), now.begin(), now.end());
      new_.effects.push_back({is_resized ? graph::EffectKind::Resize : graph::EffectKind::Copy, i, read(base)});
    }
    for (const graph::Effect& effect : old_.effects) {
      graph::Effect mapped = effect;
      if (mapped.value.is_valid()) mapped.value = read(mapped.value);
      new_.effects.push_back(mapped);
    }
    for (const graph::Effect& effect : new_.effects) {
      if (effect.kind != graph::EffectKind::Bump && effect.kind != graph::EffectKind::SetRng)
        new_.inputs[effect.input].is_mutated = true;
    }
    phase_ = old_.gradients.empty() ? graph::Phase::Forward : graph::Phase::Backward;
    for (const graph::Gradient& gradient : old_.gradients) {
      graph::Gradient mapped = gradient;
      if (mapped.value.is_valid()) mapped.value = read(mapped.value);
      new_.gradients.push_back(mapped);
    }
    for (const ValueId id : old_.saved) new_.saved.push_back(read(id));
  }

  bool has_set_data(std::uint32_t input) const {
    for (const graph::Effect& effect : old_.effects) {
      if (effect.input == input && effect.kind == graph::EffectKind::SetData) return true;
    }
    return false;
  }

  void add_outputs() {
    std::vector<std::uint32_t> input_of(value_count_, kNoNode);  // by recorded value
    std::vector<std::uint32_t> input_on(storages_.size(), kNoNode);
    std::vector<std::uint32_t> output_of(value_count_, kNoNode);
    std::vector<std::uint32_t> output_on(storages_.size(), kNoNode);
    for (std::uint32_t i = 0; i < old_.inputs.size(); ++i) {
      const ValueId id = old_.inputs[i].value;
      input_of[id.index()] = i;
      if (has_storage(id) && storage(id).input == id) input_on[old_.get_meta(id).storage.index()] = i;
    }
    // Of outputs on one memory that is no input's, the widest is the base (the first of equals).
    for (std::uint32_t i = 0; i < old_.outputs.size(); ++i) {
      const graph::Output& output = old_.outputs[i];
      if (output.kind != graph::OutputKind::Value || !has_storage(output.value)) continue;
      std::uint32_t& widest = output_on[old_.get_meta(output.value).storage.index()];
      if (widest == kNoNode || is_wider(output.value, old_.outputs[widest].value)) widest = i;
    }
    for (std::uint32_t i = 0; i < old_.outputs.size(); ++i) {
      graph::Output output = old_.outputs[i];
      if (output.kind == graph::OutputKind::None) {
        new_.outputs.push_back(output);
        continue;
      }
      const ValueId id = output.value;
      if (output.kind == graph::OutputKind::Value && old_.get_value(id).kind == ValueKind::Tensor) {
        const std::uint32_t memory = old_.get_meta(id).storage.index();
        if (input_of[id.index()] != kNoNode) {
          output.kind = graph::OutputKind::Input;
          output.index = input_of[id.index()];
        } else if (output_of[id.index()] != kNoNode) {
          output.kind = graph::OutputKind::SameOutput;
          output.index = output_of[id.index()];
        } else if (input_on[memory] != kNoNode) {
          output.kind = graph::OutputKind::ViewOfInput;
          output.index = input_on[memory];
        } else if (output_on[memory] != i && is_covered(old_.outputs[output_on[memory]].value, id)) {
          output.kind = graph::OutputKind::ViewOfOutput;
          output.index = output_on[memory];
        }
        if (output_of[id.index()] == kNoNode) output_of[id.index()] = i;
      }
      if (old_.get_value(id).kind == ValueKind::Tensor) output.meta = old_.get_meta(id);
      output.value = output.kind == graph::OutputKind::Value ? read(id) : ValueId();
      new_.outputs.push_back(output);
    }
    // A view that stands twice in a recorded graph is two views; where the recording says that both are one object,
    // one.
    for (std::size_t i = 0; i < new_.outputs.size(); ++i) {
      graph::Output& output = new_.outputs[i];
      if (output.kind != graph::OutputKind::SameOutput || old_.outputs[i].kind == graph::OutputKind::SameOutput)
        continue;
      const graph::Output& first = new_.outputs[output.index];
      if (first.kind != graph::OutputKind::Value) output = first;
    }
  }

  // Whether a view of `base` can have all elements of `id`, which is on the same memory.
  bool is_covered(ValueId base, ValueId id) {
    sym::Context& symbols = context_.symbols();
    const TensorMeta& whole = old_.get_meta(base);
    const TensorMeta& part = old_.get_meta(id);
    return whole.dtype == part.dtype && whole.flags == part.flags && is_contiguous(whole) &&
           sym::is_yes(symbols.is_less_equal(whole.offset, part.offset)) &&
           sym::is_yes(
               symbols.is_less_equal(get_extent(part), symbols.add(whole.offset, symbols.product(whole.sizes()))));
  }

  bool is_wider(ValueId a, ValueId b) {
    sym::Context& symbols = context_.symbols();
    return sym::is_yes(
        symbols.is_less(symbols.product(old_.get_meta(b).sizes()), symbols.product(old_.get_meta(a).sizes())));
  }
};

}  // namespace

std::optional<base::Unsupported> functionalise(Graph& graph) {
  if (graph.form == graph::Form::Functional) return std::nullopt;
  Functionaliser functionaliser(graph);
  try {
    graph = functionaliser.run();
  } catch (const Refusal& refusal) {
    return base::Unsupported{base::UnsupportedCode::AliasedMutation, refusal.text};
  }
  return std::nullopt;
}

}  // namespace reprise::passes
