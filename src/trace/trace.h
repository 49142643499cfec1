// The trace IR: what one live run did, in program order.
//
// A Trace is one linear list of items: nodes (each makes one value) and guards (each states one fact about a value).
// A value is *pre* if it is a function of the state at entry: all operands pre and its kind pure. Guards on pre values
// belong to the entry's guard program, in list order (a guard protects the reads behind it); guards on late values stay
// among the entry's steps and own a snapshot, the state of all frames in front of the instruction that needed the fact.
//
// The recorder (capture/) appends and never optimises; liveness.h decides what an entry needs.
// Ownership: the trace holds strong references to constants, names, types and functions, never to tensors or containers
// that the program made or was given. Threads: built by one thread, immutable afterwards.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/cpython/rebuild.h"
#include "host/torch/state_word.h"
#include "host/torch/tensor.h"

namespace reprise::trace {

using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

enum class NodeKind : uint8_t {
#define X(name, text, category, arity, payload) name,
#include "trace/node_kinds.def"
};
enum class Category : uint8_t { Root, Read, Py, Alloc, Mutate, Tensor, State, Sync };
enum class FactKind : uint8_t {
#define X(name, text, payload) name,
#include "trace/fact_kinds.def"
};
enum class UnaryOp : uint8_t { Negative, Invert, Positive, Not };
enum class FunctionField : uint8_t { Closure, Defaults, KwDefaults, Code };

const char* text_of(NodeKind kind);
Category category_of(NodeKind kind);
const char* text_of(FactKind kind);

/// Its payload is an index into Trace::tensor_metas.
constexpr bool has_meta(FactKind fact) { return fact == FactKind::TensorMeta || fact == FactKind::TensorLike; }

/// What is known of a value's type wherever the trace holds.
enum class ValueType : uint8_t {
  Unknown,
  Tensor,
  LateTensor,  // a tensor of whose metadata nothing is known
  Number,
  Plain,  // a tuple
  Other
};

/// One value of the trace. `object` is a strong reference owned by the trace (see node_kinds.def for its meaning).
struct Value {
  NodeKind kind;
  bool is_pre = false;
  ValueType type = ValueType::Unknown;
  bool runs_python = false;       // torch nodes: Python of the program's ran inside when it was recorded
  bool is_tainted = false;        // torch nodes: metadata of the result depend on data, and no guard states them
  bool is_data_sized = false;     // is_tainted, and all that is known late of it follows from the data of its operands
  bool varies = false;            // it follows from sizes that no guard fixes, and from nothing else that is late
  bool varies_with_data = false;  // it varies, and some of those sizes depend on data
  bool is_level = false;  // it puts a level of torch.func on the stack, takes it off, or says what may be done under it
  bool is_late_size = false;  // an int that steps compute of data, and that a call takes as a size; it varies
  int32_t n = 0;
  uint32_t first_operand = 0;  // into Trace::operands
  uint32_t operand_count = 0;
  int32_t item = -1;      // its place in Trace::items
  int32_t snapshot = -1;  // state in front of the instruction, for nodes that can raise; -1: cannot
  PyObject* object = nullptr;
};

/// One fact about a value. Entry guard if the value is pre (snapshot -1), late guard otherwise.
struct Guard {
  ValueId value = kNoValue;
  FactKind fact = FactKind::Type;
  PyObject* object = nullptr;  // strong
  int64_t n = 0;
  int32_t snapshot = -1;
};

/// Either a node (guard -1) or a guard on an earlier value.
struct Item {
  ValueId value = kNoValue;
  int32_t guard = -1;
};

/// State of one frame at an exit. Callers' states are shared by all snapshots taken while their callee runs.
struct FrameState {
  PyObject* function = nullptr;  // strong; a function made in the trace has function_value instead
  ValueId function_value = kNoValue;
  PyCodeObject* code = nullptr;                    // strong
  int32_t unit = 0;                                // where it goes on: in front of this code unit
  int32_t op_unit = 0;                             // the current instruction's own unit (where an exception is raised)
  std::vector<ValueId> slots;                      // locals, cells, free variables, stack; kNoValue: NULL
  host::ResumeMode mode = host::ResumeMode::Push;  // how the callee's result is taken
  ValueId mode_value = kNoValue;
  ValueId generator_value = kNoValue;  // the frame belongs to this generator, which was made in the trace
  int32_t caller = -1;                 // FrameState of the next outer frame; -1: this is the root frame
};

/// The state of the whole frame chain in front of one instruction.
struct Snapshot {
  int32_t frame = -1;                    // innermost FrameState
  int32_t item = 0;                      // number of items recorded before it
  ValueId handled_exception = kNoValue;  // sys.exc_info() at this place
  bool is_exact = true;                  // false: only good for raising (a C call lies between), never for resuming
};

/// Paths (describe_value) of tensors and ints that take other sizes and values in other calls.
struct VaryingSources {
  bool has_all_arguments = false;                   // every tensor that is no parameter or buffer, in all dimensions
  std::unordered_map<std::string, uint64_t> found;  // by path: bit i is dimension i; ints have bit 0
};

enum class EndKind : uint8_t {
  Return,  // the root frame returned `result`
  Exit,    // ends in front of the instruction of `end_snapshot`
  Raise,   // unused by the recorder for now: an uncaught exception ends in front of the raising instruction (Exit)
};

struct TypeVersion {
  PyTypeObject* type = nullptr;  // strong
  unsigned version = 0;
  /// Trace::type_lookups and Trace::special_names hold all of the type that the trace relies on: when the version has
  /// moved they decide, so that an entry survives changes of a class that do not concern it.
  bool has_all_lookups = false;
  PyObject* mro = nullptr;  // strong; a tuple
  PyObject* names[2] = {};  // strong; __name__ and __qualname__ of a class that is no static type
};

/// A call of a transform of torch.func: its items stand in one region or the entry is of no use, since a frame that
/// goes on in the middle would find no levels.
struct Transform {
  int32_t first_item = 0, last_item = 0;
  const void* place = nullptr;  // what the recorder knows it by; never followed
};

/// What a look-up of `name` in `type` found.
struct TypeLookup {
  PyTypeObject* type = nullptr;   // strong; also a row of Trace::type_versions
  PyTypeObject* after = nullptr;  // in its MRO: only what stands behind it was asked (super); nullptr: all
  PyObject* name = nullptr;       // strong
  PyObject* found = nullptr;      // strong; nullptr: nothing
};

/// The special names (`__len__`) that a class itself defines: CPython looks them up without being asked by name.
struct SpecialNames {
  PyTypeObject* owner = nullptr;                         // strong
  std::vector<std::pair<PyObject*, PyObject*>> defined;  // strong; in the order of the class
};

/// One recording.
class Trace {
 public:
  Trace() = default;
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// The transform that an item belongs to, or nullptr.
  const Transform* find_transform(int32_t item) const;

