// Kernels for a GPU (NVPTX): a unit is a block's, a vector loop is shared by its threads.
//
//   unit = begin + block, then by the number of blocks;  j = lower + thread, then by the number of threads
//
// What is uniform is computed by every thread alike; a uniform store is the first thread's. A reduction of a vector
// loop combines by shuffles within warps, then one shared slot a warp, then by shuffles again: every thread has the
// result. Threads of a block: a multiple of 32, at most 1024. Parameters of the function: a pointer for each argument
// buffer, a 64-bit word for each scalar parameter, begin, end. Functions of libdevice stay open (__nv_tanhf ...).
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "codegen/llvm/emitter_impl.h"
#include "kernel/interpret_op.h"

namespace reprise::codegen {
namespace {

constexpr unsigned kGlobal = 1;  // address spaces
constexpr unsigned kShared = 3;
constexpr unsigned kWarp = 32;

}  // namespace

std::string Emitter::emit_gpu(const std::string& symbol) {
  llvm::SmallVector<llvm::Type*, 16> types(kernel_.count_arguments(), b_.getPtrTy(kGlobal));
  types.append(kernel_.params.size() + 2, b_.getInt64Ty());
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), types, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
  function_->setCallingConv(llvm::CallingConv::PTX_Kernel);
  function_->setDoesNotThrow();
  entry_ = llvm::BasicBlock::Create(context_, "entry", function_);
  auto* first = llvm::BasicBlock::Create(context_, "first", function_);
  b_.SetInsertPoint(first);
  unsigned argument = 0;
  for (const kernel::Buffer& buffer : kernel_.buffers) {
    if (buffer.kind == kernel::BufferKind::Local) return "no GPU code for local arrays";
    bases_.push_back(function_->getArg(argument++));
  }
  for (std::size_t i = 0; i < kernel_.params.size(); ++i) {
    llvm::Value* bits = function_->getArg(argument++);
    if (kernel_.params[i] == DType::Float64) bits = b_.CreateBitCast(bits, b_.getDoubleTy());
    if (kernel_.params[i] == DType::Bool) bits = b_.CreateICmpNE(bits, b_.getInt64(0));
    values_[kernel_.param_values[i].index()] = {true, {bits}};
  }
  emit_nodes(kernel_.prologue);
  emit_bodies(function_->getArg(argument), function_->getArg(argument + 1));
  b_.CreateRetVoid();
  llvm::IRBuilder<>(entry_).CreateBr(first);
  return error_;
}

llvm::Value* Emitter::read_register(unsigned intrinsic) {
  const llvm::ArrayRef<llvm::Value*> none;
  return b_.CreateZExt(b_.CreateIntrinsic(b_.getInt32Ty(), static_cast<llvm::Intrinsic::ID>(intrinsic), none),
                       b_.getInt64Ty());
}

void Emitter::emit_barrier() {
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, {}, {b_.getInt32(0)});
}

void Emitter::emit_thread_loop(LoopId id, llvm::Value* lower, llvm::Value* upper) {
  const Loop& loop = kernel_.get(id);
  loop_ = id;
  lanes_ = 1;
  with_preheader([&] {
    llvm::Value* first = b_.CreateAdd(lower, read_register(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x));
    llvm::Value* step = read_register(llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_x);
    for_steps(first, upper, step, false, [&](llvm::Value* position) {
      position_ = position;
      values_[loop.var.index()] = {false, {position}};
      inside_[loop.var.index()] = true;
      emit_nodes(kernel_.get(loop.body));
    });
  });
  position_ = nullptr;
  loop_ = LoopId();
  lanes_ = 0;
  emit_barrier();  // what threads stored is there for those that load it behind the loop
}

void Emitter::emit_first_thread(const std::function<void()>& body) {
  auto* then = llvm::BasicBlock::Create(context_, "first_thread", function_);
  auto* behind = llvm::BasicBlock::Create(context_, "behind", function_);
  llvm::Value* thread = read_register(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x);
  b_.CreateCondBr(b_.CreateICmpEQ(thread, b_.getInt64(0)), then, behind);
  b_.SetInsertPoint(then);
  body();
  b_.CreateBr(behind);
  b_.SetInsertPoint(behind);
}

