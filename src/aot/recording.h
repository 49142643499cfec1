// Recording: the OpSink that writes a graph in recorded form, and answers metadata by the rules of graph/.
//
// Value numbers of the trace are the ids of the graph. Inputs come first; tensors that the callables reached by
// themselves become further inputs (`captured`), constants made inside stand in Graph::constants with the index of the
// run's constant. One recording a run; the graph may be taken when the run is over.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/rules.h"
#include "host/torch/op_sink.h"

namespace reprise::aot {

class Recording final : public host::OpSink {
 public:
  explicit Recording(std::shared_ptr<graph::Context> context);

  bool infer_results(const host::OpCall& call, std::vector<host::ResultMeta>& results) override;
  void add_value(host::TraceValueId id, host::TraceValueMeta meta) override;
  void add_constant(host::TraceValueId id, int32_t constant, host::ConstantKind kind) override;
  void add_op(host::OpCall call, std::vector<std::vector<host::TraceValueId>> results) override;
  void add_scalar_op(host::ScalarOp op, std::span<const host::OpArg> args, host::TraceValueId result) override;

  /// A value that was just made is an input.
  void set_input(host::TraceValueId id, graph::InputKind kind);
  void set_phase(graph::Phase phase) { phase_ = phase; }
  void set_source(graph::SourceId source) { source_ = source; }

  graph::Graph& graph() { return graph_; }
  /// The run's constants behind the captured inputs, in their order among Graph::inputs.
  std::span<const int32_t> captured() const { return captured_; }
  /// Empty, or why what was recorded is no graph: a dtype, a device or an argument that the IR cannot hold.
  const std::string& failure() const { return failure_; }

 private:
  graph::Arg to_arg(const host::OpCall& call, const host::OpArg& arg);
  std::span<const graph::Arg> to_args(const host::OpCall& call);
  graph::OpId op_of(const host::OpInfo& op);
  graph::StorageId storage_of(int32_t storage);
  void fail(std::string text);

  graph::Graph graph_;
  graph::RuleCall rule_call_;
  graph::Phase phase_ = graph::Phase::Forward;
  graph::SourceId source_;
  std::vector<graph::OpId> ops_;            // by OpInfo::index
  std::vector<graph::StorageId> storages_;  // by the run's number
  std::vector<int32_t> captured_;
  std::string failure_;
};

/// Metadata as the host has it.
host::TraceValueMeta to_host_meta(const graph::TensorMeta& meta);

}  // namespace reprise::aot
