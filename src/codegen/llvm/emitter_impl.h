// Emitter: one kernel -> one LLVM function of vector code. Private to codegen/llvm.
//
// The essay. Code generation here is direct: what is emitted is what runs, so no loop pass is needed behind it
// (two passes only: promotion of stack slots, common subexpressions).
//  1. A value of the kernel is either uniform, one scalar of LLVM, or varying: a part of `lanes` elements for each of
//     the `unroll` lane sets of a step. An operation is emitted for all its parts before the next one.
//  2. What is the same for all iterations of a vector loop (row pointers, splats, pure uniform operations of outer
//     values) goes into the preheader of the loop.
//  3. A vector loop is: whole steps of lanes * unroll; then, only if the trip count may leave a rest, a loop of one
//     masked lane set. Where the trip count is known to be a multiple, the rest is not emitted or not masked.
//  4. Nothing reads or writes memory for a lane that is off. Lanes that are off may compute anything that is no trap:
//     integer division guards its divisor in any case.
//  5. No fast-math flag anywhere; fma only for `fma` nodes (and inside our exp, which has Sleef's bits).
//  6. Accumulators are stack slots, one for each part of the widest step; promotion makes registers of them. Their
//     order of combination is requirement 4 of kernel.h, to the letter.
//  7. On a GPU (`is_gpu`) a vector loop is shared by the threads of a block instead: what is a vector above is the
//  scalar
//     of one thread, and there are no masks. Requirement 6 gives way to the order of the block (emit_threads.cpp).
// One emitter, one kernel, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "kernel/analysis.h"
#include "kernel/kernel.h"

namespace reprise::codegen {

using kernel::Access;
using kernel::Affine;
using kernel::BufferId;
using kernel::Combine;
using kernel::DType;
using kernel::IndexId;
using kernel::Kernel;
using kernel::Loop;
using kernel::LoopId;
using kernel::LoopKind;
using kernel::MathFunction;
using kernel::Node;
using kernel::NodeId;
using kernel::Numerics;
using kernel::ScalarOp;
using kernel::Term;
using kernel::ValueId;

struct EmitOptions {
  bool is_gpu = false;  // NVPTX: see emit_threads.cpp
  bool inline_exp = true;
  bool has_avx512 = false;  // masked loads of 8 and 16 bits, Sleef for 64 bytes
};

class Emitter {
 public:
  Emitter(const Kernel& kernel, llvm::Module& module, const EmitOptions& options);

  // Empty, or why the kernel has no code.
  std::string emit(const std::string& symbol);

 private:
  using Parts = llvm::SmallVector<llvm::Value*, 8>;

  // The value of a node: one scalar if uniform, one vector a part otherwise.
  struct Value {
    bool is_uniform = true;
    Parts parts;
  };

  struct Carry {  // an accumulator
    Combine combine = Combine::Sum;
    DType dtype = DType::Float32;
    bool is_vector = false;  // slots are vectors
    llvm::SmallVector<llvm::AllocaInst*, 8> slots;
    llvm::SmallVector<llvm::AllocaInst*, 8> indexes;  // argmax and argmin
  };

  struct Pair {  // what an accumulator combines
    llvm::Value* value = nullptr;
    llvm::Value* index = nullptr;
  };

  // --- loops (emit_loops.cpp)
  void emit_bodies(llvm::Value* begin, llvm::Value* end);
  void emit_body(LoopId body, llvm::Value* begin, llvm::Value* end);
  void emit_nodes(const std::vector<NodeId>& nodes);
  void emit_loop(LoopId id);
  void emit_serial_loop(const Loop& loop, llvm::Value* lower, llvm::Value* upper);
  void emit_vector_loop(LoopId id, llvm::Value* lower, llvm::Value* upper, std::int64_t divisor);
  void emit_lanes(const Loop& loop, llvm::Value* lower, llvm::Value* upper, int unroll, llvm::Value* masked_end);
  bool emit_tile(const Loop& rows);
  bool can_tile(const Loop& rows, const Loop& columns) const;
  llvm::Value* emit_upper(const Loop& loop);
  llvm::Value* emit_whole_end(llvm::Value* lower, llvm::Value* upper, std::int64_t step);
  void for_range(llvm::Value* lower, llvm::Value* upper, std::int64_t step,
                 const std::function<void(llvm::Value*)>& body);
  void for_steps(llvm::Value* lower, llvm::Value* upper, llvm::Value* step, bool is_entered,
                 const std::function<void(llvm::Value*)>& body);
  void with_preheader(const std::function<void()>& body);

