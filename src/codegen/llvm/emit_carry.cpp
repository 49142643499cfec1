// Accumulators: requirement 4 of kernel.h.
#include "codegen/llvm/emitter_impl.h"
#include "kernel/interpret_op.h"

namespace reprise::codegen {
namespace {

bool has_index(Combine combine) { return combine == Combine::ArgMax || combine == Combine::ArgMin; }

}  // namespace

void Emitter::emit_accumulator(NodeId id, const Node& node) {
  Carry carry;
  carry.combine = Kernel::get_combine(node);
  carry.dtype = node.dtype;
  // Declared in the vector loop: a value a lane. Outside of the one that reduces: partial values of the widest step.
  const unsigned outside = slot_counts_[id.index()];
  const unsigned count = options_.is_gpu ? 1 : loop_.is_valid() ? unroll_ : std::max(1u, outside);
  carry.is_vector = !options_.is_gpu && (loop_.is_valid() || outside > 0);
  unsigned lanes = lanes_;
  if (carry.is_vector && !loop_.is_valid()) {
    for (std::uint32_t i = 0; i < kernel_.nodes.size() && lanes == 0; ++i) {
      const Node& other = kernel_.nodes[i];
      if (other.op == ScalarOp::Reduce && other.operands[0] == id) {
        lanes = kernel_.get(analysis_.get_vector_loop(NodeId(i))).lanes;
      }
    }
  }
  const kernel::Partial start = kernel::get_start(carry.combine, node.dtype);
  llvm::Constant* value = make_constant(node.dtype, start.bits);
  llvm::Constant* index = b_.getInt64(static_cast<std::uint64_t>(start.index));
  if (carry.is_vector) {
    value = llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes), value);
    index = llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes), index);
  }
  for (unsigned i = 0; i < count; ++i) {
    carry.slots.push_back(make_slot(value->getType()));
    b_.CreateStore(value, carry.slots.back());
    if (!has_index(carry.combine)) continue;
    carry.indexes.push_back(make_slot(index->getType()));
    b_.CreateStore(index, carry.indexes.back());
  }
  carries_[id.index()] = carry;
}

Emitter::Pair Emitter::combine(const Carry& carry, const Pair& a, const Pair& b) {
  const bool is_float = types::is_float(carry.dtype);
  switch (carry.combine) {
    case Combine::Sum:
      return {is_float ? b_.CreateFAdd(a.value, b.value) : b_.CreateAdd(a.value, b.value), nullptr};
    case Combine::Prod:
      return {is_float ? b_.CreateFMul(a.value, b.value) : b_.CreateMul(a.value, b.value), nullptr};
    case Combine::Max:
    case Combine::Min:
      return {emit_max(carry.dtype, carry.combine == Combine::Max, a.value, b.value), nullptr};
    case Combine::Any:
      return {b_.CreateOr(a.value, b.value), nullptr};
    case Combine::All:
      return {b_.CreateAnd(a.value, b.value), nullptr};
    case Combine::ArgMax:
    case Combine::ArgMin: {
      const ScalarOp better = carry.combine == Combine::ArgMax ? ScalarOp::Gt : ScalarOp::Lt;
      llvm::Value* is_better = emit_compare(better, carry.dtype, b.value, a.value);
      llvm::Value* is_equal = emit_compare(ScalarOp::Eq, carry.dtype, b.value, a.value);
      if (is_float) {
        llvm::Value* a_is_nan = b_.CreateFCmpUNO(a.value, a.value);
        llvm::Value* b_is_nan = b_.CreateFCmpUNO(b.value, b.value);
        is_equal = b_.CreateOr(is_equal, b_.CreateAnd(a_is_nan, b_is_nan));
        is_better = b_.CreateOr(is_better, b_.CreateAnd(b_is_nan, b_.CreateNot(a_is_nan)));
      }
      llvm::Value* takes_b = b_.CreateOr(is_better, b_.CreateAnd(is_equal, b_.CreateICmpSLT(b.index, a.index)));
      return {b_.CreateSelect(takes_b, b.value, a.value), b_.CreateSelect(takes_b, b.index, a.index)};
    }
  }
  return a;
}

