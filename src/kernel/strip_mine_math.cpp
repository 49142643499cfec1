// MKL's functions over arrays: a vector loop is cut where it needs one.
//
//   vector %j in 0 .. 2000 {               serial %s in 0 .. 2000 step 512 {
//     %x = load b0[%j]                       vector %j in %s .. %s + 512 limit 2000 {
//     %y = log.mkl %x                          %x = load b0[%j]
//     store b1[%j], %y                 ->      store b2[%j - %s], %x
//   }                                        }
//                                            vector_call b2, log.mkl b2, min(512, 2000 - %s)
//                                            vector %k in %s .. %s + 512 limit 2000 {
//                                              %y = load b2[%k - %s]
//                                              store b1[%k], %y
//                                            }
//                                          }
//
// Every node of the loop gets a stage: one more than that of a function whose result it needs, and no less than that of
// memory accesses that it must not overtake. Stages become loops; values that cross from one to another go through
// Local arrays. Loops that hold loops or lane-wise accumulators are left alone (code generators call the function for
// one lane set there), as are those whose arrays would be too large.
#include <algorithm>

#include "kernel/prepare.h"
#include "kernel/rewrite_impl.h"

namespace reprise::kernel {
namespace {

class StripMiner {
 public:
  explicit StripMiner(Kernel& kernel)
      : kernel_(kernel), rewriter_(kernel), analysis_(kernel), stages_(kernel.nodes.size(), kNotHere) {}

  void run() {
    for (const LoopId body : std::vector<LoopId>(kernel_.bodies)) visit(kernel_.get(body).body);
  }

 private:
  static constexpr int kNotHere = -1;

  // A region's nodes may move while we look at them: loops are found first.
  void visit(RegionId region) {
    std::vector<LoopId> loops;
    for (const NodeId id : kernel_.get(region)) {
      const Node& node = kernel_.get(id);
      if (node.op == ScalarOp::Loop) loops.push_back(LoopId(static_cast<std::uint32_t>(node.payload)));
    }
    for (const LoopId id : loops) {
      const LoopKind kind = kernel_.get(id).kind;
      if (kind == LoopKind::Vector) {
        rewrite(region, id);
      } else if (kind != LoopKind::TileRows) {
        visit(kernel_.get(id).body);
      }
    }
  }

  bool is_cut(NodeId id) const {
    const Node& node = kernel_.get(id);
    return node.op == ScalarOp::Math && Kernel::get_numerics(node) == Numerics::Mkl &&
           !get_row(Kernel::get_math_function(node)).mkl.empty() && analysis_.is_varying(id);
  }

  const Affine* find_affine(const Node& node) const {
    if (node.op == ScalarOp::Load || node.op == ScalarOp::Store) return &kernel_.get(kernel_.get_access(node).index);
    if (node.op == ScalarOp::Index) return &kernel_.get(IndexId(static_cast<std::uint32_t>(node.payload)));
    return nullptr;
  }

  template <class Visit>
  void visit_inputs(const Node& node, Visit visit) const {
    for (int i = 0; i < node.operand_count; ++i) visit(node.operands[i]);
    if (const Affine* affine = find_affine(node)) {
      for (const Term& term : affine->terms()) visit(term.value);
    }
  }

  // The number of stages; 1 where nothing is to be cut.
  int assign_stages(const std::vector<NodeId>& nodes) {
    int most = 0;
    int read_stage = 0;     // no store may come before these
    int written_stage = 0;  // no access may
    for (const NodeId id : nodes) {
      const Node& node = kernel_.get(id);
      int stage = 0;
      visit_inputs(node, [&](ValueId input) {
        const int before = input.index() < stages_.size() ? stages_[input.index()] : kNotHere;
        if (before != kNotHere) stage = std::max(stage, before + (is_cut(input) ? 1 : 0));
      });
      if (node.op == ScalarOp::Load) {
        stage = std::max(stage, written_stage);
        read_stage = std::max(read_stage, stage);
      } else if (node.op == ScalarOp::Store) {
        stage = std::max({stage, read_stage, written_stage});
        written_stage = stage;
      }
      stages_[id.index()] = stage;
      most = std::max(most, stage + (is_cut(id) ? 1 : 0));
    }
    return most + 1;
  }

