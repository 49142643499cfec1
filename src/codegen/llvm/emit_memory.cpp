// Loads and stores: contiguous, masked, gathered, and rows of a tile.
#include <bit>

#include "codegen/llvm/emitter_impl.h"
#include "kernel/numbers.h"

namespace reprise::codegen {

using kernel::StoreMode;

llvm::AllocaInst* Emitter::make_slot(llvm::Type* type, std::uint64_t alignment) {
  llvm::IRBuilder<> builder(entry_, entry_->begin());
  llvm::AllocaInst* slot = builder.CreateAlloca(type);
  if (alignment != 0) slot->setAlignment(llvm::Align(alignment));
  return slot;
}

llvm::Value* Emitter::get_null_slot() {
  if (null_slot_ == nullptr) {
    llvm::AllocaInst* slot = make_slot(b_.getInt64Ty(), 8);
    llvm::IRBuilder<> builder(entry_);
    builder.CreateStore(b_.getInt64(0), slot);
    null_slot_ = slot;
  }
  return null_slot_;
}

llvm::Value* Emitter::get_waste_slot() {
  if (waste_slot_ == nullptr) waste_slot_ = make_slot(b_.getInt64Ty(), 8);
  return waste_slot_;
}

// --- indexes --------------------------------------------------------------------------------------------------------

llvm::Value* Emitter::emit_affine(const Affine& affine) {
  llvm::Value* sum = nullptr;
  for (const Term& term : affine.terms()) {
    llvm::Value* value = get_uniform(term.value);
    if (term.coefficient != 1) {
      value = b_.CreateMul(value, b_.getInt64(static_cast<std::uint64_t>(term.coefficient)));
    }
    sum = sum == nullptr ? value : b_.CreateAdd(sum, value);
  }
  llvm::Value* constant = b_.getInt64(static_cast<std::uint64_t>(affine.constant()));
  if (sum == nullptr) return constant;
  return affine.constant() == 0 ? sum : b_.CreateAdd(sum, constant);
}

// The indexes of all lanes of a part.
llvm::Value* Emitter::emit_affine_part(const Affine& affine, unsigned part) {
  std::vector<Term> uniform_terms;
  llvm::Value* sum = nullptr;
  for (const Term& term : affine.terms()) {
    if (!analysis_.is_varying(term.value)) {
      uniform_terms.push_back(term);
      continue;
    }
    llvm::Value* value = get_part(term.value, part);
    if (term.coefficient != 1) {
      value = b_.CreateMul(value, splat(b_.getInt64(static_cast<std::uint64_t>(term.coefficient))));
    }
    sum = sum == nullptr ? value : b_.CreateAdd(sum, value);
  }
  std::int64_t constant = affine.constant();
  if (tile_row_.is_valid()) constant += affine.get_coefficient(tile_row_) * part;
  llvm::Value* base = splat(emit_affine(Affine(constant, std::move(uniform_terms))));
  return sum == nullptr ? base : b_.CreateAdd(sum, base);
}

llvm::Value* Emitter::get_base(BufferId buffer) { return bases_[buffer.index()]; }

llvm::Value* Emitter::get_element(BufferId buffer, llvm::Value* index) {
  return b_.CreateGEP(get_memory_type(kernel_.get(buffer).dtype), get_base(buffer), index);
}

llvm::Value* Emitter::find_contiguous(const Access& access, ValueId var) {
  const Affine& affine = kernel_.get(access.index);
  if (affine.get_coefficient(var) != 1) return nullptr;
  std::vector<Term> rest;
  bool is_outer_row = preheader_ != nullptr;
  for (const Term& term : affine.terms()) {
    if (term.value == var) continue;
    if (analysis_.is_varying(term.value)) return nullptr;
    is_outer_row = is_outer_row && is_outer(term.value);
    rest.push_back(term);
  }
  llvm::Value* row = nullptr;
  {
    const llvm::IRBuilder<>::InsertPointGuard guard(b_);
    if (is_outer_row) b_.SetInsertPoint(preheader_);
    llvm::Value* start = emit_affine(Affine(affine.constant(), std::move(rest)));
    llvm::Value*& known = rows_[{get_base(access.buffer), start}];
    if (known != nullptr && is_outer_row) {
      row = known;
    } else {
      row = get_element(access.buffer, start);
      if (is_outer_row) known = row;
    }
  }
  return row;
}

// --- values in memory -----------------------------------------------------------------------------------------------

llvm::Value* Emitter::emit_from_memory(llvm::Value* stored, DType dtype) {
  if (dtype != DType::Bool) return stored;
  return b_.CreateICmpNE(stored, llvm::Constant::getNullValue(stored->getType()));
}

llvm::Value* Emitter::emit_to_memory(llvm::Value* value, DType dtype) {
  if (dtype != DType::Bool) return value;
  return b_.CreateZExt(value, like(value->getType(), b_.getInt8Ty()));
}

llvm::Value* Emitter::join_masks(llvm::Value* mask) {
  if (mask_ == nullptr) return mask;
  return mask == nullptr ? mask_ : b_.CreateAnd(mask, mask_);
}

// `type` is a vector; `mask` may be null. The rest of a row of narrow elements goes through the stack where the machine
// has no masked access of that width.
llvm::Value* Emitter::emit_contiguous_load(llvm::Type* type, llvm::Value* pointer, llvm::Value* mask) {
  const std::uint64_t size_bytes = type->getScalarSizeInBits() / 8;
  const llvm::Align alignment(size_bytes);
  if (options_.is_gpu && mask != nullptr) error_ = "no GPU code for masked loads";
  if (mask == nullptr || options_.is_gpu) return b_.CreateAlignedLoad(type, pointer, alignment);
  if (mask != mask_ || size_bytes >= 4 || options_.has_avx512) {
    return b_.CreateMaskedLoad(type, pointer, alignment, mask, llvm::Constant::getNullValue(type));
  }
  llvm::AllocaInst* slot = make_slot(type);
  b_.CreateStore(llvm::Constant::getNullValue(type), slot);
  b_.CreateMemCpy(slot, slot->getAlign(), pointer, alignment, b_.CreateMul(rest_, b_.getInt64(size_bytes)));
  return b_.CreateLoad(type, slot);
}

void Emitter::emit_contiguous_store(llvm::Value* value, llvm::Value* pointer, llvm::Value* mask) {
  llvm::Type* type = value->getType();
  const std::uint64_t size_bytes = type->getScalarSizeInBits() / 8;
  const llvm::Align alignment(size_bytes);
  if (options_.is_gpu && mask != nullptr) error_ = "no GPU code for masked stores";
  if (mask == nullptr || options_.is_gpu) {
    b_.CreateAlignedStore(value, pointer, alignment);
  } else if (mask != mask_ || size_bytes >= 4 || options_.has_avx512) {
    b_.CreateMaskedStore(value, pointer, alignment, mask);
  } else {
    llvm::AllocaInst* slot = make_slot(type);
    b_.CreateStore(value, slot);
    b_.CreateMemCpy(pointer, alignment, slot, slot->getAlign(), b_.CreateMul(rest_, b_.getInt64(size_bytes)));
  }
}

llvm::Value* Emitter::emit_gather(const Access& access, llvm::Type* type, unsigned part, llvm::Value* mask) {
  llvm::Value* indexes = emit_affine_part(kernel_.get(access.index), part);
  if (options_.is_gpu) return emit_contiguous_load(type, get_element(access.buffer, indexes), mask);
  llvm::Type* scalar = type->getScalarType();
  const std::uint64_t size_bytes = scalar->getScalarSizeInBits() / 8;
  if (size_bytes >= 4) {
    return b_.CreateMaskedGather(type, get_element(access.buffer, indexes), llvm::Align(size_bytes), mask,
                                 llvm::Constant::getNullValue(type));
  }
  llvm::Value* pointers = get_element(access.buffer, indexes);
  if (mask != nullptr) {
    pointers = b_.CreateSelect(mask, pointers, splat(get_null_slot()));
  }
  llvm::Value* result = llvm::PoisonValue::get(type);
  for (unsigned lane = 0; lane < lanes_; ++lane) {
    llvm::Value* element =
        b_.CreateAlignedLoad(scalar, b_.CreateExtractElement(pointers, lane), llvm::Align(size_bytes));
    result = b_.CreateInsertElement(result, element, lane);
  }
  return result;
}

void Emitter::emit_element_store(const Access& access, llvm::Value* pointer, llvm::Value* value) {
  const llvm::Align alignment(value->getType()->getScalarSizeInBits() / 8);
  switch (access.mode) {
    case StoreMode::Set:
      b_.CreateAlignedStore(value, pointer, alignment);
      return;
    case StoreMode::AddOrdered: {
      llvm::Value* old = b_.CreateAlignedLoad(value->getType(), pointer, alignment);
      const bool is_float = value->getType()->isFloatingPointTy();
      b_.CreateAlignedStore(is_float ? b_.CreateFAdd(old, value) : b_.CreateAdd(old, value), pointer, alignment);
      return;
    }
    case StoreMode::AddAtomic: {
      const auto op = value->getType()->isFloatingPointTy() ? llvm::AtomicRMWInst::FAdd : llvm::AtomicRMWInst::Add;
      b_.CreateAtomicRMW(op, pointer, value, alignment, llvm::AtomicOrdering::Monotonic);
      return;
    }
  }
}

// Lane by lane, in order; a lane that is off goes to the waste slot.
void Emitter::emit_scatter(const Access& access, llvm::Value* value, unsigned part, llvm::Value* mask) {
  llvm::Value* pointers = get_element(access.buffer, emit_affine_part(kernel_.get(access.index), part));
  if (options_.is_gpu) {
    if (mask != nullptr) error_ = "no GPU code for masked stores";
    return emit_element_store(access, pointers, value);
  }
  if (!pointers->getType()->isVectorTy()) pointers = splat(pointers);
  if (mask != nullptr) pointers = b_.CreateSelect(mask, pointers, splat(get_waste_slot()));
  for (unsigned lane = 0; lane < lanes_; ++lane) {
    emit_element_store(access, b_.CreateExtractElement(pointers, lane), b_.CreateExtractElement(value, lane));
  }
}

// All lanes store one value to one element: one store, made if any lane is on.
void Emitter::emit_flag(const Node& node) {
  llvm::Value* any = nullptr;
  for (unsigned i = 0; i < unroll_; ++i) {
    llvm::Value* mask = join_masks(get_part(node.operands[1], i));
    any = any == nullptr ? mask : b_.CreateOr(any, mask);
  }
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(any->getType())) {
    llvm::IntegerType* bits = b_.getIntNTy(vector->getNumElements());
    any = b_.CreateICmpNE(b_.CreateBitCast(any, bits), llvm::ConstantInt::get(bits, 0));
  }
  emit_if(any, [&] { emit_uniform_store(node); });
}

