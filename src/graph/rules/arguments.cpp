// Arguments and results of a call, for rules.
#include "base/check.h"
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

const TensorMeta* find_tensor(const RuleCall& call, const Arg& arg) {
  if (!arg.is_value()) return nullptr;
  const Value& value = call.values[arg.get_value().index()];
  return value.kind == ValueKind::Tensor ? &value.meta : nullptr;
}

const TensorMeta* find_tensor(const RuleCall& call, std::size_t i) {
  return i < call.args.size() ? find_tensor(call, call.args[i]) : nullptr;
}

bool is_none(const RuleCall& call, std::size_t i) { return i >= call.args.size() || call.args[i].is_none(); }

std::optional<Int> find_int(const RuleCall& call, std::size_t i) {
  if (i >= call.args.size() || !call.args[i].is_int()) return std::nullopt;
  return call.args[i].get_int();
}

std::optional<std::int64_t> find_constant(const RuleCall& call, std::size_t i) {
  const std::optional<Int> number = find_int(call, i);
  if (!number || !number->is_constant()) return std::nullopt;
  return number->get_word();
}

std::optional<bool> find_bool(const RuleCall& call, std::size_t i) {
  if (i >= call.args.size() || call.args[i].kind() != ArgKind::Bool) return std::nullopt;
  return call.args[i].get_bool();
}

bool find_ints(const RuleCall& call, std::size_t i, Dims& ints) {
  if (i >= call.args.size()) return false;
  const Arg& arg = call.args[i];
  if (arg.is_int()) {
    ints.push_back(arg.get_int());
    return true;
  }
  if (!arg.is_list()) return false;
  for (const Arg& element : arg.get_list()) {
    if (!element.is_int()) return false;
    ints.push_back(element.get_int());
  }
  return !ints.is_full();
}

std::optional<DType> find_dtype(const RuleCall& call, std::size_t i, DType otherwise) {
  if (is_none(call, i)) return otherwise;
  if (call.args[i].kind() != ArgKind::DType) return std::nullopt;
  return call.args[i].get_dtype();
}

std::optional<std::size_t> wrap_dim(std::int64_t dim, std::size_t rank) {
  const std::int64_t count = rank == 0 ? 1 : static_cast<std::int64_t>(rank);
  if (dim < -count || dim >= count) return std::nullopt;
  return static_cast<std::size_t>(dim < 0 ? dim + count : dim);
}

std::optional<std::size_t> find_dim(const RuleCall& call, std::size_t i, std::size_t rank) {
  const std::optional<std::int64_t> dim = find_constant(call, i);
  return dim ? wrap_dim(*dim, rank) : std::nullopt;
}

bool is_equal(RuleCall& call, Int a, Int b) { return sym::is_yes(call.symbols.is_equal(a, b)); }

bool is_equal(RuleCall& call, std::span<const Int> a, std::span<const Int> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!is_equal(call, a[i], b[i])) return false;
  }
  return true;
}

std::optional<bool> ask_equal(RuleCall& call, Int a, Int b) {
  const sym::Answer answer = call.symbols.is_equal(a, b);
  if (answer == sym::Answer::Unknown) return std::nullopt;
  return sym::is_yes(answer);
}

std::optional<bool> ask_less(RuleCall& call, Int a, Int b) {
  const sym::Answer answer = call.symbols.is_less(a, b);
  if (answer == sym::Answer::Unknown) return std::nullopt;
  return sym::is_yes(answer);
}

Int get_numel(RuleCall& call, const TensorMeta& meta) { return call.symbols.product(meta.sizes()); }

std::optional<MemoryFormat> find_format(const RuleCall& call, std::size_t i, MemoryFormat otherwise) {
  if (is_none(call, i)) return otherwise;
  if (call.args[i].kind() != ArgKind::MemoryFormat) return std::nullopt;
  return call.args[i].get_memory_format();
}

bool add_tensor(RuleCall& call, const Dims& sizes, const Dims& strides, DType dtype, types::Device device) {
  if (sizes.is_full() || strides.is_full()) return false;
  ResultMeta& result = call.add_result(ResultKind::Fresh);
  result.meta = call.context.make_meta(sizes, strides, dtype, device, 0, StorageId(0));
  result.meta.storage = StorageId();
  return true;
}

bool add_contiguous(RuleCall& call, const Dims& sizes, DType dtype, types::Device device) {
  return add_tensor(call, sizes, make_contiguous_strides(call, sizes), dtype, device);
}

bool add_view(RuleCall& call, const Dims& sizes, const Dims& strides, Int offset) {
  const TensorMeta* base = find_tensor(call, 0);
  if (base == nullptr || sizes.is_full() || strides.is_full()) return false;
  ResultMeta& result = call.add_result(ResultKind::View);
  result.of = call.args[0].get_value();
  result.meta = call.context.make_meta(sizes, strides, base->dtype, base->device, offset, base->storage);
  result.meta.flags = base->flags;
  return true;
}

bool add_absent(RuleCall& call) {
  call.add_result(ResultKind::None);
  return true;
}

bool add_argument(RuleCall& call, std::size_t i) {
  const TensorMeta* meta = find_tensor(call, i);
  if (meta == nullptr) return false;
  ResultMeta& result = call.add_result(ResultKind::Argument);
  result.of = call.args[i].get_value();
  result.meta = *meta;
  return true;
}

bool add_number(RuleCall& call, ValueKind kind) {
  ResultMeta& result = call.add_result(ResultKind::Number);
  result.number = kind;
  return true;
}

}  // namespace reprise::graph
