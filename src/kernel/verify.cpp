#include "kernel/verify.h"

#include <bit>
#include <string>
#include <vector>

#include "kernel/analysis.h"
#include "kernel/numbering.h"
#include "kernel/numbers.h"
#include "kernel/text.h"

namespace reprise::kernel {
namespace {

bool is_number(DType dtype) {
  return dtype != DType::Bool && (types::is_integral(dtype) || dtype == DType::Float32 || dtype == DType::Float64);
}

bool is_storage(DType dtype) { return is_number(dtype) || dtype == DType::Bool || is_half(dtype); }

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : kernel_(kernel),
        analysis_(kernel),
        numbering_(kernel),
        in_scope_(kernel.nodes.size(), false),
        reduce_loop_(kernel.nodes.size(), kNoReduce) {}

  std::string verify() {
    check_buffers();
    for (const ValueId id : kernel_.param_values) {
      const DType dtype = kernel_.get(id).dtype;
      require(dtype == DType::Int64 || dtype == DType::Float64 || dtype == DType::Bool, "a parameter of this dtype");
      in_scope_[id.index()] = true;
    }
    std::vector<NodeId> opened;
    check_nodes(kernel_.prologue, opened);
    require(!kernel_.bodies.empty(), "no body");
    for (const LoopId body : kernel_.bodies) {
      const Loop& loop = kernel_.get(body);
      require(loop.kind == LoopKind::Parallel, "a body that is no parallel loop");
      require(kernel_.get(loop.lower) == Affine(0) && loop.step == 1 && !loop.limit.is_valid(),
              "a parallel loop that does not count from 0 by 1");
      check_loop(body, LoopId());
    }
    return error_;
  }

 private:
  static constexpr std::int64_t kNoReduce = -1;
  static constexpr std::int64_t kOutside = 0;  // reduced outside of vector loops; else the number of lanes

  void require(bool holds, const std::string& text) {
    if (!holds && error_.empty()) error_ = where_.empty() ? text : where_ + ": " + text;
  }

  void check_buffers() {
    std::int64_t local_bytes = 0;
    for (const Buffer& buffer : kernel_.buffers) {
      require(is_storage(buffer.dtype), "a buffer of " + std::string(types::get_dtype_name(buffer.dtype)));
      if (buffer.kind != BufferKind::Local) continue;
      require(buffer.count > 0, "a local array without a size");
      local_bytes += buffer.count * static_cast<std::int64_t>(types::get_size_bytes(buffer.dtype));
    }
    require(local_bytes <= kMaxLocalBytes,
            "local arrays of " + std::to_string(local_bytes) + " bytes; at most " + std::to_string(kMaxLocalBytes));
  }

  bool check_value(ValueId id) {
    const bool is_known = id.is_valid() && id.index() < kernel_.nodes.size() && in_scope_[id.index()];
    require(is_known, "a value is used outside of its region or before it is made");
    return is_known;
  }

  void check_index(IndexId id) {
    require(id.is_valid() && id.index() < kernel_.indexes.size(), "no index expression");
    if (!error_.empty()) return;
    for (const Term& term : kernel_.get(id).terms()) {
      if (!check_value(term.value)) return;
      require(kernel_.get(term.value).dtype == DType::Int64, "an index of another dtype than int64");
      require(kernel_.get(term.value).op != ScalarOp::Accumulator, "an accumulator as an index");
    }
  }

  void check_loop(LoopId id, LoopId vector_loop) {
    const Loop& loop = kernel_.get(id);
    where_ = std::string(get_text(loop.kind)) + " loop %" + std::to_string(numbering_.get(loop.var));
    check_index(loop.lower);
    check_index(loop.upper);
    if (loop.limit.is_valid()) check_index(loop.limit);
    require(loop.step >= 1, "step " + std::to_string(loop.step));
    if (!error_.empty()) return;
    if (vector_loop.is_valid()) {
      require(loop.kind == LoopKind::Serial, "inside of a vector loop only serial loops may stand");
      require(!analysis_.is_varying(kernel_.get(loop.lower)) && !analysis_.is_varying(kernel_.get(loop.upper)) &&
                  !(loop.limit.is_valid() && analysis_.is_varying(kernel_.get(loop.limit))),
              "bounds that vary by lane");
    }
    if (loop.kind == LoopKind::Vector) {
      require(loop.step == 1, "a vector loop of step " + std::to_string(loop.step));
      require(loop.lanes == 0 || (std::has_single_bit(loop.lanes) && std::has_single_bit(loop.unroll)),
              "lanes and unrolling are powers of two");
      vector_loop = id;
    }
    const std::vector<NodeId>& body = kernel_.get(loop.body);
    if (loop.kind == LoopKind::TileRows) {
      require(body.size() == 1 && kernel_.get(body[0]).op == ScalarOp::Loop &&
                  kernel_.get_loop(kernel_.get(body[0])).kind == LoopKind::Vector && loop.step == 1,
              "a tile is exactly one vector loop inside");
    }
    std::vector<NodeId> opened{loop.var};
    in_scope_[loop.var.index()] = true;
    const bool was_in_tile = in_tile_;
    in_tile_ = in_tile_ || loop.kind == LoopKind::TileRows;
    check_nodes(body, opened);
    in_tile_ = was_in_tile;
    for (const NodeId node : opened) in_scope_[node.index()] = false;
  }

