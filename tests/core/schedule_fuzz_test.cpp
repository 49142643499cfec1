// Random graphs: programs of every kind against the reference evaluator.
#include <chrono>
#include <random>

#include "codegen/cpu.h"
#include "graph/builder.h"
#include "graph/evaluate.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "kernel/text.h"
#include "kernel_fuzz.h"
#include "library_calls.h"
#include "passes/drop_dead.h"
#include "schedule/schedule.h"
#include "test.h"
#include "toolchain/link.h"

using namespace reprise;
using graph::Arg;
using graph::Builder;
using graph::Datum;
using graph::Graph;
using graph::OpId;
using graph::ValueId;
using types::DType;

namespace {

class RandomGraph {
 public:
  explicit RandomGraph(std::uint64_t seed)
      : random_(seed), context_(std::make_shared<graph::Context>()), graph_(context_), builder_(graph_) {
    graph_.form = graph::Form::Functional;
  }

  Graph make(int node_count, int scale) {
    for (std::size_t d = 0; d < 3; ++d) base_[d] = 1 + pick(5) * (d == 2 ? 3 : 1) * (d > 0 ? scale : 1);
    const int input_count = 2 + pick(3);
    for (int i = 0; i < input_count; ++i) add_input();
    for (int i = 0; i < node_count; ++i) add_node();
    add_outputs();
    passes::drop_dead(graph_);  // what is dead is not checked
    graph::verify_graph(graph_);
    return std::move(graph_);
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }
  ValueId pick_value() {
    // Late values more often: chains.
    const int back = std::min(pick(static_cast<int>(values_.size())), pick(static_cast<int>(values_.size())));
    return values_[values_.size() - 1 - static_cast<std::size_t>(back)];
  }
  const graph::TensorMeta& meta(ValueId id) const { return graph_.get_meta(id); }
  std::int64_t size(ValueId id, std::size_t d) const { return meta(id).sizes()[d].get_constant(); }

  void add_input() {
    std::vector<sym::Int> sizes;
    const int first = pick(3) == 0 ? 1 : 0;
    for (std::size_t d = static_cast<std::size_t>(first); d < 3; ++d) sizes.emplace_back(pick(4) == 0 ? 1 : base_[d]);
    const DType dtype = pick(5) == 0 ? DType::Int64 : DType::Float64;
    values_.push_back(builder_.add_input(sizes, dtype));
  }

  void add(OpId op, std::initializer_list<Arg> args) {
    const auto node = builder_.try_call(op, std::span(args.begin(), args.size()));
    if (!node) return;
    for (const ValueId id : graph_.get_node(*node).outs) {
      if (id.is_valid() && graph_.get_value(id).kind == graph::ValueKind::Tensor) values_.push_back(id);
    }
  }

  bool can_broadcast(ValueId a, ValueId b) const {
    for (std::size_t i = 1; i <= std::min<std::size_t>(meta(a).rank, meta(b).rank); ++i) {
      const std::int64_t x = size(a, meta(a).rank - i);
      const std::int64_t y = size(b, meta(b).rank - i);
      if (x != y && x != 1 && y != 1) return false;
    }
    return true;
  }

  static Arg value(ValueId id) { return Arg::make_value(id); }
  Arg list(std::initializer_list<std::int64_t> numbers) {
    std::vector<sym::Int> ints(numbers.begin(), numbers.end());
    return context_->make_int_list(ints);
  }

