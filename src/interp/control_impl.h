// Handlers of jumps, calls, functions, imports, with, exceptions and frame exits. Private to the evaluator.
//
// Stack pictures: before -- after, the top on the right.
#pragma once

#include "interp/evaluator_impl.h"

namespace reprise::interp {

#define REPRISE_HANDLER(name) \
  template <class Policy>     \
  REPRISE_INLINE Flow Evaluator<Policy>::do_##name([[maybe_unused]] Cursor& c)

// --- jumps
// ------------------------------------------------------------------------------------------------------------

template <class Policy>
REPRISE_INLINE Flow Evaluator<Policy>::take_back_edge(Cursor& c) {
  const bool has_work = host::view::has_pending_work(thread_);
  if (has_work && !host::handle_pending(thread_)) [[unlikely]]
    return Flow::Raised;
  act_.stack_pointer = c.stack_pointer;
  const bool goes_on = policy_.at_back_edge(act_);
  jump(c);
  if (!goes_on) [[unlikely]]
    return Flow::Stop;
  return has_work ? Flow::JumpedChecked : Flow::Jumped;
}

template <class Policy>
REPRISE_INLINE Flow Evaluator<Policy>::branch(Cursor& c, bool taken) {
  if (!taken) return Flow::Checked;
  if (c.instruction->flags & host::kInstructionBackEdge) return take_back_edge(c);
  jump(c);
  return Flow::JumpedChecked;
}

// --
REPRISE_HANDLER(Resume) {
  if (host::view::is_observed(thread_, act_.code)) [[unlikely]]
    return Flow::Stop;
  constexpr int kFirstDelegation = 2;  // RESUME behind yield from and await does not look for pending work
  if (c.instruction->arg < kFirstDelegation && !do_pending_work()) [[unlikely]]
    return Flow::Raised;
  return Flow::Checked;
}

// --
REPRISE_HANDLER(JumpForward) {
  jump(c);
  return Flow::Jumped;
}

// --
REPRISE_HANDLER(JumpBackward) { return take_back_edge(c); }

// condition --
REPRISE_HANDLER(PopJumpIfTrue) {
  bool truth = false;
  const Outcome outcome = policy_.truth(act_, peek(c, 1), &truth);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop(c, 1);
  return branch(c, truth);
}

// condition --
REPRISE_HANDLER(PopJumpIfFalse) {
  bool truth = false;
  const Outcome outcome = policy_.truth(act_, peek(c, 1), &truth);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop(c, 1);
  return branch(c, !truth);
}

// value --
REPRISE_HANDLER(PopJumpIfNone) {
  bool is_none = false;
  const Outcome outcome = policy_.is_none(act_, peek(c, 1), &is_none);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop(c, 1);
  return branch(c, is_none);
}

// value --
REPRISE_HANDLER(PopJumpIfNotNone) {
  bool is_none = false;
  const Outcome outcome = policy_.is_none(act_, peek(c, 1), &is_none);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop(c, 1);
  return branch(c, !is_none);
}

// value -- value if it is true, and jumps; value -- if not
REPRISE_HANDLER(JumpIfTrueOrPop) {
  bool truth = false;
  const Outcome outcome = policy_.truth(act_, peek(c, 1), &truth);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  if (!truth) drop(c, 1);
  return branch(c, truth);
}

// value -- value if it is false, and jumps; value -- if not
REPRISE_HANDLER(JumpIfFalseOrPop) {
  bool truth = false;
  const Outcome outcome = policy_.truth(act_, peek(c, 1), &truth);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  if (truth) drop(c, 1);
  return branch(c, !truth);
}

// iterator -- iterator next; iterator -- when it is exhausted, and jumps
REPRISE_HANDLER(ForIter) {
  Operand next;
  const Outcome outcome = policy_.for_iter(act_, peek(c, 1), &next);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  if (next.object != nullptr) [[likely]] {
    push(c, next);
    return Flow::Checked;
  }
  drop(c, 1);
  jump(c);
  return Flow::JumpedChecked;
}

// --- calls and functions
// ----------------------------------------------------------------------------------------------

// before 3.13: NULL callable arguments... -- result  or  method self arguments... -- result
// 3.13:        callable NULL-or-self arguments... [names of keywords] -- result
REPRISE_HANDLER(Call) {
  const host::Instruction& call = *c.instruction;
  PyObject* names = call.object;
  int depth = call.arg;  // of the first argument
  if (call.flags & host::kInstructionKwOnStack) {
    names = peek(c, 1).object;
    ++depth;
  }
  const Operand lower = peek(c, call.pops);
  const Operand upper = peek(c, call.pops - 1);
  const bool has_self = (kIs313 ? upper : lower).object != nullptr;
  const Operand callable = kIs313 || has_self ? lower : upper;
  Operand result;
  Outcome outcome;
  {
    const int count = call.arg + has_self;
    auto arguments = operands(c, depth + has_self, count);
    outcome = policy_.call(act_, callable, arguments.get(), count, names, &result);
  }
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop_any(c, call.pops);
  push(c, result);
  return do_pending_work() ? Flow::Checked : Flow::Raised;
}

// before 3.13: NULL callable arguments [keywords] -- result;  3.13: callable NULL arguments [keywords] -- result
REPRISE_HANDLER(CallEx) {
  const int32_t has_keywords = c.instruction->arg & 1;
  const Operand keywords = has_keywords ? peek(c, 1) : Operand{};
  const Operand arguments = peek(c, 1 + has_keywords);
  const Operand callable = peek(c, (kIs313 ? 3 : 2) + has_keywords);
  Operand result;
  const Outcome outcome = policy_.call_ex(act_, callable, arguments, keywords, &result);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop_any(c, c.instruction->pops);
  push(c, result);
  return do_pending_work() ? Flow::Checked : Flow::Raised;
}

// [defaults] [keyword defaults] [annotations] [closure] code -- function
REPRISE_HANDLER(MakeFunction) {
  const int32_t parts = c.instruction->arg;
  int depth = 1;
  const Operand code = peek(c, depth);
  const Operand closure = parts & 8 ? peek(c, ++depth) : Operand{};
  const Operand annotations = parts & 4 ? peek(c, ++depth) : Operand{};
  const Operand kwdefaults = parts & 2 ? peek(c, ++depth) : Operand{};
  const Operand defaults = parts & 1 ? peek(c, ++depth) : Operand{};
  Operand function;
  return finish(c, policy_.make_function(act_, code, defaults, kwdefaults, annotations, closure, &function), function);
}

// value function -- function
REPRISE_HANDLER(SetFunctionAttribute) {
  const Outcome outcome = policy_.set_function_attribute(act_, peek(c, 1), c.instruction->arg, peek(c, 2));
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  const Operand function = pop(c);
  drop(c, 1);
  push(c, function);
  return Flow::Checked;
}

// level fromlist -- module
REPRISE_HANDLER(ImportName) {
  Operand module;
  return finish(c, policy_.import_name(act_, c.instruction->object, peek(c, 1), peek(c, 2), &module), module);
}

// module -- module attribute
REPRISE_HANDLER(ImportFrom) {
  Operand attribute;
  return finish(c, policy_.import_from(act_, peek(c, 1), c.instruction->object, &attribute), attribute);
}

// --- with, exceptions
// -------------------------------------------------------------------------------------------------

// manager -- exit result-of-enter
REPRISE_HANDLER(BeforeWith) {
  Operand exit, result;
  const Outcome outcome = policy_.before_with(act_, peek(c, 1), &exit, &result);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop(c, 1);
  push(c, exit);
  push(c, result);
  return Flow::Checked;
}

// exit lasti previous exception -- exit lasti previous exception result
REPRISE_HANDLER(WithExceptStart) {
  constexpr int kExitDepth = 4;
  Operand result;
  return finish(c, policy_.with_except_start(act_, peek(c, kExitDepth), peek(c, 1), &result), result);
}

// exception [cause] --
REPRISE_HANDLER(RaiseVarargs) {
  const bool has_cause = c.instruction->arg == 2;
  const Operand cause = has_cause ? peek(c, 1) : Operand{};
  return fail(policy_.raise(act_, peek(c, 1 + has_cause), cause));
}

// exception class -- exception is-match
REPRISE_HANDLER(CheckExcMatch) {
  bool is_match = false;
  const Outcome outcome = policy_.exception_matches(act_, peek(c, 2), peek(c, 1), &is_match);
  return finish_bool(c, outcome, 1, is_match);
}

// exception -- previous exception
REPRISE_HANDLER(PushExcInfo) {
  const Operand exception = pop(c);
  PyObject*& handled = thread_->exc_info->exc_value;
  if (handled != nullptr) {
    push(c, {handled, -1});
  } else {
    push_new(c, {Py_None, -1});
  }
  push(c, exception);
  handled = Py_NewRef(exception.object);
  act_.stack_pointer = c.stack_pointer;
  policy_.on_push_exc_info(act_);
  return Flow::Checked;
}

// previous --
REPRISE_HANDLER(PopExcept) {
  PyObject* previous = pop(c).object;
  if (kIs313 && previous == Py_None) previous = nullptr;
  Py_XSETREF(thread_->exc_info->exc_value, previous);
  act_.stack_pointer = c.stack_pointer;
  policy_.on_pop_except(act_);
  return Flow::Checked;
}

// [lasti ...] exception --
REPRISE_HANDLER(Reraise) {
  host::Handler handler;
  if (!host::find_handler(act_.code, c.instruction->op_unit, &handler)) return Flow::Exit;
  if (c.instruction->arg != 0) {  // what raised is the instruction that raised first
    const long unit = PyLong_AsLong(peek(c, c.instruction->arg + 1).object);
    host::view::set_current(frame_, first_unit_, static_cast<int32_t>(unit));
  }
  PyObject* exception = peek(c, 1).object;  // stays for whoever goes on in front of this instruction
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exception)), Py_NewRef(exception),
                PyException_GetTraceback(exception));
  return Flow::Reraised;
}

