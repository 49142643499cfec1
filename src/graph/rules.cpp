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

bool infer(OpId op, std::span<const Arg> args, RuleCall& call) {
  call.reset(op, args);
  const InferRule rule = get_op_info(op).rule;
  if (rule != nullptr && rule(call)) return true;
  call.reset(op, args);
  return false;
}

}  // namespace reprise::graph
