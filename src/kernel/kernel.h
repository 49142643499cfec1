// The loop-level IR: what one kernel computes, for no machine in particular.
//
// A Kernel has operands (buffers, scalar parameters), scratch arrays, and bodies: loop nests whose outermost loop is
// Parallel. A region is a list of nodes in order; a node is a typed scalar operation (scalar_ops.def), a load or store
// at an affine index, an accumulator, or a loop with a region of its own. A node that has a result *is* the value:
// ValueId and NodeId are the same number. A value may be used in its region and in the regions inside it.
//
// Callers may rely on: a Kernel is plain data, built by KernelBuilder (builder.h), printed and parsed (text.h),
// verified (verify.h), interpreted (interpret.h: the reference). Equal kernels have equal hashes in every process.
// Threads: no shared state. Ownership: everything is held by value.
//
// The essay: requirements that every producer and consumer keeps.
//  1. Calling convention: void(void* const* buffers, const int64_t* scalars, int64_t begin, int64_t end). Buffers in
//     the order of `buffers` without the Local ones; [begin, end) are units of the Parallel loops. A kernel of several
//     bodies (horizontal fusion) counts the units of the first body, then those of the second, and so on.
//  2. Memory is read and written in the order of the nodes for one iteration. Iterations of Parallel and Vector loops
//     are independent: two of them may touch one address only by reading it, or by storing the same value to what no
//     iteration reads (a flag: a masked store at an index that is the same for all lanes; it is made if any lane is
//     on). Two buffers may be the same memory only where both are indexed alike (a kernel overwrites what it reads at
//     the same position).
//  3. Arithmetic is that of the dtype: integers wrap, floats are IEEE, round to nearest, never contracted or
//     reassociated; `fma` where one rounding is meant. float16 and bfloat16 are storage: cast to float32, compute,
//     round (round_bf16 / round_f16, or a cast back).
//  4. An accumulator lives in the region that declares it. A reduction by a Vector loop that the declaration is outside
//     of keeps lanes * unroll partial values: iteration k of the loop (counted from 0) combines into partial
//     k mod (lanes * unroll) as long as a whole step of lanes * unroll fits, and into k mod lanes behind that.
//     `result` folds halves: p[i] = p[i] op p[i + n/2], n = n/2. So the bits follow from the IR, for the interpreter
//     and every code generator; lanes = 0 (not chosen yet) means one partial value. An accumulator declared inside
//     the Vector loop is one value a lane, combined in order.
//  5. Long sums are split in blocks (block_reductions.h), for accuracy: rounding errors grow with the length of one
//     chain. It is a rewrite of the IR, nothing hidden.
//  6. Casts. To bool: != 0. From bool: 0 or 1. Between integers: wrap. Integer to float: to nearest. To a half type:
//     through float32. Float to integer: towards zero; out of range and NaN as x86 does it: through int32 for
//     types of 8 and 16 bits signed and int32 itself (0x80000000), through int64 for all others (0x8000000000000000).
//  7. A buffer of bool holds bytes 0 and 1; any byte but 0 reads as true.
//  8. A complex tensor is a float buffer of twice the length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"
#include "base/hash.h"
#include "base/ids.h"
#include "types/dtype.h"

