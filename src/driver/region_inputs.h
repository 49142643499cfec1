// What a region's code depends on in its operands: who shares a storage, sizes, numbers. The GIL is held.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "aot/region.h"

namespace reprise::driver {

/// What the code relies on and no guard of the entry states.
struct InputFacts {
  std::vector<uint32_t> first_of;  // the first input over the same storage
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

/// Appends ints, floats, None and tuples of them to a key of sizes. False: it is something else.
bool append_number(std::vector<int64_t>& key, PyObject* number);

}  // namespace reprise::driver
