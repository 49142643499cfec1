// The skeleton: the function, its loops, their preheaders and rests.
#include <algorithm>
#include <bit>
#include <limits>

#include <llvm/IR/IntrinsicsNVPTX.h>

#include "codegen/llvm/emitter_impl.h"

namespace reprise::codegen {

Emitter::Emitter(const Kernel& kernel, llvm::Module& module, const EmitOptions& options)
    : kernel_(kernel),
      analysis_(kernel),
      module_(module),
      context_(module.getContext()),
      b_(module.getContext()),
      options_(options),
      values_(kernel.nodes.size()),
      carries_(kernel.nodes.size()),
      slot_counts_(kernel.nodes.size(), 0),
      inside_(kernel.nodes.size(), false) {
  for (std::uint32_t i = 0; i < kernel.nodes.size(); ++i) {
    const Node& node = kernel.nodes[i];
    if (node.op != ScalarOp::Reduce) continue;
    const LoopId loop = analysis_.get_vector_loop(NodeId(i));
    if (loop == analysis_.get_vector_loop(node.operands[0])) continue;
    unsigned& count = slot_counts_[node.operands[0].index()];
    count = std::max({count, 1u, unsigned{kernel.get(loop).unroll}});
  }
}

std::string Emitter::emit(const std::string& symbol) {
  if (options_.is_gpu) return emit_gpu(symbol);
  llvm::Type* pointer = b_.getPtrTy();
  llvm::Type* word = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, word, word}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
  function_->setDoesNotThrow();
  entry_ = llvm::BasicBlock::Create(context_, "entry", function_);  // stack slots only
  auto* first = llvm::BasicBlock::Create(context_, "first", function_);
  b_.SetInsertPoint(first);

  unsigned argument = 0;
  for (const kernel::Buffer& buffer : kernel_.buffers) {
    if (buffer.kind == kernel::BufferKind::Local) {
      auto* array = llvm::ArrayType::get(get_memory_type(buffer.dtype), static_cast<std::uint64_t>(buffer.count));
      bases_.push_back(make_slot(array, 64));
    } else {
      bases_.push_back(
          b_.CreateLoad(pointer, b_.CreateConstInBoundsGEP1_64(pointer, function_->getArg(0), argument++)));
    }
  }
  for (std::size_t i = 0; i < kernel_.params.size(); ++i) {
    llvm::Value* bits = b_.CreateLoad(word, b_.CreateConstInBoundsGEP1_64(word, function_->getArg(1), i));
    if (kernel_.params[i] == DType::Float64) bits = b_.CreateBitCast(bits, b_.getDoubleTy());
    if (kernel_.params[i] == DType::Bool) bits = b_.CreateICmpNE(bits, b_.getInt64(0));
    values_[kernel_.param_values[i].index()] = {true, {bits}};
  }
  emit_nodes(kernel_.prologue);

  emit_bodies(function_->getArg(2), function_->getArg(3));
  b_.CreateRetVoid();
  llvm::IRBuilder<>(entry_).CreateBr(first);
  return error_;
}

void Emitter::emit_bodies(llvm::Value* begin, llvm::Value* end) {
  if (kernel_.bodies.size() == 1) {
    emit_body(kernel_.bodies[0], begin, end);
  } else {  // units of one body after the other
    llvm::Value* offset = b_.getInt64(0);
    for (const LoopId body : kernel_.bodies) {
      llvm::Value* count = emit_affine(kernel_.get(kernel_.get(body).upper));
      const auto clamp = [&](llvm::Value* unit) {
        llvm::Value* position = b_.CreateSub(unit, offset);
        position = b_.CreateSelect(b_.CreateICmpSLT(position, b_.getInt64(0)), b_.getInt64(0), position);
        return b_.CreateSelect(b_.CreateICmpSLT(position, count), position, count);
      };
      llvm::Value* body_begin = clamp(begin);
      emit_body(body, body_begin, clamp(end));
      offset = b_.CreateAdd(offset, count);
    }
  }
}

void Emitter::emit_body(LoopId body, llvm::Value* begin, llvm::Value* end) {
  const Loop& loop = kernel_.get(body);
  if (!options_.is_gpu) return emit_serial_loop(loop, begin, end);
  // A block takes a unit, and then the one as many further as there are blocks.
  llvm::Value* first = b_.CreateAdd(begin, read_register(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x));
  for_steps(first, end, read_register(llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x), false, [&](llvm::Value* unit) {
    values_[loop.var.index()] = {true, {unit}};
    emit_nodes(kernel_.get(loop.body));
  });
}

void Emitter::emit_nodes(const std::vector<NodeId>& nodes) {
  for (const NodeId id : nodes) {
    if (!error_.empty()) return;
    emit_node(id);
  }
}

// --- loops ----------------------------------------------------------------------------------------------------------

