// The evaluator: state of one frame that is being evaluated, the loop over its instructions, and every way out of it.
//
//  1. Frames are left through host/cpython/frame_exit.h, or CPython's evaluator executes the instruction that leaves.
//  2. An instruction that is going to fail without side effects (an unbound name) is left to CPython, which has the
//  words.
//  3. A handler does not move the stack pointer before its policy call is Done; so a Stop leaves the frame as it was.
//  4. The frame's instruction pointer is set in front of everything that can run Python code, and so are the fields of
//  the
//     activation. While the frame runs, its value stack is hidden from the garbage collector.
//  5. Tracing or monitoring that a callee switched on is noticed at the next boundary: the frame is left there.
#pragma once

#include <Python.h>

#include "host/cpython/decode.h"
#include "host/cpython/frame_exit.h"
#include "host/cpython/frame_view.h"
#include "host/cpython/hook.h"
#include "host/cpython/pending.h"
#include "interp/policy.h"
#include "interp/rare_ops.h"
#include "interp/scratch_impl.h"

#define REPRISE_INLINE __attribute__((always_inline)) inline

namespace reprise::interp {

/// Where the evaluator stands. The loop keeps it in registers: handlers get it by reference and are inlined, functions
/// that are not get a copy and leave the new place in the activation (see `reload`).
struct Cursor {
  PyObject** stack_pointer;  // first free slot
  PyObject** locals;
  const host::Instruction* instruction;
};

/// What a handler says about how to go on.
enum class Flow : uint8_t {
  Next,           // the next instruction; no Python code has run
  Checked,        // the next instruction, but Python code may have run: look for interruptions first
  Jumped,         // the cursor stands at the next instruction; no Python code has run
  JumpedChecked,  // the same, but Python code may have run
  Raised,         // the instruction raised
  Reraised,       // the same, without a traceback entry; a handler exists
  Stop,           // leave the frame in front of the instruction
  Exit,           // the instruction leaves the frame
};

template <class Policy>
class Evaluator {
 public:
  using Act = typename Policy::Act;

  Evaluator(Policy& policy, PyThreadState* thread, host::Frame* frame, host::CodeInfo* info)
      : policy_(policy),
        thread_(thread),
        frame_(frame),
        first_unit_(host::view::first_unit(host::view::code(frame))),
        instructions_(info->instructions.get()),
        ids_(info->slot_count) {
    act_.frame = frame;
    act_.code = host::view::code(frame);
    act_.function = host::view::function(frame);
    act_.code_info = info;
    act_.locals = frame->localsplus;
    act_.stack_pointer = frame->localsplus + frame->stacktop;
    act_.ids = ids_.get();
  }

  /// `index`: the instruction to start with; with `throwflag`, the one that raises.
  RunResult run(int32_t index, bool throwflag);

 private:
  static constexpr bool kShadow = Policy::kShadow;
  static constexpr bool kIs312 = host::kPythonMinor >= 12;
  static constexpr bool kIs313 = host::kPythonMinor >= 13;

  // Every boundary is watched for a policy that has `static constexpr bool kWatchesEverything = true`.
  static constexpr bool watches_everything() {
    if constexpr (requires { Policy::kWatchesEverything; }) {
      return Policy::kWatchesEverything;
    } else {
      return false;
    }
  }

  // --- handlers: one for each opcode, its stack picture above it
  // -------------------------------------------------------

#define REPRISE_DECLARE_Move(name) Flow do_##name(Cursor& c);
#define REPRISE_DECLARE_Plain(name) Flow do_##name(Cursor& c);
#define REPRISE_DECLARE_Exit(name) Flow do_##name(Cursor& c);
#define REPRISE_DECLARE_Rare(name)
#define REPRISE_DECLARE_HandOver(name)
#define REPRISE_OP(name, pops, resume, kind) REPRISE_DECLARE_##kind(name)
#define REPRISE_CPYTHON(name, opcode, v311, v312, v313)
#include "host/cpython/opcodes.def"
#undef REPRISE_OP
#undef REPRISE_CPYTHON
#undef REPRISE_DECLARE_Move
#undef REPRISE_DECLARE_Plain
#undef REPRISE_DECLARE_Exit
#undef REPRISE_DECLARE_Rare
#undef REPRISE_DECLARE_HandOver

