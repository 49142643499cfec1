// Arg: one argument of a node, a small tagged value of 16 bytes.
//
// A constant, a value of the graph, or a list of Args (Tensor[], Tensor?[], int[] and mixed lists are the same thing).
// Lists, strings and complex numbers live in the arena of the graph's Context. `is_wrapped`: a Python number in the
// place of a tensor ("wrapped number"), which takes part in type promotion as one.
// Plain data; ids of values mean something only in their graph.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "graph/value.h"

namespace reprise::graph {

enum class Layout : std::uint8_t {
#define X(name, text) name,
#include "graph/layouts.def"
#undef X
};

// torch's numbers.
enum class MemoryFormat : std::uint8_t {
#define X(name, text) name,
#include "graph/memory_formats.def"
#undef X
};

enum class ArgKind : std::uint8_t {
  None,
  Value,
  Int,     // or a symbolic one
  LowInt,  // a constant that is too low for a sym::Int: the lowest 2^32 of an int64 (torch.iinfo(torch.int64).min)
  Float,
  Bool,
  Complex,
  DType,
  Device,
  Layout,
  MemoryFormat,
  String,
  List,
};

struct ComplexNumber {
  double real;
  double imaginary;

  constexpr bool operator==(const ComplexNumber&) const = default;
};

class Arg {
 public:
  constexpr Arg() = default;

  static constexpr Arg make_none() { return {}; }
  static constexpr Arg make_value(ValueId id) { return {ArgKind::Value, id.index()}; }
  static constexpr Arg make_int(sym::Int number) {
    return {ArgKind::Int, static_cast<std::uint64_t>(number.get_word())};
  }
  // Any constant: an Int if it can be one.
  static constexpr Arg make_int64(std::int64_t number) {
    return {number < sym::Int::kLeastConstant ? ArgKind::LowInt : ArgKind::Int, static_cast<std::uint64_t>(number)};
  }
  static constexpr Arg make_float(double number) { return {ArgKind::Float, std::bit_cast<std::uint64_t>(number)}; }
  static constexpr Arg make_bool(bool yes) { return {ArgKind::Bool, yes}; }
  static constexpr Arg make_dtype(types::DType dtype) { return {ArgKind::DType, static_cast<std::uint64_t>(dtype)}; }
  static constexpr Arg make_device(types::Device device) {
    return {ArgKind::Device, static_cast<std::uint64_t>(device.kind) << 16 | static_cast<std::uint16_t>(device.index)};
  }
  static constexpr Arg make_layout(Layout layout) { return {ArgKind::Layout, static_cast<std::uint64_t>(layout)}; }
  static constexpr Arg make_memory_format(MemoryFormat format) {
    return {ArgKind::MemoryFormat, static_cast<std::uint64_t>(format)};
  }
  // These three point into an arena that the caller chose; Graph::make_list() and its siblings copy.
  static Arg make_complex(const ComplexNumber* number) {
    return {ArgKind::Complex, reinterpret_cast<std::uint64_t>(number)};
  }
  static Arg make_string(std::string_view text) {
    return {ArgKind::String, reinterpret_cast<std::uint64_t>(text.data()), static_cast<std::uint32_t>(text.size())};
  }
  static Arg make_list(std::span<const Arg> elements) {
    return {ArgKind::List, reinterpret_cast<std::uint64_t>(elements.data()),
            static_cast<std::uint32_t>(elements.size())};
  }
  constexpr Arg as_wrapped() const {
    Arg result = *this;
    result.wrapped_ = true;
    return result;
  }

  constexpr ArgKind kind() const { return kind_; }
  constexpr bool is_wrapped() const { return wrapped_; }
  constexpr bool is_none() const { return kind_ == ArgKind::None; }
  constexpr bool is_value() const { return kind_ == ArgKind::Value; }
  constexpr bool is_int() const { return kind_ == ArgKind::Int; }
  constexpr bool is_list() const { return kind_ == ArgKind::List; }
  // A constant number: int (symbolic or not), float, bool or complex.
  constexpr bool is_number() const { return kind_ >= ArgKind::Int && kind_ <= ArgKind::Complex; }

  ValueId get_value() const { return ValueId(static_cast<std::uint32_t>(get_bits(ArgKind::Value))); }
  sym::Int get_int() const { return sym::Int::make_from_word(static_cast<std::int64_t>(get_bits(ArgKind::Int))); }
  std::int64_t get_low_int() const { return static_cast<std::int64_t>(get_bits(ArgKind::LowInt)); }
  double get_float() const { return std::bit_cast<double>(get_bits(ArgKind::Float)); }
  bool get_bool() const { return get_bits(ArgKind::Bool) != 0; }
  types::DType get_dtype() const { return static_cast<types::DType>(get_bits(ArgKind::DType)); }
  types::Device get_device() const {
    const std::uint64_t bits = get_bits(ArgKind::Device);
    return {static_cast<types::DeviceKind>(bits >> 16), static_cast<std::int16_t>(bits & 0xffff)};
  }
  Layout get_layout() const { return static_cast<Layout>(get_bits(ArgKind::Layout)); }
  MemoryFormat get_memory_format() const { return static_cast<MemoryFormat>(get_bits(ArgKind::MemoryFormat)); }
  ComplexNumber get_complex() const { return *reinterpret_cast<const ComplexNumber*>(get_bits(ArgKind::Complex)); }
  std::string_view get_string() const { return {reinterpret_cast<const char*>(get_bits(ArgKind::String)), count_}; }
  std::span<const Arg> get_list() const { return {reinterpret_cast<const Arg*>(get_bits(ArgKind::List)), count_}; }

  // The payload, for hashing; a pointer for Complex, String and List.
  constexpr std::uint64_t bits() const { return bits_; }

 private:
  constexpr Arg(ArgKind kind, std::uint64_t bits, std::uint32_t count = 0) : kind_(kind), count_(count), bits_(bits) {}
  std::uint64_t get_bits(ArgKind kind) const {
    REPRISE_CHECK(kind_ == kind, "argument of kind " + std::to_string(static_cast<int>(kind_)) + ", expected " +
                                     std::to_string(static_cast<int>(kind)));
    return bits_;
  }

  ArgKind kind_ = ArgKind::None;
  bool wrapped_ = false;
  std::uint32_t count_ = 0;
  std::uint64_t bits_ = 0;
};

static_assert(sizeof(Arg) == 16);

// Calls visit(ValueId) for every value in the argument, in order.
template <class Visit>
void for_each_value(const Arg& arg, Visit&& visit) {
  if (arg.is_value()) {
    visit(arg.get_value());
  } else if (arg.is_list()) {
    for (const Arg& element : arg.get_list()) for_each_value(element, visit);
  }
}

// The same contents: floats bitwise, lists element by element.
REPRISE_EXPORT bool is_same_arg(const Arg& a, const Arg& b);
REPRISE_EXPORT std::uint64_t hash_arg(const Arg& arg, std::uint64_t seed);

}  // namespace reprise::graph
