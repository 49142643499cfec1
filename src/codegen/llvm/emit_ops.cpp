// Scalar operations, part by part: the rows of scalar_ops.def as LLVM's instructions.
#include <limits>

#include "codegen/llvm/emitter_impl.h"
#include "kernel/interpret_op.h"
#include "kernel/numbers.h"

namespace reprise::codegen {

using kernel::is_signed;
using kernel::OpClass;

// --- types ----------------------------------------------------------------------------------------------------------

llvm::Type* Emitter::get_type(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return b_.getInt1Ty();
    case DType::Float16:
      return b_.getHalfTy();
    case DType::BFloat16:
      return b_.getInt16Ty();
    case DType::Float32:
      return b_.getFloatTy();
    case DType::Float64:
      return b_.getDoubleTy();
    default:
      return b_.getIntNTy(static_cast<unsigned>(kernel::count_bits(dtype)));
  }
}

llvm::Type* Emitter::get_memory_type(DType dtype) { return dtype == DType::Bool ? b_.getInt8Ty() : get_type(dtype); }

llvm::Type* Emitter::widen(llvm::Type* scalar) {
  return options_.is_gpu ? scalar : llvm::FixedVectorType::get(scalar, lanes_);
}

llvm::Type* Emitter::like(llvm::Type* shape, llvm::Type* scalar) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(shape);
  return vector != nullptr ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}

llvm::Constant* Emitter::make_constant(DType dtype, std::uint64_t bits) {
  llvm::Type* type = get_type(dtype);
  if (!type->isFloatingPointTy()) return llvm::ConstantInt::get(type, bits, false, true);
  const auto width = static_cast<unsigned>(kernel::count_bits(dtype));
  return llvm::ConstantFP::get(context_, llvm::APFloat(type->getFltSemantics(), llvm::APInt(width, bits)));
}

// --- parts and splats -----------------------------------------------------------------------------------------------

bool Emitter::is_outer(ValueId id) const { return !inside_[id.index()]; }

llvm::Value* Emitter::splat(llvm::Value* scalar) {
  if (options_.is_gpu) return scalar;
  if (auto* constant = llvm::dyn_cast<llvm::Constant>(scalar)) {
    return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes_), constant);
  }
  return b_.CreateVectorSplat(lanes_, scalar);
}

llvm::Value* Emitter::get_lane_numbers(llvm::IntegerType* type) {
  llvm::SmallVector<llvm::Constant*, 16> numbers;
  for (unsigned i = 0; i < lanes_; ++i) numbers.push_back(llvm::ConstantInt::get(type, i));
  return llvm::ConstantVector::get(numbers);
}

llvm::Value* Emitter::get_uniform(ValueId id) {
  const Value& value = values_[id.index()];
  if (!value.is_uniform || value.parts.empty()) {
    error_ = "a varying value where a uniform one is needed";
    return llvm::PoisonValue::get(get_type(kernel_.get(id).dtype));
  }
  return value.parts[0];
}

llvm::Value* Emitter::get_part(ValueId id, unsigned part) {
  Value& value = values_[id.index()];
  if (!value.is_uniform) {
    if (value.parts.empty()) {  // a loop variable, asked for the first time in this body
      // Made where the body starts: the place that asks may be in a loop inside, which others are not behind.
      const llvm::IRBuilder<>::InsertPointGuard guard(b_);
      if (body_last_ == nullptr || llvm::isa<llvm::PHINode>(body_last_)) {
        b_.SetInsertPoint(body_block_, body_block_->getFirstInsertionPt());
      } else {
        b_.SetInsertPoint(body_block_, std::next(body_last_->getIterator()));
      }
      for (unsigned i = 0; i < unroll_; ++i) {
        const std::uint64_t offset = tile_row_.is_valid() ? 0 : std::uint64_t{i} * lanes_;
        llvm::Value* first = b_.CreateAdd(position_, b_.getInt64(offset));
        value.parts.push_back(b_.CreateAdd(splat(first), get_lane_numbers(b_.getInt64Ty())));
      }
    }
    return value.parts[part];
  }
  llvm::Value* scalar = value.parts[0];
  if (options_.is_gpu) return scalar;
  if (llvm::isa<llvm::Constant>(scalar) || preheader_ == nullptr || !is_outer(id)) return splat(scalar);
  llvm::Value*& vector = splats_[{scalar, lanes_}];
  if (vector == nullptr) vector = llvm::IRBuilder<>(preheader_).CreateVectorSplat(lanes_, scalar);
  return vector;
}

