#include "kernel/builder.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "kernel/numbers.h"

namespace reprise::kernel {
namespace {

std::string describe(ScalarOp op, DType dtype) {
  return std::string(get_row(op).text) + " of " + std::string(types::get_dtype_name(dtype));
}

bool is_number(DType dtype) {
  return dtype != DType::Bool && (types::is_integral(dtype) || dtype == DType::Float32 || dtype == DType::Float64);
}

bool is_allowed(OpClass op_class, DType dtype) {
  switch (op_class) {
    case OpClass::Any:
      return true;
    case OpClass::Number:
      return is_number(dtype);
    case OpClass::Integer:
      return types::is_integral(dtype) && dtype != DType::Bool;
    case OpClass::Bits:
      return types::is_integral(dtype);
    case OpClass::Float:
    case OpClass::Math:
      return dtype == DType::Float32 || dtype == DType::Float64;
    case OpClass::Compare:
      return is_number(dtype) || dtype == DType::Bool;
    case OpClass::Round:
      return dtype == DType::Float32;
    default:
      return false;
  }
}

}  // namespace

// --- operands -----------------------------------------------------------------------------------------------------

BufferId KernelBuilder::add_buffer(DType dtype, BufferUse use, std::int64_t count) {
  kernel_.buffers.push_back({BufferKind::Argument, dtype, use != BufferUse::Write, use != BufferUse::Read, count});
  return BufferId(static_cast<std::uint32_t>(kernel_.buffers.size() - 1));
}

BufferId KernelBuilder::add_local(DType dtype, std::int64_t count) {
  kernel_.buffers.push_back({BufferKind::Local, dtype, true, true, count});
  return BufferId(static_cast<std::uint32_t>(kernel_.buffers.size() - 1));
}

ValueId KernelBuilder::add_param(DType dtype) {
  const auto number = static_cast<std::uint64_t>(kernel_.params.size());
  kernel_.params.push_back(dtype);
  std::vector<NodeId> none;
  kernel_.param_values.push_back(add_node(ScalarOp::Param, dtype, {}, number, none));
  return kernel_.param_values.back();
}

// --- loops --------------------------------------------------------------------------------------------------------

ValueId KernelBuilder::open_loop(LoopKind kind, const Affine& lower, const Affine& upper, IndexId limit,
                                 std::int64_t step) {
  REPRISE_CHECK((kind == LoopKind::Parallel) == open_.empty(), "a parallel loop is outermost, and only it");
  REPRISE_CHECK(step >= 1, "loop step " + std::to_string(step));
  const LoopId id(static_cast<std::uint32_t>(kernel_.loops.size()));
  std::vector<NodeId> none;
  Loop loop;
  loop.kind = kind;
  loop.var = add_node(ScalarOp::LoopVar, DType::Int64, {}, id.index(), none);
  loop.lower = add_index(lower);
  loop.upper = add_index(upper);
  loop.limit = limit;
  loop.step = step;
  loop.body = RegionId(static_cast<std::uint32_t>(kernel_.regions.size()));
  if (open_.empty()) {
    kernel_.bodies.push_back(id);
  } else {
    append(ScalarOp::Loop, DType::Int64, {}, id.index());
  }
  kernel_.regions.emplace_back();
  kernel_.loops.push_back(loop);
  open_.push_back(id);
  return loop.var;
}

ValueId KernelBuilder::begin_parallel(const Affine& count) {
  return open_loop(LoopKind::Parallel, 0, count, IndexId(), 1);
}

ValueId KernelBuilder::begin_loop(LoopKind kind, const Affine& lower, const Affine& upper, std::int64_t step) {
  return open_loop(kind, lower, upper, IndexId(), step);
}

ValueId KernelBuilder::begin_loop_with_limit(LoopKind kind, const Affine& lower, const Affine& upper,
                                             const Affine& limit, std::int64_t step) {
  return open_loop(kind, lower, upper, add_index(limit), step);
}

void KernelBuilder::end_loop() {
  REPRISE_CHECK(!open_.empty(), "no loop is open");
  open_.pop_back();
}

void KernelBuilder::set_lanes(int lanes, int unroll) {
  for (auto id = open_.rbegin(); id != open_.rend(); ++id) {
    Loop& loop = kernel_.get(*id);
    if (loop.kind != LoopKind::Vector) continue;
    loop.lanes = static_cast<std::uint8_t>(lanes);
    loop.unroll = static_cast<std::uint8_t>(unroll);
    return;
  }
  REPRISE_UNREACHABLE("no vector loop is open");
}

// --- nodes --------------------------------------------------------------------------------------------------------

NodeId KernelBuilder::add_node(ScalarOp op, DType dtype, std::initializer_list<ValueId> operands, std::uint64_t payload,
                               std::vector<NodeId>& sequence) {
  const NodeId id(static_cast<std::uint32_t>(kernel_.nodes.size()));
  Node node;
  node.op = op;
  node.dtype = dtype;
  node.payload = payload;
  for (const ValueId operand : operands) {
    if (!operand.is_valid()) break;
    REPRISE_CHECK(operand.index() < kernel_.nodes.size() && has_result(kernel_.get(operand).op),
                  std::string(get_row(op).text) + ": operand " + std::to_string(operand.index()) + " is no value");
    node.operands[node.operand_count++] = operand;
  }
  kernel_.nodes.push_back(node);
  sequence.push_back(id);
  return id;
}

std::vector<NodeId>& KernelBuilder::get_sequence() {
  return open_.empty() ? kernel_.prologue : kernel_.get(kernel_.get(open_.back()).body);
}

NodeId KernelBuilder::append(ScalarOp op, DType dtype, std::initializer_list<ValueId> operands, std::uint64_t payload) {
  return add_node(op, dtype, operands, payload, get_sequence());
}

IndexId KernelBuilder::add_index(const Affine& expression) {
  for (const Term& term : expression.terms()) {
    REPRISE_CHECK(term.value.index() < kernel_.nodes.size() && get_dtype(term.value) == DType::Int64,
                  "an index is made of int64 values");
  }
  kernel_.indexes.push_back(expression);
  return IndexId(static_cast<std::uint32_t>(kernel_.indexes.size() - 1));
}

std::uint64_t KernelBuilder::add_access(BufferId buffer, const Affine& index, StoreMode mode) {
  REPRISE_CHECK(buffer.index() < kernel_.buffers.size(), "buffer " + std::to_string(buffer.index()));
  kernel_.accesses.push_back({buffer, add_index(index), mode});
  return kernel_.accesses.size() - 1;
}

// --- leaves -------------------------------------------------------------------------------------------------------

ValueId KernelBuilder::constant_bits(DType dtype, std::uint64_t bits) {
  std::vector<ValueId>& same = constants_[base::hash_combine(bits, static_cast<std::uint64_t>(dtype))];
  for (const ValueId id : same) {
    if (kernel_.get(id).payload == bits && kernel_.get(id).dtype == dtype) return id;
  }
  same.push_back(add_node(ScalarOp::Const, dtype, {}, bits, kernel_.prologue));
  return same.back();
}

ValueId KernelBuilder::constant(DType dtype, double number) {
  return constant_bits(dtype, make_constant_bits(dtype, number));
}

ValueId KernelBuilder::constant(DType dtype, std::int64_t number) {
  return constant_bits(dtype, make_constant_bits(dtype, number));
}

ValueId KernelBuilder::index(const Affine& expression) {
  if (expression.is_constant()) return constant(DType::Int64, expression.constant());
  if (expression.constant() == 0 && expression.terms().size() == 1 && expression.terms()[0].coefficient == 1) {
    return expression.terms()[0].value;
  }
  return append(ScalarOp::Index, DType::Int64, {}, add_index(expression).index());
}

// --- memory -------------------------------------------------------------------------------------------------------

ValueId KernelBuilder::load(BufferId buffer, const Affine& index, ValueId mask) {
  REPRISE_CHECK(!mask.is_valid() || get_dtype(mask) == DType::Bool, "a mask is a bool");
  const std::uint64_t access = add_access(buffer, index, StoreMode::Set);
  return append(ScalarOp::Load, kernel_.get(buffer).dtype, {mask}, access);
}

void KernelBuilder::store(BufferId buffer, const Affine& index, ValueId value, ValueId mask, StoreMode mode) {
  REPRISE_CHECK(!mask.is_valid() || get_dtype(mask) == DType::Bool, "a mask is a bool");
  const std::uint64_t access = add_access(buffer, index, mode);
  const DType dtype = kernel_.get(buffer).dtype;
  REPRISE_CHECK(get_dtype(value) == dtype, describe(ScalarOp::Store, get_dtype(value)) + " into a buffer of " +
                                               std::string(types::get_dtype_name(dtype)));
  append(ScalarOp::Store, dtype, {value, mask}, access);
}

// --- scalar operations --------------------------------------------------------------------------------------------

ValueId KernelBuilder::op(ScalarOp op, ValueId a) { return this->op(op, a, {}, {}); }
ValueId KernelBuilder::op(ScalarOp op, ValueId a, ValueId b) { return this->op(op, a, b, {}); }

ValueId KernelBuilder::op(ScalarOp op, ValueId a, ValueId b, ValueId c) {
  const OpRow& row = get_row(op);
  REPRISE_CHECK(row.op_class >= OpClass::Any && row.op_class <= OpClass::Round && row.op_class != OpClass::Convert,
                std::string(row.text) + " has its own function");
  const int count = a.is_valid() + b.is_valid() + c.is_valid();
  REPRISE_CHECK(count == row.operands, std::string(row.text) + " with " + std::to_string(count) + " operands");
  if (op == ScalarOp::Select) {
    REPRISE_CHECK(get_dtype(a) == DType::Bool && get_dtype(b) == get_dtype(c),
                  "select of " + std::string(types::get_dtype_name(get_dtype(b))) + " and " +
                      std::string(types::get_dtype_name(get_dtype(c))));
    return append(op, get_dtype(b), {a, b, c});
  }
  const DType dtype = get_dtype(a);
  REPRISE_CHECK(is_allowed(row.op_class, dtype), describe(op, dtype));
  for (const ValueId other : {b, c}) {
    REPRISE_CHECK(!other.is_valid() || get_dtype(other) == dtype,
                  describe(op, dtype) + " and " + std::string(types::get_dtype_name(get_dtype(other))));
  }
  return append(op, row.op_class == OpClass::Compare ? DType::Bool : dtype, {a, b, c});
}

ValueId KernelBuilder::cast(ValueId a, DType dtype) {
  if (get_dtype(a) == dtype) return a;
  return append(ScalarOp::Cast, dtype, {a});
}

ValueId KernelBuilder::bitcast(ValueId a, DType dtype) {
  if (get_dtype(a) == dtype) return a;
  REPRISE_CHECK(count_bits(get_dtype(a)) == count_bits(dtype), describe(ScalarOp::Bitcast, get_dtype(a)));
  return append(ScalarOp::Bitcast, dtype, {a});
}

ValueId KernelBuilder::math(MathFunction function, Numerics numerics, ValueId a, ValueId b) {
  const MathRow& row = get_row(function);
  REPRISE_CHECK(1 + b.is_valid() == row.operands,
                std::string(row.text) + " with " + std::to_string(1 + b.is_valid()) + " operands");
  REPRISE_CHECK(is_allowed(OpClass::Math, get_dtype(a)), describe(ScalarOp::Math, get_dtype(a)));
  REPRISE_CHECK(!b.is_valid() || get_dtype(a) == get_dtype(b), "operands of one dtype");
  return append(ScalarOp::Math, get_dtype(a), {a, b},
                static_cast<std::uint64_t>(function) | static_cast<std::uint64_t>(numerics) << 8);
}

// --- accumulators -------------------------------------------------------------------------------------------------

ValueId KernelBuilder::accumulator(Combine combine, DType dtype) {
  const bool is_logical = combine == Combine::Any || combine == Combine::All;
  REPRISE_CHECK(is_logical ? dtype == DType::Bool : is_number(dtype),
                std::string(get_text(combine)) + " of " + std::string(types::get_dtype_name(dtype)));
  return append(ScalarOp::Accumulator, dtype, {}, static_cast<std::uint64_t>(combine));
}

void KernelBuilder::reduce(ValueId accumulator, ValueId value, ValueId index) {
  REPRISE_CHECK(kernel_.get(accumulator).op == ScalarOp::Accumulator, "reduce into no accumulator");
  REPRISE_CHECK(get_dtype(value) == get_dtype(accumulator), describe(ScalarOp::Reduce, get_dtype(value)));
  append(ScalarOp::Reduce, get_dtype(value), {accumulator, value, index});
}

ValueId KernelBuilder::scan(ValueId accumulator, ValueId value, ValueId index) {
  REPRISE_CHECK(kernel_.get(accumulator).op == ScalarOp::Accumulator, "scan into no accumulator");
  REPRISE_CHECK(get_dtype(value) == get_dtype(accumulator), describe(ScalarOp::Scan, get_dtype(value)));
  return append(ScalarOp::Scan, get_dtype(value), {accumulator, value, index});
}

ValueId KernelBuilder::result(ValueId accumulator) {
  REPRISE_CHECK(kernel_.get(accumulator).op == ScalarOp::Accumulator, "result of no accumulator");
  return append(ScalarOp::Result, get_dtype(accumulator), {accumulator});
}

ValueId KernelBuilder::result_index(ValueId accumulator) {
  REPRISE_CHECK(kernel_.get(accumulator).op == ScalarOp::Accumulator, "result of no accumulator");
  return append(ScalarOp::ResultIndex, DType::Int64, {accumulator});
}

void KernelBuilder::vector_call(MathFunction function, Numerics numerics, BufferId result, BufferId operand,
                                const Affine& count) {
  kernel_.calls.push_back({function, numerics, result, operand, add_index(count)});
  append(ScalarOp::VectorCall, kernel_.get(operand).dtype, {}, kernel_.calls.size() - 1);
}

Kernel KernelBuilder::finish() && {
  REPRISE_CHECK(open_.empty(), std::to_string(open_.size()) + " loops are open");
  return std::move(kernel_);
}

}  // namespace reprise::kernel
