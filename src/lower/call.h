// Call: one node while it is lowered; what the rows of lower_ops.def are written against.
//
// Makes tensors, expressions and LoopOps. An expression belongs to the op that is being made: begin(), then leaves and
// operations, then finish_*(). A function that cannot lower its node returns false, before or after it made something:
// what it made is taken back, and the node stays extern.
// `Ex` is a handle with its dtype; operations on it check like KernelBuilder does, and fold nothing but casts to the
// same dtype. One thread; lives while its node is lowered.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "lower/lowered.h"

namespace reprise::lower {

struct Ex {
  ExprId id;
  DType dtype = DType::Float32;
};

class Call {
 public:
  Call(const graph::Graph& graph, const graph::Node& node, graph::NodeId id, Lowered& lowered, const Options& options);

  const graph::Graph& graph;
  const graph::Node& node;
  const Options& options;

  // --- arguments
  const graph::Arg& arg(std::size_t i) const { return node.args[i]; }
  std::size_t count() const { return node.args.size(); }
  bool is_tensor(std::size_t i) const;  // a tensor value (plain or not)
  bool is_plain(std::size_t i) const;   // a tensor that LoopOps may touch
  TensorId tensor(std::size_t i) const { return get_tensor(node.args[i].get_value()); }
  const Tensor& get(TensorId id) const { return lowered.tensors[id.index()]; }
  bool is_none(std::size_t i) const { return i >= node.args.size() || node.args[i].is_none(); }
  // Constants; nothing if the argument is no constant of that kind. get_number takes bools, ints and floats.
  std::optional<std::int64_t> get_int(std::size_t i) const;
  std::optional<double> get_number(std::size_t i) const;
  std::optional<bool> get_bool(std::size_t i) const;
  std::string_view get_string(std::size_t i) const;
  // The dims that an int, int[] or None argument names, as a bit mask over `rank` dims; None and [] are all of them.
  std::optional<std::uint8_t> get_dims(std::size_t i, std::size_t rank) const;
  std::optional<std::size_t> get_dim(std::size_t i, std::size_t rank) const;

  // --- results. The tensor that result i (or the new value i of an in-place op) is.
  TensorId out(std::size_t i) const;
  bool has_out(std::size_t i) const;
  TensorId single() const;  // the only result, be it an out or a new value

  // --- tensors
  TensorId make_tensor(DType dtype, const Dims& sizes);  // contiguous, internal

  // --- expressions
  void begin(const Dims& sizes);
  const Dims& sizes() const { return op_.sizes; }
  Ex constant(DType dtype, double number);
  Ex constant(DType dtype, std::int64_t number);
  Ex dim(std::size_t d);     // int64
  Ex load(TensorId tensor);  // at the same index, broadcast to sizes()
  Ex load_at(Access access, Ex mask = {});
  Access make_access(TensorId tensor) const;  // at the same index, broadcast
  Ex param(graph::ValueId value);             // a Python number of the graph: int64, float64 or bool
  Ex op(ScalarOp op, Ex a);
  Ex op(ScalarOp op, Ex a, Ex b);
  Ex op(ScalarOp op, Ex a, Ex b, Ex c);
  Ex cast(Ex a, DType dtype);
  Ex bitcast(Ex a, DType dtype);
  Ex math(MathFunction function, Numerics numerics, Ex a);
  Ex math(MathFunction function, Numerics numerics, Ex a, Ex b);
  // A tensor argument at the same index or a Python number, in this dtype (numbers are converted as torch converts a
  // scalar: through double or int64).
  Ex value(std::size_t i, DType dtype);
  bool can_value(std::size_t i) const;

  // Where `fails` (a bool) is true for any index of the op, the node raises an IndexError (else a RuntimeError).
  void check(Ex fails, std::string text, bool is_index_error = true);

  // --- ends of an op
  void finish_pointwise(TensorId result, Ex value);  // casts to the dtype of the result
  // The same over a box of other dims than the result's: the strides say where an element goes.
  void finish_at(TensorId result, const Dims& strides, Ex value);
  // Combines over the dims of `reduced`. The result has either the kept dims only, or all with size 1 for reduced ones.
  void finish_reduction(Combine combine, std::uint8_t reduced, TensorId result, Ex value);
  void finish_arg_reduction(Combine combine, std::uint8_t reduced, TensorId result, TensorId index, Ex value, Ex at);

  // --- dtypes
  static DType get_compute_dtype(DType dtype);  // float32 for half types
  DType dtype(std::size_t i) const { return get(tensor(i)).dtype; }

  Lowered& lowered;

 private:
  Ex add(ScalarOp op, DType dtype, std::initializer_list<Ex> operands, std::uint64_t payload = 0);
  Dims make_result_strides(TensorId result, std::uint8_t reduced) const;
  void finish(Op op);

  graph::NodeId node_id_;
  Op op_;
};

// Result type of tensors and Python numbers as torch promotes them: a number counts only if its category (bool < int <
// float < complex) is above that of the tensors, and tensors of no dimensions count below those with some. Nothing
// where they meet in the default dtype and the result is not of it.
std::optional<DType> promote(const Call& call, std::initializer_list<std::size_t> args);
DType promote_types(DType a, DType b);

using LowerFunction = bool (*)(Call& call);

}  // namespace reprise::lower