Emitter::Parts Emitter::get_parts(ValueId id) {
  Parts parts;
  for (unsigned i = 0; i < unroll_; ++i) parts.push_back(get_part(id, i));
  return parts;
}

// --- nodes ----------------------------------------------------------------------------------------------------------

bool Emitter::is_hoistable(NodeId id, const Node& node) const {
  if (preheader_ == nullptr || analysis_.is_varying(id)) return false;
  const OpClass op_class = kernel::get_row(node.op).op_class;
  const bool is_pure = (op_class >= OpClass::Any && op_class <= OpClass::Math) || node.op == ScalarOp::Index;
  if (!is_pure || (node.op == ScalarOp::Math && Kernel::get_numerics(node) == Numerics::Mkl)) return false;
  for (int i = 0; i < node.operand_count; ++i) {
    if (!is_outer(node.operands[i])) return false;
  }
  if (node.op == ScalarOp::Index) {
    for (const Term& term : kernel_.get(IndexId(static_cast<std::uint32_t>(node.payload))).terms()) {
      if (!is_outer(term.value)) return false;
    }
  }
  return true;
}

void Emitter::emit_node(NodeId id) {
  const Node& node = kernel_.get(id);
  if (node.op == ScalarOp::Const) {
    values_[id.index()] = {true, {make_constant(node.dtype, node.payload)}};
    return;
  }
  if (is_hoistable(id, node)) {
    const llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(preheader_);
    emit_node_at(id, node);
    return;
  }
  inside_[id.index()] = loop_.is_valid();
  emit_node_at(id, node);
}

void Emitter::emit_node_at(NodeId id, const Node& node) {
  switch (node.op) {
    case ScalarOp::Const:
    case ScalarOp::Param:
    case ScalarOp::LoopVar:
      return;
    case ScalarOp::Index: {
      const Affine& affine = kernel_.get(IndexId(static_cast<std::uint32_t>(node.payload)));
      Value value{!analysis_.is_varying(id), {}};
      for (unsigned i = 0; i < (value.is_uniform ? 1 : unroll_); ++i) {
        value.parts.push_back(value.is_uniform ? emit_affine(affine) : emit_affine_part(affine, i));
      }
      values_[id.index()] = value;
      return;
    }
    case ScalarOp::Load:
      values_[id.index()] = emit_load(id, node);
      return;
    case ScalarOp::Store:
      return emit_store(node);
    case ScalarOp::Accumulator:
      return emit_accumulator(id, node);
    case ScalarOp::Reduce:
    case ScalarOp::Scan:
      return emit_reduce(id, node, node.op == ScalarOp::Scan);
    case ScalarOp::Result:
    case ScalarOp::ResultIndex:
      return emit_result(id, node);
    case ScalarOp::Loop:
      return emit_loop(LoopId(static_cast<std::uint32_t>(node.payload)));
    case ScalarOp::VectorCall:
      return emit_vector_call(node);
    default:
      break;
  }
  Value value{!analysis_.is_varying(id), {}};
  const DType operand_dtype = kernel_.get(node.operands[node.op == ScalarOp::Select ? 1 : 0]).dtype;
  for (unsigned part = 0; part < (value.is_uniform ? 1 : unroll_); ++part) {
    llvm::SmallVector<llvm::Value*, 3> operands;
    for (int i = 0; i < node.operand_count; ++i) {
      const ValueId operand = node.operands[i];
      // A uniform condition selects whole vectors.
      operands.push_back(value.is_uniform ? get_uniform(operand) : get_part(operand, part));
    }
    value.parts.push_back(node.op == ScalarOp::Math ? emit_math(node, operands)
                                                    : emit_op(node, operand_dtype, operands));
  }
  values_[id.index()] = value;
}

