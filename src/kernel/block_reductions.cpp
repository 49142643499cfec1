// Long float sums in blocks.
//
// A reduction site is a reduce node with the loops between it and its accumulator, the chain. If a chain may be longer
// than the limit, the loop at which it becomes too long is stripped, and what is inside of a strip gets an accumulator
// of its own (a block), whose result is reduced into the old one:
//
//   %s = acc sum                         %s = acc sum
//   vector %j in 0 .. 100000 {           serial %b in 0 .. 100000 step 4096 {
//     reduce %s, %x                        %t = acc sum
//   }                              ->      vector %j in %b .. %b + 4096 limit 100000 {
//                                            reduce %t, %x
//                                          }
//                                          %r = result %t
//                                          reduce %s, %r
//                                        }
//
// This repeats for the old accumulator, whose chain now is the loop over blocks, until every chain is short.
#include <algorithm>

#include "kernel/prepare.h"
#include "kernel/rewrite_impl.h"

namespace reprise::kernel {
namespace {

class Blocker {
 public:
  explicit Blocker(Kernel& kernel) : kernel_(kernel), rewriter_(kernel) {}

  void run() {
    for (std::uint32_t i = 0; i < kernel_.nodes.size(); ++i) {
      const Node& node = kernel_.nodes[i];
      if (node.op != ScalarOp::Accumulator || !types::is_float(node.dtype)) continue;
      const Combine combine = Kernel::get_combine(node);
      if (combine != Combine::Sum && combine != Combine::Prod) continue;
      while (block(NodeId(i))) {
      }
    }
  }

 private:
  struct Site {
    NodeId reduce;
    std::vector<LoopId> chain;  // outermost first
  };

  static constexpr std::int64_t kAssumed = std::int64_t{1} << 26;  // iterations of a range that is not known

  // Collects the sites of an accumulator; false if there is a scan, whose order is its meaning.
  bool find_sites(NodeId accumulator, const std::vector<NodeId>& nodes, std::vector<LoopId>& chain, bool is_inside,
                  std::vector<Site>& sites) const {
    for (const NodeId id : nodes) {
      const Node& node = kernel_.get(id);
      if (id == accumulator) {
        is_inside = true;
        chain.clear();
      }
      if (node.op == ScalarOp::Loop) {
        const LoopId loop(static_cast<std::uint32_t>(node.payload));
        const std::vector<LoopId> saved = chain;
        chain.push_back(loop);
        if (!find_sites(accumulator, kernel_.get(kernel_.get(loop).body), chain, is_inside, sites)) return false;
        chain = saved;
      }
      const bool is_use = node.operand_count > 0 && node.operands[0] == accumulator;
      if (is_use && node.op == ScalarOp::Scan) return false;
      if (is_use && node.op == ScalarOp::Reduce) sites.push_back({id, chain});
    }
    return true;
  }

  std::int64_t get_limit(const Site& site) const {
    const bool is_vector = std::any_of(site.chain.begin(), site.chain.end(),
                                       [&](LoopId loop) { return kernel_.get(loop).kind == LoopKind::Vector; });
    return is_vector ? kBlockLength : kBlocksPerGroup;
  }

  std::int64_t get_trips(LoopId loop) const {
    return find_most_trips(kernel_, kernel_.get(loop)).value_or(kAssumed / kernel_.get(loop).step);
  }

  // The number of loops, from the outside, that are not inside of one block; and the iterations of those that are.
  std::size_t find_level(const Site& site, std::int64_t* inner) const {
    const std::int64_t limit = get_limit(site);
    std::size_t level = site.chain.size();
    *inner = 1;
    while (level > 0) {
      const std::int64_t trips = std::max<std::int64_t>(get_trips(site.chain[level - 1]), 1);
      if (trips > limit / *inner) break;
      *inner *= trips;
      --level;
    }
    return level;
  }

  bool block(NodeId accumulator) {
    std::vector<Site> sites;
    for (const LoopId body : kernel_.bodies) {
      std::vector<LoopId> chain;
      if (!find_sites(accumulator, kernel_.get(kernel_.get(body).body), chain, false, sites)) return false;
    }
    std::int64_t inner = 1;
    if (std::none_of(sites.begin(), sites.end(), [&](const Site& site) { return find_level(site, &inner) > 0; })) {
      return false;
    }
    for (std::size_t i = 0; i < sites.size(); ++i) {
      if (i > 0) {  // the sites before may have moved loops
        std::vector<Site> now;
        for (const LoopId body : kernel_.bodies) {
          std::vector<LoopId> chain;
          find_sites(accumulator, kernel_.get(kernel_.get(body).body), chain, false, now);
        }
        sites[i] = *std::find_if(now.begin(), now.end(), [&](const Site& s) { return s.reduce == sites[i].reduce; });
      }
      block_site(accumulator, sites[i]);
    }
    return true;
  }

  void block_site(NodeId accumulator, const Site& site) {
    if (site.chain.empty()) return;
    std::int64_t inner = 1;
    const std::size_t level = find_level(site, &inner);
    const std::int64_t length = get_limit(site) / inner;
    LoopId wrapped;
    if (level == 0) {
      wrapped = site.chain[0];
    } else if (level < site.chain.size() && length <= 1) {
      wrapped = site.chain[level];
    } else {
      wrapped = site.chain[level - 1];
      std::size_t position = 0;
      const RegionId region = find_region(wrapped, &position);
      rewriter_.strip_loop(region, position, length);
    }
    wrap(accumulator, site.reduce, wrapped);
  }

  RegionId find_region(LoopId loop, std::size_t* position) const {
    for (std::uint32_t i = 0; i < kernel_.regions.size(); ++i) {
      const std::vector<NodeId>& nodes = kernel_.regions[i];
      for (std::size_t k = 0; k < nodes.size(); ++k) {
        const Node& node = kernel_.get(nodes[k]);
        if (node.op != ScalarOp::Loop || node.payload != loop.index()) continue;
        *position = k;
        return RegionId(i);
      }
    }
    REPRISE_UNREACHABLE("a loop in no region");
  }

  void wrap(NodeId accumulator, NodeId reduce, LoopId loop) {
    const DType dtype = kernel_.get(accumulator).dtype;
    const NodeId part = rewriter_.add_node(ScalarOp::Accumulator, dtype, {}, kernel_.get(accumulator).payload);
    const NodeId result = rewriter_.add_node(ScalarOp::Result, dtype, {part});
    const NodeId joined = rewriter_.add_node(ScalarOp::Reduce, dtype, {accumulator, result});
    kernel_.get(reduce).operands[0] = part;
    std::size_t position = 0;
    std::vector<NodeId>& nodes = kernel_.get(find_region(loop, &position));
    const auto at = nodes.begin() + static_cast<std::ptrdiff_t>(position);
    nodes.insert(nodes.insert(at, part) + 2, {result, joined});
  }

  Kernel& kernel_;
  Rewriter rewriter_;
};

}  // namespace

void block_reductions(Kernel& kernel) { Blocker(kernel).run(); }

}  // namespace reprise::kernel