void Emitter::emit_uniform_store(const Node& node) {
  const Access& access = kernel_.get_access(node);
  llvm::Value* pointer = get_element(access.buffer, emit_affine(kernel_.get(access.index)));
  emit_element_store(access, pointer, emit_to_memory(get_uniform(node.operands[0]), node.dtype));
}

void Emitter::emit_if(llvm::Value* condition, const std::function<void()>& body) {
  auto* then = llvm::BasicBlock::Create(context_, "then", function_);
  auto* behind = llvm::BasicBlock::Create(context_, "behind", function_);
  b_.CreateCondBr(condition, then, behind);
  b_.SetInsertPoint(then);
  body();
  b_.CreateBr(behind);
  b_.SetInsertPoint(behind);
}

// --- tiles: part p is row p -----------------------------------------------------------------------------------------

// Rows become columns by log2(lanes) rounds of exchanging halves; lanes parts of lanes elements.
Emitter::Parts Emitter::transpose(const Parts& rows) {
  Parts current = rows;
  const unsigned count = lanes_;
  for (unsigned distance = count / 2; distance > 0; distance /= 2) {
    // Element (i, j) and element (i + distance, j - distance) change places, for i without and j with the bit.
    Parts next(count);
    llvm::SmallVector<int, 16> low;
    llvm::SmallVector<int, 16> high;
    for (unsigned j = 0; j < count; ++j) {
      const bool has_bit = (j & distance) != 0;
      low.push_back(static_cast<int>(has_bit ? count + j - distance : j));
      high.push_back(static_cast<int>(has_bit ? count + j : j + distance));
    }
    for (unsigned i = 0; i < count; ++i) {
      if ((i & distance) != 0) continue;
      next[i] = b_.CreateShuffleVector(current[i], current[i + distance], low);
      next[i + distance] = b_.CreateShuffleVector(current[i], current[i + distance], high);
    }
    current = next;
  }
  return current;
}