  // ---- building; ids are dense and grow
  ValueId add_node(NodeKind kind, std::span<const ValueId> operands, PyObject* object, int32_t n, bool is_pre);
  int32_t add_guard(ValueId value, FactKind fact, PyObject* object, int64_t n, int32_t snapshot);
  /// Drops all items from `item_count` on (values stay addressable but unlisted) and the guards among them.
  void truncate(size_t item_count);

  std::span<const ValueId> operands(ValueId id) const {
    const Value& value = values[id];
    return {operand_pool.data() + value.first_operand, value.operand_count};
  }
  Category category(ValueId id) const { return category_of(values[id].kind); }

  /// For the cycle collector: visits every reference that the trace owns.
  int traverse(visitproc visit, void* argument) const;

  std::vector<Value> values;
  std::vector<ValueId> operand_pool;
  std::vector<Item> items;
  std::vector<Guard> guards;
  std::vector<FrameState> frame_states;
  std::vector<Snapshot> snapshots;
  std::vector<TypeVersion> type_versions;  // each type's version tag when recorded
  std::vector<TypeLookup> type_lookups;
  std::vector<SpecialNames> special_names;  // of every mutable class in the MROs of type_versions
  std::vector<host::TensorMetaRef> tensor_metas;
  std::vector<Transform> transforms;  // in order, none inside of another
  host::StateWord state_word;         // torch state at entry

  // ---- the place
  PyObject* function = nullptr;  // strong; root function
  PyCodeObject* code = nullptr;  // strong
  PyObject* globals = nullptr;   // strong; globals of the root frame
  int32_t unit = 0;              // where the root frame was entered (0 units before RESUME: a call)
  bool is_call_entry = true;     // entered by a call: Arg n is parameter slot n
  int32_t slot_count = 0;        // Arg n < slot_count
  /// A branch begins where a late guard of another trace failed, with all frames of that exit. Its arguments are their
  /// slots, outermost frame first, and then, frame by frame, the function if it was made in the other trace, and the
  /// value to push (ResumeMode::PushValue). One row a frame; empty: no branch.
  struct BranchFrame {
    PyCodeObject* code;  // borrowed from the frame states
    int32_t first_slot;
  };
  std::vector<BranchFrame> branch_frames;

  // ---- the end
  EndKind end = EndKind::Return;
  ValueId result = kNoValue;
  int32_t end_snapshot = -1;
  int end_reason = 0;    // row of capture/unsupported.def
  std::string end_text;  // what could not be recorded, for explain
};

/// Text of the whole trace, one item a line, stable across runs (no addresses).
std::string print_trace(const Trace& trace);
/// Source path of a pre value: `self.layer[3].weight`; `%12` for others.
std::string describe_value(const Trace& trace, ValueId id);
/// `self.p is None` style text of one guard.
std::string describe_guard(const Trace& trace, const Guard& guard);
/// file:line of a frame state.
std::string describe_place(const FrameState& state);
/// Empty if all invariants of the IR hold, else what is broken.
std::string verify_trace(const Trace& trace);

}  // namespace reprise::trace
