#include "graph/rules.h"

#include "base/check.h"

namespace reprise::graph {

RuleCall::RuleCall(Context& shared, const std::vector<Value>& table, types::DType default_float)
    : context(shared), symbols(shared.symbols()), values(table), default_dtype(default_float) {}

void RuleCall::reset(OpId called, std::span<const Arg> arguments) {
  op = called;
  args = arguments;
  returns_.clear();
  results_.clear();
  list_start_ = -1;
}

ResultMeta& RuleCall::add_result(ResultKind kind) {
  if (list_start_ < 0) returns_.push_back(Return::make_single());
  ResultMeta& result = results_.emplace_back();
  result.kind = kind;
  return result;
}

void RuleCall::start_list() { list_start_ = static_cast<std::int64_t>(results_.size()); }

void RuleCall::end_list() {
  REPRISE_CHECK(list_start_ >= 0, "no list was started");
  returns_.push_back(
      Return::make_list(static_cast<std::uint32_t>(results_.size() - static_cast<std::size_t>(list_start_))));
  list_start_ = -1;
}

namespace {

// Views pass lazy conjugation and negation on; other ops are left to the host then. Ranks beyond what rules hold too.
bool has_plain_tensors(OpId op, std::span<const Arg> args, const std::vector<Value>& values) {
  constexpr std::uint8_t kMostRank = 15;  // Dims::kMost, and one more for unsqueeze
  for (const Arg& arg : args) {
    if (arg.is_list()) {
      if (!has_plain_tensors(op, arg.get_list(), values)) return false;
    } else if (arg.is_value()) {
      const Value& value = values[arg.get_value().index()];
      if (value.kind != ValueKind::Tensor) continue;
      if (value.meta.rank > kMostRank || (value.meta.flags != kNoTensorFlags && !is_view(op))) return false;
    }
  }
  return true;
}

}  // namespace

bool infer(OpId op, std::span<const Arg> args, RuleCall& call) {
  call.reset(op, args);
  if (has_plain_tensors(op, args, call.values) && get_op_info(op).rule(call)) return true;
  call.reset(op, args);
  return false;
}

}  // namespace reprise::graph
