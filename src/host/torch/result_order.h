// Which of several tensors were computed from which others, as their histories say.
#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <vector>

namespace reprise::host {

struct ResultOrder {
  std::vector<std::vector<uint32_t>> follows_from;  // of each tensor: others, but those behind a third one
  std::vector<uint32_t> order;                      // each behind those that it follows from
};

/// Does a gradient of the tensor flow to `base`, which is another one?
bool has_way_to(PyObject* tensor, PyObject* base);

/// `tensors`: with histories, none twice. With the GIL.
ResultOrder find_result_order(std::span<PyObject* const> tensors);

}  // namespace reprise::host
