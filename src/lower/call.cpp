#include "lower/call.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace reprise::lower {

using graph::ArgKind;
using graph::ValueKind;
using types::DTypeKind;

Call::Call(const graph::Graph& in, const graph::Node& called, graph::NodeId id, Lowered& out, const Options& chosen)
    : graph(in), node(called), options(chosen), lowered(out), node_id_(id) {}

// --- arguments

bool Call::is_tensor(std::size_t i) const {
  return i < node.args.size() && node.args[i].is_value() && get(tensor(i)).is_tensor;
}

bool Call::is_plain(std::size_t i) const { return is_tensor(i) && get(tensor(i)).is_plain; }

std::optional<std::int64_t> Call::get_int(std::size_t i) const {
  if (i >= count()) return std::nullopt;
  if (arg(i).kind() == ArgKind::Bool) return arg(i).get_bool();
  if (arg(i).kind() == ArgKind::LowInt) return arg(i).get_low_int();
  if (!arg(i).is_int() || !arg(i).get_int().is_constant()) return std::nullopt;
  return arg(i).get_int().get_constant();
}

std::optional<double> Call::get_number(std::size_t i) const {
  if (i >= count()) return std::nullopt;
  if (arg(i).kind() == ArgKind::Float) return arg(i).get_float();
  if (const auto number = get_int(i)) return static_cast<double>(*number);
  return std::nullopt;
}

std::optional<bool> Call::get_bool(std::size_t i) const {
  if (i >= count() || arg(i).kind() != ArgKind::Bool) return std::nullopt;
  return arg(i).get_bool();
}

std::string_view Call::get_string(std::size_t i) const {
  return i < count() && arg(i).kind() == ArgKind::String ? arg(i).get_string() : std::string_view();
}

std::optional<std::size_t> Call::get_dim(std::size_t i, std::size_t rank) const {
  const auto number = get_int(i);
  if (!number) return std::nullopt;
  const auto least = static_cast<std::int64_t>(std::max<std::size_t>(rank, 1));
  if (*number < -least || *number >= least) return std::nullopt;
  return static_cast<std::size_t>(*number < 0 ? *number + least : *number);
}

std::optional<std::uint8_t> Call::get_dims(std::size_t i, std::size_t rank) const {
  const auto all = static_cast<std::uint8_t>((1u << rank) - 1);
  if (is_none(i)) return all;
  std::uint8_t mask = 0;
  const auto add_dim = [&](const graph::Arg& dim) {
    if (!dim.is_int() || !dim.get_int().is_constant()) return false;
    const auto least = static_cast<std::int64_t>(std::max<std::size_t>(rank, 1));
    std::int64_t number = dim.get_int().get_constant();
    if (number < -least || number >= least) return false;
    if (number < 0) number += least;
    if (rank > 0) mask |= static_cast<std::uint8_t>(1u << number);
    return true;
  };
  if (!arg(i).is_list()) return add_dim(arg(i)) ? std::optional(mask) : std::nullopt;
  if (arg(i).get_list().empty()) return all;
  for (const graph::Arg& dim : arg(i).get_list()) {
    if (!add_dim(dim)) return std::nullopt;
  }
  return mask;
}

// --- results

bool Call::has_out(std::size_t i) const { return i < node.outs.size() && node.outs[i].is_valid(); }

TensorId Call::out(std::size_t i) const { return get_tensor(node.outs[i]); }

TensorId Call::single() const {
  if (!node.new_values.empty()) return get_tensor(node.new_values[0]);
  return out(0);
}

// --- tensors

