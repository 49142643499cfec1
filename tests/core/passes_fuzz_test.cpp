// Random graphs: what passes make of them computes the same, by the reference evaluator. FUZZ_SEED=n runs one seed,
// FUZZ_ROUNDS=n that many.
#include <cstdlib>
#include <random>

#include "graph/builder.h"
#include "graph/evaluate.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "passes/partition.h"
#include "passes/pipeline.h"
#include "test.h"

using namespace reprise;
using namespace reprise::graph;
using types::DType;

namespace {

class Fuzzer {
 public:
  Fuzzer(Graph& graph, std::uint64_t seed) : graph_(graph), builder_(graph), random_(seed) {}

  std::uint32_t pick(std::uint32_t count) { return static_cast<std::uint32_t>(random_() % count); }
  Builder& builder() { return builder_; }

  void add_inputs() {
    const std::int64_t sizes[][2] = {{4, 6}, {2, 3}, {6, 4}, {3, 3}};
    for (int i = 0; i < 3; ++i) {
      const auto& size = sizes[pick(4)];
      values_.push_back(builder_.add_input({size[0], size[1]}, pick(4) == 0 ? DType::Int64 : DType::Float32));
    }
    values_.push_back(builder_.add_input({6}, DType::Float32));
    if (pick(4) == 0) {  // on the memory of input 0
      const TensorMeta base = graph_.get_meta(values_[0]);
      const sym::Int part[] = {3, 2};
      const sym::Int strides[] = {2, 1};
      const TensorMeta meta = graph_.context->make_meta(part, strides, base.dtype, {},
                                                        base.sizes()[0] == sym::Int(2) ? 0 : 3, base.storage);
      if (base.sizes()[0] != sym::Int(2) && base.sizes()[0] != sym::Int(3))
        values_.push_back(graph_.add_input(InputKind::Plain, meta));
    }
  }

  ValueId pick_value() { return values_[pick(static_cast<std::uint32_t>(values_.size()))]; }
  Arg pick_tensor() { return Arg::make_value(pick_value()); }
  const std::vector<ValueId>& values() const { return values_; }
  void add_value(ValueId id) { values_.push_back(id); }

  bool is_small(ValueId id) {
    std::int64_t numel = 1;
    for (const sym::Int size : graph_.get_meta(id).sizes()) numel *= size.get_constant();
    return numel <= 96 && graph_.get_meta(id).rank <= 4;
  }
  bool is_float(ValueId id) { return types::is_float(graph_.get_meta(id).dtype); }
  bool is_repeated(ValueId id) {
    const TensorMeta& meta = graph_.get_meta(id);
    for (std::size_t i = 0; i < meta.rank; ++i) {
      if (meta.strides()[i] == sym::Int(0) && meta.sizes()[i] != sym::Int(1)) return true;
    }
    return false;
  }

  void call(OpId op, std::vector<Arg> args) {
    const auto node = builder_.try_call(op, args);
    if (!node) return;
    for (const ValueId out : graph_.get_node(*node).outs) {
      if (out.is_valid() && is_small(out)) values_.push_back(out);
    }
  }

