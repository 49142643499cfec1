// How the outputs of a region share memory with its inputs and with each other: kinds and bases of Graph::outputs.
//
// An output over an input's storage is that input or a view of it. Of outputs over one other storage, one that holds
// all elements of another becomes its base; outputs without common elements are values of their own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "host/torch/op_sink.h"

namespace reprise::aot {

struct OutputTensor {
  const void* object = nullptr;  // identity
  host::TraceValueId value = host::kNoTraceValue;
  int32_t storage = -1;
  bool requires_grad = false;
};

/// Fills `outputs`; returns why it cannot, or "". `refused`: the outputs without which it could.
std::string find_output_aliases(const graph::Graph& graph, std::span<const OutputTensor> inputs,
                                std::span<const OutputTensor> tensors, std::vector<graph::Output>& outputs,
                                std::vector<uint32_t>& refused);

}  // namespace reprise::aot