// The value of the thread whose number differs in the bit `distance`; in pieces of 32 bits.
llvm::Value* Emitter::shuffle(llvm::Value* value, unsigned distance) {
  const unsigned bits = value->getType()->getScalarSizeInBits();
  llvm::Type* whole = b_.getIntNTy(bits);
  llvm::Value* word = b_.CreateBitCast(value, whole);
  const auto move = [&](llvm::Value* piece) -> llvm::Value* {
    return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {},
                              {b_.getInt32(0xffffffffu), piece, b_.getInt32(distance), b_.getInt32(kWarp - 1)});
  };
  llvm::Value* moved = nullptr;
  if (bits <= 32) {
    moved = b_.CreateTrunc(move(b_.CreateZExt(word, b_.getInt32Ty())), whole);
  } else {
    llvm::Value* low = b_.CreateZExt(move(b_.CreateTrunc(word, b_.getInt32Ty())), whole);
    llvm::Value* high = b_.CreateZExt(move(b_.CreateTrunc(b_.CreateLShr(word, 32), b_.getInt32Ty())), whole);
    moved = b_.CreateOr(low, b_.CreateShl(high, 32));
  }
  return b_.CreateBitCast(moved, value->getType());
}

Emitter::Pair Emitter::combine_block(const Carry& carry, Pair pair) {
  const auto combine_warp = [&](Pair mine) {
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
      Pair other{shuffle(mine.value, distance), mine.index != nullptr ? shuffle(mine.index, distance) : nullptr};
      mine = combine(carry, mine, other);
    }
    return mine;
  };
  const auto make_shared = [&](llvm::Type* type) {
    auto* array = llvm::ArrayType::get(type, kWarp);
    return new llvm::GlobalVariable(module_, array, false, llvm::GlobalValue::InternalLinkage,
                                    llvm::UndefValue::get(array), "partial", nullptr, llvm::GlobalValue::NotThreadLocal,
                                    kShared);
  };
  pair = combine_warp(pair);
  llvm::Value* thread = read_register(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x);
  llvm::Value* lane = b_.CreateAnd(thread, kWarp - 1);
  llvm::Value* warp = b_.CreateLShr(thread, 5);
  const bool is_bool = carry.dtype == DType::Bool;
  llvm::Type* type = is_bool ? b_.getInt8Ty() : pair.value->getType();
  llvm::GlobalVariable* values = make_shared(type);
  llvm::GlobalVariable* indexes = pair.index != nullptr ? make_shared(pair.index->getType()) : nullptr;
  emit_barrier();  // the slots may still be read from the last time
  b_.CreateStore(is_bool ? b_.CreateZExt(pair.value, type) : pair.value, b_.CreateGEP(type, values, warp));
  if (indexes != nullptr) b_.CreateStore(pair.index, b_.CreateGEP(pair.index->getType(), indexes, warp));
  emit_barrier();
  llvm::Value* threads = read_register(llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_x);
  llvm::Value* is_used = b_.CreateICmpULT(lane, b_.CreateLShr(threads, 5));
  const kernel::Partial start = kernel::get_start(carry.combine, carry.dtype);
  llvm::Value* loaded = b_.CreateLoad(type, b_.CreateGEP(type, values, lane));
  if (is_bool) loaded = b_.CreateTrunc(loaded, b_.getInt1Ty());
  Pair all{b_.CreateSelect(is_used, loaded, make_constant(carry.dtype, start.bits)), nullptr};
  if (indexes != nullptr) {
    llvm::Value* index = b_.CreateLoad(b_.getInt64Ty(), b_.CreateGEP(b_.getInt64Ty(), indexes, lane));
    all.index = b_.CreateSelect(is_used, index, b_.getInt64(static_cast<std::uint64_t>(start.index)));
  }
  return combine_warp(all);
}

}  // namespace reprise::codegen
