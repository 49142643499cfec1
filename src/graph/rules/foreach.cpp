// Lists of tensors: each element as the pointwise op would have it. Numbers of Python.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

// Element i of an argument: of a list that one, otherwise the argument itself.
const Arg* find_element(const Arg& arg, std::size_t i) {
  if (!arg.is_list()) return &arg;
  return i < arg.get_list().size() ? &arg.get_list()[i] : nullptr;
}

// The first `count` arguments take part in shape and type.
bool infer_elementwise(RuleCall& call, std::size_t count, bool is_float) {
  if (call.args.size() < count) return false;
  const Arg* leading = nullptr;
  for (std::size_t k = 0; k < count && leading == nullptr; ++k) {
    if (call.args[k].is_list()) leading = &call.args[k];
  }
  if (leading == nullptr) return false;
  call.start_list();
  for (std::size_t i = 0; i < leading->get_list().size(); ++i) {
    Promotion promotion(call);
    for (std::size_t k = 0; k < count; ++k) {
      const Arg* element = find_element(call.args[k], i);
      if (element == nullptr || !promotion.add(*element)) return false;
    }
    std::optional<DType> dtype = promotion.finish();
    if (!dtype) return false;
    if (is_float && types::is_integral(*dtype)) dtype = call.default_dtype;
    Operands operands;
    for (std::size_t k = 0; k < count; ++k) {
      if (!operands.add(call, *find_element(call.args[k], i), dtype)) return false;
    }
    if (!operands.add_result(call, *dtype)) return false;
  }
  call.end_list();
  return true;
}

// The kind of a number argument, or nothing.
std::optional<ValueKind> find_number_kind(const RuleCall& call, const Arg& arg) {
  switch (arg.kind()) {
    case ArgKind::Int:
      return ValueKind::Int;
    case ArgKind::Float:
      return ValueKind::Float;
    case ArgKind::Bool:
      return ValueKind::Bool;
    case ArgKind::Value: {
      const ValueKind kind = call.values[arg.get_value().index()].kind;
      if (kind == ValueKind::Int || kind == ValueKind::Float || kind == ValueKind::Bool) return kind;
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

bool are_numbers(const RuleCall& call) {
  for (const Arg& arg : call.args) {
    if (!find_number_kind(call, arg)) return false;
  }
  return true;
}

}  // namespace

bool infer_foreach_unary(RuleCall& call) { return infer_elementwise(call, 1, false); }
bool infer_foreach_unary_float(RuleCall& call) { return infer_elementwise(call, 1, true); }
bool infer_foreach(RuleCall& call) { return infer_elementwise(call, 2, false); }
bool infer_foreach_float(RuleCall& call) { return infer_elementwise(call, 2, true); }
bool infer_foreach_ternary(RuleCall& call) { return infer_elementwise(call, 3, false); }

// (tensors, ord, dtype?)
bool infer_foreach_norm(RuleCall& call) {
  if (call.args.empty() || !call.args[0].is_list()) return false;
  call.start_list();
  for (const Arg& element : call.args[0].get_list()) {
    const TensorMeta* tensor = find_tensor(call, element);
    if (tensor == nullptr || !types::is_float(tensor->dtype)) return false;
    const std::optional<DType> dtype = find_dtype(call, 2, tensor->dtype);
    if (!dtype || !add_contiguous(call, {}, *dtype, tensor->device)) return false;
  }
  call.end_list();
  return true;
}

// tensor -> the number that is its one element
bool infer_item(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  switch (types::get_kind(self->dtype)) {
    case types::DTypeKind::Bool:
      return add_number(call, ValueKind::Bool);
    case types::DTypeKind::Unsigned:
    case types::DTypeKind::Signed:
      return add_number(call, ValueKind::Int);
    case types::DTypeKind::Float:
      return add_number(call, ValueKind::Float);
    case types::DTypeKind::Complex:
      return add_number(call, ValueKind::Complex);
  }
  return false;
}

// int if every number is one (a bool counts), otherwise float
bool infer_scalar_arithmetic(RuleCall& call) {
  if (!are_numbers(call)) return false;
  for (const Arg& arg : call.args) {
    if (find_number_kind(call, arg) == ValueKind::Float) return add_number(call, ValueKind::Float);
  }
  return add_number(call, ValueKind::Int);
}

bool infer_scalar_float(RuleCall& call) { return are_numbers(call) && add_number(call, ValueKind::Float); }
bool infer_scalar_int(RuleCall& call) { return are_numbers(call) && add_number(call, ValueKind::Int); }
bool infer_scalar_bool(RuleCall& call) { return are_numbers(call) && add_number(call, ValueKind::Bool); }
bool infer_rng_state(RuleCall& call) { return add_number(call, ValueKind::RandomState); }

}  // namespace reprise::graph
