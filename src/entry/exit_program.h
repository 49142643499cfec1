// ExitProgram: how one exit gets from the slots of a run to the frames of its snapshot.
//
// First the rebuild steps, in trace order: allocations that only exits need, and the mutations that were recorded on
// them before the exit, each once, so identity is kept among the frames. Then the frames, whose slots refer to run
// slots, rebuilt objects and constants. Derived from the retained trace when the exit is first taken; plain data.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/cpython/rebuild.h"
#include "trace/trace.h"

namespace reprise::entry {

class Entry;

/// Where a value comes from.
class Ref {
 public:
  enum class Kind : uint8_t { Null, Slot, Rebuilt, Constant };

  Ref() = default;
  Ref(Kind kind, int32_t index) : kind_(kind), index_(index) {}
  Kind kind() const { return kind_; }
  int32_t index() const { return index_; }

 private:
  Kind kind_ = Kind::Null;
  int32_t index_ = -1;
};

struct RebuildStep {
  enum class Kind : uint8_t {
    Node,         // an allocation or a mutation
    Placeholder,  // a store that a later one replaces: keeps the order of keys, not the value
    Enumerate,    // an enumerate object that has given `n` elements
    Advance,      // takes `n` elements from operand 0
    Generator,    // operand 0: function; the others are its frame's slots
  };
  Kind kind = Kind::Node;
  trace::NodeKind node = trace::NodeKind::Const;
  int32_t n = 0;
  int32_t result = -1;    // index among the rebuilt objects, or -1
  uint32_t operands = 0;  // into ExitProgram::refs
  uint32_t operand_count = 0;
  PyObject* object = nullptr;  // borrowed from the trace
  // Generator
  int32_t unit = 0;  // where it goes on; -1: it has finished
  host::GeneratorState state = host::GeneratorState::Created;
};

struct ExitFrame {
  bool is_function_made = false;  // by the program, anew for each run
  PyObject* function = nullptr;   // borrowed from the trace; nullptr: function_value
  Ref function_value;
  int32_t next_unit = 0;   // where the frame goes on
  int32_t raise_unit = 0;  // `next_unit` of the instruction that raises
  uint32_t slots = 0;      // into ExitProgram::refs
  uint32_t slot_count = 0;
  host::ResumeMode mode = host::ResumeMode::Push;
  Ref mode_value;
  Ref generator;
};

struct ExitProgram {
  std::vector<RebuildStep> steps;
  std::vector<ExitFrame> frames;  // outermost first
  std::vector<Ref> refs;
  std::vector<PyObject*> constants;  // borrowed from the trace
  int32_t rebuilt_count = 0;
  uint32_t max_operand_count = 0;
  Ref handled_exception;
};

/// `item`: a late guard, a node that raises, or Entry::kEndItem.
std::unique_ptr<ExitProgram> make_exit_program(const Entry& entry, int32_t item);
/// Rebuild steps and frames, one a line.
std::string print_exit_program(const ExitProgram& program);

}  // namespace reprise::entry