namespace reprise::kernel {

using types::DType;

enum class ScalarOp : std::uint8_t {
#define X(name, text, op_class, operands, weight) name,
#include "kernel/scalar_ops.def"
#undef X
};

enum class OpClass : std::uint8_t {
  Leaf,
  Memory,
  Any,
  Number,
  Integer,
  Bits,
  Float,
  Compare,
  Convert,
  Round,
  Math,
  Carry,
  Control
};

enum class Combine : std::uint8_t {
#define X(name, text, start) name,
#include "kernel/combine_ops.def"
#undef X
};

enum class MathFunction : std::uint8_t {
#define X(name, text, operands, sleef, accuracy, mkl, libm) name,
#include "kernel/math_functions.def"
#undef X
};

enum class Numerics : std::uint8_t {
#define X(name, text, meaning) name,
#include "kernel/numerics.def"
#undef X
};

enum class LoopKind : std::uint8_t {
#define X(name, text, meaning) name,
#include "kernel/loop_kinds.def"
#undef X
};

enum class StoreMode : std::uint8_t { Set, AddOrdered, AddAtomic };  // "set", "add", "atomic_add"

struct OpRow {
  std::string_view text;
  OpClass op_class;
  std::uint8_t operands;
  std::uint8_t weight;
};
REPRISE_EXPORT const OpRow& get_row(ScalarOp op);

struct MathRow {
  std::string_view text;
  std::uint8_t operands;
  std::string_view sleef;
  std::string_view accuracy;
  std::string_view mkl;
  std::string_view libm;
};
REPRISE_EXPORT const MathRow& get_row(MathFunction function);

REPRISE_EXPORT std::string_view get_text(Combine combine);
REPRISE_EXPORT std::string_view get_text(Numerics numerics);
REPRISE_EXPORT std::string_view get_text(LoopKind kind);
REPRISE_EXPORT std::string_view get_text(StoreMode mode);

struct NodeTag;
struct BufferTag;
struct AccessTag;
struct IndexTag;
struct LoopTag;
struct RegionTag;
struct CallTag;
using NodeId = base::Id<NodeTag>;
using ValueId = NodeId;
using BufferId = base::Id<BufferTag>;
using AccessId = base::Id<AccessTag>;
using IndexId = base::Id<IndexTag>;
using LoopId = base::Id<LoopTag>;
using RegionId = base::Id<RegionTag>;
using CallId = base::Id<CallTag>;

enum class BufferKind : std::uint8_t { Argument, Local };

// An operand in memory, or (Local) a scratch array on the stack of the one who runs the kernel: undefined at first,
// at most kMaxLocalBytes in a kernel, private to one call.
struct Buffer {
  BufferKind kind = BufferKind::Argument;
  DType dtype = DType::Float32;
  bool is_read = false;
  bool is_written = false;
  std::int64_t count = -1;  // elements that may be touched; -1: not known

  bool operator==(const Buffer&) const = default;
};
inline constexpr std::int64_t kMaxLocalBytes = 64 * 1024;

// An affine expression over int64 values: constant + sum of coefficient * value. Values are loop variables, scalar
// parameters and anything else of dtype int64 (a loaded index: indirect access; i / 32 of a collapsed loop).
struct Term {
  std::int64_t coefficient = 0;
  ValueId value;

  bool operator==(const Term&) const = default;
};

// Value type for building and reading expressions: Affine(i) * 1024 + j + 3.
class REPRISE_EXPORT Affine {
 public:
  Affine() = default;
  Affine(std::int64_t constant) : constant_(constant) {}  // NOLINT: implicit
  Affine(ValueId value) : terms_{{1, value}} {}           // NOLINT: implicit
  Affine(std::int64_t constant, std::vector<Term> terms) : constant_(constant), terms_(std::move(terms)) {}

  std::int64_t constant() const { return constant_; }
  std::span<const Term> terms() const { return terms_; }
  bool is_constant() const { return terms_.empty(); }
  std::int64_t get_coefficient(ValueId value) const;

  Affine& operator+=(const Affine& other);
  Affine& operator*=(std::int64_t factor);
  friend Affine operator+(Affine a, const Affine& b) { return a += b; }
  friend Affine operator-(Affine a, const Affine& b) { return a += Affine(b) *= -1; }
  friend Affine operator*(Affine a, std::int64_t factor) { return a *= factor; }
  bool operator==(const Affine&) const = default;