  void check_nodes(const std::vector<NodeId>& nodes, std::vector<NodeId>& opened) {
    for (const NodeId id : nodes) {
      if (!error_.empty()) return;
      const Node& node = kernel_.get(id);
      if (node.op == ScalarOp::Loop) {
        require(kernel_.get_loop(node).kind != LoopKind::Parallel, "a parallel loop inside of a loop");
        check_loop(LoopId(static_cast<std::uint32_t>(node.payload)), analysis_.get_vector_loop(id));
        continue;
      }
      where_ = std::string(get_row(node.op).text);
      if (has_result(node.op)) where_ = "%" + std::to_string(numbering_.get(id)) + " = " + where_;
      check_node(id, node);
      if (has_result(node.op)) {
        in_scope_[id.index()] = true;
        opened.push_back(id);
      }
    }
  }

  DType get_dtype(const Node& node, int operand) const { return kernel_.get(node.operands[operand]).dtype; }

  void check_same(const Node& node, DType dtype) {
    for (int i = 0; i < node.operand_count; ++i) require(get_dtype(node, i) == dtype, "operands of different dtypes");
  }

  void check_node(NodeId id, const Node& node) {
    for (int i = 0; i < node.operand_count; ++i) {
      if (!check_value(node.operands[i])) return;
      const bool takes_accumulator = get_row(node.op).op_class == OpClass::Carry && i == 0;
      require((kernel_.get(node.operands[i]).op == ScalarOp::Accumulator) == takes_accumulator,
              takes_accumulator ? "the operand is no accumulator" : "an accumulator as a value");
    }
    require(is_storage(node.dtype), "a value of " + std::string(types::get_dtype_name(node.dtype)));
    const OpRow& row = get_row(node.op);
    switch (row.op_class) {
      case OpClass::Leaf:
        if (node.op == ScalarOp::Index) check_index(IndexId(static_cast<std::uint32_t>(node.payload)));
        return;
      case OpClass::Memory:
        return check_access(id, node);
      case OpClass::Any:
        require(
            get_dtype(node, 0) == DType::Bool && get_dtype(node, 1) == node.dtype && get_dtype(node, 2) == node.dtype,
            "a select takes a bool and two values of its dtype");
        return;
      case OpClass::Number:
        require(is_number(node.dtype), "of " + std::string(types::get_dtype_name(node.dtype)));
        return check_same(node, node.dtype);
      case OpClass::Integer:
        require(types::is_integral(node.dtype) && node.dtype != DType::Bool, "not of an integer");
        return check_same(node, node.dtype);
      case OpClass::Bits:
        require(types::is_integral(node.dtype), "not of an integer or bool");
        return check_same(node, node.dtype);
      case OpClass::Float:
      case OpClass::Math:
        require(node.dtype == DType::Float32 || node.dtype == DType::Float64, "not of float32 or float64");
        return check_same(node, node.dtype);
      case OpClass::Compare:
        require(node.dtype == DType::Bool && !is_half(get_dtype(node, 0)), "of a half type");
        return check_same(node, get_dtype(node, 0));
      case OpClass::Convert:
        if (node.op == ScalarOp::Bitcast) {
          require(count_bits(get_dtype(node, 0)) == count_bits(node.dtype), "between different widths");
        }
        return;
      case OpClass::Round:
        require(node.dtype == DType::Float32, "not of float32");
        return check_same(node, node.dtype);
      case OpClass::Carry:
        return check_carry(id, node);
      case OpClass::Control:
        return check_call(id, kernel_.calls[node.payload]);
    }
  }