llvm::Value* Emitter::emit_op(const Node& node, DType operand_dtype, llvm::ArrayRef<llvm::Value*> operands) {
  switch (kernel::get_row(node.op).op_class) {
    case OpClass::Any:
      return b_.CreateSelect(operands[0], operands[1], operands[2]);
    case OpClass::Compare:
      return emit_compare(node.op, operand_dtype, operands[0], operands[1]);
    case OpClass::Convert:
      if (node.op == ScalarOp::Cast) return emit_cast(operands[0], operand_dtype, node.dtype);
      return b_.CreateBitCast(operands[0], like(operands[0]->getType(), get_type(node.dtype)));
    case OpClass::Round: {
      const DType half = node.op == ScalarOp::RoundBF16 ? DType::BFloat16 : DType::Float16;
      return emit_cast(emit_cast(operands[0], DType::Float32, half), half, DType::Float32);
    }
    default:
      return types::is_float(node.dtype) ? emit_float_op(node, operands) : emit_integer_op(node, operands);
  }
}

llvm::Value* Emitter::emit_max(DType dtype, bool is_max, llvm::Value* a, llvm::Value* b) {
  if (types::is_float(dtype)) {  // NaN in a: a; NaN in b: the comparison is false, b
    llvm::Value* is_better = is_max ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b);
    return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, b_.CreateSelect(is_better, a, b));
  }
  const auto predicate = is_signed(dtype) ? (is_max ? llvm::CmpInst::ICMP_SGT : llvm::CmpInst::ICMP_SLT)
                                          : (is_max ? llvm::CmpInst::ICMP_UGT : llvm::CmpInst::ICMP_ULT);
  return b_.CreateSelect(b_.CreateICmp(predicate, a, b), a, b);
}

llvm::Value* Emitter::emit_float_op(const Node& node, llvm::ArrayRef<llvm::Value*> operands) {
  llvm::Value* a = operands[0];
  llvm::Value* b = operands.size() > 1 ? operands[1] : nullptr;
  switch (node.op) {
    case ScalarOp::Add:
      return b_.CreateFAdd(a, b);
    case ScalarOp::Sub:
      return b_.CreateFSub(a, b);
    case ScalarOp::Mul:
      return b_.CreateFMul(a, b);
    case ScalarOp::Div:
      return b_.CreateFDiv(a, b);
    case ScalarOp::Fma:
      return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, operands[2]});
    case ScalarOp::Neg:
      return b_.CreateFNeg(a);
    case ScalarOp::Abs:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
    case ScalarOp::Max:
    case ScalarOp::Min:
      return emit_max(node.dtype, node.op == ScalarOp::Max, a, b);
    case ScalarOp::Sqrt:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
    case ScalarOp::Floor:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a);
    case ScalarOp::Ceil:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, a);
    case ScalarOp::Trunc:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a);
    case ScalarOp::RoundEven:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, a);
    case ScalarOp::CopySign:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a, b);
    default:
      error_ = "no code for " + std::string(kernel::get_row(node.op).text) + " of floats";
      return a;
  }
}