 private:
  std::int64_t constant_ = 0;
  std::vector<Term> terms_;  // by value id, no zero coefficient
};

// One load or store: which buffer, which element.
struct Access {
  BufferId buffer;
  IndexId index;
  StoreMode mode = StoreMode::Set;
};

// for (var = lower; var < min(upper, limit); var += step)
struct Loop {
  LoopKind kind = LoopKind::Serial;
  std::uint8_t lanes = 0;   // Vector: a power of two; 0: not chosen yet (choose_lanes.h)
  std::uint8_t unroll = 0;  // Vector: lane sets a step, a power of two
  ValueId var;
  IndexId lower;
  IndexId upper;
  IndexId limit;  // invalid: none
  std::int64_t step = 1;
  RegionId body;
};

// result[0 .. count) = function(operand[0 .. count)), over Local buffers of one float dtype.
struct VectorCall {
  MathFunction function = MathFunction::Exp;
  Numerics numerics = Numerics::Mkl;
  BufferId result;
  BufferId operand;
  IndexId count;
};

// 32 bytes. What `payload` is depends on the op: bits (Const), number of the parameter (Param), LoopId (LoopVar, Loop),
// IndexId (Index), AccessId (Load, Store), MathFunction | Numerics << 8 (Math), Combine (Accumulator), CallId.
struct Node {
  ScalarOp op = ScalarOp::Const;
  DType dtype = DType::Float32;  // of the result; of the value for Store, Reduce
  std::uint8_t operand_count = 0;
  ValueId operands[3];
  std::uint64_t payload = 0;
};

class REPRISE_EXPORT Kernel {
 public:
  // --- operands
  std::vector<Buffer> buffers;        // arguments and locals
  std::vector<DType> params;          // Int64, Float64 or Bool; one 64-bit word each
  std::vector<ValueId> param_values;  // the Param node of each
  // --- contents
  std::vector<Node> nodes;
  std::vector<std::vector<NodeId>> regions;
  std::vector<Loop> loops;
  std::vector<LoopId> bodies;    // the Parallel loops; lower 0, step 1
  std::vector<NodeId> prologue;  // Const and Param nodes, and what is computed of them alone; in front of bodies
  std::vector<Access> accesses;
  std::vector<Affine> indexes;
  std::vector<VectorCall> calls;

  const Node& get(NodeId id) const { return nodes[id.index()]; }
  Node& get(NodeId id) { return nodes[id.index()]; }
  const Loop& get(LoopId id) const { return loops[id.index()]; }
  Loop& get(LoopId id) { return loops[id.index()]; }
  const Buffer& get(BufferId id) const { return buffers[id.index()]; }
  const Access& get(AccessId id) const { return accesses[id.index()]; }
  const Affine& get(IndexId id) const { return indexes[id.index()]; }
  const VectorCall& get(CallId id) const { return calls[id.index()]; }
  const std::vector<NodeId>& get(RegionId id) const { return regions[id.index()]; }
  std::vector<NodeId>& get(RegionId id) { return regions[id.index()]; }

  const Access& get_access(const Node& node) const { return accesses[node.payload]; }
  const Loop& get_loop(const Node& node) const { return loops[node.payload]; }

  // Whether the node of a Load or Store carries a mask (its last operand).
  static bool has_mask(const Node& node) {
    return (node.op == ScalarOp::Load && node.operand_count == 1) ||
           (node.op == ScalarOp::Store && node.operand_count == 2);
  }
  static MathFunction get_math_function(const Node& node) { return static_cast<MathFunction>(node.payload & 0xff); }
  static Numerics get_numerics(const Node& node) { return static_cast<Numerics>(node.payload >> 8); }
  static Combine get_combine(const Node& node) { return static_cast<Combine>(node.payload); }

  std::size_t count_arguments() const;  // buffers that are not Local
};

// Whether the op has a result that other nodes may use (accumulators count as one).
REPRISE_EXPORT bool has_result(ScalarOp op);

// The same for kernels that are the same but for the order in which nodes were numbered. Not across versions.
REPRISE_EXPORT base::Hash128 get_hash(const Kernel& kernel);
// Whether they are the same in that sense.
REPRISE_EXPORT bool are_equal(const Kernel& a, const Kernel& b);

// The bits of a constant as it stands in a Const node: floats in their own width, integers sign-extended.
REPRISE_EXPORT std::uint64_t make_constant_bits(DType dtype, double number);
REPRISE_EXPORT std::uint64_t make_constant_bits(DType dtype, std::int64_t number);

}  // namespace reprise::kernel
