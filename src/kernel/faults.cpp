#include "kernel/faults.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace reprise::kernel {

namespace {

bool is_wide_float(DType dtype) { return dtype == DType::Float32 || dtype == DType::Float64; }

// Calls change(node) from the last node on until one is changed.
template <class Change>
bool change_last(Kernel& kernel, Change&& change) {
  for (std::size_t i = kernel.nodes.size(); i-- > 0;) {
    if (change(kernel.nodes[i])) return true;
  }
  return false;
}

bool replace(Node& node, ScalarOp from, ScalarOp to) {
  if (node.op != from || !is_wide_float(node.dtype)) return false;
  node.op = to;
  return true;
}

bool change_constant(Node& node) {
  if (node.op != ScalarOp::Const || !is_wide_float(node.dtype)) return false;
  const double value = node.dtype == DType::Float32 ? std::bit_cast<float>(static_cast<std::uint32_t>(node.payload))
                                                    : std::bit_cast<double>(node.payload);
  node.payload = make_constant_bits(node.dtype, value + 1.0);
  return true;
}

bool read_one_element(Kernel& kernel, Node& node) {
  if (node.op != ScalarOp::Load || kernel.get(kernel.get_access(node).index).is_constant()) return false;
  // A constant that is read anyway: what is nowhere negative has its least value there.
  Affine first(kernel.get(kernel.get_access(node).index).constant());
  Access access = kernel.get_access(node);
  access.index = IndexId(static_cast<std::uint32_t>(kernel.indexes.size()));
  kernel.indexes.push_back(std::move(first));
  node.payload = kernel.accesses.size();
  kernel.accesses.push_back(access);
  return true;
}

bool drop_store(Kernel& kernel) {
  for (std::size_t r = kernel.regions.size(); r-- > 0;) {
    std::vector<NodeId>& region = kernel.regions[r];
    for (std::size_t i = region.size(); i-- > 0;) {
      if (kernel.get(region[i]).op != ScalarOp::Store) continue;
      region.erase(region.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
  }
  return false;
}

bool change_reduction(Node& node) {
  if (node.op != ScalarOp::Accumulator) return false;
  const Combine combine = Kernel::get_combine(node);
  if (combine != Combine::Sum && combine != Combine::Max) return false;
  node.payload = static_cast<std::uint64_t>(combine == Combine::Sum ? Combine::Max : Combine::Sum);
  return true;
}

bool change_function(Node& node) {
  if (node.op != ScalarOp::Math || node.operand_count != 1) return false;
  const MathFunction other =
      Kernel::get_math_function(node) == MathFunction::Exp ? MathFunction::Log1p : MathFunction::Exp;
  node.payload = (node.payload & ~std::uint64_t{0xff}) | static_cast<std::uint64_t>(other);
  return true;
}

bool shorten_loop(Kernel& kernel) {
  for (std::size_t i = kernel.loops.size(); i-- > 0;) {
    Loop& loop = kernel.loops[i];
    if (loop.kind != LoopKind::Vector) continue;
    const Affine shorter = kernel.get(loop.upper) - Affine(1);
    loop.upper = IndexId(static_cast<std::uint32_t>(kernel.indexes.size()));
    kernel.indexes.push_back(shorter);
    return true;
  }
  return false;
}

bool truncate_stored(Kernel& kernel) {
  for (std::vector<NodeId>& region : kernel.regions) {
    for (std::size_t i = region.size(); i-- > 0;) {
      if (kernel.get(region[i]).op != ScalarOp::Store) continue;
      const ValueId value = kernel.get(region[i]).operands[0];
      if (!is_wide_float(kernel.get(value).dtype)) continue;
      Node node;
      node.op = ScalarOp::Trunc;
      node.dtype = kernel.get(value).dtype;
      node.operand_count = 1;
      node.operands[0] = value;
      const NodeId truncated(static_cast<std::uint32_t>(kernel.nodes.size()));
      kernel.nodes.push_back(node);
      kernel.get(region[i]).operands[0] = truncated;
      region.insert(region.begin() + static_cast<std::ptrdiff_t>(i), truncated);
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Fault> find_fault(std::string_view text) {
#define X(name, name_text, doc) \
  if (text == name_text) return Fault::name;
#include "kernel/faults.def"
#undef X
  return std::nullopt;
}

bool inject(Kernel& kernel, Fault fault) {
  switch (fault) {
    case Fault::SwappedSign:
      return change_last(kernel, [](Node& node) { return replace(node, ScalarOp::Add, ScalarOp::Sub); });
    case Fault::WrongFactor:
      return change_last(kernel, [](Node& node) { return replace(node, ScalarOp::Mul, ScalarOp::Add); });
    case Fault::WrongConstant:
      return change_last(kernel, change_constant);
    case Fault::SameElement:
      return change_last(kernel, [&](Node& node) { return read_one_element(kernel, node); });
    case Fault::DroppedStore:
      return drop_store(kernel);
    case Fault::WrongReduce:
      return change_last(kernel, change_reduction);
    case Fault::SwappedSelect:
      return change_last(kernel, [](Node& node) {
        if (node.op != ScalarOp::Select) return false;
        std::swap(node.operands[1], node.operands[2]);
        return true;
      });
    case Fault::WrongCompare:
      return change_last(kernel, [&](Node& node) {
        const bool is_less = node.op == ScalarOp::Lt || node.op == ScalarOp::Le;
        if (!is_less && node.op != ScalarOp::Gt && node.op != ScalarOp::Ge) return false;
        if (!is_wide_float(kernel.get(node.operands[0]).dtype)) return false;
        node.op = is_less ? ScalarOp::Gt : ScalarOp::Lt;
        return true;
      });
    case Fault::WrongFunction:
      return change_last(kernel, change_function);
    case Fault::ShortLoop:
      return shorten_loop(kernel);
    case Fault::SwappedOrder:
      return change_last(kernel, [](Node& node) {
        if ((node.op != ScalarOp::Sub && node.op != ScalarOp::Div) || !is_wide_float(node.dtype)) return false;
        std::swap(node.operands[0], node.operands[1]);
        return true;
      });
    case Fault::LostFraction:
      return truncate_stored(kernel);
  }
  return false;
}

}  // namespace reprise::kernel
