// The contract between the evaluator and its policies.
//
// The evaluator (evaluator.h) owns control flow, the value stack and everything that differs between CPython versions.
// A policy owns what an operation *means*: it executes the operation for real and, when it records, appends to a trace.
// `PlainPolicy` executes only; `capture::RecordPolicy` executes and records; what a recorder has no model for it
// answers with `Outcome::Stop`, which must leave no trace of the attempt.
//
// Threads: a policy object belongs to one thread. Ownership: operands are borrowed from the frame; results are new
// references that the evaluator pushes; the evaluator drops the operands afterwards.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/cpython/decode.h"
#include "host/cpython/frame.h"

namespace reprise::interp {

/// A live object and, while recording, the id of the trace value that stands for it (-1: unknown).
struct Operand {
  PyObject* object = nullptr;
  int32_t id = -1;
};

/// What `unary` computes.
enum class UnaryOp : int { Negative, Invert, Positive };

enum class Outcome : uint8_t {
  Done,    // executed; results are set
  Raised,  // executed, a Python exception is set
  Stop,    // not executed at all: leave the frame in front of this instruction
};

/// What happens in a caller's frame when the Python callee that its current instruction started returns.
using ResumeMode = host::ResumeMode;

/// One frame that is being evaluated. The evaluator fills it and keeps `stack_pointer` and `instruction` up to date
/// before every policy call. Policies derive from it to add their own state.
struct Activation {
  host::Frame* frame = nullptr;
  PyCodeObject* code = nullptr;                    // borrowed from the frame
  PyObject* function = nullptr;                    // borrowed from the frame; may be no function (class bodies ...)
  host::CodeInfo* code_info = nullptr;             // decoded instructions of `code`
  PyObject** locals = nullptr;                     // localsplus: locals, cells, free variables, then the value stack
  PyObject** stack_pointer = nullptr;              // first free slot
  int32_t* ids = nullptr;                          // parallel to `locals`; nullptr if the policy has no shadow
  const host::Instruction* instruction = nullptr;  // the one that is being executed
  Activation* caller = nullptr;                    // next outer frame evaluated under the same policy object