void Emitter::emit_rows_load(const Access& access, llvm::Type* type, Parts& parts) {
  const Affine& affine = kernel_.get(access.index);
  const ValueId column = kernel_.get(loop_).var;
  const std::int64_t row_stride = affine.get_coefficient(tile_row_);
  const std::int64_t column_stride = affine.get_coefficient(column);
  const auto offset = [&](llvm::Value* pointer, std::int64_t elements) {
    return b_.CreateGEP(type->getScalarType(), pointer, b_.getInt64(static_cast<std::uint64_t>(elements)));
  };
  if (llvm::Value* row = find_contiguous(access, column)) {
    llvm::Value* first = b_.CreateGEP(type->getScalarType(), row, position_);
    for (unsigned i = 0; i < lanes_; ++i) {
      parts.push_back(emit_contiguous_load(type, offset(first, row_stride * i), nullptr));
    }
    return;
  }
  bool is_plain = row_stride == 1 && column_stride != 0;
  for (const Term& term : affine.terms()) {
    is_plain = is_plain && (term.value == column || !analysis_.is_varying(term.value));
  }
  if (!is_plain) {
    for (unsigned i = 0; i < lanes_; ++i) parts.push_back(emit_gather(access, type, i, nullptr));
    return;
  }
  llvm::Value* first =
      get_element(access.buffer, b_.CreateExtractElement(emit_affine_part(affine, 0), std::uint64_t{0}));
  Parts columns;
  for (unsigned i = 0; i < lanes_; ++i) {
    columns.push_back(emit_contiguous_load(type, offset(first, column_stride * i), nullptr));
  }
  parts = transpose(columns);
}