  REPRISE_INLINE Flow do_rare(Cursor& c);

  // --- the value stack
  // -------------------------------------------------------------------------------------------------

  // The n-th value from the top, counted from 1.
  REPRISE_INLINE Operand peek(const Cursor& c, int n) const {
    return {c.stack_pointer[-n], kShadow ? act_.ids[c.stack_pointer - n - c.locals] : -1};
  }
  REPRISE_INLINE Operand local(const Cursor& c, int32_t index) const {
    return {c.locals[index], kShadow ? act_.ids[index] : -1};
  }
  // Steals the object.
  REPRISE_INLINE void push(Cursor& c, Operand value) {
    if constexpr (kShadow) act_.ids[c.stack_pointer - c.locals] = value.id;
    *c.stack_pointer++ = value.object;
  }
  REPRISE_INLINE void push_new(Cursor& c, Operand value) {
    Py_INCREF(value.object);
    push(c, value);
  }
  REPRISE_INLINE void push_bool(Cursor& c, bool value) {
    PyObject* object = value ? Py_True : Py_False;
    push_new(c, {object, constant_id(object)});
  }
  REPRISE_INLINE Operand pop(Cursor& c) {
    const Operand value = peek(c, 1);
    --c.stack_pointer;
    return value;
  }
  // Drops values that are not NULL.
  REPRISE_INLINE void drop(Cursor& c, int count) {
    for (int i = 0; i < count; ++i) Py_DECREF(*--c.stack_pointer);
  }
  REPRISE_INLINE void drop_any(Cursor& c, int count) {
    for (int i = 0; i < count; ++i) Py_XDECREF(*--c.stack_pointer);
  }
  // Drops a value that no longer is in the frame. Its destructor may run Python code.
  REPRISE_INLINE Flow release(Cursor& c, PyObject* object) {
    if (object == nullptr || Py_REFCNT(object) != 1) [[likely]] {
      Py_XDECREF(object);
      return Flow::Next;
    }
    sync(c);
    Py_DECREF(object);
    return Flow::Checked;
  }
  REPRISE_INLINE Flow set_local(Cursor& c, int32_t index, Operand value) {
    PyObject* old = c.locals[index];
    c.locals[index] = value.object;
    if constexpr (kShadow) act_.ids[index] = value.id;
    return release(c, old);
  }
  REPRISE_INLINE int32_t constant_id(PyObject* object) {
    if constexpr (kShadow) {
      return policy_.constant_id(object);
    } else {
      return -1;
    }
  }
  // The `count` values of which the lowest is the `depth`-th from the top.
  REPRISE_INLINE Operands<Policy> operands(const Cursor& c, int depth, int count) const {
    PyObject** slots = c.stack_pointer - depth;
    return Operands<Policy>(slots, kShadow ? act_.ids + (slots - c.locals) : nullptr, count);
  }

  // --- ends of handlers
  // ------------------------------------------------------------------------------------------------