void Emitter::for_range(llvm::Value* lower, llvm::Value* upper, std::int64_t step,
                        const std::function<void(llvm::Value*)>& body) {
  const auto* first = llvm::dyn_cast<llvm::ConstantInt>(lower);
  const auto* last = llvm::dyn_cast<llvm::ConstantInt>(upper);
  const bool is_known = first != nullptr && last != nullptr;
  if (is_known && first->getSExtValue() >= last->getSExtValue()) return;
  if (is_known && first->getSExtValue() + step >= last->getSExtValue()) return body(lower);

  for_steps(lower, upper, b_.getInt64(static_cast<std::uint64_t>(step)), is_known, body);
}

// `is_entered`: there is one iteration at least.
void Emitter::for_steps(llvm::Value* lower, llvm::Value* upper, llvm::Value* step, bool is_entered,
                        const std::function<void(llvm::Value*)>& body) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(context_, "loop", function_);
  auto* behind = llvm::BasicBlock::Create(context_, "behind", function_);
  if (is_entered) {
    b_.CreateBr(head);
  } else {
    b_.CreateCondBr(b_.CreateICmpSLT(lower, upper), head, behind);
  }
  b_.SetInsertPoint(head);
  llvm::PHINode* position = b_.CreatePHI(b_.getInt64Ty(), 2);
  position->addIncoming(lower, before);
  body(position);
  llvm::Value* next = b_.CreateAdd(position, step, "", true, true);
  position->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, upper), head, behind);
  b_.SetInsertPoint(behind);
}

llvm::Value* Emitter::emit_upper(const Loop& loop) {
  llvm::Value* upper = emit_affine(kernel_.get(loop.upper));
  if (!loop.limit.is_valid()) return upper;
  llvm::Value* limit = emit_affine(kernel_.get(loop.limit));
  return b_.CreateSelect(b_.CreateICmpSLT(upper, limit), upper, limit);
}

// Where whole steps end: lower plus the largest multiple of `step`, a power of two; lower itself for an empty range.
llvm::Value* Emitter::emit_whole_end(llvm::Value* lower, llvm::Value* upper, std::int64_t step) {
  llvm::Value* count = b_.CreateSub(upper, lower);
  count = b_.CreateSelect(b_.CreateICmpSLT(count, b_.getInt64(0)), b_.getInt64(0), count);
  return b_.CreateAdd(lower, b_.CreateAnd(count, b_.getInt64(static_cast<std::uint64_t>(-step))));
}

void Emitter::emit_loop(LoopId id) {
  const Loop& loop = kernel_.get(id);
  if (loop.kind == LoopKind::TileRows && !options_.is_gpu && emit_tile(loop)) return;
  llvm::Value* lower = emit_affine(kernel_.get(loop.lower));
  llvm::Value* upper = emit_upper(loop);
  if (loop.kind == LoopKind::Vector) {
    emit_vector_loop(id, lower, upper, kernel::get_trip_divisor(kernel_, loop));
  } else {
    emit_serial_loop(loop, lower, upper);
  }
}

void Emitter::emit_serial_loop(const Loop& loop, llvm::Value* lower, llvm::Value* upper) {
  for_range(lower, upper, loop.step, [&](llvm::Value* position) {
    values_[loop.var.index()] = {true, {position}};
    inside_[loop.var.index()] = loop_.is_valid();
    emit_nodes(kernel_.get(loop.body));
  });
}

// Opens a block for what is hoisted, in front of what `body` emits.
void Emitter::with_preheader(const std::function<void()>& body) {
  auto* hoisted = llvm::BasicBlock::Create(context_, "hoisted", function_);
  auto* inside = llvm::BasicBlock::Create(context_, "inside", function_);
  b_.CreateBr(hoisted);
  preheader_ = llvm::UncondBrInst::Create(inside, hoisted);
  b_.SetInsertPoint(inside);
  splats_.clear();
  rows_.clear();
  body();
  preheader_ = nullptr;
}

void Emitter::emit_vector_loop(LoopId id, llvm::Value* lower, llvm::Value* upper, std::int64_t divisor) {
  if (options_.is_gpu) return emit_thread_loop(id, lower, upper);
  const Loop& loop = kernel_.get(id);
  if (divisor == 0) return;
  loop_ = id;
  lanes_ = loop.lanes;
  const std::int64_t lanes = loop.lanes;
  const std::int64_t step = lanes * loop.unroll;
  with_preheader([&] {
    llvm::Value* middle = divisor % step == 0 ? upper : emit_whole_end(lower, upper, step);
    emit_lanes(loop, lower, middle, loop.unroll, nullptr);
    if (divisor % step == 0 || !error_.empty()) return;
    emit_lanes(loop, middle, upper, 1, divisor % lanes == 0 ? nullptr : upper);
  });
  loop_ = LoopId();
  lanes_ = 0;
  unroll_ = 1;
}

