// Metadata of results from metadata of arguments: sizes, strides, dtype, device, storage, as eager would give them.
//
//   RuleCall call(context, values, default_dtype);
//   if (infer(op, args, call)) use call.results(); else ask the host (a memo, the live result, a meta kernel)
//
// A rule declines (false) what it does not cover: then nothing is known, in particular not that the call is wrong.
// Rules never raise the user's errors: wrong calls are declined, and the host's own kernel says what is wrong.
// No allocation but in the Context's arena and in the RuleCall, which is meant to be used again: reset() keeps memory.
// One thread at a time (the Context's).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/export.h"
#include "graph/arg.h"
#include "graph/context.h"
#include "graph/graph.h"
#include "graph/op.h"

namespace reprise::graph {

enum class ResultKind : std::uint8_t {
  None,      // absent (an undefined tensor)
  Fresh,     // a tensor with its own storage; meta.storage is invalid, the caller gives it one
  View,      // shares the storage of a value among the arguments: `of`, and meta.storage is that one
  Argument,  // is the object `of`
  Number,    // a Python number of kind `number`
};

struct ResultMeta {
  ResultKind kind = ResultKind::None;
  ValueKind number = ValueKind::Tensor;
  ValueId of;
  TensorMeta meta;
};

class REPRISE_EXPORT RuleCall {
 public:
  // `values` is the table that the ids in the arguments index. Both must live as long as the call.
  RuleCall(Context& context, const std::vector<Value>& values, types::DType default_dtype = types::DType::Float32);

  void reset(OpId op, std::span<const Arg> args);

  std::span<const Return> returns() const { return returns_; }
  std::span<const ResultMeta> results() const { return results_; }  // flat, in order of the returns

  // --- for rules: rules/rule_impl.h ---
  Context& context;
  sym::Context& symbols;
  const std::vector<Value>& values;
  types::DType default_dtype;
  OpId op{};
  std::span<const Arg> args;

  ResultMeta& add_result(ResultKind kind);
  ResultMeta& last_result() { return results_.back(); }
  void start_list();  // the results added from here to end_list() are one return
  void end_list();

 private:
  std::vector<Return> returns_;
  std::vector<ResultMeta> results_;
  std::int64_t list_start_ = -1;
};

// False: ask the host; then call.results() is empty.
REPRISE_EXPORT bool infer(OpId op, std::span<const Arg> args, RuleCall& call);

}  // namespace reprise::graph