  static REPRISE_INLINE Flow fail(Outcome outcome) { return outcome == Outcome::Stop ? Flow::Stop : Flow::Raised; }
  // Replaces the instruction's operands by one result.
  REPRISE_INLINE Flow finish(Cursor& c, Outcome outcome, Operand result) {
    return finish(c, outcome, c.instruction->pops, result);
  }
  REPRISE_INLINE Flow finish(Cursor& c, Outcome outcome, int pops, Operand result) {
    if (outcome != Outcome::Done) [[unlikely]]
      return fail(outcome);
    drop(c, pops);
    push(c, result);
    return Flow::Checked;
  }
  // Drops the operands.
  REPRISE_INLINE Flow finish(Cursor& c, Outcome outcome, int pops) {
    if (outcome != Outcome::Done) [[unlikely]]
      return fail(outcome);
    drop(c, pops);
    return Flow::Checked;
  }
  REPRISE_INLINE Flow finish_bool(Cursor& c, Outcome outcome, int pops, bool result) {
    if (outcome != Outcome::Done) [[unlikely]]
      return fail(outcome);
    drop(c, pops);
    push_bool(c, result);
    return Flow::Checked;
  }
  REPRISE_INLINE Flow push_unpacked(Cursor& c, Outcome outcome, const UnpackedItem<Policy>* items, int count);
  // What a call pushes beside a callable that is no method.
  REPRISE_INLINE void push_with_null(Cursor& c, Operand callable) {
    if (!kIs313) push(c, {});
    push(c, callable);
    if (kIs313) push(c, {});
  }

  // --- control
  // ---------------------------------------------------------------------------------------------------------

  // Tells everybody where the frame stands.
  REPRISE_INLINE void sync(const Cursor& c) {
    host::view::set_current(frame_, first_unit_, c.instruction->op_unit);
    act_.instruction = c.instruction;
    act_.stack_pointer = c.stack_pointer;
    if constexpr (kShadow) {
      act_.resume_depth = static_cast<int32_t>(c.stack_pointer - c.locals) - c.instruction->pops;
      act_.resume_mode = c.instruction->resume;
    }
  }
  REPRISE_INLINE void jump(Cursor& c) const { c.instruction = instructions_ + c.instruction->target; }
  // Goes back; the policy may want to leave the loop.
  REPRISE_INLINE Flow take_back_edge(Cursor& c);
  REPRISE_INLINE Flow branch(Cursor& c, bool taken);
  // CPython's periodic work. false: an exception is set.
  REPRISE_INLINE bool do_pending_work() {
    return !host::view::has_pending_work(thread_) || host::handle_pending(thread_);
  }
  REPRISE_INLINE bool is_interrupted() { return link_.is_interrupted(thread_) || !policy_.is_active(); }
  // At a boundary that no Python code has come before: only a recorder wants to hear of it.
  REPRISE_INLINE bool is_left_quietly() {
    if constexpr (kShadow) return !policy_.is_active();
    return false;
  }
  static REPRISE_INLINE bool is_watched(const Cursor& c) {
    return watches_everything() || (c.instruction->flags & host::kInstructionWatched) != 0;
  }

  REPRISE_INLINE void reload(Cursor& c) const {
    c.stack_pointer = act_.stack_pointer;
    c.instruction = act_.instruction;
  }

  // --- not inlined
  // -----------------------------------------------------------------------------------------------------

  Flow run_rare(Cursor c);
  RunResult leave(Cursor c, RunResult::Status status);
  RunResult exit_frame(Cursor c);
  // The exception that is set is raised at `unit`. true: the activation stands at a handler; false: `*result` is final.
  bool raise(Cursor c, int32_t unit, bool with_traceback, RunResult* result);

