// Operands of one instruction as its policy wants them. Private to the evaluator.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "interp/policy.h"

namespace reprise::interp {

/// Room for a few values on the C stack, for more on the heap.
template <class T, int kInline = 8>
class Scratch {
 public:
  explicit Scratch(int count) {
    if (count > kInline) heap_ = std::make_unique<T[]>(count);
  }
  T* get() { return heap_ ? heap_.get() : inline_; }

 private:
  T inline_[kInline];
  std::unique_ptr<T[]> heap_;
};

/// The ids of a frame's slots, -1 at first.
template <bool kShadow>
class SlotIds {
 public:
  explicit SlotIds(int32_t count) : scratch_(count) {
    for (int32_t i = 0; i < count; ++i) scratch_.get()[i] = -1;
  }
  int32_t* get() { return scratch_.get(); }

 private:
  Scratch<int32_t, 64> scratch_;
};

template <>
class SlotIds<false> {
 public:
  explicit SlotIds(int32_t) {}
  int32_t* get() { return nullptr; }
};

/// What a policy takes for a list of operands: a policy without shadow reads them where they are, on the value stack.
template <class Policy>
using OperandArray = std::conditional_t<Policy::kShadow, const Operand*, PyObject* const*>;

/// What it gives back for each item of an unpacked sequence.
template <class Policy>
using UnpackedItem = std::conditional_t<Policy::kShadow, Operand, PyObject*>;

/// `count` adjacent slots of the value stack, the lowest first.
template <class Policy, bool kShadow = Policy::kShadow>
class Operands;

template <class Policy>
class Operands<Policy, false> {
 public:
  Operands(PyObject** slots, const int32_t*, int) : slots_(slots) {}
  PyObject* const* get() { return slots_; }

 private:
  PyObject** slots_;
};

template <class Policy>
class Operands<Policy, true> {
 public:
  Operands(PyObject** slots, const int32_t* ids, int count) : scratch_(count) {
    for (int i = 0; i < count; ++i) scratch_.get()[i] = {slots[i], ids[i]};
  }
  const Operand* get() { return scratch_.get(); }

 private:
  Scratch<Operand> scratch_;
};

}  // namespace reprise::interp
