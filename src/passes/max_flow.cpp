#include "passes/max_flow.h"

#include <algorithm>

namespace reprise::passes {

MaxFlow::MaxFlow(std::uint32_t vertex_count) : first_(vertex_count, kNone), level_(vertex_count, -1) {}

void MaxFlow::add_edge(std::uint32_t from, std::uint32_t to, std::int64_t capacity) {
  edges_.push_back({to, first_[from], capacity});
  first_[from] = static_cast<std::uint32_t>(edges_.size() - 1);
  edges_.push_back({from, first_[to], 0});
  first_[to] = static_cast<std::uint32_t>(edges_.size() - 1);
}

bool MaxFlow::find_levels(std::uint32_t source, std::uint32_t sink) {
  std::fill(level_.begin(), level_.end(), -1);
  queue_.assign(1, source);
  level_[source] = 0;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const std::uint32_t at = queue_[head];
    for (std::uint32_t e = first_[at]; e != kNone; e = edges_[e].next) {
      if (edges_[e].capacity == 0 || level_[edges_[e].to] >= 0) continue;
      level_[edges_[e].to] = level_[at] + 1;
      queue_.push_back(edges_[e].to);
    }
  }
  return level_[sink] >= 0;
}

// One path of the level graph; 0: there is none any more.
std::int64_t MaxFlow::push_path(std::uint32_t source, std::uint32_t sink) {
  path_.clear();
  std::uint32_t at = source;
  while (at != sink) {
    std::uint32_t& e = next_[at];
    while (e != kNone && (edges_[e].capacity == 0 || level_[edges_[e].to] != level_[at] + 1)) e = edges_[e].next;
    if (e != kNone) {
      path_.push_back(e);
      at = edges_[e].to;
    } else if (at == source) {
      return 0;
    } else {  // a dead end: back, and past the edge that led here
      at = edges_[path_.back() ^ 1].to;
      path_.pop_back();
      next_[at] = edges_[next_[at]].next;
    }
  }
  std::int64_t flow = kInfinite;
  for (const std::uint32_t e : path_) flow = std::min(flow, edges_[e].capacity);
  for (const std::uint32_t e : path_) {
    edges_[e].capacity -= flow;
    edges_[e ^ 1].capacity += flow;
  }
  return flow;
}

std::int64_t MaxFlow::run(std::uint32_t source, std::uint32_t sink) {
  std::int64_t total = 0;
  while (find_levels(source, sink)) {
    next_ = first_;
    while (const std::int64_t flow = push_path(source, sink)) total += flow;
  }
  return total;
}

std::vector<bool> MaxFlow::find_source_side(std::uint32_t source) const {
  std::vector<bool> is_reached(first_.size(), false);
  std::vector<std::uint32_t> stack = {source};
  is_reached[source] = true;
  while (!stack.empty()) {
    const std::uint32_t at = stack.back();
    stack.pop_back();
    for (std::uint32_t e = first_[at]; e != kNone; e = edges_[e].next) {
      if (edges_[e].capacity == 0 || is_reached[edges_[e].to]) continue;
      is_reached[edges_[e].to] = true;
      stack.push_back(edges_[e].to);
    }
  }
  return is_reached;
}

}  // namespace reprise::passes
