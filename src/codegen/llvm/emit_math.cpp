// Functions that are no instruction: Sleef by vector calls, MKL's VML over arrays, libm by lanes, and our own exp.
#include "codegen/llvm/emitter_impl.h"

namespace reprise::codegen {
namespace {

// VML's mode as eager sets it: high accuracy, denormals kept, errors ignored.
constexpr std::uint64_t kVmlMode = 0x140102;

}  // namespace

llvm::FunctionCallee Emitter::get_pure_function(const std::string& name, llvm::Type* type, std::size_t operands) {
  const llvm::SmallVector<llvm::Type*, 2> arguments(operands, type);
  llvm::FunctionCallee callee = module_.getOrInsertFunction(name, llvm::FunctionType::get(type, arguments, false));
  if (auto* function = llvm::dyn_cast<llvm::Function>(callee.getCallee())) {
    function->setDoesNotThrow();
    function->setDoesNotAccessMemory();
    function->setWillReturn();
  }
  return callee;
}

llvm::Value* Emitter::emit_math(const Node& node, llvm::ArrayRef<llvm::Value*> operands) {
  const MathFunction function = Kernel::get_math_function(node);
  const kernel::MathRow& row = kernel::get_row(function);
  if (options_.is_gpu) {  // libdevice has the C library's names
    const bool is_inline = function == MathFunction::Exp && node.dtype == DType::Float32;
    return is_inline ? emit_exp(operands[0]) : emit_libm(function, node.dtype, operands);
  }
  switch (Kernel::get_numerics(node)) {
    case Numerics::Mkl:
      if (!row.mkl.empty()) return emit_mkl(function, node.dtype, operands[0]);
      return emit_sleef(function, node.dtype, operands);  // as eager does where VML has no such function
    case Numerics::Sleef:
      if (function == MathFunction::Exp && node.dtype == DType::Float32 && options_.inline_exp) {
        return emit_exp(operands[0]);
      }
      return emit_sleef(function, node.dtype, operands);
    case Numerics::Libm:
      return emit_libm(function, node.dtype, operands);
  }
  return operands[0];
}

// Sleef has functions of 8 floats and 4 doubles, with AVX-512 of twice that: a part is cut or filled up to that. A
// scalar is lane 0 of a vector, so that it has the bits that a lane would have.
llvm::Value* Emitter::emit_sleef(MathFunction function, DType dtype, llvm::ArrayRef<llvm::Value*> operands) {
  const kernel::MathRow& row = kernel::get_row(function);
  const bool is_double = dtype == DType::Float64;
  const auto* shape = llvm::dyn_cast<llvm::FixedVectorType>(operands[0]->getType());
  const bool is_wide = options_.has_avx512 && shape != nullptr && shape->getNumElements() >= 16;
  const unsigned width = (is_double ? 4 : 8) * (is_wide ? 2 : 1);
  const std::string name = "Sleef_" + std::string(row.sleef) + (is_double ? "d" : "f") + std::to_string(width) + "_" +
                           std::string(row.accuracy) + (is_wide ? "avx512f" : "avx2");
  llvm::Type* scalar = get_type(dtype);
  auto* type = llvm::FixedVectorType::get(scalar, width);
  const llvm::FunctionCallee callee = get_pure_function(name, type, operands.size());

  if (shape == nullptr) {
    llvm::SmallVector<llvm::Value*, 2> arguments;
    for (llvm::Value* operand : operands) arguments.push_back(b_.CreateVectorSplat(width, operand));
    return b_.CreateExtractElement(b_.CreateCall(callee, arguments), std::uint64_t{0});
  }
  const unsigned lanes = shape->getNumElements();
  llvm::Value* result = nullptr;
  for (unsigned first = 0; first < lanes; first += width) {
    llvm::SmallVector<llvm::Value*, 2> arguments;
    for (llvm::Value* operand : operands) {
      llvm::SmallVector<int, 8> picked;
      for (unsigned i = 0; i < width; ++i) picked.push_back(static_cast<int>(std::min(first + i, lanes - 1)));
      arguments.push_back(lanes == width ? operand : b_.CreateShuffleVector(operand, picked));
    }
    llvm::Value* piece = b_.CreateCall(callee, arguments);
    if (lanes == width) return piece;
    llvm::SmallVector<int, 16> spread;  // the piece at its place in a whole part
    llvm::SmallVector<int, 16> merged;
    for (unsigned i = 0; i < lanes; ++i) {
      const bool is_inside = i >= first && i < first + width;
      spread.push_back(is_inside ? static_cast<int>(i - first) : -1);
      merged.push_back(static_cast<int>(is_inside ? lanes + i : i));
    }
    llvm::Value* placed = b_.CreateShuffleVector(piece, spread);
    result = result == nullptr ? placed : b_.CreateShuffleVector(result, placed, merged);
  }
  return result;
}

llvm::Value* Emitter::emit_libm(MathFunction function, DType dtype, llvm::ArrayRef<llvm::Value*> operands) {
  const std::string name = (options_.is_gpu ? "__nv_" : "") + std::string(kernel::get_row(function).libm) +
                           (dtype == DType::Float64 ? "" : "f");
  const llvm::FunctionCallee callee = get_pure_function(name, get_type(dtype), operands.size());
  const auto call = [&](llvm::ArrayRef<llvm::Value*> arguments) {
    llvm::CallInst* made = b_.CreateCall(callee, arguments);
    made->addFnAttr(llvm::Attribute::NoBuiltin);  // LLVM would fold constants with other bits
    return made;
  };
  const auto* shape = llvm::dyn_cast<llvm::FixedVectorType>(operands[0]->getType());
  if (shape == nullptr) return call(operands);
  llvm::Value* result = llvm::PoisonValue::get(operands[0]->getType());
  for (unsigned lane = 0; lane < shape->getNumElements(); ++lane) {
    llvm::SmallVector<llvm::Value*, 2> arguments;
    for (llvm::Value* operand : operands) arguments.push_back(b_.CreateExtractElement(operand, lane));
    result = b_.CreateInsertElement(result, call(arguments), lane);
  }
  return result;
}

void Emitter::emit_mkl_call(MathFunction function, DType dtype, llvm::Value* count, llvm::Value* from,
                            llvm::Value* to) {
  const kernel::MathRow& row = kernel::get_row(function);
  if (row.mkl.empty()) {
    error_ = "VML has no " + std::string(row.text);
    return;
  }
  const std::string name = (dtype == DType::Float64 ? "vmd" : "vms") + std::string(row.mkl);
  llvm::Type* pointer = b_.getPtrTy();
  llvm::FunctionCallee callee = module_.getOrInsertFunction(
      name, llvm::FunctionType::get(b_.getVoidTy(), {b_.getInt32Ty(), pointer, pointer, b_.getInt64Ty()}, false));
  if (auto* declared = llvm::dyn_cast<llvm::Function>(callee.getCallee())) declared->setDoesNotThrow();
  b_.CreateCall(callee, {b_.CreateTrunc(count, b_.getInt32Ty()), from, to, b_.getInt64(kVmlMode)});
}

// One part through the stack: for what strip_mine_math() could not take out of its loop.
llvm::Value* Emitter::emit_mkl(MathFunction function, DType dtype, llvm::Value* operand) {
  llvm::Type* type = operand->getType();
  const auto* shape = llvm::dyn_cast<llvm::FixedVectorType>(type);
  llvm::AllocaInst* from = make_slot(type, 64);
  llvm::AllocaInst* to = make_slot(type, 64);
  b_.CreateStore(operand, from);
  emit_mkl_call(function, dtype, b_.getInt64(shape == nullptr ? 1 : shape->getNumElements()), from, to);
  return b_.CreateLoad(type, to);
}

void Emitter::emit_vector_call(const Node& node) {
  const kernel::VectorCall& call = kernel_.calls[node.payload];
  if (options_.is_gpu) {
    error_ = "no GPU code for calls over arrays";
    return;
  }
  if (call.numerics != Numerics::Mkl) {
    error_ = "a vector call of numerics " + std::string(kernel::get_text(call.numerics));
    return;
  }
  emit_mkl_call(call.function, kernel_.get(call.operand).dtype, emit_affine(kernel_.get(call.count)),
                get_base(call.operand), get_base(call.result));
}

// exp(x) for float with the bits of Sleef's expf (1.0 ulp, with fma).
// Method: Cody-Waite reduction x = q ln 2 + s in two steps, a polynomial of degree 6 in s, and scaling by 2^q in two
// halves so that results may be denormal. N. Shibata, F. Petrogalli, "SLEEF: A Portable Vectorized Library of C
// Standard Mathematical Functions", IEEE TPDS 31(6), 2020.
llvm::Value* Emitter::emit_exp(llvm::Value* x) {
  llvm::Type* type = x->getType();
  llvm::Type* word = like(type, b_.getInt32Ty());
  const auto number = [&](float value) { return llvm::ConstantFP::get(type, static_cast<double>(value)); };
  const auto whole = [&](std::uint64_t value) { return llvm::ConstantInt::get(word, value); };
  const auto fma = [&](llvm::Value* a, llvm::Value* b, llvm::Value* c) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {a, b, c});
  };
  constexpr float kLog2E = 1.442695040888963407359924681001892137426645954152985934135449406931f;
  llvm::Value* rounded = b_.CreateUnaryIntrinsic(llvm::Intrinsic::rint, b_.CreateFMul(x, number(kLog2E)));
  // Out of range is poison to LLVM; the selects below put in what such an x gives.
  llvm::Value* q = b_.CreateFreeze(b_.CreateFPToSI(rounded, word));
  llvm::Value* s = fma(rounded, number(-0.693145751953125f), x);
  s = fma(rounded, number(-1.428606765330187045e-06f), s);
  llvm::Value* sum = number(0.000198527617612853646278381f);
  for (const float coefficient : {0.00139304355252534151077271f, 0.00833336077630519866943359f,
                                  0.0416664853692054748535156f, 0.166666671633720397949219f, 0.5f}) {
    sum = fma(sum, s, number(coefficient));
  }
  sum = b_.CreateFAdd(number(1.0f), fma(b_.CreateFMul(s, s), sum, s));
  llvm::Value* half = b_.CreateAShr(q, whole(1));
  const auto power_of_two = [&](llvm::Value* exponent) {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(exponent, whole(0x7f)), whole(23)), type);
  };
  llvm::Value* result = b_.CreateFMul(b_.CreateFMul(sum, power_of_two(half)), power_of_two(b_.CreateSub(q, half)));
  result = b_.CreateSelect(b_.CreateFCmpOLT(x, number(-104.0f)), number(0.0f), result);
  return b_.CreateSelect(b_.CreateFCmpOLT(number(100.0f), x), llvm::ConstantFP::getInfinity(type), result);
}

}  // namespace reprise::codegen