  void rewrite(RegionId region, LoopId id) {
    const std::vector<NodeId> nodes = kernel_.get(kernel_.get(id).body);
    for (const NodeId node : nodes) {
      const ScalarOp op = kernel_.get(node).op;
      if (op == ScalarOp::Loop || op == ScalarOp::Accumulator) return;
    }
    if (std::none_of(nodes.begin(), nodes.end(), [&](NodeId node) { return is_cut(node); })) return;
    const int stage_count = assign_stages(nodes);

    // Values that cross: read in a later stage than they are made in; what a function reads crosses, too.
    std::vector<NodeId> crossing;
    std::vector<bool> crosses(stages_.size(), false);
    const auto let_cross = [&](NodeId value) {
      if (crosses[value.index()]) return;
      crosses[value.index()] = true;
      crossing.push_back(value);
    };
    for (const NodeId node : nodes) {
      visit_inputs(kernel_.get(node), [&](ValueId input) {
        if (input.index() >= stages_.size() || stages_[input.index()] == kNotHere) return;
        if (!is_cut(input) && (stages_[node.index()] > stages_[input.index()])) let_cross(input);
      });
      if (is_cut(node)) let_cross(node);
    }
    const auto trips = find_most_trips(kernel_, kernel_.get(id));
    const std::int64_t length = std::min(kStripLength, trips.value_or(kStripLength));
    std::int64_t bytes = 0;
    for (const Buffer& buffer : kernel_.buffers) {
      if (buffer.kind == BufferKind::Local) bytes += buffer.count * get_size(buffer.dtype);
    }
    for (const NodeId value : crossing) bytes += length * get_size(kernel_.get(value).dtype);
    if (bytes <= kMaxLocalBytes && length > 0) cut(region, id, nodes, crossing, stage_count, length, trips);
    for (const NodeId node : nodes) stages_[node.index()] = kNotHere;
  }

  static std::int64_t get_size(DType dtype) { return static_cast<std::int64_t>(types::get_size_bytes(dtype)); }

  void cut(RegionId region, LoopId id, const std::vector<NodeId>& nodes, const std::vector<NodeId>& crossing,
           int stage_count, std::int64_t length, std::optional<std::int64_t> trips) {
    std::size_t position = find_position(region, id);
    if (!trips || *trips > length) {
      region = rewriter_.strip_loop(region, position, length);
      position = 0;
    }
    const Loop loop = kernel_.get(id);
    const Affine lower = kernel_.get(loop.lower);
    std::vector<NodeId> sequence;  // takes the place of the loop
    const Affine count = make_count(loop, sequence);

    std::vector<BufferId> arrays(kernel_.nodes.size());
    for (const NodeId value : crossing) {
      arrays[value.index()] = rewriter_.add_local(kernel_.get(value).dtype, length);
    }
    for (int stage = 0; stage < stage_count; ++stage) {
      LoopId stage_loop = id;
      if (stage > 0) {
        Loop copy = loop;
        copy.body = rewriter_.add_region();
        stage_loop = rewriter_.add_loop(copy);
      }
      const ValueId var = kernel_.get(stage_loop).var;
      const IndexId place = rewriter_.add_index(Affine(var) - lower);
      std::vector<NodeId> body;
      std::vector<NodeId> loaded(arrays.size());  // by value: its load in this stage
      const auto get_value = [&](ValueId value) {
        if (value == loop.var) return var;
        if (value.index() >= arrays.size() || !arrays[value.index()].is_valid()) return value;
        if (!is_cut(value) && stages_[value.index()] == stage) return value;
        NodeId& load = loaded[value.index()];
        if (!load.is_valid()) {
          load = add_access(ScalarOp::Load, arrays[value.index()], place, {});
          body.push_back(load);
        }
        return load;
      };
      std::vector<NodeId> calls;
      for (const NodeId node : nodes) {
        if (stages_[node.index()] != stage) continue;
        if (is_cut(node)) {
          const Node function = kernel_.get(node);
          const BufferId array = arrays[node.index()];
          body.push_back(add_access(ScalarOp::Store, array, place, get_value(function.operands[0])));
          kernel_.calls.push_back(
              {Kernel::get_math_function(function), Numerics::Mkl, array, array, rewriter_.add_index(count)});
          calls.push_back(rewriter_.add_node(ScalarOp::VectorCall, function.dtype, {}, kernel_.calls.size() - 1));
          continue;
        }
        replace_inputs(node, get_value);
        body.push_back(node);
        if (arrays[node.index()].is_valid()) {
          body.push_back(add_access(ScalarOp::Store, arrays[node.index()], place, node));
        }
      }
      kernel_.get(kernel_.get(stage_loop).body) = body;
      if (!body.empty()) sequence.push_back(rewriter_.add_loop_node(stage_loop));
      sequence.insert(sequence.end(), calls.begin(), calls.end());
    }
    std::vector<NodeId>& target = kernel_.get(region);
    const auto at = target.erase(target.begin() + static_cast<std::ptrdiff_t>(position));
    target.insert(at, sequence.begin(), sequence.end());
  }

