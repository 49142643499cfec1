// Handlers of operators, items, attributes, names, cells, containers and strings. Private to the evaluator.
//
// Stack pictures: before -- after, the top on the right.
#pragma once

#include "interp/evaluator_impl.h"

namespace reprise::interp {

#define REPRISE_HANDLER(name) \
  template <class Policy>     \
  REPRISE_INLINE Flow Evaluator<Policy>::do_##name([[maybe_unused]] Cursor& c)

// --- operators
// --------------------------------------------------------------------------------------------------------

// value -- -value
REPRISE_HANDLER(UnaryNegative) {
  Operand result;
  return finish(c, policy_.unary(act_, static_cast<int>(UnaryOp::Negative), peek(c, 1), &result), result);
}

// value -- +value
REPRISE_HANDLER(UnaryPositive) {
  Operand result;
  return finish(c, policy_.unary(act_, static_cast<int>(UnaryOp::Positive), peek(c, 1), &result), result);
}

// value -- ~value
REPRISE_HANDLER(UnaryInvert) {
  Operand result;
  return finish(c, policy_.unary(act_, static_cast<int>(UnaryOp::Invert), peek(c, 1), &result), result);
}

// value -- not value
REPRISE_HANDLER(UnaryNot) {
  bool truth = false;
  const Outcome outcome = policy_.truth(act_, peek(c, 1), &truth);
  return finish_bool(c, outcome, 1, !truth);
}

// value -- bool(value)
REPRISE_HANDLER(ToBool) {
  bool truth = false;
  const Outcome outcome = policy_.truth(act_, peek(c, 1), &truth);
  return finish_bool(c, outcome, 1, truth);
}

// left right -- left op right
REPRISE_HANDLER(BinaryOp) {
  Operand result;
  return finish(c, policy_.binary(act_, c.instruction->arg, peek(c, 2), peek(c, 1), &result), 2, result);
}

// left right -- left op right, as a bool if a jump follows (3.13)
REPRISE_HANDLER(CompareOp) {
  Operand result;
  Outcome outcome = policy_.compare(act_, c.instruction->arg, peek(c, 2), peek(c, 1), &result);
  if (!kIs313 || outcome != Outcome::Done || !(c.instruction->flags & host::kInstructionToBool)) {
    return finish(c, outcome, 2, result);
  }
  bool truth = false;
  outcome = policy_.truth(act_, result, &truth);
  if (outcome == Outcome::Stop) {  // the comparison is done: go on to the next boundary unrecorded
    const int answer = PyObject_IsTrue(result.object);
    truth = answer != 0;
    outcome = answer < 0 ? Outcome::Raised : Outcome::Done;
  }
  Py_DECREF(result.object);
  return finish_bool(c, outcome, 2, truth);
}

// left right -- left is [not] right
REPRISE_HANDLER(IsOp) {
  bool is_same = false;
  const Outcome outcome = policy_.is_identical(act_, peek(c, 2), peek(c, 1), &is_same);
  return finish_bool(c, outcome, 2, is_same != (c.instruction->arg != 0));
}

// item container -- item [not] in container
REPRISE_HANDLER(ContainsOp) {
  bool is_in = false;
  const Outcome outcome = policy_.contains(act_, peek(c, 1), peek(c, 2), &is_in);
  return finish_bool(c, outcome, 2, is_in != (c.instruction->arg != 0));
}

// --- items
// ------------------------------------------------------------------------------------------------------------

// container key -- container[key]
REPRISE_HANDLER(BinarySubscr) {
  Operand result;
  return finish(c, policy_.get_item(act_, peek(c, 2), peek(c, 1), &result), 2, result);
}

// container start stop -- container[start:stop]
REPRISE_HANDLER(BinarySlice) {
  Operand slice, result;
  Outcome outcome = policy_.build_slice(act_, peek(c, 2), peek(c, 1), {}, &slice);
  if (outcome != Outcome::Done) return fail(outcome);
  outcome = policy_.get_item(act_, peek(c, 3), slice, &result);
  Py_DECREF(slice.object);
  return finish(c, outcome, 3, result);
}

// value container key --; container[key] = value
REPRISE_HANDLER(StoreSubscr) { return finish(c, policy_.set_item(act_, peek(c, 2), peek(c, 1), peek(c, 3)), 3); }

// value container start stop --; container[start:stop] = value
REPRISE_HANDLER(StoreSlice) {
  Operand slice;
  Outcome outcome = policy_.build_slice(act_, peek(c, 2), peek(c, 1), {}, &slice);
  if (outcome != Outcome::Done) return fail(outcome);
  outcome = policy_.set_item(act_, peek(c, 3), slice, peek(c, 4));
  Py_DECREF(slice.object);
  return finish(c, outcome, 4);
}

// container key --; del container[key]
REPRISE_HANDLER(DeleteSubscr) { return finish(c, policy_.delete_item(act_, peek(c, 2), peek(c, 1)), 2); }

// --- attributes
// -------------------------------------------------------------------------------------------------------

// object -- object.name
REPRISE_HANDLER(LoadAttr) {
  Operand result;
  return finish(c, policy_.load_attribute(act_, peek(c, 1), c.instruction->object, &result), 1, result);
}

// object -- method object  or  object -- NULL attribute (3.13: attribute NULL)
REPRISE_HANDLER(LoadMethod) {
  Operand callable, self;
  const Outcome outcome = policy_.load_method(act_, peek(c, 1), c.instruction->object, &callable, &self);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop(c, 1);
  if (self.object != nullptr) {
    push(c, callable);
    push(c, self);
  } else {
    push_with_null(c, callable);
  }
  return Flow::Checked;
}

// value object --; object.name = value
REPRISE_HANDLER(StoreAttr) {
  return finish(c, policy_.store_attribute(act_, peek(c, 1), c.instruction->object, peek(c, 2)), 2);
}

// object --; del object.name
REPRISE_HANDLER(DeleteAttr) { return finish(c, policy_.delete_attribute(act_, peek(c, 1), c.instruction->object), 1); }

// super class self -- attribute  or  super class self -- NULL attribute (3.13: attribute NULL)
REPRISE_HANDLER(LoadSuperAttr) {
  const bool has_two_arguments = (c.instruction->flags & host::kInstructionTwoArguments) != 0;
  Operand result;
  const Outcome outcome = policy_.load_super_attribute(act_, peek(c, 3), peek(c, 2), peek(c, 1), c.instruction->object,
                                                       has_two_arguments, &result);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop(c, 3);
  if (c.instruction->flags & host::kInstructionPushNull) {
    push_with_null(c, result);
  } else {
    push(c, result);
  }
  return Flow::Checked;
}

// --- names and cells
// --------------------------------------------------------------------------------------------------

// -- value  or  -- NULL value (3.13: value NULL)
REPRISE_HANDLER(LoadGlobal) {
  Operand result;
  const Outcome outcome = policy_.load_global(act_, c.instruction->object, &result);
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  if (c.instruction->flags & host::kInstructionPushNull) {
    push_with_null(c, result);
  } else {
    push(c, result);
  }
  return Flow::Checked;
}

// value --
REPRISE_HANDLER(StoreGlobal) { return finish(c, policy_.store_global(act_, c.instruction->object, peek(c, 1)), 1); }

// --
REPRISE_HANDLER(DeleteGlobal) { return finish(c, policy_.delete_global(act_, c.instruction->object), 0); }

// --; the local becomes a cell with its value
REPRISE_HANDLER(MakeCell) { return finish(c, policy_.make_cell(act_, c.instruction->arg), 0); }

// --; the closure's cells become the last locals
REPRISE_HANDLER(CopyFreeVars) { return finish(c, policy_.copy_free_vars(act_, c.instruction->arg), 0); }

// -- value
REPRISE_HANDLER(LoadDeref) {
  Operand result;
  return finish(c, policy_.load_cell(act_, c.instruction->arg, &result), 0, result);
}

// value --
REPRISE_HANDLER(StoreDeref) { return finish(c, policy_.store_cell(act_, c.instruction->arg, peek(c, 1)), 1); }

// --
REPRISE_HANDLER(DeleteDeref) { return finish(c, policy_.delete_cell(act_, c.instruction->arg), 0); }

// --- containers
// -------------------------------------------------------------------------------------------------------

// items... -- tuple
REPRISE_HANDLER(BuildTuple) {
  const int32_t count = c.instruction->arg;
  Operand result;
  auto items = operands(c, count, count);
  return finish(c, policy_.build_tuple(act_, items.get(), count, &result), result);
}

// items... -- list
REPRISE_HANDLER(BuildList) {
  const int32_t count = c.instruction->arg;
  Operand result;
  auto items = operands(c, count, count);
  return finish(c, policy_.build_list(act_, items.get(), count, &result), result);
}

// items... -- set
REPRISE_HANDLER(BuildSet) {
  const int32_t count = c.instruction->arg;
  Operand result;
  auto items = operands(c, count, count);
  return finish(c, policy_.build_set(act_, items.get(), count, &result), result);
}

// (key value)... -- dict
REPRISE_HANDLER(BuildMap) {
  const int32_t count = c.instruction->arg;
  Operand result;
  auto pairs = operands(c, 2 * count, 2 * count);
  return finish(c, policy_.build_map(act_, pairs.get(), count, &result), result);
}

// values... keys -- dict
REPRISE_HANDLER(BuildConstKeyMap) {
  const int32_t count = c.instruction->arg;
  Operand result;
  auto values = operands(c, count + 1, count);
  return finish(c, policy_.build_const_key_map(act_, peek(c, 1), values.get(), count, &result), result);
}

// start stop [step] -- slice
REPRISE_HANDLER(BuildSlice) {
  const bool has_step = c.instruction->arg == 3;
  const Operand step = has_step ? peek(c, 1) : Operand{};
  Operand result;
  return finish(c, policy_.build_slice(act_, peek(c, 2 + has_step), peek(c, 1 + has_step), step, &result), result);
}

// list ... value -- list ...
REPRISE_HANDLER(ListAppend) {
  return finish(c, policy_.list_append(act_, peek(c, c.instruction->arg + 1), peek(c, 1)), 1);
}

// set ... value -- set ...
REPRISE_HANDLER(SetAdd) { return finish(c, policy_.set_add(act_, peek(c, c.instruction->arg + 1), peek(c, 1)), 1); }

// dict ... key value -- dict ...
REPRISE_HANDLER(MapAdd) {
  return finish(c, policy_.map_add(act_, peek(c, c.instruction->arg + 2), peek(c, 2), peek(c, 1)), 2);
}

// list ... iterable -- list ...
REPRISE_HANDLER(ListExtend) {
  return finish(c, policy_.list_extend(act_, peek(c, c.instruction->arg + 1), peek(c, 1)), 1);
}

// set ... iterable -- set ...
REPRISE_HANDLER(SetUpdate) {
  return finish(c, policy_.set_update(act_, peek(c, c.instruction->arg + 1), peek(c, 1)), 1);
}

// dict ... mapping -- dict ...
REPRISE_HANDLER(DictUpdate) {
  return finish(c, policy_.dict_update(act_, peek(c, c.instruction->arg + 1), peek(c, 1)), 1);
}

// callable ... keywords ... mapping -- callable ... keywords ...
REPRISE_HANDLER(DictMerge) {
  const int depth = c.instruction->arg + 1;
  const Operand callee = peek(c, depth + (kIs313 ? 3 : 2));
  return finish(c, policy_.dict_merge(act_, peek(c, depth), peek(c, 1), callee), 1);
}

// list -- tuple
REPRISE_HANDLER(ListToTuple) {
  Operand result;
  return finish(c, policy_.list_to_tuple(act_, peek(c, 1), &result), 1, result);
}

// sequence -- items..., the first on top
REPRISE_HANDLER(UnpackSequence) {
  const int32_t count = c.instruction->arg;
  Scratch<UnpackedItem<Policy>> items(count);
  const Outcome outcome = policy_.unpack_sequence(act_, peek(c, 1), count, items.get());
  return push_unpacked(c, outcome, items.get(), count);
}

// sequence -- items behind..., list, items in front..., the first on top
REPRISE_HANDLER(UnpackEx) {
  const int32_t before = c.instruction->arg & 0xff;
  const int32_t after = c.instruction->arg >> 8;
  Scratch<UnpackedItem<Policy>> items(before + 1 + after);
  const Outcome outcome = policy_.unpack_ex(act_, peek(c, 1), before, after, items.get());
  return push_unpacked(c, outcome, items.get(), before + 1 + after);
}

template <class Policy>
REPRISE_INLINE Flow Evaluator<Policy>::push_unpacked(Cursor& c, Outcome outcome, const UnpackedItem<Policy>* items,
                                                     int count) {
  if (outcome != Outcome::Done) [[unlikely]]
    return fail(outcome);
  drop(c, 1);
  for (int i = count - 1; i >= 0; --i) {
    if constexpr (kShadow) {
      push(c, items[i]);
    } else {
      push(c, {items[i], -1});
    }
  }
  return Flow::Checked;
}

// iterable -- iterator
REPRISE_HANDLER(GetIter) {
  Operand result;
  return finish(c, policy_.get_iter(act_, peek(c, 1), &result), 1, result);
}

// object -- object len(object)
REPRISE_HANDLER(GetLen) {
  Operand result;
  return finish(c, policy_.get_len(act_, peek(c, 1), &result), 0, result);
}

// --- strings
// ----------------------------------------------------------------------------------------------------------

// strings... -- string
REPRISE_HANDLER(BuildString) {
  const int32_t count = c.instruction->arg;
  Operand result;
  auto items = operands(c, count, count);
  return finish(c, policy_.build_string(act_, items.get(), count, &result), result);
}

// value [specification] -- string
REPRISE_HANDLER(FormatValue) {
  const int32_t bits = c.instruction->arg;
  const bool has_spec = (bits & host::kFormatHasSpec) != 0;
  const Operand spec = has_spec ? peek(c, 1) : Operand{};
  const bool does_format = (bits & host::kFormatConvertOnly) == 0;
  Operand result;
  const Outcome outcome =
      policy_.format_value(act_, peek(c, 1 + has_spec), spec, bits & host::kFormatConversionMask, does_format, &result);
  return finish(c, outcome, result);
}

}  // namespace reprise::interp