llvm::Value* Emitter::emit_integer_op(const Node& node, llvm::ArrayRef<llvm::Value*> operands) {
  llvm::Value* a = operands[0];
  llvm::Value* b = operands.size() > 1 ? operands[1] : nullptr;
  llvm::Type* type = a->getType();
  const bool is_signed_type = is_signed(node.dtype);
  const auto bits = static_cast<std::uint64_t>(kernel::count_bits(node.dtype));
  switch (node.op) {
    case ScalarOp::Add:
      return b_.CreateAdd(a, b);
    case ScalarOp::Sub:
      return b_.CreateSub(a, b);
    case ScalarOp::Mul:
      return b_.CreateMul(a, b);
    case ScalarOp::Neg:
      return b_.CreateNeg(a);
    case ScalarOp::Abs:
      return is_signed_type ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse()) : a;
    case ScalarOp::DivTrunc:
    case ScalarOp::DivFloor:
    case ScalarOp::RemTrunc:
    case ScalarOp::RemFloor:
      return emit_division(node.op, node.dtype, a, b);
    case ScalarOp::Max:
    case ScalarOp::Min:
      return emit_max(node.dtype, node.op == ScalarOp::Max, a, b);
    case ScalarOp::And:
      return b_.CreateAnd(a, b);
    case ScalarOp::Or:
      return b_.CreateOr(a, b);
    case ScalarOp::Xor:
      return b_.CreateXor(a, b);
    case ScalarOp::Not:
      return b_.CreateNot(a);
    case ScalarOp::Shl:
    case ScalarOp::Shr: {
      llvm::Value* is_inside = b_.CreateICmpULT(b, llvm::ConstantInt::get(type, bits));
      if (node.op == ScalarOp::Shr && is_signed_type) {
        return b_.CreateAShr(a, b_.CreateSelect(is_inside, b, llvm::ConstantInt::get(type, bits - 1)));
      }
      llvm::Value* amount = b_.CreateSelect(is_inside, b, llvm::Constant::getNullValue(type));
      llvm::Value* shifted = node.op == ScalarOp::Shl ? b_.CreateShl(a, amount) : b_.CreateLShr(a, amount);
      return b_.CreateSelect(is_inside, shifted, llvm::Constant::getNullValue(type));
    }
    default:
      error_ = "no code for " + std::string(kernel::get_row(node.op).text) + " of integers";
      return a;
  }
}

// The machine traps at 0 and at least / -1: both divide by 1 instead, and are put right.
llvm::Value* Emitter::emit_division(ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  llvm::Value* zero = llvm::Constant::getNullValue(type);
  llvm::Value* one = llvm::ConstantInt::get(type, 1);
  llvm::Value* is_zero = b_.CreateICmpEQ(b, zero);
  const bool is_division = op == ScalarOp::DivTrunc || op == ScalarOp::DivFloor;
  if (!is_signed(dtype)) {
    llvm::Value* divisor = b_.CreateSelect(is_zero, one, b);
    llvm::Value* result = is_division ? b_.CreateUDiv(a, divisor) : b_.CreateURem(a, divisor);
    return b_.CreateSelect(is_zero, zero, result);
  }
  llvm::Value* is_minus_one = b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(type));
  llvm::Value* divisor = b_.CreateSelect(b_.CreateOr(is_zero, is_minus_one), one, b);
  llvm::Value* quotient = b_.CreateSDiv(a, divisor);
  llvm::Value* rest = b_.CreateSub(a, b_.CreateMul(quotient, divisor));
  if (op == ScalarOp::DivFloor || op == ScalarOp::RemFloor) {
    llvm::Value* differs = b_.CreateICmpSLT(b_.CreateXor(rest, divisor), zero);
    differs = b_.CreateAnd(differs, b_.CreateICmpNE(rest, zero));
    quotient = b_.CreateSub(quotient, b_.CreateZExt(differs, type));
    rest = b_.CreateSelect(differs, b_.CreateAdd(rest, divisor), rest);
  }
  llvm::Value* result = is_division ? b_.CreateSelect(is_minus_one, b_.CreateNeg(a), quotient)
                                    : b_.CreateSelect(is_minus_one, zero, rest);
  return b_.CreateSelect(is_zero, zero, result);
}