  // Set before every policy call, for callees: state of this frame when a Python callee returns.
  int32_t resume_depth = 0;  // slots of `locals` that stay (operands popped)
  ResumeMode resume_mode = ResumeMode::Push;
  Operand resume_value;  // for PushValue
};

/// What a policy has made of a rare opcode: it drops `pops` values and pushes the result; `jumps`: to its target.
struct RareModel {
  bool is_modelled = false, jumps = false;
  int pops = 0;
  Operand result;
};

// A policy P has these members; `Act` is `P::Act`, a struct derived from Activation. Operations answer an Outcome.
//
//   static constexpr bool kShadow
//       Ids are kept beside locals, and the resume_ fields are set. Without shadow, lists of operands are
//       `PyObject* const*` (they stay on the value stack), unpacked items `PyObject**`, and constant_id and
//       caught_exception_id are not needed.
//   static constexpr bool kWatchesEverything = true
//       Optional: at_boundary is called at every boundary.
//
// Control:
//   bool is_active()
//       false: the evaluator leaves the frame (Stopped). Asked once at every boundary if kShadow, otherwise only where
//       Python code may have run since the last one.
//   bool at_boundary(Act&)
//       In front of an instruction whose flag kInstructionWatched is set; false: leave the frame there (AtBoundary).
//   bool at_back_edge(Act&)
//       A backward jump, Act::instruction, is about to be taken; false: leave the frame at its target (Stopped).
//   void enter_frame(Act&), leave_frame(Act&)
//       Push and pop the activation. Ids are allocated by the evaluator and set to -1; the policy binds the arguments'
//       ids in enter_frame. leave_frame comes in front of what leaves the frame: it is intact and still linked.
//   int32_t constant_id(PyObject*)
//       Id of a constant (code constants, True, False and None made by the evaluator).
//   bool on_raised(Act&)
//       An instruction raised, a handler in this frame is about to be looked for; false: leave the frame in front of
//       the handler, if there is one (Stopped).
//   void on_unwound(Act&)                     the exception leaves this frame
//   int32_t caught_exception_id(Act&, PyObject* exception)        pushed at a handler
//   void on_push_exc_info(Act&), on_pop_except(Act&)              the evaluator has done the work
//   bool on_return(Act&, Operand v)           in front of the frame exit; false: leave the frame instead (Stopped)
//   bool on_yield(Act&, Operand v)            the same for YIELD_VALUE
//   bool on_return_generator(Act&)            the same for RETURN_GENERATOR
//   void on_generator_made(Act&, PyObject* generator)             after RETURN_GENERATOR has run, after leave_frame
//   rare(Act&, const host::Instruction&)
//       Every opcode of kind Rare in opcodes.def. Done: the policy agrees that the evaluator executes it unrecorded
//       (PlainPolicy); Stop otherwise.
//   model_rare(Act&, const host::Instruction&, RareModel*)
//       Optional, asked first: the policy executes the opcode itself, if is_modelled.
//
// Operators:
//   unary(Act&, int op, Operand v, Operand* out)                  op: UnaryOp
//   truth(Act&, Operand v, bool* out)                             jumps, UNARY_NOT, TO_BOOL
//   binary(Act&, int op, Operand l, Operand r, Operand* out)      op: CPython's NB_* number (0..25; in-place from 13)
//   compare(Act&, int op, Operand l, Operand r, Operand* out)     op: Py_LT ...
//       If the instruction has kInstructionToBool (3.13), `truth` of the result follows, and resume_mode is Never all
//       along. A Stop of that truth comes too late: the instruction is completed unrecorded.
//   is_identical(Act&, Operand l, Operand r, bool* out)           IS_OP (inversion is done by the evaluator)
//   is_none(Act&, Operand v, bool* out)                           POP_JUMP_IF_(NOT_)NONE
//   contains(Act&, Operand container, Operand item, bool* out)    CONTAINS_OP (inversion by the evaluator)
//
// Items, attributes, names, cells:
//   get_item(Act&, Operand c, Operand k, Operand* out)            also BINARY_SLICE, with a slice made by build_slice
//   set_item(Act&, Operand c, Operand k, Operand v)
//   delete_item(Act&, Operand c, Operand k)
//   load_attribute(Act&, Operand o, PyObject* name, Operand* out)
//   load_method(Act&, Operand o, PyObject* name, Operand* callable, Operand* self)
//       self->object nullptr: not a method; otherwise a new reference as well.
//   store_attribute(Act&, Operand o, PyObject* name, Operand v)
//   delete_attribute(Act&, Operand o, PyObject* name)
//   load_super_attribute(Act&, Operand super, Operand cls, Operand self, PyObject* name, bool two_arguments,
//                        Operand* out)
//   load_global(Act&, PyObject* name, Operand* out)
//   store_global(Act&, PyObject* name, Operand v)
//   delete_global(Act&, PyObject* name)
//   load_cell(Act&, int index, Operand* out)
//   store_cell(Act&, int index, Operand v)
//   delete_cell(Act&, int index)
//   make_cell(Act&, int index)                                    replaces locals[index] (and its id) by a cell
//   copy_free_vars(Act&, int count)                               fills the last `count` locals from the closure
//
// Containers and strings:
//   build_tuple, build_list, build_set(Act&, const Operand* items, int n, Operand* out)
//   build_map(Act&, const Operand* key_value_pairs, int n, Operand* out)
//   build_const_key_map(Act&, Operand keys, const Operand* values, int n, Operand* out)
//   build_slice(Act&, Operand start, Operand stop, Operand step /* object nullptr: none */, Operand* out)
//   build_string(Act&, const Operand* items, int n, Operand* out)
//   format_value(Act&, Operand v, Operand spec /* may be null */, int conversion, bool do_format, Operand* out)
//       FORMAT_VALUE, FORMAT_SIMPLE, CONVERT_VALUE ... conversion: 0 none, 1 str, 2 repr, 3 ascii.
//   list_append(Act&, Operand list, Operand v)
//   set_add(Act&, Operand set, Operand v)
//   map_add(Act&, Operand d, Operand k, Operand v)
//   list_extend(Act&, Operand list, Operand iterable)
//   set_update(Act&, Operand set, Operand iterable)
//   list_to_tuple(Act&, Operand list, Operand* out)
//   dict_update(Act&, Operand d, Operand u)
//   dict_merge(Act&, Operand d, Operand u, Operand callee)
//   unpack_sequence(Act&, Operand s, int n, Operand* out)         out[0] is the first element
//   unpack_ex(Act&, Operand s, int before, int after, Operand* out)   before, list, after
//   get_iter(Act&, Operand o, Operand* out)
//   get_len(Act&, Operand o, Operand* out)
//   for_iter(Act&, Operand it, Operand* out)                      out->object nullptr: exhausted
//
// Calls, functions, imports:
//   call(Act&, Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out)
//       args hold positional, then keyword values; n counts both; `self` is included.
//   call_ex(Act&, Operand callable, Operand args, Operand kwargs /* may be null */, Operand* out)
//   make_function(Act&, Operand code, Operand defaults, Operand kwdefaults, Operand annotations, Operand closure,
//                 Operand* out)
//   set_function_attribute(Act&, Operand function, int which, Operand v)     3.13
//   import_name(Act&, PyObject* name, Operand fromlist, Operand level, Operand* out)
//   import_from(Act&, Operand module, PyObject* name, Operand* out)
//
// With, exceptions:
//   before_with(Act&, Operand manager, Operand* exit, Operand* result)
//   with_except_start(Act&, Operand exit, Operand exception, Operand* out)
//   raise(Act&, Operand exception, Operand cause)                 RAISE_VARARGS 1 and 2; Raised or Stop
//   exception_matches(Act&, Operand exception, Operand type, bool* out)
}  // namespace reprise::interp