  // --- values (emit_ops.cpp)
  void emit_node(NodeId id);
  void emit_node_at(NodeId id, const Node& node);
  llvm::Value* emit_op(const Node& node, DType operand_dtype, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* emit_float_op(const Node& node, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* emit_integer_op(const Node& node, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* emit_division(ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* emit_compare(ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* emit_cast(llvm::Value* a, DType from, DType to);
  llvm::Value* emit_bfloat16(llvm::Value* a);  // float -> bits
  llvm::Value* emit_max(DType dtype, bool is_max, llvm::Value* a, llvm::Value* b);
  llvm::Constant* make_constant(DType dtype, std::uint64_t bits);
  Parts get_parts(ValueId id);  // varying: as they are; uniform: splats
  llvm::Value* get_uniform(ValueId id);
  llvm::Value* get_part(ValueId id, unsigned part);
  bool is_hoistable(NodeId id, const Node& node) const;
  bool is_outer(ValueId id) const;  // made outside of the vector loop that is open

  // --- math (emit_math.cpp)
  llvm::Value* emit_math(const Node& node, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* emit_sleef(MathFunction function, DType dtype, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* emit_libm(MathFunction function, DType dtype, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* emit_mkl(MathFunction function, DType dtype, llvm::Value* operand);
  llvm::Value* emit_exp(llvm::Value* x);
  void emit_mkl_call(MathFunction function, DType dtype, llvm::Value* count, llvm::Value* from, llvm::Value* to);
  void emit_vector_call(const Node& node);
  llvm::FunctionCallee get_pure_function(const std::string& name, llvm::Type* type, std::size_t operands);

  // --- memory (emit_memory.cpp)
  llvm::Value* emit_affine(const Affine& affine);  // all terms uniform
  llvm::Value* emit_affine_part(const Affine& affine, unsigned part);
  llvm::Value* get_base(BufferId buffer);
  llvm::Value* get_element(BufferId buffer, llvm::Value* index);
  Value emit_load(NodeId id, const Node& node);
  void emit_store(const Node& node);
  // The pointer to lane 0 of part 0 if lanes are neighbours in memory: contiguous along `var`; null otherwise.
  llvm::Value* find_contiguous(const Access& access, ValueId var);
  llvm::Value* emit_contiguous_load(llvm::Type* type, llvm::Value* pointer, llvm::Value* mask);
  void emit_contiguous_store(llvm::Value* value, llvm::Value* pointer, llvm::Value* mask);
  llvm::Value* emit_gather(const Access& access, llvm::Type* type, unsigned part, llvm::Value* mask);
  void emit_scatter(const Access& access, llvm::Value* value, unsigned part, llvm::Value* mask);
  void emit_element_store(const Access& access, llvm::Value* pointer, llvm::Value* value);
  void emit_flag(const Node& node);
  void emit_uniform_store(const Node& node);
  void emit_if(llvm::Value* condition, const std::function<void()>& body);
  void emit_rows_load(const Access& access, llvm::Type* type, Parts& parts);
  void emit_rows_store(const Access& access, const Parts& parts);
  Parts transpose(const Parts& rows);
  llvm::Value* join_masks(llvm::Value* mask);                       // with the mask of the rest, if one is on
  llvm::Value* emit_from_memory(llvm::Value* stored, DType dtype);  // bool: bytes
  llvm::Value* emit_to_memory(llvm::Value* value, DType dtype);
  llvm::AllocaInst* make_slot(llvm::Type* type, std::uint64_t alignment = 0);
  llvm::Value* get_null_slot();   // a zero, for lanes that are off to read; never written
  llvm::Value* get_waste_slot();  // for lanes that are off to write; what an atomic add finds there is nothing

  // --- threads of a GPU (emit_threads.cpp)
  std::string emit_gpu(const std::string& symbol);
  void emit_thread_loop(LoopId id, llvm::Value* lower, llvm::Value* upper);
  llvm::Value* read_register(unsigned intrinsic);  // as an i64
  llvm::Value* shuffle(llvm::Value* value, unsigned distance);
  Pair combine_block(const Carry& carry, Pair pair);
  void emit_first_thread(const std::function<void()>& body);
  void emit_barrier();

  // --- accumulators (emit_carry.cpp)
  void emit_accumulator(NodeId id, const Node& node);
  void emit_reduce(NodeId id, const Node& node, bool is_scan);
  void emit_result(NodeId id, const Node& node);
  Pair combine(const Carry& carry, const Pair& a, const Pair& b);
  Pair fold(const Carry& carry, Parts values, Parts indexes);

  // --- types
  llvm::Type* get_type(DType dtype);                               // in registers: bool is i1, bfloat16 is i16
  llvm::Type* get_memory_type(DType dtype);                        // bool is i8
  llvm::Type* widen(llvm::Type* scalar);                           // to a vector of `lanes_`
  static llvm::Type* like(llvm::Type* shape, llvm::Type* scalar);  // scalar, or a vector as long as `shape`
  llvm::Value* splat(llvm::Value* scalar);
  llvm::Value* get_lane_numbers(llvm::IntegerType* type);
  void open_body(ValueId var);

  const Kernel& kernel_;
  const kernel::Analysis analysis_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  const EmitOptions options_;
  std::string error_;

  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  std::vector<llvm::Value*> bases_;
  std::vector<Value> values_;
  std::vector<Carry> carries_;         // by node
  std::vector<unsigned> slot_counts_;  // parts of the widest step that reduces into a node, from outside
  llvm::Value* null_slot_ = nullptr;
  llvm::Value* waste_slot_ = nullptr;

  // The vector loop that is open.
  LoopId loop_;
  unsigned lanes_ = 0;
  unsigned unroll_ = 1;
  llvm::Value* position_ = nullptr;         // the loop variable of lane 0 of part 0
  llvm::BasicBlock* body_block_ = nullptr;  // where the body of the vector loop starts: in this block
  llvm::Instruction* body_last_ = nullptr;  // behind this instruction, or at the start of the block
  llvm::Value* mask_ = nullptr;             // of the rest
  llvm::Value* rest_ = nullptr;             // how many lanes are on in the rest, i64
  ValueId tile_row_;                        // a tile is open: part p is row p
  llvm::Value* row_ = nullptr;
  llvm::Instruction* preheader_ = nullptr;  // what is hoisted goes in front of this
  std::vector<bool> inside_;                // by node: emitted inside of the open vector loop, not hoisted
  std::map<std::pair<llvm::Value*, unsigned>, llvm::Value*> splats_;    // never iterated
  std::map<std::pair<llvm::Value*, llvm::Value*>, llvm::Value*> rows_;  // never iterated
};

}  // namespace reprise::codegen