void Emitter::emit_rows_store(const Access& access, const Parts& parts) {
  const Affine& affine = kernel_.get(access.index);
  const ValueId column = kernel_.get(loop_).var;
  const std::int64_t row_stride = affine.get_coefficient(tile_row_);
  const std::int64_t column_stride = affine.get_coefficient(column);
  llvm::Type* scalar = parts[0]->getType()->getScalarType();
  const auto offset = [&](llvm::Value* pointer, std::int64_t elements) {
    return b_.CreateGEP(scalar, pointer, b_.getInt64(static_cast<std::uint64_t>(elements)));
  };
  if (llvm::Value* row = find_contiguous(access, column)) {
    llvm::Value* first = b_.CreateGEP(scalar, row, position_);
    for (unsigned i = 0; i < lanes_; ++i) emit_contiguous_store(parts[i], offset(first, row_stride * i), nullptr);
    return;
  }
  bool is_plain = row_stride == 1 && column_stride != 0;
  for (const Term& term : affine.terms()) {
    is_plain = is_plain && (term.value == column || !analysis_.is_varying(term.value));
  }
  if (!is_plain) {
    for (unsigned i = 0; i < lanes_; ++i) emit_scatter(access, parts[i], i, nullptr);
    return;
  }
  llvm::Value* first =
      get_element(access.buffer, b_.CreateExtractElement(emit_affine_part(affine, 0), std::uint64_t{0}));
  const Parts columns = transpose(parts);
  for (unsigned i = 0; i < lanes_; ++i) emit_contiguous_store(columns[i], offset(first, column_stride * i), nullptr);
}

