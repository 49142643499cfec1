// Handlers of the opcodes that only move values. Private to the evaluator.
//
// Stack pictures: before -- after, the top on the right.
#pragma once

#include "interp/evaluator_impl.h"

namespace reprise::interp {

#define REPRISE_HANDLER(name) \
  template <class Policy>     \
  REPRISE_INLINE Flow Evaluator<Policy>::do_##name([[maybe_unused]] Cursor& c)

// --
REPRISE_HANDLER(Nop) { return Flow::Next; }

// -- local
REPRISE_HANDLER(LoadFast) {
  const Operand value = local(c, c.instruction->arg);
  if (value.object == nullptr) [[unlikely]]
    return Flow::Stop;
  push_new(c, value);
  return Flow::Next;
}

// -- local, which becomes NULL
REPRISE_HANDLER(LoadFastAndClear) {
  const int32_t index = c.instruction->arg;
  push(c, local(c, index));
  c.locals[index] = nullptr;
  if constexpr (kShadow) act_.ids[index] = -1;
  return Flow::Next;
}

// -- local_a local_b
REPRISE_HANDLER(LoadFastLoadFast) {
  const Operand a = local(c, c.instruction->arg >> 4);
  const Operand b = local(c, c.instruction->arg & 15);
  if (a.object == nullptr || b.object == nullptr) [[unlikely]]
    return Flow::Stop;
  push_new(c, a);
  push_new(c, b);
  return Flow::Next;
}

// value -- local_b; the value goes to local_a
REPRISE_HANDLER(StoreFastLoadFast) {
  const Flow flow = set_local(c, c.instruction->arg >> 4, pop(c));
  push_new(c, local(c, c.instruction->arg & 15));
  return flow;
}

// value_b value_a --; they go to local_b and local_a
REPRISE_HANDLER(StoreFastStoreFast) {
  const Flow first = set_local(c, c.instruction->arg >> 4, pop(c));
  const Flow second = set_local(c, c.instruction->arg & 15, pop(c));
  return first == Flow::Checked ? first : second;
}

// value --
REPRISE_HANDLER(StoreFast) { return set_local(c, c.instruction->arg, pop(c)); }

// --; the local becomes NULL
REPRISE_HANDLER(DeleteFast) {
  if (c.locals[c.instruction->arg] == nullptr) return Flow::Stop;
  return set_local(c, c.instruction->arg, {});
}

// -- constant
REPRISE_HANDLER(LoadConst) {
  PyObject* constant = c.instruction->object;
  push_new(c, {constant, constant_id(constant)});
  return Flow::Next;
}

// -- AssertionError
REPRISE_HANDLER(LoadAssertionError) {
  push_new(c, {PyExc_AssertionError, constant_id(PyExc_AssertionError)});
  return Flow::Next;
}

// -- NULL
REPRISE_HANDLER(PushNull) {
  push(c, {});
  return Flow::Next;
}

// value --
REPRISE_HANDLER(PopTop) { return release(c, pop(c).object); }

// values... --
REPRISE_HANDLER(EndFor) {
  Flow flow = Flow::Next;
  for (int32_t i = 0; i < c.instruction->arg; ++i) {
    if (release(c, pop(c).object) == Flow::Checked) flow = Flow::Checked;
  }
  return flow;
}

// receiver value -- value
REPRISE_HANDLER(EndSend) {
  const Operand value = pop(c);
  const Operand receiver = pop(c);
  push(c, value);
  return release(c, receiver.object);
}

// value ... -- value ... value
REPRISE_HANDLER(Copy) {
  push_new(c, peek(c, c.instruction->arg));
  return Flow::Next;
}

// a ... b -- b ... a
REPRISE_HANDLER(Swap) {
  const int32_t depth = c.instruction->arg;
  const Operand top = peek(c, 1);
  const Operand other = peek(c, depth);
  c.stack_pointer[-1] = other.object;
  c.stack_pointer[-depth] = top.object;
  if constexpr (kShadow) {
    int32_t* ids = act_.ids + (c.stack_pointer - c.locals);
    ids[-1] = other.id;
    ids[-depth] = top.id;
  }
  return Flow::Next;
}

}  // namespace reprise::interp
