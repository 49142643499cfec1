// KernelBuilder: the way to make a Kernel, node by node, in program order.
//
//   KernelBuilder b;
//   const BufferId x = b.add_buffer(DType::Float32, kRead, 1024), y = b.add_buffer(DType::Float32, kWrite, 1024);
//   const ValueId i = b.begin_parallel(1);
//   const ValueId j = b.begin_loop(LoopKind::Vector, 0, 1024);
//   b.store(y, j, b.math(MathFunction::Exp, Numerics::Sleef, b.load(x, j)));
//   b.end_loop();
//   b.end_loop();
//   Kernel kernel = std::move(b).finish();
//
// Callers may rely on: result dtypes follow from the operands; constants and parameters are shared and stand in the
// prologue; wrong use (dtypes that do not fit, a loop left open) is a failed REPRISE_CHECK at the call that made it.
// One thread; the builder owns the kernel until finish().
#pragma once

#include <cstdint>
#include <initializer_list>
#include <unordered_map>
#include <vector>

#include "base/export.h"
#include "kernel/kernel.h"

namespace reprise::kernel {

enum class BufferUse : std::uint8_t { Read, Write, ReadWrite };
inline constexpr BufferUse kRead = BufferUse::Read;
inline constexpr BufferUse kWrite = BufferUse::Write;
inline constexpr BufferUse kReadWrite = BufferUse::ReadWrite;

class REPRISE_EXPORT KernelBuilder {
 public:
  // --- operands; arguments in the order of the calling convention
  BufferId add_buffer(DType dtype, BufferUse use, std::int64_t count = -1);
  BufferId add_local(DType dtype, std::int64_t count);
  ValueId add_param(DType dtype);  // Int64, Float64, Bool

  // --- loops; each begin_ gives the loop variable. The range is [lower, min(upper, limit)).
  ValueId begin_parallel(const Affine& count);
  ValueId begin_loop(LoopKind kind, const Affine& lower, const Affine& upper, std::int64_t step = 1);
  ValueId begin_loop_with_limit(LoopKind kind, const Affine& lower, const Affine& upper, const Affine& limit,
                                std::int64_t step = 1);
  void end_loop();
  // Chosen lanes of the innermost open Vector loop; without this choose_lanes() chooses.
  void set_lanes(int lanes, int unroll);

  // --- leaves. constant(): `number` in the given dtype; integers wrap, floats round.
  ValueId constant(DType dtype, double number);
  ValueId constant(DType dtype, std::int64_t number);
  ValueId constant(DType dtype, int number) { return constant(dtype, std::int64_t{number}); }
  ValueId constant_bits(DType dtype, std::uint64_t bits);
  ValueId index(const Affine& expression);  // as an int64 value

  // --- memory
  ValueId load(BufferId buffer, const Affine& index, ValueId mask = {});
  void store(BufferId buffer, const Affine& index, ValueId value, ValueId mask = {}, StoreMode mode = StoreMode::Set);

  // --- scalar operations: any op of scalar_ops.def of the classes Any to Round but Cast and Bitcast
  ValueId op(ScalarOp op, ValueId a);
  ValueId op(ScalarOp op, ValueId a, ValueId b);
  ValueId op(ScalarOp op, ValueId a, ValueId b, ValueId c);
  ValueId cast(ValueId a, DType dtype);  // `a` itself if it has the dtype
  ValueId bitcast(ValueId a, DType dtype);
  ValueId math(MathFunction function, Numerics numerics, ValueId a, ValueId b = {});

  // --- accumulators
  ValueId accumulator(Combine combine, DType dtype);
  void reduce(ValueId accumulator, ValueId value, ValueId index = {});
  ValueId scan(ValueId accumulator, ValueId value, ValueId index = {});
  ValueId result(ValueId accumulator);
  ValueId result_index(ValueId accumulator);

  void vector_call(MathFunction function, Numerics numerics, BufferId result, BufferId operand, const Affine& count);

  DType get_dtype(ValueId value) const { return kernel_.get(value).dtype; }
  const Kernel& peek() const { return kernel_; }
  // The finished kernel; every loop is closed.
  Kernel finish() &&;

 private:
  NodeId add_node(ScalarOp op, DType dtype, std::initializer_list<ValueId> operands, std::uint64_t payload,
                  std::vector<NodeId>& sequence);
  NodeId append(ScalarOp op, DType dtype, std::initializer_list<ValueId> operands, std::uint64_t payload = 0);
  std::vector<NodeId>& get_sequence();
  IndexId add_index(const Affine& expression);
  std::uint64_t add_access(BufferId buffer, const Affine& index, StoreMode mode);
  ValueId open_loop(LoopKind kind, const Affine& lower, const Affine& upper, IndexId limit, std::int64_t step);

  Kernel kernel_;
  std::vector<LoopId> open_;
  std::unordered_map<std::uint64_t, std::vector<ValueId>> constants_;  // by hash; never iterated
};

}  // namespace reprise::kernel
