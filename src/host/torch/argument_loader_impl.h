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

/// as_strided and its like take a position in the storage of their first argument. That tensor may begin elsewhere than
/// it did when it was traced: in an arena, or a tangent that is part of a larger tensor.
struct StoragePosition {
  int32_t argument = -1;  // -1: the op takes none
  int64_t traced = 0;     // where the first argument began

  static StoragePosition of(const OpInfo& op, int64_t traced);
  void move(c10::IValue* arguments) const;
};

}  // namespace reprise::host