  void add_node() {
    const ValueId a = pick_value();
    const int rank = meta(a).rank;
    const bool is_float = types::is_float(meta(a).dtype);
    switch (pick(23)) {
      case 0:
      case 1: {
        constexpr OpId kUnary[] = {OpId::neg, OpId::abs, OpId::relu, OpId::square};
        add(kUnary[pick(4)], {value(a)});
        return;
      }
      case 2:
      case 3: {
        constexpr OpId kFloat[] = {OpId::sigmoid, OpId::tanh, OpId::sin, OpId::cos};
        if (is_float) add(kFloat[pick(4)], {value(a)});
        return;
      }
      case 4:
      case 5:
      case 6:
      case 7: {
        const ValueId b = pick_value();
        if (!can_broadcast(a, b)) return;
        switch (pick(4)) {
          case 0:
            add(OpId::add_Tensor, {value(a), value(b), Arg::make_int(1)});
            return;
          case 1:
            add(OpId::sub_Tensor, {value(a), value(b), Arg::make_int(2)});
            return;
          case 2:
            add(OpId::mul_Tensor, {value(a), value(b)});
            return;
          default:
            add(OpId::maximum, {value(a), value(b)});
            return;
        }
      }
      case 8:
        if (is_float) add(OpId::mul_Tensor, {value(a), Arg::make_float(0.25).as_wrapped()});
        return;
      case 9: {
        const ValueId b = pick_value();
        if (!can_broadcast(a, b) || meta(a).dtype != meta(b).dtype) return;
        const auto node = builder_.try_call(OpId::lt_Tensor, std::vector<Arg>{value(a), value(b)});
        if (node) add(OpId::where_self, {value(graph_.get_node(*node).outs[0]), value(a), value(b)});
        return;
      }
      case 10:
        if (rank >= 2) add(OpId::transpose_int, {value(a), Arg::make_int(pick(rank)), Arg::make_int(pick(rank))});
        return;
      case 11:
        if (rank > 0) {
          const int dim = pick(rank);
          const std::int64_t end = size(a, static_cast<std::size_t>(dim));
          const std::int64_t start = pick(static_cast<int>(end));
          add(OpId::slice_Tensor,
              {value(a), Arg::make_int(dim), Arg::make_int(start), Arg::make_int(end), Arg::make_int(1 + pick(2))});
        }
        return;
      case 12:
        if (rank > 1) {
          const int dim = pick(rank);
          add(OpId::select_int, {value(a), Arg::make_int(dim),
                                 Arg::make_int(pick(static_cast<int>(size(a, static_cast<std::size_t>(dim)))))});
        }
        return;
      case 13:
        if (rank < 4) add(OpId::unsqueeze, {value(a), Arg::make_int(pick(rank + 1))});
        return;
      case 14: {  // merges or splits dims
        if (rank == 3) {
          add(OpId::view, {value(a), list({size(a, 0) * size(a, 1), size(a, 2)})});
        } else if (rank == 2 && size(a, 1) % 3 == 0) {
          add(OpId::view, {value(a), list({size(a, 0), 3, size(a, 1) / 3})});
        } else if (rank > 0) {
          add(OpId::view, {value(a), list({-1})});
        }
        return;
      }
      case 15:
        if (rank > 0) {
          std::vector<sym::Int> sizes;
          for (int d = 0; d < rank; ++d) {
            const std::int64_t old = size(a, static_cast<std::size_t>(d));
            sizes.emplace_back(old == 1 ? 1 + pick(4) : old);
          }
          add(OpId::expand, {value(a), context_->make_int_list(sizes), Arg::make_bool(false)});
        }
        return;
      case 16:
      case 17:
        if (rank > 0) {
          const Arg dims = pick(4) == 0 && rank > 1 ? list({0, rank - 1}) : list({pick(rank)});
          add(OpId::sum_dim_IntList, {value(a), dims, Arg::make_bool(pick(2) == 0), Arg::make_none()});
        }
        return;
      case 18:
        if (rank > 0 && is_float) {
          const int dim = pick(rank);
          add(OpId::amax, {value(a), list({dim}), Arg::make_bool(true)});
          const ValueId most = values_.back();
          if (most != a && can_broadcast(a, most)) add(OpId::sub_Tensor, {value(a), value(most), Arg::make_int(1)});
        }
        return;
      case 19:
        add(OpId::clone, {value(a), Arg::make_none()});
        return;
      case 20: {  // a library call
        const ValueId b = pick_value();
        if (rank == 2 && meta(b).rank == 2 && size(a, 1) == size(b, 0) && meta(a).dtype == meta(b).dtype)
          add(OpId::mm, {value(a), value(b)});
        else if (rank > 0)
          add(OpId::cat,
              {context_->make_list(std::vector<Arg>(pick(2) == 0 ? 5u : 2u, value(a))), Arg::make_int(pick(rank))});
        return;
      }
      case 21:
        if (rank > 0) add_index_select(a, pick(rank));
        return;
      default:
        add_in_place(a);
        return;
    }
  }

