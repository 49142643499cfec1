#include "aot/recording.h"

#include <algorithm>

#include "base/check.h"

namespace reprise::aot {

using graph::Arg;
using graph::ValueId;
using host::OpArg;

namespace {

constexpr graph::OpId kNoOp = static_cast<graph::OpId>(0xffffffffu);

ValueId to_value(host::TraceValueId id) {
  return id == host::kNoTraceValue ? ValueId() : ValueId(static_cast<uint32_t>(id));
}

graph::ValueKind to_kind(host::TraceValueKind kind) {
  switch (kind) {
    case host::TraceValueKind::Tensor:
      return graph::ValueKind::Tensor;
    case host::TraceValueKind::Float:
      return graph::ValueKind::Float;
    case host::TraceValueKind::Int:
      return graph::ValueKind::Int;
    case host::TraceValueKind::Bool:
      return graph::ValueKind::Bool;
    case host::TraceValueKind::RngState:
      return graph::ValueKind::RandomState;
  }
  return graph::ValueKind::Tensor;
}

// aten::squeeze_.dim -> aten::squeeze.dim, aten::transpose_ -> aten::transpose.int
std::string drop_underscore(std::string name) {
  const size_t end = std::min(name.find('.'), name.size());
  if (end > 0 && name[end - 1] == '_') name.erase(end - 1, 1);
  if (name == "aten::transpose") name += ".int";
  return name;
}

graph::OpId op_of_scalar(host::ScalarOp op) {
  const auto found = graph::find_known_op(host::text_of(op));
  REPRISE_CHECK(found.has_value(), std::string("graph/ops.def has no ") + host::text_of(op));
  return *found;
}

}  // namespace

host::TraceValueMeta to_host_meta(const graph::TensorMeta& meta) {
  host::TraceValueMeta result;
  result.dtype = static_cast<int8_t>(host::torch_number_of(meta.dtype));
  const auto [type, index] = host::torch_numbers_of(meta.device);
  result.device_type = static_cast<int8_t>(type);
  result.device_index = static_cast<int8_t>(index);
  result.is_conj = (meta.flags & graph::kConjugate) != 0;
  result.is_neg = (meta.flags & graph::kNegative) != 0;
  result.offset = meta.offset.get_constant();
  result.sizes.reserve(meta.rank);
  result.strides.reserve(meta.rank);
  for (const sym::Int size : meta.sizes()) result.sizes.push_back(size.get_constant());
  for (const sym::Int stride : meta.strides()) result.strides.push_back(stride.get_constant());
  return result;
}

Recording::Recording(std::shared_ptr<graph::Context> context)
    : graph_(std::move(context)), rule_call_(*graph_.context, graph_.values) {}

void Recording::fail(std::string text) {
  if (failure_.empty()) failure_ = std::move(text);
}

graph::StorageId Recording::storage_of(int32_t storage) {
  if (storage < 0) return graph_.context->make_storage();
  const auto index = static_cast<size_t>(storage);
  while (storages_.size() <= index) storages_.push_back(graph_.context->make_storage());
  return storages_[index];
}

graph::OpId Recording::op_of(const host::OpInfo& op) {
  if (ops_.size() <= op.index) ops_.resize(op.index + 64, kNoOp);
  graph::OpId& id = ops_[op.index];
  if (id == kNoOp) id = graph_.context->intern_op(std::string_view(op.name), op.is_random);
  return id;
}

void Recording::add_value(host::TraceValueId id, host::TraceValueMeta meta) {
  REPRISE_CHECK(static_cast<size_t>(id) == graph_.values.size(), "values are numbered in order");
  if (meta.kind != host::TraceValueKind::Tensor) {
    graph_.add_value(to_kind(meta.kind));
    return;
  }
  const auto dtype = host::dtype_of_torch(meta.dtype);
  const auto device = host::device_of_torch(meta.device_type, meta.device_index);
  if (!dtype) fail("a dtype that the graph does not have (torch's number " + std::to_string(meta.dtype) + ")");
  if (!device) fail("a device that the graph does not have (torch's number " + std::to_string(meta.device_type) + ")");
  const size_t rank = meta.sizes.size();
  const std::span<sym::Int> dims = graph_.context->arena().make_array<sym::Int>(2 * rank);
  std::copy(meta.sizes.begin(), meta.sizes.end(), dims.begin());
  std::copy(meta.strides.begin(), meta.strides.end(), dims.begin() + static_cast<ptrdiff_t>(rank));
  graph::TensorMeta result;
  result.sizes_and_strides = dims.data();
  result.offset = meta.offset;
  result.storage = storage_of(meta.storage);
  result.device = device.value_or(types::Device{});
  result.rank = static_cast<uint8_t>(rank);
  result.dtype = dtype.value_or(types::DType::Float32);
  result.flags = static_cast<uint8_t>((meta.is_conj ? graph::kConjugate : 0) | (meta.is_neg ? graph::kNegative : 0));
  graph_.add_tensor(result);
}

void Recording::add_constant(host::TraceValueId id, int32_t constant, host::ConstantKind kind) {
  switch (kind) {
    case host::ConstantKind::Fresh:
      graph_.get_value(to_value(id)).is_source = true;
      graph_.constants.push_back({to_value(id), static_cast<uint32_t>(constant)});
      return;
    case host::ConstantKind::Captured:
      set_input(id, graph::InputKind::Buffer);
      captured_.push_back(constant);
      return;
    case host::ConstantKind::Object:
      return;
  }
}

void Recording::set_input(host::TraceValueId id, graph::InputKind kind) { graph_.add_input(kind, to_value(id)); }

Arg Recording::to_arg(const host::OpCall& call, const OpArg& arg) {
  graph::Context& context = *graph_.context;
  Arg result;
  switch (arg.kind) {
    case OpArg::Kind::None:
      break;
    case OpArg::Kind::Value:
      result = Arg::make_value(to_value(arg.id));
      break;
    case OpArg::Kind::Int:
      result = Arg::make_int(arg.integer);
      break;
    case OpArg::Kind::Float:
      result = Arg::make_float(arg.real);
      break;
    case OpArg::Kind::Bool:
      result = Arg::make_bool(arg.integer != 0);
      break;
    case OpArg::Kind::Complex:
      result = context.make_complex({arg.real, arg.imaginary});
      break;
    case OpArg::Kind::DType:
      if (const auto dtype = host::dtype_of_torch(static_cast<int>(arg.integer))) {
        result = Arg::make_dtype(*dtype);
      } else {
        fail("a dtype that the graph does not have in an argument of " + call.op->name);
      }
      break;
    case OpArg::Kind::Layout:
      if (arg.integer > static_cast<int64_t>(graph::Layout::Sparse)) {
        fail("a layout that the graph does not have in an argument of " + call.op->name);
      } else {
        result = Arg::make_layout(static_cast<graph::Layout>(arg.integer));
      }
      break;
    case OpArg::Kind::MemoryFormat:
      result = Arg::make_memory_format(static_cast<graph::MemoryFormat>(arg.integer));
      break;
    case OpArg::Kind::Device:
      if (const auto device =
              host::device_of_torch(static_cast<int>(arg.integer >> 8), static_cast<int8_t>(arg.integer & 0xff))) {
        result = Arg::make_device(*device);
      } else {
        fail("a device that the graph does not have in an argument of " + call.op->name);
      }
      break;
    case OpArg::Kind::Text:
      result = context.make_string(call.texts[static_cast<size_t>(arg.id)]);
      break;
    case OpArg::Kind::Object:
      fail("an object in an argument of " + call.op->name);
      break;
    case OpArg::Kind::List: {
      const std::span<Arg> elements = context.arena().make_array<Arg>(static_cast<size_t>(arg.count));
      const std::span<const OpArg> source = call.elements(arg);
      for (size_t i = 0; i < source.size(); i++) elements[i] = to_arg(call, source[i]);
      result = Arg::make_list(elements);
      break;
    }
  }
  return arg.is_wrapped_number ? result.as_wrapped() : result;
}

std::span<const Arg> Recording::to_args(const host::OpCall& call) {
  const std::span<const OpArg> source = call.args();
  const std::span<Arg> args = graph_.context->arena().make_array<Arg>(source.size());
  for (size_t i = 0; i < source.size(); i++) args[i] = to_arg(call, source[i]);
  return args;
}

bool Recording::infer_results(const host::OpCall& call, std::vector<host::ResultMeta>& results) {
  const graph::OpId op = op_of(*call.op);
  const std::span<const Arg> args = to_args(call);
  rule_call_.default_dtype = host::dtype_of_torch(call.default_dtype).value_or(types::DType::Float32);
  if (!graph::is_known(op) || !graph::infer(op, args, rule_call_)) return false;
  for (const graph::ResultMeta& known : rule_call_.results()) {
    host::ResultMeta& result = results.emplace_back();
    switch (known.kind) {
      case graph::ResultKind::None:
        result.is_none = true;
        continue;
      case graph::ResultKind::Number:
        return false;
      case graph::ResultKind::Argument:
        result.is_alias = true;
        result.alias = static_cast<host::TraceValueId>(known.of.index());
        break;
      case graph::ResultKind::View:
        // resize_: the argument itself with other metadata.
        result.is_alias = call.op->returns.size() == 1 && call.op->returns[0].is_argument;
        result.alias = static_cast<host::TraceValueId>(known.of.index());
        break;
      case graph::ResultKind::Fresh:
        break;
    }
    result.meta = to_host_meta(known.meta);
  }
  return true;
}

void Recording::add_op(host::OpCall call, std::vector<std::vector<host::TraceValueId>> results) {
  graph::Node node;
  node.op = op_of(*call.op);
  node.phase = phase_;
  node.source = source_;
  node.args = to_args(call);
  node.mut = call.op->mutated;
  if (node.mut != 0 && graph::is_known(node.op) && graph::get_op_info(node.op).writes == 0) {
    // t_ and its like change the metadata of their argument, no data: the trace tensor has a new value, by the view op.
    node.op = graph_.context->intern_op(graph_.context->arena().copy(std::string_view(drop_underscore(call.op->name))));
    node.mut = 0;
  }
  if (call.op->training_argument >= 0) {
    const Arg& training = node.args[static_cast<size_t>(call.op->training_argument)];
    if (training.kind() == graph::ArgKind::Bool && !training.get_bool()) node.mut = 0;
  }
  std::vector<graph::Return> returns;
  std::vector<ValueId> outs;
  for (size_t r = 0; r < results.size(); r++) {
    const bool is_list = call.op->returns[r].kind != host::OpArgKind::Tensor;
    returns.push_back(is_list ? graph::Return::make_list(static_cast<uint32_t>(results[r].size()))
                              : graph::Return::make_single());
    for (const host::TraceValueId id : results[r]) outs.push_back(to_value(id));
  }
  node.returns = returns;
  node.outs = outs;
  graph_.add_node(node);
}

void Recording::add_scalar_op(host::ScalarOp op, std::span<const OpArg> args, host::TraceValueId result) {
  const host::OpCall call;
  graph::Node node;
  node.op = op_of_scalar(op);
  node.phase = phase_;
  node.source = source_;
  std::vector<Arg> converted;
  for (const OpArg& arg : args) converted.push_back(to_arg(call, arg));
  node.args = converted;
  const ValueId out = to_value(result);
  const graph::Return single = graph::Return::make_single();
  if (out.is_valid()) {
    node.returns = {&single, 1};
    node.outs = {&out, 1};
  }
  graph_.add_node(node);
}

}  // namespace reprise::aot