// --- the nodes ------------------------------------------------------------------------------------------------------

Emitter::Value Emitter::emit_load(NodeId id, const Node& node) {
  const Access& access = kernel_.get_access(node);
  llvm::Type* scalar = get_memory_type(node.dtype);
  const llvm::Align alignment(types::get_size_bytes(node.dtype));
  if (!analysis_.is_varying(id)) {
    llvm::Value* pointer = get_element(access.buffer, emit_affine(kernel_.get(access.index)));
    if (Kernel::has_mask(node)) {
      if (options_.is_gpu) {
        error_ = "no GPU code for masked loads";
        return {true, {llvm::PoisonValue::get(get_type(node.dtype))}};
      }
      pointer = b_.CreateSelect(get_uniform(node.operands[0]), pointer, get_null_slot());
    }
    return {true, {emit_from_memory(b_.CreateAlignedLoad(scalar, pointer, alignment), node.dtype)}};
  }
  Value value{false, {}};
  llvm::Type* type = widen(scalar);
  if (tile_row_.is_valid()) {
    emit_rows_load(access, type, value.parts);
  } else {
    llvm::Value* row = find_contiguous(access, kernel_.get(loop_).var);
    llvm::Value* first = row != nullptr ? b_.CreateGEP(scalar, row, position_) : nullptr;
    for (unsigned i = 0; i < unroll_; ++i) {
      llvm::Value* mask = join_masks(Kernel::has_mask(node) ? get_part(node.operands[0], i) : nullptr);
      if (first == nullptr) {
        value.parts.push_back(emit_gather(access, type, i, mask));
        continue;
      }
      llvm::Value* pointer = i == 0 ? first : b_.CreateGEP(scalar, first, b_.getInt64(std::uint64_t{i} * lanes_));
      value.parts.push_back(emit_contiguous_load(type, pointer, mask));
    }
  }
  for (llvm::Value*& part : value.parts) part = emit_from_memory(part, node.dtype);
  return value;
}

void Emitter::emit_store(const Node& node) {
  const Access& access = kernel_.get_access(node);
  const Affine& index = kernel_.get(access.index);
  const bool has_mask = Kernel::has_mask(node);
  if (!loop_.is_valid()) {
    const auto store = [&] {
      if (!has_mask) return emit_uniform_store(node);
      emit_if(get_uniform(node.operands[1]), [&] { emit_uniform_store(node); });
    };
    if (!options_.is_gpu) return store();
    return emit_first_thread(store);
  }
  if (has_mask && access.mode == StoreMode::Set && !analysis_.is_varying(index)) return emit_flag(node);
  Parts parts;
  for (unsigned i = 0; i < unroll_; ++i) parts.push_back(emit_to_memory(get_part(node.operands[0], i), node.dtype));
  if (tile_row_.is_valid()) return emit_rows_store(access, parts);
  llvm::Value* row = access.mode == StoreMode::Set ? find_contiguous(access, kernel_.get(loop_).var) : nullptr;
  llvm::Type* scalar = parts[0]->getType()->getScalarType();
  llvm::Value* first = row != nullptr ? b_.CreateGEP(scalar, row, position_) : nullptr;
  for (unsigned i = 0; i < unroll_; ++i) {
    llvm::Value* mask = join_masks(has_mask ? get_part(node.operands[1], i) : nullptr);
    if (first == nullptr) {
      emit_scatter(access, parts[i], i, mask);
      continue;
    }
    llvm::Value* pointer = i == 0 ? first : b_.CreateGEP(scalar, first, b_.getInt64(std::uint64_t{i} * lanes_));
    emit_contiguous_store(parts[i], pointer, mask);
  }
}

}  // namespace reprise::codegen