  void check_access(NodeId id, const Node& node) {
    const Access& access = kernel_.get_access(node);
    require(access.buffer.index() < kernel_.buffers.size(), "no such buffer");
    if (!error_.empty()) return;
    const Buffer& buffer = kernel_.get(access.buffer);
    check_index(access.index);
    require(node.dtype == buffer.dtype, "of another dtype than the buffer's");
    const bool is_store = node.op == ScalarOp::Store;
    require(is_store ? buffer.is_written : buffer.is_read,
            is_store ? "into a buffer that is only read" : "from a buffer that is only written");
    if (is_store) require(get_dtype(node, 0) == node.dtype, "the value has another dtype");
    if (Kernel::has_mask(node)) require(get_dtype(node, node.operand_count - 1) == DType::Bool, "a mask is a bool");
    if (!is_store || !error_.empty()) return;
    if (access.mode == StoreMode::Set) {
      const bool is_flag = Kernel::has_mask(node) && !analysis_.is_varying(node.operands[0]);
      require(is_flag || !analysis_.get_vector_loop(id).is_valid() || analysis_.is_varying(kernel_.get(access.index)),
              "every lane stores to one element");
    } else {
      require(is_number(node.dtype), "adds " + std::string(types::get_dtype_name(node.dtype)));
    }
  }

  void check_carry(NodeId id, const Node& node) {
    if (node.op == ScalarOp::Accumulator) {
      const Combine combine = Kernel::get_combine(node);
      const bool is_logical = combine == Combine::Any || combine == Combine::All;
      require(is_logical ? node.dtype == DType::Bool : is_number(node.dtype), "of this dtype");
      return;
    }
    require(!in_tile_, "in a tile");
    const NodeId accumulator = node.operands[0];
    const Node& declaration = kernel_.get(accumulator);
    const Combine combine = Kernel::get_combine(declaration);
    const bool has_index = combine == Combine::ArgMax || combine == Combine::ArgMin;
    const LoopId vector_loop = analysis_.get_vector_loop(id);
    const bool is_outside = analysis_.get_vector_loop(accumulator) != vector_loop;  // declared outside of the loop
    if (node.op == ScalarOp::Result || node.op == ScalarOp::ResultIndex) {
      require(!is_outside, "inside of the vector loop that the accumulator is outside of");
      require(node.op == ScalarOp::Result || has_index, "of an accumulator without an index");
      return;
    }
    require(get_dtype(node, 1) == declaration.dtype && node.dtype == declaration.dtype, "of another dtype");
    require(node.operand_count == (has_index ? 3 : 2), has_index ? "without an index" : "with an index");
    if (node.operand_count == 3) require(get_dtype(node, 2) == DType::Int64, "an index of another dtype than int64");
    if (node.op == ScalarOp::Scan) {
      require(!is_outside, "a scan in a vector loop that the accumulator is outside of");
      return;
    }
    const std::int64_t lanes = is_outside ? kernel_.get(vector_loop).lanes : kOutside;
    std::int64_t& seen = reduce_loop_[accumulator.index()];
    require(seen == kNoReduce || seen == lanes, "one accumulator, reduced with different lanes");
    seen = lanes;
  }

  void check_call(NodeId id, const VectorCall& call) {
    require(!analysis_.get_vector_loop(id).is_valid(), "inside of a vector loop");
    check_index(call.count);
    for (const BufferId buffer : {call.result, call.operand}) {
      require(buffer.index() < kernel_.buffers.size() && kernel_.get(buffer).kind == BufferKind::Local,
              "over a buffer that is not local");
    }
    if (!error_.empty()) return;
    const DType dtype = kernel_.get(call.operand).dtype;
    require((dtype == DType::Float32 || dtype == DType::Float64) && kernel_.get(call.result).dtype == dtype,
            "over buffers of other dtypes");
    require(get_row(call.function).operands == 1, "of a function of two operands");
  }

  const Kernel& kernel_;
  Analysis analysis_;
  Numbering numbering_;
  std::vector<bool> in_scope_;
  std::vector<std::int64_t> reduce_loop_;
  bool in_tile_ = false;
  std::string where_;
  std::string error_;
};

}  // namespace

std::string verify(const Kernel& kernel) { return Verifier(kernel).verify(); }

}  // namespace reprise::kernel
