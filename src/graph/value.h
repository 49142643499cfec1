// Values of a graph: tensors with their metadata, Python numbers, states of random generators.
//
// Metadata lives in the arena of the graph's Context: a TensorMeta is a small value that may be copied between graphs
// of one Context. Two tensors with the same storage id share memory (views, or aliased inputs); storage ids are
// numbered per Context. Plain data.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "sym/int.h"
#include "types/device.h"
#include "types/dtype.h"

namespace reprise::graph {

struct ValueTag;
struct NodeTag;
struct StorageTag;
struct SourceTag;
using ValueId = base::Id<ValueTag>;
using NodeId = base::Id<NodeTag>;
using StorageId = base::Id<StorageTag>;
using SourceId = base::Id<SourceTag>;  // the recorded call that a node comes from; a number of the host

enum class ValueKind : std::uint8_t { Tensor, Int, Float, Bool, Complex, RandomState };

enum TensorFlag : std::uint8_t { kNoTensorFlags = 0, kConjugate = 1, kNegative = 2 };

struct TensorMeta {
  const sym::Int* sizes_and_strides = nullptr;  // rank sizes, then rank strides
  sym::Int offset = 0;                          // in elements
  StorageId storage;
  types::Device device;
  std::uint8_t rank = 0;
  types::DType dtype = types::DType::Float32;
  std::uint8_t flags = kNoTensorFlags;  // TensorFlag

  std::span<const sym::Int> sizes() const { return {sizes_and_strides, rank}; }
  std::span<const sym::Int> strides() const { return {sizes_and_strides + rank, rank}; }
};

struct Value {
  ValueKind kind = ValueKind::Tensor;
  TensorMeta meta;         // of a tensor
  sym::Int number = 0;     // of an int: the symbol that stands for it in sizes, or 0
  NodeId producer;         // invalid: an input, a constant, or not (any more) computed
  bool is_source = false;  // an input or a constant: never computed
};

}  // namespace reprise::graph