  void add_view() {
    const ValueId x = pick_value();
    const std::int64_t rank = graph_.get_meta(x).rank;
    const std::int64_t dim = rank == 0 ? 0 : pick(static_cast<std::uint32_t>(rank));
    const Arg self = Arg::make_value(x);
    const auto size_of = [&](std::int64_t d) {
      return graph_.get_meta(x).sizes()[static_cast<std::size_t>(d)].get_constant();
    };
    switch (pick(17)) {
      case 0:
        return call(OpId::t, {self});
      case 1:
        if (rank > 1) call(OpId::transpose_int, {self, Arg::make_int(0), Arg::make_int(-1)});
        return;
      case 2: {
        if (rank == 0) return;
        const std::int64_t start = pick(static_cast<std::uint32_t>(size_of(dim)) + 1);
        return call(OpId::slice_Tensor, {self, Arg::make_int(dim), Arg::make_int(start), Arg::make_int(start + pick(4)),
                                         Arg::make_int(1 + pick(2))});
      }
      case 3:
        if (rank > 0 && size_of(dim) > 0)
          call(OpId::select_int,
               {self, Arg::make_int(dim), Arg::make_int(pick(static_cast<std::uint32_t>(size_of(dim))))});
        return;
      case 4:
        return call(OpId::view, {self, ints({-1})});
      case 5:
        return call(OpId::view, {self, ints({2, -1})});
      case 6:
        return call(OpId::unsqueeze, {self, Arg::make_int(-1)});
      case 7:
        return call(OpId::squeeze, {self});
      case 8: {
        std::vector<std::int64_t> sizes = {2};
        for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(-1);
        return call(OpId::expand, {self, ints(sizes), Arg::make_bool(false)});
      }
      case 9:
        return call(OpId::split_Tensor, {self, Arg::make_int(2), Arg::make_int(dim)});
      case 10:
        return call(OpId::unbind_int, {self, Arg::make_int(dim)});
      case 11:
        if (rank > 1)
          call(OpId::diagonal,
               {self, Arg::make_int(static_cast<std::int64_t>(pick(3)) - 1), Arg::make_int(0), Arg::make_int(1)});
        return;
      case 12:
        return call(pick(2) == 0 ? OpId::detach : OpId::alias, {self});
      case 13:
        if (rank == 3) call(OpId::permute, {self, ints({2, 0, 1})});
        return;
      case 14: {
        const std::int64_t offset = graph_.get_meta(x).offset.get_constant();
        const bool is_whole = rank == 2 && graph_.get_meta(x).sizes()[0].get_constant() * size_of(1) >= 6;
        if (is_whole) call(OpId::as_strided, {self, ints({2, 2}), ints({1, 2}), Arg::make_int(offset + pick(2))});
        return;
      }
      case 15:
        if (rank > 0 && size_of(dim) == 6) call(OpId::split_with_sizes, {self, ints({1, 3, 2}), Arg::make_int(dim)});
        return;
      case 16:
        return call(pick(2) == 0 ? OpId::t_ : OpId::squeeze_, {self});
    }
  }

  Arg ints(const std::vector<std::int64_t>& numbers) {
    std::vector<sym::Int> list(numbers.begin(), numbers.end());
    return graph_.context->make_int_list(list);
  }

  void add_pure() {
    const Arg a = pick_tensor();
    switch (pick(17)) {
      case 0:
        return call(OpId::add_Tensor, {a, pick_tensor(), Arg::make_int(1)});
      case 1:
        return call(OpId::mul_Tensor, {a, pick_tensor()});
      case 2:
        return call(OpId::maximum, {a, pick_tensor()});
      case 3:
        return call(OpId::neg, {a});
      case 4:
        return call(OpId::relu, {a});
      case 5:
        return call(OpId::mul_Scalar, {a, pick(3) == 0 ? Arg::make_int(1) : Arg::make_float(0.5)});
      case 6:
        return call(OpId::clone, {a, Arg::make_none()});
      case 7:
        return call(OpId::sum_dim_IntList, {a, ints({-1}), Arg::make_bool(pick(2) == 0), Arg::make_none()});
      case 8:
        return call(OpId::cat, {graph_.context->make_list(std::vector<Arg>{a, a}), Arg::make_int(0)});
      case 9:
        return call(OpId::add_Scalar, {a, pick(2) == 0 ? Arg::make_int(0) : Arg::make_float(1.5), Arg::make_int(1)});
      case 10:
        return call(OpId::zeros_like, {a, {}, {}, {}, {}, {}});
      case 11:
        return call(OpId::gt_Scalar, {a, Arg::make_int(0)});
      case 12:
        return call(OpId::rand_like, {a, Arg::make_dtype(DType::Float32), {}, {}, {}, {}});
      case 13:
        return call(OpId::stack, {graph_.context->make_list(std::vector<Arg>{a, a}), Arg::make_int(-1)});
      case 14:
        return call(OpId::rsub_Scalar, {a, Arg::make_float(1.5), Arg::make_int(1)});
      case 15:
        return call(OpId::select_backward, {a, with_one_more(a), Arg::make_int(0), Arg::make_int(1)});
      case 16:
        return call(OpId::_foreach_mul_Scalar,
                    {graph_.context->make_list(std::vector<Arg>{a, pick_tensor()}), Arg::make_float(0.5)});
    }
  }

  Arg with_one_more(const Arg& tensor) {
    std::vector<std::int64_t> sizes = {3};
    for (const sym::Int size : graph_.get_meta(tensor.get_value()).sizes()) sizes.push_back(size.get_constant());
    return ints(sizes);
  }

