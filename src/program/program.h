// Program: what the native code of one region is, ready to be saved, and to be run by the host half.
//
// Data only: slots (every tensor, scalar and list that a run knows), a flat list of steps, the code objects of the
// kernels, and constants. The host half turns the steps into calls; nothing here knows of torch.
// Callers may rely on: plain values; serialise() gives the same bytes for the same program in every process;
// deserialise() refuses what it did not write (a Result, never undefined behaviour). verify() finds what no run could
// do. Threads: no shared state; a finished Program is never changed, so any number of threads may read it.
//
// Sizes are int64 now. `Size` leaves room for a symbolic expression: a size with `expression` >= 0 is to be computed
// from the sizes of the inputs (sym), and `value` is then what it was when the program was made.
//
// The essay: requirements of a program.
//  1. Slots are numbered; slots [0, inputs) are the inputs in the order of the region. A slot is filled once, by
//     the step that names it as a result (inputs, constants and flags: before the first step), and not read after
//     `free`.
//  2. Temporaries with an arena offset lie in one block of `arena_bytes`, aligned to kArenaAlignment, which the host
//     allocates once a run (or keeps). Two may overlap only if their lives do not: the planner's duty.
//  3. `allocate` makes a fresh tensor (outputs, and temporaries without an offset). Outputs never lie in the arena.
//  4. A kernel gets base pointers (with the storage offset of the slot and `offset` elements added), in its own order.
//  5. Checks: what eager would raise for (an index out of range), found by a kernel. If there are any, one slot is
//     of kind Flags, an int32 word for each check, in order. Its memory belongs to the run, as the arena does: the host
//     gives it zeroed and may keep it for later runs, since a run that nothing fails in does not write it. A kernel
//     that finds a failure stores 1 (any number of threads may, the same value); it reads and writes nothing outside of
//     its buffers, and what it computes is then worthless. Directly behind such a launch stands a check step: if one of
//     the words [first_check, first_check + check_count) of the flags is not 0, the host sets all of these to 0, ends
//     the run there (nothing later is done, nothing is returned) and raises the error of the first of them.
//  6. Steps run in order. Any step may be the last that uses a slot; `free` gives back its tensor at that point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "types/device.h"
#include "types/dtype.h"

namespace reprise::program {

struct SlotTag;
struct CodeTag;
using SlotId = base::Id<SlotTag>;
using CodeId = base::Id<CodeTag>;

inline constexpr std::int64_t kArenaAlignment = 64;

struct Size {
  std::int64_t value = 0;
  std::int32_t expression = -1;  // number of an expression of the program; -1: the value is all

  Size() = default;
  Size(std::int64_t value) : value(value) {}  // NOLINT: implicit
  bool operator==(const Size&) const = default;
};

enum class SlotKind : std::uint8_t {
#define X(name, text, doc) name,
#include "program/slot_kinds.def"
#undef X
};

// A tensor, scalar or list that a run knows. Tensors have all fields; scalars a dtype only; lists nothing.
struct Slot {
  SlotKind kind = SlotKind::Temporary;
  bool is_tensor = true;
  types::DType dtype = types::DType::Float32;
  types::Device device;
  std::vector<Size> sizes;
  std::vector<Size> strides;
  Size storage_offset;             // elements; of the tensor in its storage
  std::int64_t size_bytes = 0;     // of the storage that it needs
  std::int64_t arena_offset = -1;  // Temporary: bytes into the arena; -1: allocated by a step

  bool operator==(const Slot&) const = default;
};

// A tensor constant whose bytes the program carries: Slot of kind Constant.
struct Constant {
  SlotId slot;
  std::vector<std::uint8_t> bytes;  // contiguous