  std::size_t find_position(RegionId region, LoopId loop) const {
    const std::vector<NodeId>& nodes = kernel_.get(region);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = kernel_.get(nodes[i]);
      if (node.op == ScalarOp::Loop && node.payload == loop.index()) return i;
    }
    REPRISE_UNREACHABLE("a loop outside of its region");
  }

  // The number of iterations of a loop that is not longer than a strip.
  Affine make_count(const Loop& loop, std::vector<NodeId>& nodes) {
    const Affine whole = kernel_.get(loop.upper) - kernel_.get(loop.lower);
    if (!loop.limit.is_valid()) return whole;
    const ValueId length = rewriter_.add_value(whole, nodes);
    const ValueId rest = rewriter_.add_value(kernel_.get(loop.limit) - kernel_.get(loop.lower), nodes);
    const ValueId least = rewriter_.add_node(ScalarOp::Min, DType::Int64, {length, rest});
    nodes.push_back(least);
    const ValueId zero = rewriter_.add_constant(DType::Int64, 0);
    nodes.push_back(rewriter_.add_node(ScalarOp::Max, DType::Int64, {least, zero}));
    return nodes.back();
  }

  NodeId add_access(ScalarOp op, BufferId array, IndexId index, ValueId value) {
    const DType dtype = kernel_.get(array).dtype;
    kernel_.accesses.push_back({array, index, StoreMode::Set});
    const std::uint64_t access = kernel_.accesses.size() - 1;
    return op == ScalarOp::Load ? rewriter_.add_node(op, dtype, {}, access)
                                : rewriter_.add_node(op, dtype, {value}, access);
  }

  template <class GetValue>
  void replace_inputs(NodeId id, GetValue get_value) {
    for (int i = 0; i < kernel_.get(id).operand_count; ++i) {
      const ValueId value = get_value(kernel_.get(id).operands[i]);
      kernel_.get(id).operands[i] = value;
    }
    const Affine* old = find_affine(kernel_.get(id));
    if (old == nullptr) return;
    Affine replaced(old->constant());
    const std::vector<Term> terms(old->terms().begin(), old->terms().end());
    for (const Term& term : terms) replaced += Affine(get_value(term.value)) * term.coefficient;
    const IndexId index = rewriter_.add_index(replaced);
    Node& node = kernel_.get(id);
    if (node.op == ScalarOp::Index) {
      node.payload = index.index();
    } else {
      kernel_.accesses[node.payload].index = index;
    }
  }

  Kernel& kernel_;
  Rewriter rewriter_;
  Analysis analysis_;
  std::vector<int> stages_;  // of the loop at hand; by node
};

}  // namespace

void strip_mine_math(Kernel& kernel) { StripMiner(kernel).run(); }

}  // namespace reprise::kernel
