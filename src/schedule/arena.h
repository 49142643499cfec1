// Offsets in one block of memory for intervals of time: best fit among the free ranges, ranges are joined again.
//
// allocate() in order of the starts, release() at the ends; what is released at a time may be given again at the next
// time only (the caller allocates before it releases). O(log n) a call. Deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "program/program.h"

namespace reprise::schedule {

class Arena {
 public:
  std::int64_t allocate(std::int64_t size_bytes) {
    const std::int64_t size = round_up(size_bytes);
    const auto found = by_size_.lower_bound({size, 0});
    std::int64_t offset = 0;
    if (found != by_size_.end()) {
      offset = found->second;
      const std::int64_t free_bytes = found->first;
      erase(offset, free_bytes);
      if (free_bytes > size) insert(offset + size, free_bytes - size);
      return offset;
    }
    offset = end_;
    if (!by_offset_.empty()) {  // the free range at the end grows
      const auto [last_offset, last_bytes] = *by_offset_.rbegin();
      if (last_offset + last_bytes == end_) {
        offset = last_offset;
        erase(last_offset, last_bytes);
      }
    }
    end_ = offset + size;
    return offset;
  }

  void release(std::int64_t offset, std::int64_t size_bytes) {
    std::int64_t size = round_up(size_bytes);
    const auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [before, bytes] = *std::prev(next);
      if (before + bytes == offset) {
        erase(before, bytes);
        offset = before;
        size += bytes;
      }
    }
    if (const auto behind = by_offset_.find(offset + size); behind != by_offset_.end()) {
      const std::int64_t bytes = behind->second;
      erase(offset + size, bytes);
      size += bytes;
    }
    insert(offset, size);
  }

  std::int64_t get_size_bytes() const { return end_; }

  static std::int64_t round_up(std::int64_t size_bytes) {
    constexpr std::int64_t step = program::kArenaAlignment;
    return size_bytes < step ? step : (size_bytes + step - 1) / step * step;
  }

 private:
  void insert(std::int64_t offset, std::int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void erase(std::int64_t offset, std::int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<std::int64_t, std::int64_t> by_offset_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
  std::int64_t end_ = 0;
};

}  // namespace reprise::schedule