  Policy& policy_;
  PyThreadState* const thread_;
  host::Frame* const frame_;
  _Py_CODEUNIT* const first_unit_;
  const host::Instruction* const instructions_;
  Act act_{};
  host::view::FrameLink link_;
  [[no_unique_address]] SlotIds<kShadow> ids_;
};

template <class Policy>
RunResult Evaluator<Policy>::leave(Cursor c, RunResult::Status status) {
  sync(c);
  // A policy may want to know that the frame goes on without it, whoever decided that.
  if constexpr (requires { policy_.on_left(act_); }) policy_.on_left(act_);
  policy_.leave_frame(act_);
  host::view::set_boundary(frame_, c.instruction->unit, c.stack_pointer);
  link_.leave(thread_);
  return {status, nullptr};
}

template <class Policy>
RunResult Evaluator<Policy>::exit_frame(Cursor c) {
  policy_.leave_frame(act_);
  switch (c.instruction->op) {
    case host::Op::ReturnValue:
      if (!host::kReturnsNatively) break;
      return {RunResult::Returned, host::exit_returning(thread_, frame_, link_, c.stack_pointer[-1])};
    case host::Op::ReturnConst:
      if (!host::kReturnsNatively) break;
      return {RunResult::Returned, host::exit_returning(thread_, frame_, link_, Py_NewRef(c.instruction->object))};
    case host::Op::YieldValue:
      --c.stack_pointer;
      return {RunResult::Returned,
              host::exit_yielding(thread_, frame_, link_, *c.instruction, c.stack_pointer, *c.stack_pointer)};
    default:
      break;
  }
  host::view::set_boundary(frame_, c.instruction->unit, c.stack_pointer);
  link_.leave(thread_);
  const bool makes_generator = c.instruction->op == host::Op::ReturnGenerator;
  PyObject* value = host::run_default(thread_, frame_, 0);
  if (makes_generator && value != nullptr) policy_.on_generator_made(act_, value);
  return {RunResult::Returned, value};
}

template <class Policy>
bool Evaluator<Policy>::raise(Cursor c, int32_t unit, bool with_traceback, RunResult* result) {
  act_.stack_pointer = c.stack_pointer;
  if (!PyErr_Occurred()) {
    PyErr_Format(PyExc_SystemError, "%s failed without an exception set", host::get_op_name(c.instruction->op));
  }
  const bool goes_on = policy_.on_raised(act_);
  host::Handler handler;
  if (host::view::is_observed(thread_, act_.code)) {
    policy_.on_unwound(act_);
    policy_.leave_frame(act_);
    *result = {RunResult::Returned, host::raise_observed(thread_, frame_, link_, c.stack_pointer, unit)};
    return false;
  }
  if (!host::find_handler(act_.code, unit, &handler)) {
    policy_.on_unwound(act_);
    policy_.leave_frame(act_);
    host::exit_raising(thread_, frame_, link_, c.stack_pointer);
    *result = {RunResult::Returned, nullptr};
    return false;
  }
  if (with_traceback) host::add_traceback(frame_);
  c.stack_pointer = host::unwind_to_handler(frame_, c.stack_pointer, handler);
  c.instruction = instructions_ + act_.code_info->find_index(handler.unit);
  if constexpr (kShadow) {
    const auto depth = c.stack_pointer - c.locals;
    if (handler.push_lasti) act_.ids[depth - 2] = -1;
    act_.ids[depth - 1] = policy_.caught_exception_id(act_, c.stack_pointer[-1]);
  }
  act_.stack_pointer = c.stack_pointer;
  act_.instruction = c.instruction;
  if (goes_on && !is_interrupted()) return true;
  *result = leave(c, RunResult::Stopped);
  return false;
}

template <class Policy>
RunResult Evaluator<Policy>::run(int32_t index, bool throwflag) {
  using host::Op;
  Cursor c{act_.stack_pointer, act_.locals, instructions_ + index};
  RunResult result;
  Flow flow;
  link_.enter(thread_, frame_);
  act_.instruction = c.instruction;
  policy_.enter_frame(act_);
  if (throwflag) {
    // CPython's own bookkeeping for the traceback stands; the unit in front of the boundary has raised.
    const int32_t unit = host::view::next_unit(frame_) - 1;
    if (!raise(c, unit, true, &result)) return result;
    reload(c);
  } else if (is_interrupted()) {
    return leave(c, RunResult::Stopped);
  }

  static const void* const kLabels[] = {
#define REPRISE_OP(name, pops, resume, kind) &&at_##name,
#define REPRISE_CPYTHON(name, opcode, v311, v312, v313)
#include "host/cpython/opcodes.def"
#undef REPRISE_OP
  };

// The next instruction. (A loop around a switch would share one indirect jump among all opcodes, which predicts badly.)
#define REPRISE_DISPATCH()                                  \
  do {                                                      \
    if (is_watched(c)) [[unlikely]]                         \
      goto watched;                                         \
    goto* kLabels[static_cast<uint8_t>(c.instruction->op)]; \
  } while (false)

  REPRISE_DISPATCH();

watched:
  sync(c);
  if (!policy_.at_boundary(act_)) return leave(c, RunResult::AtBoundary);
  if (link_.is_interrupted(thread_)) [[unlikely]]
    return leave(c, RunResult::Stopped);
  goto* kLabels[static_cast<uint8_t>(c.instruction->op)];

// Handlers say how to go on with a constant, so each becomes straight code that ends in its own dispatch.
#define REPRISE_EXECUTE_Move(name) (kShadow ? sync(c) : void(), do_##name(c))
#define REPRISE_EXECUTE_Plain(name) (sync(c), do_##name(c))
#define REPRISE_EXECUTE_Exit(name) (sync(c), do_##name(c))
#define REPRISE_EXECUTE_Rare(name) (sync(c), do_rare(c))
#define REPRISE_EXECUTE_HandOver(name) Flow::Stop
#define REPRISE_OP(name, pops, resume, kind)       \
  at_##name : flow = REPRISE_EXECUTE_##kind(name); \
  if (flow == Flow::Checked) [[likely]] {          \
    ++c.instruction;                               \
    if (is_interrupted()) [[unlikely]]             \
      goto stop;                                   \
    REPRISE_DISPATCH();                            \
  }                                                \
  if (flow == Flow::Next) {                        \
    ++c.instruction;                               \
    if (is_left_quietly()) [[unlikely]]            \
      goto stop;                                   \
    REPRISE_DISPATCH();                            \
  }                                                \
  if (flow == Flow::Jumped) {                      \
    if (is_left_quietly()) [[unlikely]]            \
      goto stop;                                   \
    REPRISE_DISPATCH();                            \
  }                                                \
  goto other_flow;
#include "host/cpython/opcodes.def"
#undef REPRISE_OP
#undef REPRISE_CPYTHON
#undef REPRISE_EXECUTE_Move
#undef REPRISE_EXECUTE_Plain
#undef REPRISE_EXECUTE_Exit
#undef REPRISE_EXECUTE_Rare
#undef REPRISE_EXECUTE_HandOver

other_flow:
  switch (flow) {
    case Flow::Next:
    case Flow::Checked:
    case Flow::Jumped:
      break;
    case Flow::JumpedChecked:
      if (is_interrupted()) goto stop;
      REPRISE_DISPATCH();
    case Flow::Raised:
      if (!raise(c, c.instruction->op_unit, true, &result)) return result;
      reload(c);
      REPRISE_DISPATCH();
    case Flow::Reraised:
      if (!raise(c, c.instruction->op_unit, false, &result)) return result;
      reload(c);
      REPRISE_DISPATCH();
    case Flow::Stop:
      break;
    case Flow::Exit:
      return exit_frame(c);
  }
stop:
  return leave(c, RunResult::Stopped);
#undef REPRISE_DISPATCH
}

template <class Policy>
RunResult run_frame(Policy& policy, PyThreadState* thread, host::Frame* frame, bool throwflag) {
  host::CodeInfo* info = host::get_code_info(host::view::code(frame));
  int32_t index = -1;
  if (info != nullptr && info->undecodable == nullptr) {
    const int32_t unit = host::view::next_unit(frame);
    if (throwflag) {
      const host::Instruction* raising = info->find_before(unit);
      if (raising != nullptr) index = raising->next - 1;
    } else {
      index = info->find_index(unit);
    }
  }
  if (index < 0) {
    if (throwflag) return {RunResult::Returned, host::run_default(thread, frame, 1)};
    return {RunResult::Stopped, nullptr};
  }
  Evaluator<Policy> evaluator(policy, thread, frame, info);
  return evaluator.run(index, throwflag);
}

}  // namespace reprise::interp

#include "interp/control_impl.h"
#include "interp/moves_impl.h"
#include "interp/values_impl.h"
