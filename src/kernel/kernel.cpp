#include "kernel/kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "kernel/numbers.h"
#include "kernel/walk_impl.h"

namespace reprise::kernel {
namespace {

constexpr OpRow kOps[] = {
#define X(name, text, op_class, operands, weight) {text, OpClass::op_class, operands, weight},
#include "kernel/scalar_ops.def"
#undef X
};

constexpr MathRow kFunctions[] = {
#define X(name, text, operands, sleef, accuracy, mkl, libm) {text, operands, sleef, accuracy, mkl, #libm},
#include "kernel/math_functions.def"
#undef X
};

}  // namespace

const OpRow& get_row(ScalarOp op) { return kOps[static_cast<std::size_t>(op)]; }
const MathRow& get_row(MathFunction function) { return kFunctions[static_cast<std::size_t>(function)]; }

std::string_view get_text(Combine combine) {
  constexpr std::string_view kTexts[] = {
#define X(name, text, start) text,
#include "kernel/combine_ops.def"
#undef X
  };
  return kTexts[static_cast<std::size_t>(combine)];
}

std::string_view get_text(Numerics numerics) {
  constexpr std::string_view kTexts[] = {
#define X(name, text, meaning) text,
#include "kernel/numerics.def"
#undef X
  };
  return kTexts[static_cast<std::size_t>(numerics)];
}

std::string_view get_text(LoopKind kind) {
  constexpr std::string_view kTexts[] = {
#define X(name, text, meaning) text,
#include "kernel/loop_kinds.def"
#undef X
  };
  return kTexts[static_cast<std::size_t>(kind)];
}

std::string_view get_text(StoreMode mode) {
  switch (mode) {
    case StoreMode::Set:
      return "set";
    case StoreMode::AddOrdered:
      return "add";
    case StoreMode::AddAtomic:
      return "atomic_add";
  }
  REPRISE_UNREACHABLE("store mode");
}

// --- affine expressions -------------------------------------------------------------------------------------------

std::int64_t Affine::get_coefficient(ValueId value) const {
  for (const Term& term : terms_) {
    if (term.value == value) return term.coefficient;
  }
  return 0;
}

Affine& Affine::operator+=(const Affine& other) {
  constant_ =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(constant_) + static_cast<std::uint64_t>(other.constant_));
  if (other.terms_.empty()) return *this;
  std::vector<Term> sum;
  sum.reserve(terms_.size() + other.terms_.size());
  auto a = terms_.begin();
  auto b = other.terms_.begin();
  while (a != terms_.end() || b != other.terms_.end()) {
    if (b == other.terms_.end() || (a != terms_.end() && a->value < b->value)) {
      sum.push_back(*a++);
    } else if (a == terms_.end() || b->value < a->value) {
      sum.push_back(*b++);
    } else {
      const std::int64_t coefficient = a->coefficient + b->coefficient;
      if (coefficient != 0) sum.push_back({coefficient, a->value});
      ++a, ++b;
    }
  }
  terms_ = std::move(sum);
  return *this;
}

Affine& Affine::operator*=(std::int64_t factor) {
  constant_ *= factor;
  if (factor == 0) terms_.clear();
  for (Term& term : terms_) term.coefficient *= factor;
  return *this;
}

// --- kernels ------------------------------------------------------------------------------------------------------

std::size_t Kernel::count_arguments() const {
  return static_cast<std::size_t>(std::count_if(
      buffers.begin(), buffers.end(), [](const Buffer& buffer) { return buffer.kind == BufferKind::Argument; }));
}

bool has_result(ScalarOp op) {
  switch (op) {
    case ScalarOp::Store:
    case ScalarOp::Reduce:
    case ScalarOp::Loop:
    case ScalarOp::VectorCall:
      return false;
    default:
      return true;
  }
}

namespace {

struct Words {
  std::vector<std::uint64_t> list;

  explicit Words(const Kernel& kernel) { Walk(kernel, *this).run(); }
  void word(std::uint64_t value) { list.push_back(value); }
  void number(const Number& number) { word(static_cast<std::uint64_t>(number.value)); }
};

}  // namespace

base::Hash128 get_hash(const Kernel& kernel) {
  base::WideHasher hasher;
  for (const std::uint64_t word : Words(kernel).list) hasher.add(word);
  return hasher.finish();
}

bool are_equal(const Kernel& a, const Kernel& b) { return Words(a).list == Words(b).list; }

std::uint64_t make_constant_bits(DType dtype, double number) {
  if (types::is_float(dtype)) return from_double(dtype, number);
  if (dtype == DType::Bool) return number != 0;
  return make_constant_bits(dtype, static_cast<std::int64_t>(number));
}

std::uint64_t make_constant_bits(DType dtype, std::int64_t number) {
  if (types::is_float(dtype)) return from_int(dtype, number);
  if (dtype == DType::Bool) return number != 0;
  return wrap_integer(dtype, static_cast<std::uint64_t>(number));
}

}  // namespace reprise::kernel