  // Indexes are computed, and now and then not in range.
  void add_index_select(ValueId a, int dim) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const ValueId b = pick_value();
      if (types::is_float(meta(b).dtype)) continue;
      const auto flat = builder_.try_call(OpId::view, std::vector<Arg>{value(b), list({-1})});
      if (!flat) continue;
      const Arg flat_value = value(graph_.get_node(*flat).outs[0]);
      const Arg divisor = Arg::make_int(size(a, static_cast<std::size_t>(dim)) + (pick(3) == 0 ? 1 : 0));
      const auto index = builder_.try_call(OpId::remainder_Scalar, std::vector<Arg>{flat_value, divisor});
      if (index) add(OpId::index_select, {value(a), Arg::make_int(dim), value(graph_.get_node(*index).outs[0])});
      return;
    }
  }

  // a + b in place: a new value. (The evaluator knows it too.)
  void add_in_place(ValueId a) {
    const ValueId b = pick_value();
    if (!can_broadcast(a, b) || meta(b).rank > meta(a).rank || meta(a).dtype != meta(b).dtype) return;
    for (std::size_t i = 1; i <= meta(b).rank; ++i) {
      if (size(b, meta(b).rank - i) > size(a, meta(a).rank - i)) return;
    }
    // An argument that is expanded cannot be written.
    for (std::size_t d = 0; d < meta(a).rank; ++d) {
      if (size(a, d) > 1 && meta(a).strides()[d].get_constant() == 0) return;
    }
    graph::TensorMeta fresh = context_->make_meta(meta(a).sizes(), meta(a).strides(), meta(a).dtype);
    const Arg args[] = {value(a), value(b), Arg::make_int(1)};
    const graph::Return returns[] = {graph::Return::make_single()};
    const ValueId outs[] = {ValueId()};
    const ValueId new_values[] = {graph_.add_tensor(fresh)};
    graph::Node node;
    node.op = OpId::add__Tensor;
    node.mut = 1;
    node.args = args;
    node.returns = returns;
    node.outs = outs;
    node.new_values = new_values;
    graph_.add_node(node);
    values_.push_back(new_values[0]);
  }

  void add_outputs() {
    const int count = 1 + pick(4);
    std::vector<ValueId> chosen;
    for (int i = 0; i < count; ++i) {
      const ValueId id = i == 0 ? values_.back() : pick_value();
      if (graph_.get_value(id).is_source || std::find(chosen.begin(), chosen.end(), id) != chosen.end()) continue;
      chosen.push_back(id);
      builder_.add_output(id);
    }
    // An input gets a value of its geometry.
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (pick(2) == 0) continue;
      const graph::TensorMeta& input = meta(graph_.inputs[i].value);
      for (std::size_t v = values_.size(); v-- > graph_.inputs.size();) {
        const graph::TensorMeta& other = meta(values_[v]);
        if (other.rank != input.rank || other.dtype != input.dtype ||
            !std::equal(input.sizes().begin(), input.sizes().end(), other.sizes().begin()))
          continue;
        graph_.inputs[i].is_mutated = true;
        graph_.effects.push_back({graph::EffectKind::Copy, static_cast<std::uint32_t>(i), values_[v]});
        break;
      }
    }
  }

  std::mt19937_64 random_;
  std::shared_ptr<graph::Context> context_;
  Graph graph_;
  Builder builder_;
  std::int64_t base_[3] = {1, 1, 1};
  std::vector<ValueId> values_;
};

struct Machine {
  std::unique_ptr<codegen::CpuCompiler> compiler;
  std::unique_ptr<toolchain::Linker> linker;
};

constexpr std::string_view kIndexError = "index out of range in self";

// Inputs that get their contents behind everything that may fail have the old ones.
std::string check_untouched(const Graph& graph, const std::vector<Datum>& inputs,
                            const std::vector<test::RunValue>& run_inputs) {
  std::vector<std::size_t> producers(graph.values.size(), 0);
  std::size_t last_check = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == OpId::index_select) last_check = i;
    graph::for_each_result(graph.nodes[i], [&](ValueId id) { producers[id.index()] = i; });
  }
  for (const graph::Effect& effect : graph.effects) {
    if (producers[effect.value.index()] < last_check) continue;
    const std::string text = graph::compare(test::make_datum(run_inputs[effect.input]), inputs[effect.input]);
    if (!text.empty()) return "input " + std::to_string(effect.input) + " is written: " + text;
  }
  return {};
}

