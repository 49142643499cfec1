// Maximum flow by Dinic's algorithm (E. A. Dinic, 1970): level graphs and blocking flows, without recursion.
//
// Vertices are numbers; edges have capacities. find_source_side() after run() says which vertices a minimum cut leaves
// on the side of the source. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/export.h"

namespace reprise::passes {

class REPRISE_EXPORT MaxFlow {
 public:
  static constexpr std::int64_t kInfinite = std::int64_t{1} << 60;

  explicit MaxFlow(std::uint32_t vertex_count);

  void add_edge(std::uint32_t from, std::uint32_t to, std::int64_t capacity);
  std::int64_t run(std::uint32_t source, std::uint32_t sink);
  std::vector<bool> find_source_side(std::uint32_t source) const;

 private:
  struct Edge {
    std::uint32_t to;
    std::uint32_t next;  // of the same vertex; kNone: the last
    std::int64_t capacity;
  };
  static constexpr std::uint32_t kNone = 0xffffffffu;

  bool find_levels(std::uint32_t source, std::uint32_t sink);
  std::int64_t push_path(std::uint32_t source, std::uint32_t sink);

  std::vector<Edge> edges_;           // edge e and its reverse e ^ 1
  std::vector<std::uint32_t> first_;  // by vertex
  std::vector<std::uint32_t> next_;   // where the search goes on, by vertex
  std::vector<std::int32_t> level_;
  std::vector<std::uint32_t> path_;  // edges
  std::vector<std::uint32_t> queue_;
};

}  // namespace reprise::passes