// --- frame exits
// ------------------------------------------------------------------------------------------------------

// value --
REPRISE_HANDLER(ReturnValue) { return policy_.on_return(act_, peek(c, 1)) ? Flow::Exit : Flow::Stop; }

// --
REPRISE_HANDLER(ReturnConst) {
  PyObject* constant = c.instruction->object;
  return policy_.on_return(act_, {constant, constant_id(constant)}) ? Flow::Exit : Flow::Stop;
}

// value --; later: -- value-sent
REPRISE_HANDLER(YieldValue) { return policy_.on_yield(act_, peek(c, 1)) ? Flow::Exit : Flow::Stop; }

// --
REPRISE_HANDLER(ReturnGenerator) { return policy_.on_return_generator(act_) ? Flow::Exit : Flow::Stop; }

// --- rare opcodes
// -----------------------------------------------------------------------------------------------------

template <class Policy>
REPRISE_INLINE Flow Evaluator<Policy>::do_rare(Cursor& c) {
  const Flow flow = run_rare(c);
  c.stack_pointer = act_.stack_pointer;
  if (flow == Flow::JumpedChecked) jump(c);
  return flow;
}

// Executed without the policy, if it agrees: see rare_ops.h for the stack pictures.
template <class Policy>
Flow Evaluator<Policy>::run_rare(Cursor c) {
  if constexpr (requires(RareModel model) { policy_.model_rare(act_, *c.instruction, &model); }) {
    RareModel model;
    const Outcome outcome = policy_.model_rare(act_, *c.instruction, &model);
    if (model.is_modelled) {
      const Flow flow = finish(c, outcome, model.pops, model.result);
      act_.stack_pointer = c.stack_pointer;
      return flow == Flow::Checked && model.jumps ? Flow::JumpedChecked : flow;
    }
  }
  const Outcome agreed = policy_.rare(act_, *c.instruction);
  if (agreed != Outcome::Done) return fail(agreed);
  RareOp op{thread_, frame_, act_.code, c.locals, c.stack_pointer, c.instruction};
  const RareResult result = run_rare_op(op);
  act_.stack_pointer = op.stack_pointer;
  if constexpr (kShadow) {
    for (PyObject** slot = op.bottom; slot < op.stack_pointer; ++slot) act_.ids[slot - c.locals] = -1;
    // A policy may know what some of them leave on the stack.
    const bool is_done = result == RareResult::Done || result == RareResult::Jump;
    if constexpr (requires { policy_.on_rare_done(act_, op.stack_pointer); }) {
      if (is_done) policy_.on_rare_done(act_, op.stack_pointer);
    }
  }
  switch (result) {
    case RareResult::Done:
      return Flow::Checked;
    case RareResult::Jump:
      return Flow::JumpedChecked;
    case RareResult::Raised:
      return Flow::Raised;
    case RareResult::Reraised:
      return Flow::Reraised;
    case RareResult::Leave:
      return Flow::Stop;
    case RareResult::Exit:
      policy_.on_unwound(act_);
      return Flow::Exit;
  }
  return Flow::Stop;
}

}  // namespace reprise::interp