  bool operator==(const Constant&) const = default;
};

enum class CodeKind : std::uint8_t {
#define X(name, text, doc) name,
#include "program/code_kinds.def"
#undef X
};

// The code of one or more kernels. The key says what it was made from (kernel, target, tier): equal keys, equal bytes.
struct Code {
  base::Hash128 key;
  CodeKind kind = CodeKind::Object;
  std::vector<std::string> symbols;  // the functions in it
  std::vector<std::uint8_t> bytes;

  bool operator==(const Code&) const = default;
};

// What a flag means: the error to be raised.
struct Check {
  bool is_index_error = true;  // IndexError; else RuntimeError
  std::string text;

  bool operator==(const Check&) const = default;
};

enum class ArgumentKind : std::uint8_t {
#define X(name, text, doc) name,
#include "program/argument_kinds.def"
#undef X
};

// One argument of an extern call, as a tree: lists have elements.
struct Argument {
  ArgumentKind kind = ArgumentKind::None;
  std::int64_t number = 0;  // Int, Bool, DType, Device (kind << 16 | index), MemoryFormat, Layout; a slot's number
  double real = 0;          // Float
  std::string text;         // String; the name of a keyword is in Extern
  std::vector<Argument> elements;

  bool operator==(const Argument&) const = default;
};

// A 64-bit word for a kernel: a constant (int64, or the bits of a double), or the value of a scalar slot.
struct Word {
  std::int64_t bits = 0;
  SlotId slot;                   // valid: take the scalar from there (doubles bit-cast, integers sign-extended)
  std::int32_t expression = -1;  // -1, or a symbolic size

  bool operator==(const Word&) const = default;
};

struct BufferOperand {
  SlotId slot;
  std::int64_t offset = 0;  // elements

  bool operator==(const BufferOperand&) const = default;
};

enum class StepKind : std::uint8_t {
#define X(name, text, doc) name,
#include "program/step_kinds.def"
#undef X
};

// One step. Which fields count depends on the kind; the others are empty (see step_kinds.def).
struct Step {
  StepKind kind = StepKind::Free;
  SlotId slot;    // Allocate, Free, View (the result), Copy (the destination), Check (the flags)
  SlotId source;  // View (the base), Copy
  // Launch
  CodeId code;
  std::uint32_t symbol = 0;  // index into Code::symbols
  std::vector<BufferOperand> buffers;
  std::vector<Word> words;
  Size units;                  // the range is [0, units)
  std::int64_t unit_work = 1;  // elements a unit, for the choice between one thread and many
  std::int64_t grain = 1;      // units are handed out in multiples of this
  // Check
  std::uint32_t first_check = 0;
  std::uint32_t check_count = 0;
  // Extern
  std::string op;                   // "aten::addmm", with the overload behind a dot if it has one: "aten::add.Tensor"
  std::vector<Argument> arguments;  // positional, all of the schema's
  std::vector<SlotId> results;      // Extern: what is returned, in order; Return: what the region returns
                                    // (invalid ids: None)
  std::vector<SlotId> outs;         // Extern: filled slots for the out= arguments; empty: a functional call

  bool operator==(const Step&) const = default;
};

struct Program {
  std::uint32_t inputs = 0;
  std::int64_t arena_bytes = 0;
  std::vector<Slot> slots;
  std::vector<Constant> constants;
  std::vector<Code> codes;
  std::vector<Check> checks;
  std::vector<Step> steps;

  const Slot& get(SlotId id) const { return slots[id.index()]; }
  const Code& get(CodeId id) const { return codes[id.index()]; }
  bool operator==(const Program&) const = default;
};

// One line a slot, constant, code and step; bytes are shown by their number and hash.
REPRISE_EXPORT std::string print(const Program& program);

// An empty string, or the first thing that breaks the requirements above: "step 3: slot 7 is read before it is filled".
REPRISE_EXPORT std::string verify(const Program& program);

REPRISE_EXPORT std::vector<std::uint8_t> serialise(const Program& program);
REPRISE_EXPORT base::Result<Program> deserialise(const std::uint8_t* bytes, std::size_t size_bytes);

}  // namespace reprise::program
