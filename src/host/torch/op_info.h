// What a dispatcher operator is, read once from its schema: the vocabulary of recorded ATen graphs, free of torch
// types.
//
// An OpInfo is made on first sight of an operator and never moves or dies (operators of torch are never unloaded), so a
// pointer is its identity within a process and `name` across processes. hidden_mutations.def adds what schemas hide.
// Threads: find_op() and op_of_handle() take a lock; reading an OpInfo takes none. No Python runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::host {

enum class OpArgKind : uint8_t {
  Tensor,              // Tensor or Tensor?
  TensorList,          // Tensor[]
  OptionalTensorList,  // Tensor?[]
  Number,              // Scalar, Scalar?
  NumberList,
  Int,
  IntList,
  Float,
  FloatList,
  Bool,
  BoolList,
  DType,
  Layout,
  MemoryFormat,
  Device,
  Text,
  Generator,
  Other,
};

struct OpArgInfo {
  std::string name;
  OpArgKind kind = OpArgKind::Other;
  bool is_mutated = false;
};

struct OpReturnInfo {
  OpArgKind kind = OpArgKind::Tensor;  // Tensor, TensorList, or what is no tensor
  int argument = -1;                   // the argument that it aliases
  bool is_argument = false;            // it is that very tensor (in-place, out=), not a view of it
};

struct OpInfo {
  std::string name;    // "aten::add.Tensor"
  uint32_t index = 0;  // dense, in order of first sight
  std::vector<OpArgInfo> args;
  std::vector<OpReturnInfo> returns;
  uint64_t mutated = 0;         // mask over args, hidden mutations included
  int training_argument = -1;   // hidden mutations happen only if this bool argument is true
  int device_argument = -1;     // of factories and copies
  int dtype_argument = -1;      // of factories
  bool has_tensors = false;     // takes a tensor
  bool is_factory = false;      // makes a tensor out of none
  bool is_random = false;       // draws from a generator
  bool is_view = false;         // a result shares memory with an argument without being it
  bool returns_tensors = true;  // every result is a tensor or a list of them
  bool reads_data = false;      // its result is no tensor and depends on data: needs a value, not metadata
  bool bumps_versions = false;  // CPU slow path of _foreach_*_: bumps below autograd, once an element
};

/// `name` is "aten::add.Tensor", the namespace may be left out. nullptr if torch has no such operator.
const OpInfo* find_op(std::string_view name);

}  // namespace reprise::host
