// Arguments of boxed calls: constants, slots, and lists of both. Private to host/torch.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "host/torch/op_info.h"

namespace reprise::host {

/// How one argument gets on the stack.
struct Loader {
  enum class Kind : uint8_t {
    Constant,
    Slot,
    WrappedSlot,
    TensorList,
    OptionalTensorList,
    IntList,
    FloatList,
    NumberList
  };
  Kind kind = Kind::Constant;
  int32_t slot = -1;
  c10::IValue constant;
  struct Element {
    int32_t slot = -1;  // -1: the constant
    c10::IValue constant;
  };
  std::vector<Element> elements;
};

/// The kind of a list for an argument of that kind.
Loader::Kind list_kind(OpArgKind kind);
c10::IValue load(const Loader& loader, const std::vector<c10::IValue>& slots);

}  // namespace reprise::host
