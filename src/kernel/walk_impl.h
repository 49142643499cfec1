// All of a kernel in program order, values numbered as print() numbers them: the one walk behind hashes, equality and
// families of kernels. Private to kernel/.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel/numbering.h"

namespace reprise::kernel {

enum class Place : std::uint8_t { Count, LocalCount, Scalar, Constant, Coefficient };

// A number that may depend on the sizes of tensors. `id`: of the buffer, of the Const node, of the index; `term`: of a
// coefficient; `bounds`: the variable of the loop whose upper end it is the constant of.
struct Number {
  Place place = Place::Count;
  DType dtype = DType::Int64;
  std::uint32_t id = 0;
  std::uint32_t term = 0;
  std::int64_t value = 0;
  ValueId bounds = {};
};

// Calls sink.word(std::uint64_t) and sink.number(const Number&): equal sequences of both, equal kernels.
template <class Sink>
class Walk {
 public:
  Walk(const Kernel& kernel, Sink& sink) : kernel_(kernel), numbering_(kernel), sink_(sink) {}

  void run() {
    word(kernel_.buffers.size());
    for (std::uint32_t i = 0; i < kernel_.buffers.size(); ++i) {
      const Buffer& buffer = kernel_.buffers[i];
      word(buffer.kind).word(buffer.dtype).word(buffer.is_read).word(buffer.is_written);
      const Place place = buffer.kind == BufferKind::Local ? Place::LocalCount : Place::Count;
      sink_.number({.place = place, .id = i, .value = buffer.count});
    }
    word(kernel_.params.size());
    for (const DType dtype : kernel_.params) word(dtype);
    nodes(kernel_.prologue);
    word(kernel_.bodies.size());
    for (const LoopId body : kernel_.bodies) loop(kernel_.get(body));
  }

 private:
  template <class T>
  Walk& word(T value) {
    sink_.word(static_cast<std::uint64_t>(value));
    return *this;
  }

  void affine(IndexId id, ValueId bounds = {}) {
    word(id.is_valid());
    if (!id.is_valid()) return;
    const Affine& found = kernel_.get(id);
    sink_.number({.place = Place::Constant, .id = id.index(), .value = found.constant(), .bounds = bounds});
    word(found.terms().size());
    for (const Term& term : numbering_.get_sorted_terms(found)) {
      const auto at = std::find_if(found.terms().begin(), found.terms().end(),
                                   [&](const Term& other) { return other.value == term.value; });
      sink_.number({.place = Place::Coefficient,
                    .id = id.index(),
                    .term = static_cast<std::uint32_t>(at - found.terms().begin()),
                    .value = term.coefficient});
      word(numbering_.get(term.value));
    }
  }

  void loop(const Loop& found) {
    word(found.kind).word(found.lanes).word(found.unroll).word(found.step).word(numbering_.get(found.var));
    affine(found.lower);
    affine(found.upper, found.var);
    affine(found.limit);
    nodes(kernel_.get(found.body));
  }

  void nodes(const std::vector<NodeId>& ids) {
    word(ids.size());
    for (const NodeId id : ids) node(id);
  }

  void node(NodeId id) {
    const Node& found = kernel_.get(id);
    word(found.op).word(found.dtype).word(found.operand_count);
    for (int i = 0; i < found.operand_count; ++i) word(numbering_.get(found.operands[i]));
    switch (found.op) {
      case ScalarOp::Const:
        sink_.number({.place = Place::Scalar,
                      .dtype = found.dtype,
                      .id = id.index(),
                      .value = static_cast<std::int64_t>(found.payload)});
        return;
      case ScalarOp::Load:
      case ScalarOp::Store: {
        const Access& access = kernel_.get_access(found);
        word(access.buffer.index()).word(access.mode);
        return affine(access.index);
      }
      case ScalarOp::Index:
        return affine(IndexId(static_cast<std::uint32_t>(found.payload)));
      case ScalarOp::Loop:
        return loop(kernel_.get_loop(found));
      case ScalarOp::VectorCall: {
        const VectorCall& call = kernel_.calls[found.payload];
        word(call.function).word(call.numerics).word(call.result.index()).word(call.operand.index());
        return affine(call.count);
      }
      default:
        word(found.payload);
    }
  }

  const Kernel& kernel_;
  Numbering numbering_;
  Sink& sink_;
};

}  // namespace reprise::kernel