void Emitter::emit_reduce(NodeId id, const Node& node, bool is_scan) {
  const NodeId accumulator = node.operands[0];
  const Carry& carry = carries_[accumulator.index()];
  const bool has_indexes = has_index(carry.combine);
  const bool is_outside = analysis_.get_vector_loop(accumulator) != analysis_.get_vector_loop(id);
  Value running{!loop_.is_valid(), {}};
  for (unsigned i = 0; i < (carry.is_vector ? unroll_ : 1); ++i) {
    const auto get = [&](ValueId operand) { return loop_.is_valid() ? get_part(operand, i) : get_uniform(operand); };
    Pair old{b_.CreateLoad(carry.slots[i]->getAllocatedType(), carry.slots[i]), nullptr};
    Pair item{get(node.operands[1]), nullptr};
    if (has_indexes) {
      old.index = b_.CreateLoad(carry.indexes[i]->getAllocatedType(), carry.indexes[i]);
      item.index = get(node.operands[2]);
    }
    Pair sum = combine(carry, old, item);
    if (is_outside && mask_ != nullptr) {  // lanes that are off keep what they have
      sum.value = b_.CreateSelect(mask_, sum.value, old.value);
      if (has_indexes) sum.index = b_.CreateSelect(mask_, sum.index, old.index);
    }
    b_.CreateStore(sum.value, carry.slots[i]);
    if (has_indexes) b_.CreateStore(sum.index, carry.indexes[i]);
    running.parts.push_back(sum.value);
  }
  if (is_scan) values_[id.index()] = running;
}

// Halves onto halves: first whole parts, then within the last one.
Emitter::Pair Emitter::fold(const Carry& carry, Parts values, Parts indexes) {
  const bool has_indexes = has_index(carry.combine);
  for (std::size_t half = values.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      const Pair pair = combine(carry, {values[i], has_indexes ? indexes[i] : nullptr},
                                {values[i + half], has_indexes ? indexes[i + half] : nullptr});
      values[i] = pair.value;
      if (has_indexes) indexes[i] = pair.index;
    }
  }
  Pair pair{values[0], has_indexes ? indexes[0] : nullptr};
  for (unsigned lanes = llvm::cast<llvm::FixedVectorType>(pair.value->getType())->getNumElements(); lanes > 1;
       lanes /= 2) {
    llvm::SmallVector<int, 16> low;
    llvm::SmallVector<int, 16> high;
    for (unsigned i = 0; i < lanes / 2; ++i) {
      low.push_back(static_cast<int>(i));
      high.push_back(static_cast<int>(i + lanes / 2));
    }
    const auto take = [&](const llvm::SmallVector<int, 16>& half) {
      return Pair{b_.CreateShuffleVector(pair.value, half),
                  has_indexes ? b_.CreateShuffleVector(pair.index, half) : nullptr};
    };
    const Pair first = take(low);
    pair = combine(carry, first, take(high));
  }
  pair.value = b_.CreateExtractElement(pair.value, std::uint64_t{0});
  if (has_indexes) pair.index = b_.CreateExtractElement(pair.index, std::uint64_t{0});
  return pair;
}

void Emitter::emit_result(NodeId id, const Node& node) {
  const Carry& carry = carries_[node.operands[0].index()];
  const bool wants_index = node.op == ScalarOp::ResultIndex;
  Parts values;
  Parts indexes;
  for (llvm::AllocaInst* slot : carry.slots) values.push_back(b_.CreateLoad(slot->getAllocatedType(), slot));
  for (llvm::AllocaInst* slot : carry.indexes) indexes.push_back(b_.CreateLoad(slot->getAllocatedType(), slot));
  if (options_.is_gpu && !loop_.is_valid() && slot_counts_[node.operands[0].index()] > 0) {
    const Pair pair = combine_block(carry, {values[0], indexes.empty() ? nullptr : indexes[0]});
    values_[id.index()] = {true, {wants_index ? pair.index : pair.value}};
    return;
  }
  if (loop_.is_valid() || !carry.is_vector) {
    const Parts& wanted = wants_index ? indexes : values;
    values_[id.index()] = {!loop_.is_valid(), wanted};
    return;
  }
  const Pair pair = fold(carry, values, indexes);
  values_[id.index()] = {true, {wants_index ? pair.index : pair.value}};
}

}  // namespace reprise::codegen
