// Lowered: a graph as operations on elements, ready for fusion.
//
// Every tensor value of the graph has a row in `tensors` (the same number), behind them come the ones that a
// decomposition made. An op is a node that stays a library call (Extern), a node that only makes views (View), or a
// LoopOp: for every index of a box of dimensions, one scalar expression; if dimensions are reduced, its values are
// combined over them. softmax is five LoopOps. Fusion (schedule/) joins LoopOps into kernels.
// Callers may rely on: ops in an order that computes before it uses; expressions are pure, whatever the checks of their
// op say (no index reads outside of its tensor); a LoopOp writes each element of its result once. Sizes of what a
// LoopOp touches are constants, on the CPU, without conj/neg bits, at most kMaxRank dimensions; anything else is
// Extern. Plain data, no shared state.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/export.h"
#include "base/ids.h"
#include "graph/graph.h"
#include "kernel/kernel.h"

namespace reprise::lower {

using kernel::Combine;
using kernel::MathFunction;
using kernel::Numerics;
using kernel::ScalarOp;
using types::DType;

inline constexpr std::size_t kMaxRank = 8;

struct TensorTag;
struct OpTag;
struct ExprTag;
using TensorId = base::Id<TensorTag>;
using OpIndex = base::Id<OpTag>;
using ExprId = base::Id<ExprTag>;  // a node of an expression

// Up to kMaxRank numbers: sizes, strides.
struct Dims {
  std::array<std::int64_t, kMaxRank> at{};
  std::uint8_t rank = 0;

  std::int64_t operator[](std::size_t i) const { return at[i]; }
  std::int64_t& operator[](std::size_t i) { return at[i]; }
  void push(std::int64_t number) { at[rank++] = number; }
  std::span<const std::int64_t> span() const { return {at.data(), rank}; }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < rank; ++i) product *= at[i];
    return product;
  }
  bool operator==(const Dims&) const = default;
};

REPRISE_EXPORT Dims make_contiguous_strides(const Dims& sizes);

struct Tensor {
  bool is_tensor = false;  // else a number or a random state
  bool is_plain = false;   // may be touched by a LoopOp
  bool is_source = false;  // an input or a constant
  DType dtype = DType::Float32;
  Dims sizes;    // of a plain tensor
  Dims strides;  // of a plain tensor
  std::int64_t offset = 0;
  TensorId root;              // the tensor that it is a view of; itself if none
  std::uint32_t storage = 0;  // numbered densely; tensors with one storage share memory
  OpIndex producer;           // invalid: a source
};

// The element of a tensor (of the storage of its root) that a load touches:
// constant + sum of by_dim[d] * (index of dimension d) + sum of indirect coefficient * (int64 expression).
struct Indirect {
  std::int64_t coefficient = 0;
  ExprId value;
};
struct Access {
  TensorId tensor;
  std::int64_t constant = 0;
  std::array<std::int64_t, kMaxRank> by_dim{};
  std::vector<Indirect> indirect;
};

// A node of an expression, in order of evaluation. Ops are the kernel's. LoopVar: the index of dimension `payload`,
// int64. Param: the number that graph value `payload` is. Load: access `payload`, perhaps with a mask.
// Index: the affine `payload` of Lowered::affines over dims and expressions.
struct ExprNode {
  ScalarOp op = ScalarOp::Const;
  DType dtype = DType::Float32;
  std::uint8_t operand_count = 0;
  std::array<ExprId, 3> operands;
  std::uint64_t payload = 0;
};

// Where eager would raise: the op's node fails if `fails` (a bool) is true for any index of the op.
struct Check {
  ExprId fails;
  bool is_index_error = true;  // IndexError, else RuntimeError
  std::string text;
};

enum class OpKind : std::uint8_t { Extern, View, Loop };

struct Op {
  OpKind kind = OpKind::Extern;
  graph::NodeId node;
  // --- Loop
  Dims sizes;
  std::uint8_t reduced = 0;   // bit d: dimension d is combined over
  bool is_reduction = false;  // also with no dimension in `reduced`
  Combine combine = Combine::Sum;
  std::uint32_t first_expr = 0;  // in Lowered::exprs: [first_expr, last_expr)
  std::uint32_t last_expr = 0;
  std::uint32_t first_check = 0;  // in Lowered::checks: [first_check, last_check)
  std::uint32_t last_check = 0;
  ExprId value;           // the element, of the dtype of the result (a bool for any and all)
  ExprId index_value;     // argmax, argmin: what the index of an element is
  TensorId result;        // may be invalid if index_result is valid
  TensorId index_result;  // argmax, argmin
  Dims result_strides;    // one a dimension of `sizes`, 0 for reduced ones; offset is the tensor's
  Dims index_result_strides;
  std::uint16_t weight = 0;  // vector instructions an element
  bool is_dear = false;      // not to be computed twice: functions, divisions

  bool has_checks() const { return first_check != last_check; }
  bool is_reduced(std::size_t dim) const { return (reduced >> dim & 1) != 0; }
};

struct REPRISE_EXPORT Lowered {
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  std::vector<ExprNode> exprs;
  std::vector<Access> accesses;
  std::vector<Check> checks;
  std::uint32_t storage_count = 0;

  const Tensor& get(TensorId id) const { return tensors[id.index()]; }
  const Op& get(OpIndex id) const { return ops[id.index()]; }
  const ExprNode& get(ExprId id) const { return exprs[id.index()]; }
};

inline TensorId get_tensor(graph::ValueId id) { return TensorId(id.index()); }

struct Options {
  bool only_extern = false;  // no LoopOp at all: backend aot_eager
};

// Linear in the size of the graph. The graph is functional and verified.
REPRISE_EXPORT Lowered lower(const graph::Graph& graph, const Options& options = {});

// Text, for tests and the log: one line an op, its expression behind it.
//   loop %5 float32[4, 8] = cast<float32>(add(load %0[8*i0 + i1], 1.5))
REPRISE_EXPORT std::string print(const Lowered& lowered);

}  // namespace reprise::lower
