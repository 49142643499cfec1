// Decoded bytecode: what every other folder knows of CPython's instructions.
//
// A code object is decoded once into an array of version-neutral instructions (opcodes.def); the result lives in the
// code object itself (co_extra) and dies with it. EXTENDED_ARG prefixes, inline caches, specialised and instrumented
// forms are gone; KW_NAMES, PRECALL and CALL are one `Call`, so every instruction starts at a boundary where a frame
// can be left.
//
// Units are CPython's 2-byte code units, counted from the first; a byte offset (f_lasti, dis) is twice a unit.
// Threads: all functions need the GIL.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

namespace reprise::host {

/// What happens in a caller's frame when the Python callee that its current instruction started returns.
enum class ResumeMode : uint8_t {
  Push,           // push the callee's result
  PushNullFirst,  // push NULL, then the result (a method looked up through Python code; 3.13: result, then NULL)
  Drop,           // drop the result, push nothing (STORE_ATTR, STORE_SUBSCR, ...)
  PushValue,      // drop the result, push another value (`__init__` of a type call)
  Never,          // the instruction has more work to do after the callee: no exit may cross it
};

enum class Op : uint8_t {
#define REPRISE_OP(name, pops, resume, kind) name,
#define REPRISE_CPYTHON(name, opcode, v311, v312, v313)
#include "host/cpython/opcodes.def"
#undef REPRISE_OP
#undef REPRISE_CPYTHON
};

enum class OpKind : uint8_t { Move, Plain, Rare, Exit, HandOver };

/// Number of neutral opcodes.
extern const int kOpCount;
const char* get_op_name(Op op);
OpKind get_op_kind(Op op);

// Flags of an instruction.
inline constexpr uint8_t kInstructionWatched = 1;        // somebody wants to be asked in front of it (set_watched)
inline constexpr uint8_t kInstructionMayCall = 2;        // executing it may run Python code
inline constexpr uint8_t kInstructionPushNull = 4;       // LoadGlobal, LoadSuperAttr: push a NULL for the call as well
inline constexpr uint8_t kInstructionToBool = 8;         // CompareOp: the result is converted to a bool
inline constexpr uint8_t kInstructionKwOnStack = 16;     // Call: the tuple of keyword names is on the stack (3.13)
inline constexpr uint8_t kInstructionBackEdge = 32;      // a jump that goes backward
inline constexpr uint8_t kInstructionTwoArguments = 64;  // LoadSuperAttr: written super(cls, self)

// Bits of FormatValue's argument.
inline constexpr int32_t kFormatConversionMask = 3;  // 0 none, 1 str, 2 repr, 3 ascii
inline constexpr int32_t kFormatHasSpec = 4;         // the format specification is on the stack
inline constexpr int32_t kFormatConvertOnly = 8;     // convert, but do not format

struct Instruction {
  Op op = Op::HandOver;
  uint8_t flags = 0;
  ResumeMode resume = ResumeMode::Never;
  uint8_t opcode = 0;     // CPython's number, without specialisation
  int32_t arg = 0;        // neutral: the index of a name, constant or local, a count, ... without flag bits
  int32_t pops = 0;       // slots removed from the value stack before results are pushed
  int32_t unit = 0;       // the boundary: first unit, EXTENDED_ARG and KW_NAMES included
  int32_t op_unit = 0;    // the opcode's own unit, CPython's f_lasti / 2 while it runs
  int32_t next_unit = 0;  // the boundary behind it, inline caches skipped
  int32_t next = 0;       // index of the instruction at `next_unit`
  int32_t target = -1;    // index of the jump target, or -1
  PyObject* object =
      nullptr;  // borrowed from the code: the name, the constant, or Call's keyword names (may be nullptr)
};

/// The decoded form of one code object. Owned by it.
struct CodeInfo {
  PyCodeObject* code = nullptr;  // borrowed
  std::unique_ptr<Instruction[]> instructions;
  int32_t instruction_count = 0;
  std::unique_ptr<int32_t[]> index_of_unit;  // -1 where no instruction starts
  int32_t unit_count = 0;
  int32_t slot_count = 0;             // locals, cells and free variables, then the deepest value stack
  const char* undecodable = nullptr;  // why there are no instructions; nullptr: there are

  // For one client (runtime's table of entries); freed with the code object.
  void* client = nullptr;
  void (*delete_client)(void*) = nullptr;

  CodeInfo() = default;
  CodeInfo(const CodeInfo&) = delete;
  CodeInfo& operator=(const CodeInfo&) = delete;
  ~CodeInfo() {
    if (client && delete_client) delete_client(client);
  }

  /// Index of the instruction that starts at `unit`, or -1.
  int32_t find_index(int32_t unit) const { return unit >= 0 && unit < unit_count ? index_of_unit[unit] : -1; }
  /// The instruction that ends at `next_unit` (the call, for a frame that waits for its callee), or nullptr.
  const Instruction* find_before(int32_t next_unit) const;
};

/// Decodes `code`, or returns what was decoded before. Never raises; nullptr only when out of memory.
/// Code that cannot be decoded gives a CodeInfo with `undecodable` set and no instructions.
CodeInfo* get_code_info(PyCodeObject* code);

/// Sets or clears kInstructionWatched.
void set_watched(CodeInfo* info, int32_t index, bool watched);

}  // namespace reprise::host