Dims make_contiguous_strides(const Dims& sizes) {
  Dims strides;
  strides.rank = sizes.rank;
  std::int64_t stride = 1;
  for (std::size_t d = sizes.rank; d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

TensorId Call::make_tensor(DType dtype, const Dims& sizes) {
  const TensorId id(static_cast<std::uint32_t>(lowered.tensors.size()));
  Tensor& tensor = lowered.tensors.emplace_back();
  tensor.is_tensor = tensor.is_plain = true;
  tensor.dtype = dtype;
  tensor.sizes = sizes;
  tensor.strides = make_contiguous_strides(sizes);
  tensor.root = id;
  tensor.storage = lowered.storage_count++;
  return id;
}

// --- expressions

void Call::begin(const Dims& sizes) {
  op_ = Op();
  op_.kind = OpKind::Loop;
  op_.node = node_id_;
  op_.sizes = sizes;
  op_.first_expr = static_cast<std::uint32_t>(lowered.exprs.size());
  op_.first_check = static_cast<std::uint32_t>(lowered.checks.size());
}

Ex Call::add(ScalarOp op, DType dtype, std::initializer_list<Ex> operands, std::uint64_t payload) {
  ExprNode expr;
  expr.op = op;
  expr.dtype = dtype;
  expr.payload = payload;
  for (const Ex& operand : operands) {
    if (!operand.id.is_valid()) break;
    expr.operands[expr.operand_count++] = operand.id;
  }
  // One node for equal leaves and operations: the expressions are short, so looking back is cheap.
  const std::size_t last = lowered.exprs.size();
  if (op != ScalarOp::Load) {
    for (std::size_t i = last; i > op_.first_expr && i + 24 > last; --i) {
      const ExprNode& old = lowered.exprs[i - 1];
      if (old.op == op && old.dtype == dtype && old.payload == payload && old.operand_count == expr.operand_count &&
          old.operands == expr.operands)
        return {ExprId(static_cast<std::uint32_t>(i - 1)), dtype};
    }
  }
  lowered.exprs.push_back(expr);
  op_.weight = static_cast<std::uint16_t>(op_.weight + kernel::get_row(op).weight);
  if (op == ScalarOp::Math || op == ScalarOp::Div || op == ScalarOp::Sqrt || kernel::get_row(op).weight >= 16)
    op_.is_dear = true;
  return {ExprId(static_cast<std::uint32_t>(last)), dtype};
}

namespace {

bool is_half(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

}  // namespace

DType Call::get_compute_dtype(DType dtype) { return is_half(dtype) ? DType::Float32 : dtype; }

Ex Call::constant(DType dtype, double number) {
  if (is_half(dtype)) return cast(constant(DType::Float32, number), dtype);
  return add(ScalarOp::Const, dtype, {}, kernel::make_constant_bits(dtype, number));
}

Ex Call::constant(DType dtype, std::int64_t number) {
  if (is_half(dtype)) return cast(constant(DType::Float32, number), dtype);
  return add(ScalarOp::Const, dtype, {}, kernel::make_constant_bits(dtype, number));
}

Ex Call::dim(std::size_t d) { return add(ScalarOp::LoopVar, DType::Int64, {}, d); }

Access Call::make_access(TensorId id) const {
  const Tensor& tensor = get(id);
  Access access;
  access.tensor = id;
  access.constant = tensor.offset;
  REPRISE_CHECK(tensor.sizes.rank <= op_.sizes.rank, "tensor %" + std::to_string(id.index()) + " has " +
                                                         std::to_string(tensor.sizes.rank) + " dims, the op " +
                                                         std::to_string(op_.sizes.rank));
  const std::size_t shift = op_.sizes.rank - tensor.sizes.rank;
  for (std::size_t d = 0; d < tensor.sizes.rank; ++d) {
    REPRISE_CHECK(tensor.sizes[d] == 1 || tensor.sizes[d] == op_.sizes[d + shift],
                  "tensor %" + std::to_string(id.index()) + " does not broadcast");
    access.by_dim[d + shift] = tensor.sizes[d] == 1 ? 0 : tensor.strides[d];
  }
  return access;
}

Ex Call::load(TensorId tensor) { return load_at(make_access(tensor)); }

Ex Call::load_at(Access access, Ex mask) {
  const DType dtype = get(access.tensor).dtype;
  for (std::size_t d = 0; d < op_.sizes.rank; ++d) {
    if (op_.sizes[d] == 1) access.by_dim[d] = 0;
  }
  for (std::size_t i = lowered.exprs.size(); i > op_.first_expr && i + 24 > lowered.exprs.size(); --i) {
    const ExprNode& old = lowered.exprs[i - 1];
    if (old.op != ScalarOp::Load || mask.id.is_valid() || old.operand_count != 0) continue;
    const Access& same = lowered.accesses[old.payload];
    if (same.tensor == access.tensor && same.constant == access.constant && same.by_dim == access.by_dim &&
        same.indirect.empty() && access.indirect.empty())
      return {ExprId(static_cast<std::uint32_t>(i - 1)), dtype};
  }
  lowered.accesses.push_back(std::move(access));
  return add(ScalarOp::Load, dtype, {mask}, lowered.accesses.size() - 1);
}

Ex Call::param(graph::ValueId value) {
  switch (graph.get_value(value).kind) {
    case ValueKind::Int:
      return add(ScalarOp::Param, DType::Int64, {}, value.index());
    case ValueKind::Float:
      return add(ScalarOp::Param, DType::Float64, {}, value.index());
    case ValueKind::Bool:
      return add(ScalarOp::Param, DType::Bool, {}, value.index());
    case ValueKind::Tensor:
    case ValueKind::Complex:
    case ValueKind::RandomState:
      break;
  }
  REPRISE_UNREACHABLE("%" + std::to_string(value.index()) + " is no number");
}

Ex Call::op(ScalarOp op, Ex a) { return this->op(op, a, {}, {}); }
Ex Call::op(ScalarOp op, Ex a, Ex b) { return this->op(op, a, b, {}); }

Ex Call::op(ScalarOp op, Ex a, Ex b, Ex c) {
  const kernel::OpRow& row = kernel::get_row(op);
  REPRISE_CHECK(a.id.is_valid() + b.id.is_valid() + c.id.is_valid() == row.operands,
                std::string(row.text) + " with another number of operands");
  if (op == ScalarOp::Select) {
    REPRISE_CHECK(a.dtype == DType::Bool && b.dtype == c.dtype, "select of two dtypes");
    return add(op, b.dtype, {a, b, c});
  }
  REPRISE_CHECK((!b.id.is_valid() || b.dtype == a.dtype) && (!c.id.is_valid() || c.dtype == a.dtype),
                std::string(row.text) + " of " + std::string(types::get_dtype_name(a.dtype)) + " and " +
                    std::string(types::get_dtype_name(b.dtype)));
  return add(op, row.op_class == kernel::OpClass::Compare ? DType::Bool : a.dtype, {a, b, c});
}

Ex Call::cast(Ex a, DType dtype) { return a.dtype == dtype ? a : add(ScalarOp::Cast, dtype, {a}); }
Ex Call::bitcast(Ex a, DType dtype) { return a.dtype == dtype ? a : add(ScalarOp::Bitcast, dtype, {a}); }
Ex Call::math(MathFunction function, Numerics numerics, Ex a) { return math(function, numerics, a, {}); }

Ex Call::math(MathFunction function, Numerics numerics, Ex a, Ex b) {
  REPRISE_CHECK(a.dtype == DType::Float32 || a.dtype == DType::Float64,
                "a function of " + std::string(types::get_dtype_name(a.dtype)));
  return add(ScalarOp::Math, a.dtype, {a, b},
             static_cast<std::uint64_t>(function) | static_cast<std::uint64_t>(numerics) << 8);
}

bool Call::can_value(std::size_t i) const {
  if (i >= count()) return false;
  const graph::Arg& a = arg(i);
  if (a.is_value()) {
    switch (graph.get_value(a.get_value()).kind) {
      case ValueKind::Tensor:
        return is_plain(i);
      case ValueKind::Int:
      case ValueKind::Float:
      case ValueKind::Bool:
        return true;
      case ValueKind::Complex:
      case ValueKind::RandomState:
        return false;
    }
  }
  return a.kind() == ArgKind::Float || a.kind() == ArgKind::Bool || get_int(i).has_value();
}

Ex Call::value(std::size_t i, DType dtype) {
  const graph::Arg& a = arg(i);
  if (a.is_value()) {
    if (graph.get_value(a.get_value()).kind == ValueKind::Tensor) return cast(load(tensor(i)), dtype);
    return cast(param(a.get_value()), dtype);
  }
  if (a.kind() == ArgKind::Float) return constant(dtype, a.get_float());
  if (a.kind() == ArgKind::Bool) return constant(dtype, std::int64_t{a.get_bool()});
  return constant(dtype, *get_int(i));
}

void Call::check(Ex fails, std::string text, bool is_index_error) {
  REPRISE_CHECK(fails.dtype == DType::Bool, "a check of " + std::string(types::get_dtype_name(fails.dtype)));
  lowered.checks.push_back({fails.id, is_index_error, std::move(text)});
}

// --- ends of an op

Dims Call::make_result_strides(TensorId id, std::uint8_t reduced) const {
  const Tensor& tensor = get(id);
  Dims strides;
  strides.rank = op_.sizes.rank;
  const bool keeps_dims = tensor.sizes.rank == op_.sizes.rank;
  std::size_t next = 0;
  for (std::size_t d = 0; d < op_.sizes.rank; ++d) {
    const bool is_reduced = (reduced >> d & 1) != 0;
    if (is_reduced) {
      if (keeps_dims) ++next;
      continue;
    }
    REPRISE_CHECK(next < tensor.sizes.rank && tensor.sizes[next] == op_.sizes[d],
                  "result %" + std::to_string(id.index()) + " has other sizes than its op");
    strides[d] = op_.sizes[d] == 1 ? 0 : tensor.strides[next];
    ++next;
  }
  REPRISE_CHECK(next == tensor.sizes.rank, "result %" + std::to_string(id.index()) + " has more dims than its op");
  return strides;
}

void Call::finish(Op op) {
  op.last_expr = static_cast<std::uint32_t>(lowered.exprs.size());
  op.last_check = static_cast<std::uint32_t>(lowered.checks.size());
  const OpIndex index(static_cast<std::uint32_t>(lowered.ops.size()));
  if (op.result.is_valid()) lowered.tensors[op.result.index()].producer = index;
  if (op.index_result.is_valid()) lowered.tensors[op.index_result.index()].producer = index;
  lowered.ops.push_back(std::move(op));
}

void Call::finish_pointwise(TensorId result, Ex value) {
  op_.value = cast(value, get(result).dtype).id;
  op_.result = result;
  op_.result_strides = make_result_strides(result, 0);
  finish(op_);
}

void Call::finish_at(TensorId result, const Dims& strides, Ex value) {
  op_.value = cast(value, get(result).dtype).id;
  op_.result = result;
  op_.result_strides = strides;
  for (std::size_t d = 0; d < op_.sizes.rank; ++d) {
    if (op_.sizes[d] == 1) op_.result_strides[d] = 0;
  }
  finish(op_);
}

void Call::finish_reduction(Combine combine, std::uint8_t reduced, TensorId result, Ex value) {
  REPRISE_CHECK(value.dtype == get(result).dtype, "a reduction keeps its dtype");
  std::int64_t count = 1;
  for (std::size_t d = 0; d < op_.sizes.rank; ++d) {
    if ((reduced >> d & 1) != 0) count *= op_.sizes[d];
  }
  op_.is_reduction = count != 1;  // of one element: the element
  op_.reduced = op_.is_reduction ? reduced : 0;
  op_.combine = combine;
  op_.value = value.id;
  op_.result = result;
  op_.result_strides = make_result_strides(result, reduced);
  finish(op_);
}

void Call::finish_arg_reduction(Combine combine, std::uint8_t reduced, TensorId result, TensorId index, Ex value,
                                Ex at) {
  op_.is_reduction = true;
  op_.reduced = reduced;
  op_.combine = combine;
  op_.value = value.id;
  op_.index_value = at.id;
  op_.result = result;
  op_.index_result = index;
  if (result.is_valid()) op_.result_strides = make_result_strides(result, reduced);
  op_.index_result_strides = make_result_strides(index, reduced);
  finish(op_);
}

// --- dtypes

namespace {

int get_category(DType dtype) {
  switch (types::get_kind(dtype)) {
    case DTypeKind::Bool:
      return 0;
    case DTypeKind::Unsigned:
    case DTypeKind::Signed:
      return 1;
    case DTypeKind::Float:
      return 2;
    case DTypeKind::Complex:
      return 3;
  }
  return 3;
}

}  // namespace

// torch's table for the dtypes of kernels (no complex, no 8-bit floats, no wide unsigned integers).
DType promote_types(DType a, DType b) {
  if (a == b) return a;
  const int category_a = get_category(a);
  const int category_b = get_category(b);
  if (category_a != category_b) return category_a > category_b ? a : b;
  const std::size_t size_a = types::get_size_bytes(a);
  const std::size_t size_b = types::get_size_bytes(b);
  if (category_a == 2) {
    if (size_a == size_b) return DType::Float32;  // float16 and bfloat16
    return size_a > size_b ? a : b;
  }
  // uint8 with a signed type of the same size needs the next one
  const bool is_unsigned_a = types::get_kind(a) == DTypeKind::Unsigned;
  const bool is_unsigned_b = types::get_kind(b) == DTypeKind::Unsigned;
  if (size_a == size_b && is_unsigned_a != is_unsigned_b) return size_a == 1 ? DType::Int16 : DType::Int64;
  return size_a > size_b ? a : b;
}

std::optional<DType> promote(const Call& call, std::initializer_list<std::size_t> args) {
  std::optional<DType> by_class[3];  // tensors with dims, without, numbers
  const auto add_dtype = [&](int priority, DType dtype) {
    by_class[priority] = by_class[priority] ? promote_types(*by_class[priority], dtype) : dtype;
  };
  for (const std::size_t i : args) {
    if (call.is_none(i)) continue;
    const graph::Arg& a = call.arg(i);
    if (call.is_tensor(i)) {
      if (!call.is_plain(i)) return std::nullopt;
      const Tensor& tensor = call.get(call.tensor(i));
      add_dtype(tensor.sizes.rank > 0 ? 0 : a.is_wrapped() ? 2 : 1, tensor.dtype);
      continue;
    }
    ValueKind kind = ValueKind::Complex;
    if (a.is_value()) {
      kind = call.graph.get_value(a.get_value()).kind;
    } else if (a.kind() == ArgKind::Float) {
      kind = ValueKind::Float;
    } else if (a.kind() == ArgKind::Bool) {
      kind = ValueKind::Bool;
    } else if (a.is_int() || a.kind() == ArgKind::LowInt) {
      kind = ValueKind::Int;
    }
    if (kind == ValueKind::Float) {
      add_dtype(2, DType::Float32);  // the default dtype: only its category counts beside tensors
    } else if (kind == ValueKind::Bool) {
      add_dtype(2, DType::Bool);
    } else if (kind == ValueKind::Int) {
      add_dtype(2, DType::Int64);
    } else {
      return std::nullopt;
    }
  }
  std::optional<DType> result = by_class[0];
  for (const int priority : {1, 2}) {
    if (!by_class[priority]) continue;
    if (!result || get_category(*by_class[priority]) > get_category(*result)) {
      result = result ? promote_types(*result, *by_class[priority]) : *by_class[priority];
      // A higher category takes over with its own dtype: int64 tensors and a float number give float32.
    }
  }
  // Integers and a float number give the default dtype, which only the result knows.
  if (result && types::is_float(*result) && by_class[2] && types::is_float(*by_class[2]) &&
      !(by_class[0] && types::is_float(*by_class[0])) && !(by_class[1] && types::is_float(*by_class[1]))) {
    const DType out = call.get(call.single()).dtype;
    if (!types::is_float(out)) return std::nullopt;
    return out;
  }
  return result;
}

}  // namespace reprise::lower