  void add_in_place() {
    const ValueId x = pick_value();
    if (is_repeated(x) || graph_.get_meta(x).dtype == DType::Bool) return;
    const Arg self = Arg::make_value(x);
    const ValueId other = pick_value();
    const bool fits = can_broadcast(other, x) && (is_float(x) || !is_float(other));
    switch (pick(9)) {
      case 0:
        if (fits) call(OpId::add__Tensor, {self, Arg::make_value(other), Arg::make_int(1)});
        return;
      case 1:
        if (fits) call(OpId::mul__Tensor, {self, Arg::make_value(other)});
        return;
      case 2:
        if (can_broadcast(other, x)) call(OpId::copy_, {self, Arg::make_value(other), Arg::make_bool(false)});
        return;
      case 3:
        return call(OpId::zero_, {self});
      case 4:
        return call(OpId::fill__Scalar, {self, Arg::make_int(3)});
      case 5:
        return call(OpId::relu_, {self});
      case 6:
        return call(OpId::neg_, {self});
      case 7:
        if (is_float(x)) call(OpId::bernoulli__float, {self, Arg::make_float(0.5), Arg::make_none()});
        return;
      case 8:
        if (is_float(x))
          call(OpId::_foreach_add__Scalar, {graph_.context->make_list(std::vector<Arg>{self}), Arg::make_float(0.25)});
        return;
    }
  }

  bool can_broadcast(ValueId from, ValueId to) {
    const TensorMeta& a = graph_.get_meta(from);
    const TensorMeta& b = graph_.get_meta(to);
    if (a.rank > b.rank) return false;
    for (std::size_t i = 0; i < a.rank; ++i) {
      const sym::Int size = a.sizes()[i];
      if (size != sym::Int(1) && size != b.sizes()[b.rank - a.rank + i]) return false;
    }
    return true;
  }

 private:
  Graph& graph_;
  Builder builder_;
  std::mt19937_64 random_;
  std::vector<ValueId> values_;
};

std::string compare_all(const std::vector<Datum>& a, const std::vector<Datum>& b, const char* what) {
  if (a.size() != b.size()) return std::string(what) + ": other counts";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (const std::string text = compare(a[i], b[i]); !text.empty())
      return std::string(what) + " " + std::to_string(i) + ": " + text;
  }
  return "";
}

// "" or what is wrong.
std::string check_seed(std::uint64_t seed, int& refused) {
  Graph graph(std::make_shared<Context>());
  Fuzzer fuzzer(graph, seed);
  fuzzer.add_inputs();
  const int steps = 4 + static_cast<int>(fuzzer.pick(20));
  for (int i = 0; i < steps; ++i) {
    const std::uint32_t kind = fuzzer.pick(10);
    if (kind < 4) {
      fuzzer.add_view();
    } else if (kind < 7) {
      fuzzer.add_in_place();
    } else {
      fuzzer.add_pure();
    }
  }
  const std::uint32_t output_count = 1 + fuzzer.pick(4);
  for (std::uint32_t i = 0; i < output_count; ++i) fuzzer.builder().add_output(fuzzer.pick_value());
  if (const std::string error = find_graph_error(graph); !error.empty()) return "recorded: " + error;

  const std::string before = print_graph(graph);
  const std::vector<Datum> inputs = make_inputs(graph, seed);
  std::vector<Datum> eager_inputs = clone_inputs(graph, inputs);
  const Evaluation eager = evaluate(graph, eager_inputs, {});
  if (!eager.error.empty()) return eager.error + "\n" + before;
  for (const passes::PassInfo& pass : passes::get_passes()) {
    if (pass.run(graph)) {
      ++refused;
      return "";
    }
    const std::string where = "after " + std::string(pass.name) + ":\n" + print_graph(graph) + "recorded:\n" + before;
    if (const std::string error = find_graph_error(graph); !error.empty()) return error + "\n" + where;
    std::vector<Datum> pass_inputs = clone_inputs(graph, inputs);
    const Evaluation found = evaluate(graph, pass_inputs, {});
    if (!found.error.empty()) return found.error + "\n" + where;
    std::string difference = compare_all(eager.outputs, found.outputs, "output");
    if (difference.empty()) difference = compare_all(eager_inputs, pass_inputs, "input");
    if (difference.empty() && eager.draw_count != found.draw_count) difference = "another count of random draws";
    if (!difference.empty()) return difference + "\n" + where;
  }
  return "";
}

