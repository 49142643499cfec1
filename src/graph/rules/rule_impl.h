// What rules are written with: arguments of a call, dimensions without allocation, layouts, type promotion.
//
// Everything that can be undecided (a symbolic comparison) or that a rule does not cover answers "no": the rule then
// declines. `Dims` holds up to kMost numbers; pushing more marks it as full, and add_tensor() declines.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "graph/rules.h"

namespace reprise::graph {

using sym::Int;
using types::DType;

class Dims {
 public:
  static constexpr std::size_t kMost = 16;

  Dims() = default;
  explicit Dims(std::span<const Int> numbers) {
    for (const Int number : numbers) push_back(number);
  }
  Dims(std::initializer_list<Int> numbers) : Dims(std::span(numbers.begin(), numbers.size())) {}
  Dims(std::size_t count, Int number) {
    for (std::size_t i = 0; i < count; ++i) push_back(number);
  }

  void push_back(Int number) {
    if (size_ == kMost) {
      is_full_ = true;
    } else {
      numbers_[size_++] = number;
    }
  }
  void insert(std::size_t place, Int number) {
    push_back(number);
    for (std::size_t i = size_; i-- > place + 1;) numbers_[i] = numbers_[i - 1];
    numbers_[place] = number;
  }
  void erase(std::size_t place) {
    for (std::size_t i = place + 1; i < size_; ++i) numbers_[i - 1] = numbers_[i];
    --size_;
  }
  void clear() { size_ = 0; }

  std::size_t size() const { return size_; }
  bool is_full() const { return is_full_; }
  Int& operator[](std::size_t i) { return numbers_[i]; }
  const Int& operator[](std::size_t i) const { return numbers_[i]; }
  Int* begin() { return numbers_.data(); }
  Int* end() { return numbers_.data() + size_; }
  const Int* begin() const { return numbers_.data(); }
  const Int* end() const { return numbers_.data() + size_; }
  operator std::span<const Int>() const { return {numbers_.data(), size_}; }

 private:
  std::array<Int, kMost> numbers_;
  std::uint8_t size_ = 0;
  bool is_full_ = false;
};

// --- arguments -------------------------------------------------------------------------------------------------------

// The tensor in argument i, or nullptr (none, a number, no such argument).
const TensorMeta* find_tensor(const RuleCall& call, const Arg& arg);
const TensorMeta* find_tensor(const RuleCall& call, std::size_t i);
bool is_none(const RuleCall& call, std::size_t i);
std::optional<Int> find_int(const RuleCall& call, std::size_t i);
std::optional<std::int64_t> find_constant(const RuleCall& call, std::size_t i);
std::optional<bool> find_bool(const RuleCall& call, std::size_t i);
// A list of ints, or one int (a list of one).
bool find_ints(const RuleCall& call, std::size_t i, Dims& ints);
// The dtype in argument i; `otherwise` if it is none.
std::optional<DType> find_dtype(const RuleCall& call, std::size_t i, DType otherwise);
// A dimension counted from the front: 0 <= dim < rank (rank 0 counts as 1).
std::optional<std::size_t> find_dim(const RuleCall& call, std::size_t i, std::size_t rank);
std::optional<std::size_t> wrap_dim(std::int64_t dim, std::size_t rank);

// --- questions that decline when undecided ---------------------------------------------------------------------------

bool is_equal(RuleCall& call, Int a, Int b);  // surely equal
bool is_equal(RuleCall& call, std::span<const Int> a, std::span<const Int> b);
std::optional<bool> ask_equal(RuleCall& call, Int a, Int b);  // nothing: undecided
std::optional<bool> ask_less(RuleCall& call, Int a, Int b);
Int get_numel(RuleCall& call, const TensorMeta& meta);

// --- layouts ---------------------------------------------------------------------------------------------------------

// torch's predicates; an undecided one is false.
bool is_contiguous(RuleCall& call, const TensorMeta& meta);
bool is_channels_last(RuleCall& call, const TensorMeta& meta);  // contiguous in that format; rank 4
bool is_dense(RuleCall& call, const TensorMeta& meta);          // non-overlapping and dense
// Tensor::suggest_memory_format(): Contiguous, ChannelsLast or ChannelsLast3d; nothing if undecided.
std::optional<MemoryFormat> suggest_format(RuleCall& call, const TensorMeta& meta);

Dims make_contiguous_strides(RuleCall& call, std::span<const Int> sizes);
// Rank 4 or 5 for the channels-last formats; nothing otherwise, and for Preserve.
std::optional<Dims> make_strides(RuleCall& call, std::span<const Int> sizes, MemoryFormat format);
// The order of the strides kept, without gaps: what a copy in preserve_format has.
std::optional<Dims> make_dense_strides(RuleCall& call, std::span<const Int> sizes, std::span<const Int> strides);
// Strides of empty_like(meta, format); format none is Preserve.
std::optional<Dims> make_like_strides(RuleCall& call, const TensorMeta& meta, MemoryFormat format);
std::optional<MemoryFormat> find_format(const RuleCall& call, std::size_t i, MemoryFormat otherwise);

// --- type promotion --------------------------------------------------------------------------------------------------

std::optional<DType> promote(DType a, DType b);
std::optional<DType> make_complex(DType dtype);
DType make_real(DType dtype);

// at::result_type: dimensioned tensors, then 0-dim ones, then Python numbers.
class Promotion {
 public:
  explicit Promotion(const RuleCall& call) : call_(call) {}

  // Tensors, numbers (Scalar arguments and wrapped numbers); none is skipped. False: declines.
  bool add(const Arg& arg);
  std::optional<DType> finish() const;

 private:
  const RuleCall& call_;
  std::optional<DType> dimensioned_, zero_dim_, wrapped_;
  bool is_undecided_ = false;
};

// --- TensorIterator --------------------------------------------------------------------------------------------------

// One operand of a pointwise op. A number counts as a 0-dim tensor.
struct Operand {
  std::span<const Int> sizes;
  std::span<const Int> strides;
};

class Operands {
 public:
  static constexpr std::size_t kMost = 6;

  // Tensors and numbers; `common` is the dtype that eager computes in (it copies operands of another dtype first).
  bool add(RuleCall& call, const Arg& arg, std::optional<DType> common = std::nullopt);
  bool add(RuleCall& call, const TensorMeta& meta, std::optional<DType> common = std::nullopt);
  void add_zero_dim() { add_operand({}, {}); }
  void add_operand(std::span<const Int> sizes, std::span<const Int> strides);

  // Shape and strides of a result that eager allocates.
  bool compute(RuleCall& call, Dims& sizes, Dims& strides);
  // That, as the next result of the call.
  bool add_result(RuleCall& call, DType dtype);

 private:
  bool broadcast(RuleCall& call, Dims& sizes);

  std::array<Operand, kMost> operands_;
  std::array<Dims, kMost> copies_;  // strides of operands that are copied first
  std::size_t count_ = 0;
  bool is_full_ = false;
  std::optional<types::Device> device_;
  bool has_dimensioned_ = false;
};

// --- results ---------------------------------------------------------------------------------------------------------

bool add_tensor(RuleCall& call, const Dims& sizes, const Dims& strides, DType dtype, types::Device device);
bool add_contiguous(RuleCall& call, const Dims& sizes, DType dtype, types::Device device);
// Shares the storage of argument 0.
bool add_view(RuleCall& call, const Dims& sizes, const Dims& strides, Int offset);
bool add_absent(RuleCall& call);
bool add_argument(RuleCall& call, std::size_t i);
bool add_number(RuleCall& call, ValueKind kind);

}  // namespace reprise::graph
