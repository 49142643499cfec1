// Where recorded operations go: what trace tensors tell the one who builds a graph. Free of torch types.
//
// While a TraceRun is on (trace_tensor.h), every operation that reaches a backend arrives at its OpSink in program
// order: first the values it makes (add_value), then the operation itself. Values are numbered densely from 0; a number
// never changes meaning. Implemented in aot. All calls come from one thread at a time, perhaps without the GIL (the
// engine).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/torch/op_info.h"
#include "types/device.h"
#include "types/dtype.h"

namespace reprise::host {

using TraceValueId = int32_t;
constexpr TraceValueId kNoTraceValue = -1;

enum class TraceValueKind : uint8_t { Tensor, Float, Int, Bool, RngState };

enum class ScalarOp : uint8_t {
#define X(name, text, arity, result) name,
#include "host/torch/scalar_ops.def"
};
const char* text_of(ScalarOp op);  // "scalar::add", "rng::get"
std::optional<ScalarOp> find_scalar_op(std::string_view text);

/// torch's numbers of dtypes and devices; nothing where types/ has no row.
std::optional<types::DType> dtype_of_torch(int torch_number);
int torch_number_of(types::DType dtype);
std::optional<types::Device> device_of_torch(int type, int index);
/// {type, index}
std::pair<int, int> torch_numbers_of(types::Device device);

/// What is known of a value when it is made. Tensors are strided.
struct TraceValueMeta {
  TraceValueKind kind = TraceValueKind::Tensor;
  int8_t dtype = 0;  // torch's numbers
  int8_t device_type = 0;
  int8_t device_index = -1;
  bool is_conj = false;
  bool is_neg = false;
  int32_t storage = -1;  // values with one storage share memory
  int64_t offset = 0;    // elements
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

/// One argument. Lists have their elements at [first, first + count) of the call's pool.
struct OpArg {
  enum class Kind : uint8_t {
    None,
    Value,
    Int,
    Float,
    Bool,
    Complex,
    DType,
    Layout,
    MemoryFormat,
    Device,
    Text,
    Object,
    List,
  };
  Kind kind = Kind::None;
  bool is_wrapped_number = false;  // a Python number in a tensor's place: Int, Float, Bool, Complex or a scalar value
  int32_t id = -1;                 // Value: the value; List: first; Text: index into the call's texts
  int32_t count = 0;               // List
  union {
    int64_t integer = 0;  // Int, Bool, Object (index of a constant); torch's number of a dtype, layout, format;
                          // Device: type << 8 | index & 0xff
    double real;
  };
  double imaginary = 0;
};

/// An operation with its arguments: the first `op->args.size()` of `pool`. Owned by whoever keeps it.
struct OpCall {
  const OpInfo* op = nullptr;
  int default_dtype = 6;  // torch's number, at the time of the call
  std::vector<OpArg> pool;
  std::vector<std::string> texts;

  std::span<const OpArg> args() const { return {pool.data(), op->args.size()}; }
  std::span<const OpArg> elements(const OpArg& list) const {
    return {pool.data() + list.id, static_cast<size_t>(list.count)};
  }
};

/// A result as its metadata source gives it. Results of list returns stand one behind the other.
struct ResultMeta {
  TraceValueMeta meta;                 // `storage` is not filled
  TraceValueId alias = kNoTraceValue;  // the value whose memory it shares
  bool is_alias = false;               // it is that very tensor
  bool is_none = false;                // an undefined tensor
};

enum class ConstantKind : uint8_t {
  Fresh,     // torch.tensor([...]): made anew by every run of the program
  Captured,  // a tensor that the callables reached without it being an input
  Object,    // a generator or another object in an argument
};

class OpSink {
 public:
  virtual ~OpSink() = default;

  /// The results of a call by rule, in order; false: no rule, the run asks its memo, then torch. `results` is empty.
  virtual bool infer_results(const OpCall& call, std::vector<ResultMeta>& results) = 0;
  /// Value `id`, always the next number.
  virtual void add_value(TraceValueId id, TraceValueMeta meta) = 0;
  /// Value `id` (made before) is constant `constant` of the run. Object constants have no value (id -1).
  virtual void add_constant(TraceValueId id, int32_t constant, ConstantKind kind) = 0;
  /// One operation. `results[r]` are the values of return r (several for lists); -1: an undefined tensor. A result that
  /// is an argument (in place, out=) has the argument's number, unless its geometry changed (resize_).
  virtual void add_op(OpCall call, std::vector<std::vector<TraceValueId>> results) = 0;
  virtual void add_scalar_op(ScalarOp op, std::span<const OpArg> args, TraceValueId result) = 0;
};

}  // namespace reprise::host