// A functional joint graph of random nodes in both phases.
std::string check_partition(std::uint64_t seed) {
  Graph graph(std::make_shared<Context>());
  graph.form = Form::Functional;
  Fuzzer fuzzer(graph, seed);
  fuzzer.add_inputs();
  const auto add_nodes = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      if (fuzzer.pick(3) == 0) {
        fuzzer.add_view();
      } else {
        fuzzer.add_pure();
      }
    }
  };
  add_nodes(3 + static_cast<int>(fuzzer.pick(12)));
  const auto add_root = [&](std::vector<ValueId>& chosen) {
    const ValueId id = fuzzer.pick_value();
    if (!graph.get_value(id).is_source) chosen.push_back(id);
  };
  std::vector<ValueId> outputs, gradients;
  for (int i = 0; i < 2; ++i) add_root(outputs);
  for (const ValueId id : outputs) {
    const TensorMeta meta = graph.get_meta(id);
    graph.outputs.push_back({OutputKind::Value, id, 0, meta});
    fuzzer.add_value(graph.add_input(InputKind::Tangent, graph.context->make_meta(meta.sizes(), meta.dtype)));
  }
  fuzzer.builder().phase = Phase::Backward;
  add_nodes(3 + static_cast<int>(fuzzer.pick(12)));
  for (int i = 0; i < 3; ++i) add_root(gradients);
  for (const ValueId id : gradients) graph.gradients.push_back({id, 0});
  if (const std::string error = find_graph_error(graph); !error.empty()) return "joint: " + error;

  const std::vector<Datum> inputs = make_inputs(graph, seed);
  std::vector<Datum> joint_inputs = clone_inputs(graph, inputs);
  const Evaluation joint = evaluate(graph, joint_inputs, {});
  if (!joint.error.empty()) return joint.error;
  for (const passes::PartitionMode mode : {passes::PartitionMode::Default, passes::PartitionMode::MinCut}) {
    passes::PartitionOptions options;
    options.mode = mode;
    const passes::Partition parts = passes::partition_graph(graph, options);
    const std::string where = std::string(mode == passes::PartitionMode::MinCut ? "min cut" : "default") + "\n" +
                              print_graph(graph) + print_graph(parts.forward) + print_graph(parts.backward);
    for (const Graph* part : {&parts.forward, &parts.backward}) {
      if (const std::string error = find_graph_error(*part); !error.empty()) return error + "\n" + where;
    }
    std::vector<Datum> forward_inputs, backward_inputs;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      if (graph.inputs[i].kind != InputKind::Tangent) forward_inputs.push_back(inputs[i]);
    }
    const Evaluation forward = evaluate(parts.forward, forward_inputs, {});
    if (!forward.error.empty()) return forward.error + "\n" + where;
    for (const Datum& datum : forward.saved) backward_inputs.push_back(datum);
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      if (graph.inputs[i].kind == InputKind::Tangent) backward_inputs.push_back(inputs[i]);
    }
    const Evaluation backward = evaluate(parts.backward, backward_inputs, {}, forward.draw_count);
    if (!backward.error.empty()) return backward.error + "\n" + where;
    std::string difference = compare_all(joint.outputs, forward.outputs, "output");
    if (difference.empty()) difference = compare_all(joint.gradients, backward.gradients, "gradient");
    if (!difference.empty()) return difference + "\n" + where;
  }
  return "";
}

int get_rounds(int otherwise) {
  const char* text = std::getenv("FUZZ_ROUNDS");
  return text != nullptr ? std::atoi(text) : otherwise;
}

std::uint64_t get_first_seed() {
  const char* text = std::getenv("FUZZ_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

}  // namespace

TEST("fuzz: passes keep what random graphs with views and writes compute") {
  int refused = 0;
  const int rounds = get_rounds(400);
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t seed = get_first_seed() + static_cast<std::uint64_t>(i);
    if (const std::string error = check_seed(seed, refused); !error.empty()) {
      test::note_failure(__FILE__, __LINE__, "seed " + std::to_string(seed) + ": " + error);
      return;
    }
  }
  EXPECT(refused <= rounds / 10);
}

TEST("fuzz: forward and backward parts compute what the joint graph does") {
  const int rounds = get_rounds(400);
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t seed = get_first_seed() + static_cast<std::uint64_t>(i);
    if (const std::string error = check_partition(seed); !error.empty()) {
      test::note_failure(__FILE__, __LINE__, "seed " + std::to_string(seed) + ": " + error);
      return;
    }
  }
}