// "" or how the program of these options differs from the evaluator. With a machine, kernels run as machine code.
std::string check_program(const Graph& graph, const schedule::Options& options, std::uint64_t seed, Machine* machine) {
  std::vector<Datum> inputs = graph::make_inputs(graph, seed);
  std::vector<Datum> expected_inputs = graph::clone_inputs(graph, inputs);
  const graph::Evaluation expected = graph::evaluate(graph, expected_inputs, {});
  const bool fails = expected.error.starts_with(kIndexError);
  if (!expected.error.empty() && !fails) return "the evaluator: " + expected.error;
  auto plan = schedule::make_plan(graph, options);
  if (!plan) return plan.unsupported().text;
  std::vector<test::RunValue> run_inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    run_inputs.push_back(test::make_run_value(inputs[i], graph.get_value(graph.inputs[i].value)));
  test::ProgramRunner runner(plan.value());
  runner.call_library = test::call_by_evaluator;
  std::vector<std::shared_ptr<toolchain::LoadedCode>> codes;
  if (machine != nullptr) {
    for (const kernel::Kernel& kernel : plan.value().kernels) {
      auto code = machine->compiler->compile(kernel, codegen::Tier::Full);
      if (!code) return code.unsupported().text + "\n" + kernel::print(kernel);
      auto loaded = machine->linker->load(code.value());
      if (!loaded) return loaded.unsupported().text;
      codes.push_back(loaded.value());
    }
    runner.run_kernel = [&](std::size_t code, void* const* buffers, const std::int64_t* words, std::int64_t begin,
                            std::int64_t end) { codes[code]->get_functions()[0](buffers, words, begin, end); };
  }
  const std::string error = runner.run(run_inputs);
  if (fails) {
    if (error.find(kIndexError) == std::string::npos) return "no error, or another: " + error;
    return check_untouched(graph, inputs, run_inputs);
  }
  if (!error.empty()) return error;
  const auto compare = [&](const test::RunValue& found, const Datum& wanted, const std::string& what) {
    const std::string text = graph::compare_loosely(test::make_datum(found), wanted, 1e-9);
    return text.empty() ? text : what + ": " + text + "\n" + program::print(plan.value().program);
  };
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const std::string text = compare(runner.results()[i], expected.outputs[i], "output " + std::to_string(i));
    if (!text.empty()) return text;
  }
  for (std::size_t e = 0; e < graph.effects.size(); ++e) {
    const std::uint32_t input = graph.effects[e].input;
    if (!plan.value().effect_is_done[e])
      test::copy_elements(run_inputs[input], runner.results()[graph.outputs.size() + e]);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string text = compare(run_inputs[i], expected_inputs[i], "input " + std::to_string(i));
    if (!text.empty()) return text;
  }
  return {};
}

void run_fuzz(std::uint64_t first_seed, int rounds, const schedule::Options& options, int scale = 1,
              Machine* machine = nullptr) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(round);
    const Graph graph = RandomGraph(seed).make(4 + round % 28, scale);
    std::string error;
    try {
      error = check_program(graph, options, seed, machine);
    } catch (const base::InternalError& failure) {
      error = failure.what();
    }
    if (error.empty()) continue;
    test::note_failure(__FILE__, __LINE__,
                       "seed " + std::to_string(seed) + ", " + std::to_string(4 + round % 28) + " nodes: " + error +
                           "\n" + graph::print_graph(graph) + schedule::print_groups(graph, options));
    return;
  }
}

}  // namespace

TEST("random graphs: library calls alone give what the evaluator gives") {
  run_fuzz(1, 150, {.only_extern = true, .fuse = false, .reuse_memory = true, .write_inputs = true});
}

TEST("random graphs: one kernel an op gives what the evaluator gives") {
  run_fuzz(1, 200, {.only_extern = false, .fuse = false, .reuse_memory = false, .write_inputs = false});
}

TEST("random graphs: fused kernels give what the evaluator gives") {
  run_fuzz(1, 400, {.only_extern = false, .fuse = true, .reuse_memory = false, .write_inputs = false});
}

TEST("random graphs: fused kernels with shared memory and inputs written in place give what the evaluator gives") {
  run_fuzz(1, 600, {});
  run_fuzz(100000, 3000, {});
}

TEST("random graphs of larger sizes: blocks, tiles and sums in steps give what the evaluator gives") {
  run_fuzz(700, 60, {}, 9);
}

TEST("random graphs: machine code gives what the evaluator gives") {
  if (!codegen::has_code_generator()) return;
  auto compiler = codegen::make_cpu_compiler(codegen::get_host_target());
  REQUIRE(compiler.is_ok());
  auto linker = toolchain::make_linker(test::find_reference_symbol);
  REQUIRE(linker.is_ok());
  Machine machine{std::move(compiler).value(), std::move(linker).value()};
  machine.compiler->verifies = true;
  run_fuzz(200000, 60, {}, 1, &machine);
  run_fuzz(300000, 60, {}, 9, &machine);
}

TEST("planning is near-linear in the number of nodes") {
  const auto measure = [](int count) {
    const auto context = std::make_shared<graph::Context>();
    Graph graph(context);
    Builder builder(graph);
    graph.form = graph::Form::Functional;
    ValueId x = builder.add_input({16, 16}, DType::Float32);
    const ValueId y = builder.add_input({16, 16}, DType::Float32);
    for (int i = 0; i < count; ++i)
      x = builder.call_single(OpId::add_Tensor, {Arg::make_value(x), Arg::make_value(y), Arg::make_int(1)});
    builder.add_output(x);
    const auto start = std::chrono::steady_clock::now();
    const auto plan = schedule::make_plan(graph);
    EXPECT(plan.is_ok());
    EXPECT(plan.value().kernels.size() <= 3);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  measure(1000);
  const double few = measure(2000);
  const double many = measure(16000);
  EXPECT(many < 30 * few);  // eight times the nodes
  EXPECT(many < 3.0);
}