llvm::Value* Emitter::emit_compare(ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b) {
  using P = llvm::CmpInst;
  const auto pick = [&](P::Predicate real, P::Predicate with_sign, P::Predicate without_sign) {
    if (types::is_float(dtype)) return b_.CreateFCmp(real, a, b);
    return b_.CreateICmp(is_signed(dtype) ? with_sign : without_sign, a, b);
  };
  switch (op) {
    case ScalarOp::Eq:
      return pick(P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ);
    case ScalarOp::Ne:
      return pick(P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE);
    case ScalarOp::Lt:
      return pick(P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT);
    case ScalarOp::Le:
      return pick(P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE);
    case ScalarOp::Gt:
      return pick(P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT);
    case ScalarOp::Ge:
      return pick(P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE);
    default:
      error_ = "no comparison";
      return a;
  }
}

// --- casts: requirement 6 of kernel.h -------------------------------------------------------------------------------

llvm::Value* Emitter::emit_bfloat16(llvm::Value* a) {
  llvm::Type* word = like(a->getType(), b_.getInt32Ty());
  const auto number = [&](std::uint64_t value) { return llvm::ConstantInt::get(word, value); };
  llvm::Value* bits = b_.CreateBitCast(a, word);
  llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(bits, number(16)), number(1));
  llvm::Value* rounded = b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(odd, number(0x7fff))), number(16));
  rounded = b_.CreateSelect(b_.CreateFCmpUNO(a, a), number(0x7fc0), rounded);
  return b_.CreateTrunc(rounded, like(a->getType(), b_.getInt16Ty()));
}

llvm::Value* Emitter::emit_cast(llvm::Value* a, DType from, DType to) {
  if (from == to) return a;
  llvm::Type* shape = a->getType();
  if (from == DType::BFloat16) {
    llvm::Type* word = like(shape, b_.getInt32Ty());
    llvm::Value* bits = b_.CreateShl(b_.CreateZExt(a, word), llvm::ConstantInt::get(word, 16));
    return emit_cast(b_.CreateBitCast(bits, like(shape, b_.getFloatTy())), DType::Float32, to);
  }
  if (from == DType::Float16 && to != DType::Float32) {
    return emit_cast(emit_cast(a, from, DType::Float32), DType::Float32, to);
  }
  if (kernel::is_half(to) && from != DType::Float32) {
    return emit_cast(emit_cast(a, from, DType::Float32), DType::Float32, to);
  }
  if (to == DType::BFloat16) return emit_bfloat16(a);
  llvm::Type* type = like(shape, get_type(to));
  if (to == DType::Bool) {
    llvm::Value* zero = llvm::Constant::getNullValue(shape);
    return types::is_float(from) ? b_.CreateFCmpUNE(a, zero) : b_.CreateICmpNE(a, zero);
  }
  if (types::is_float(from) && types::is_float(to)) return b_.CreateFPCast(a, type);
  if (types::is_float(from)) {
    const bool through_int32 = is_signed(to) && kernel::count_bits(to) <= 32;
    llvm::Type* middle = like(shape, through_int32 ? b_.getInt32Ty() : b_.getInt64Ty());
    // Out of range is poison to LLVM, and it folds on that; so what the machine would give is put in by hand.
    llvm::Value* limit = llvm::ConstantFP::get(shape, through_int32 ? 0x1p31 : 0x1p63);
    llvm::Value* fits = b_.CreateFCmpOLT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a), limit);
    llvm::Value* least = llvm::ConstantInt::get(middle, llvm::APInt::getSignedMinValue(middle->getScalarSizeInBits()));
    llvm::Value* whole = b_.CreateSelect(fits, b_.CreateFreeze(b_.CreateFPToSI(a, middle)), least);
    return b_.CreateTrunc(whole, type);
  }
  if (types::is_float(to)) return is_signed(from) ? b_.CreateSIToFP(a, type) : b_.CreateUIToFP(a, type);
  return b_.CreateIntCast(a, type, is_signed(from));
}

}  // namespace reprise::codegen
