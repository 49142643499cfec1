// What a region's code depends on in its operands: who shares a storage, sizes, numbers. The GIL is held.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "aot/region.h"
#include "entry/entry.h"

namespace reprise::driver {

/// What the code relies on and no guard of the entry states.
struct InputFacts {
  std::vector<uint32_t> first_of;  // the first input over the same storage
  std::vector<int64_t> distances;  // from where that one begins, in elements
  std::vector<uint8_t> is_leaf;
  std::vector<uint8_t> is_view;
};

/// The facts of tensors; keeps its memory between two calls.
class FactsFinder {
 public:
  /// O(n log n): every run that writes to an input asks.
  const InputFacts& find(PyObject* const* tensors, size_t count);

 private:
  InputFacts facts_;
  std::vector<std::pair<const void*, uint32_t>> by_storage_;
};

/// The tensors as inputs of a trace.
std::vector<aot::RegionInput> list_region_inputs(PyObject* const* tensors, size_t count);

/// Code takes numbers as float64 and int64.
bool can_be_symbolic(PyObject* number);

/// The sizes that code of a region is made for: sizes and strides of the tensors whose sizes no guard fixes, and the
/// numbers that follow from sizes.
class SizeKey {
 public:
  static constexpr size_t kMaxSizes = 64;  // that code is kept for; then the one used least recently goes
  static constexpr size_t kMaxDataSizes =
      16;  // where sizes depend on data; then PyTorch's kernels serve others, or it ends

  SizeKey(const entry::Entry& entry, const trace::Region& region);
  bool has_sizes() const { return has_sizes_; }
  /// Does one of them depend on data? There may be no end of them.
  bool depends_on_data() const { return depends_on_data_; }
  bool is_size(size_t number) const { return is_size_[number] != 0; }
  /// False: there is something else than a number among those.
  bool make(PyObject* const* operands);
  /// What `make` made last.
  const std::vector<int64_t>& values() const { return values_; }

 private:
  size_t tensor_count_;
  std::vector<uint32_t> tensors_;  // operands whose sizes no guard fixes
  std::vector<uint8_t> is_size_;   // by number: it follows from sizes
  bool has_sizes_ = false;
  bool depends_on_data_ = false;
  std::vector<int64_t> values_;
};

}  // namespace reprise::driver