// Values of the vector loop's variable are made when asked for, and stand here.
void Emitter::open_body(ValueId var) {
  body_block_ = b_.GetInsertBlock();
  body_last_ = body_block_->empty() ? nullptr : &body_block_->back();
  values_[var.index()] = {false, {}};
  inside_[var.index()] = true;
}

// One loop of `unroll` lane sets a step; with `masked_end` the lanes from there on are off.
void Emitter::emit_lanes(const Loop& loop, llvm::Value* lower, llvm::Value* upper, int unroll,
                         llvm::Value* masked_end) {
  unroll_ = static_cast<unsigned>(unroll);
  for_range(lower, upper, static_cast<std::int64_t>(lanes_) * unroll, [&](llvm::Value* position) {
    position_ = position;
    if (masked_end != nullptr) {
      llvm::Value* left = b_.CreateSub(masked_end, position);
      llvm::Value* most = b_.getInt64(lanes_);
      rest_ = b_.CreateSelect(b_.CreateICmpSLT(left, most), left, most);
      llvm::Value* count = b_.CreateTrunc(rest_, b_.getInt32Ty());
      mask_ = b_.CreateICmpSLT(get_lane_numbers(b_.getInt32Ty()), b_.CreateVectorSplat(lanes_, count));
    }
    open_body(loop.var);
    emit_nodes(kernel_.get(loop.body));
  });
  position_ = mask_ = rest_ = nullptr;
}

// --- tiles ----------------------------------------------------------------------------------------------------------

bool Emitter::can_tile(const Loop& rows, const Loop& columns) const {
  if (columns.lanes < 4) return false;
  const auto depends = [&](IndexId index) {
    return index.is_valid() && kernel_.get(index).get_coefficient(rows.var) != 0;
  };
  if (depends(columns.lower) || depends(columns.upper) || depends(columns.limit)) return false;
  for (const NodeId id : kernel_.get(columns.body)) {  // whatever depends on the row is varying already
    const Node& node = kernel_.get(id);
    if (node.op == ScalarOp::Loop || node.op == ScalarOp::Accumulator) return false;
    const bool is_memory = node.op == ScalarOp::Load || node.op == ScalarOp::Store;
    if (is_memory && Kernel::has_mask(node)) return false;
    if (is_memory && kernel_.get_access(node).mode != kernel::StoreMode::Set) return false;
    if (!analysis_.is_varying(id) && node.op != ScalarOp::Store) return false;
    for (int i = 0; i < node.operand_count; ++i) {
      if (node.operands[i] == rows.var) return false;
    }
  }
  return true;
}

// Whole tiles of lanes x lanes, their rows as parts; then what is left of the columns, then of the rows.
bool Emitter::emit_tile(const Loop& rows) {
  const LoopId columns_id(static_cast<std::uint32_t>(kernel_.get(kernel_.get(rows.body)[0]).payload));
  const Loop& columns = kernel_.get(columns_id);
  if (!can_tile(rows, columns)) return false;
  const std::int64_t lanes = columns.lanes;
  llvm::Value* lower = emit_affine(kernel_.get(rows.lower));
  llvm::Value* upper = emit_upper(rows);
  llvm::Value* column_lower = emit_affine(kernel_.get(columns.lower));
  llvm::Value* column_upper = emit_upper(columns);
  llvm::Value* whole_rows = emit_whole_end(lower, upper, lanes);
  llvm::Value* whole_columns = emit_whole_end(column_lower, column_upper, lanes);
  const auto is_multiple = [&](const Loop& loop) { return kernel::get_trip_divisor(kernel_, loop) % lanes == 0; };

  for_range(lower, whole_rows, lanes, [&](llvm::Value* row) {
    loop_ = columns_id;
    lanes_ = columns.lanes;
    unroll_ = columns.lanes;
    tile_row_ = rows.var;
    row_ = row;
    with_preheader([&] {
      for_range(column_lower, whole_columns, lanes, [&](llvm::Value* position) {
        position_ = position;
        values_[rows.var.index()] = {true, {row}};
        open_body(columns.var);
        emit_nodes(kernel_.get(columns.body));
      });
    });
    tile_row_ = ValueId();
    loop_ = LoopId();
    lanes_ = 0;
    unroll_ = 1;
    position_ = nullptr;
  });
  const auto emit_rest = [&](llvm::Value* from, llvm::Value* to, llvm::Value* column_from) {
    for_range(from, to, 1, [&](llvm::Value* row) {
      values_[rows.var.index()] = {true, {row}};
      emit_vector_loop(columns_id, column_from, column_upper, 1);
    });
  };
  if (!is_multiple(columns) && error_.empty()) emit_rest(lower, whole_rows, whole_columns);
  if (!is_multiple(rows) && error_.empty()) emit_rest(whole_rows, upper, column_lower);
  return true;
}

}  // namespace reprise::codegen
