#include "kernel/interpret.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernel/analysis.h"
#include "kernel/interpret_op.h"
#include "kernel/numbers.h"

namespace reprise::kernel {
namespace {

template <class T, class Function>
T apply(Function function, T a, T b) {
  if constexpr (requires { function(a); }) {
    return function(a);
  } else {
    return function(a, b);
  }
}

template <class T>
T evaluate_libm(MathFunction function, T a, T b) {
  switch (function) {
#define X(name, text, operands, sleef, accuracy, mkl, libm)                                                            \
  case MathFunction::name:                                                                                             \
    return apply<T>([](auto... arguments) -> decltype(std::libm(arguments...)) { return std::libm(arguments...); }, a, \
                    b);
#include "kernel/math_functions.def"
#undef X
  }
  REPRISE_UNREACHABLE("math function");
}

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, void* const* buffers, const std::int64_t* scalars, MathEvaluator math)
      : kernel_(kernel),
        analysis_(kernel),
        math_(math),
        values_(kernel.nodes.size()),
        partials_(kernel.nodes.size()),
        partial_counts_(kernel.nodes.size(), 1) {
    std::size_t argument = 0;
    locals_.resize(kernel.buffers.size());
    for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
      const Buffer& buffer = kernel.buffers[i];
      if (buffer.kind == BufferKind::Argument) {
        bases_.push_back(buffers[argument++]);
      } else {
        locals_[i].assign(static_cast<std::size_t>(buffer.count) * types::get_size_bytes(buffer.dtype), 0xcd);
        bases_.push_back(locals_[i].data());
      }
    }
    for (std::size_t i = 0; i < kernel.params.size(); ++i) {
      const auto bits = static_cast<std::uint64_t>(scalars[i]);
      values_[kernel.param_values[i].index()] = kernel.params[i] == DType::Bool ? bits != 0 : bits;
    }
    for (std::size_t i = 0; i < kernel.nodes.size(); ++i) {
      const Node& node = kernel.nodes[i];
      if (node.op != ScalarOp::Reduce) continue;
      const LoopId loop = analysis_.get_vector_loop(NodeId(static_cast<std::uint32_t>(i)));
      if (loop == analysis_.get_vector_loop(node.operands[0])) continue;
      std::size_t& count = partial_counts_[node.operands[0].index()];
      count = std::max(count, get_step(kernel.get(loop)));
    }
    run_nodes(kernel.prologue);
  }

  std::int64_t count_units(LoopId body) const { return std::max<std::int64_t>(0, evaluate(kernel_.get(body).upper)); }

  void run(std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;
    for (const LoopId body : kernel_.bodies) {
      const std::int64_t count = count_units(body);
      for (std::int64_t i = std::max<std::int64_t>(begin - first, 0); i < std::min(end - first, count); ++i) {
        run_iteration(kernel_.get(body), i);
      }
      first += count;
    }
  }

 private:
  static std::size_t get_step(const Loop& loop) {
    return std::max<std::size_t>(1, std::size_t{loop.lanes} * loop.unroll);
  }

  std::int64_t evaluate(IndexId id) const {
    const Affine& affine = kernel_.get(id);
    std::int64_t sum = affine.constant();
    for (const Term& term : affine.terms()) {
      sum += term.coefficient * static_cast<std::int64_t>(values_[term.value.index()]);
    }
    return sum;
  }

  void run_iteration(const Loop& loop, std::int64_t value) {
    values_[loop.var.index()] = static_cast<std::uint64_t>(value);
    run_nodes(kernel_.get(loop.body));
  }

  void run_loop(LoopId id) {
    const Loop& loop = kernel_.get(id);
    const std::int64_t lower = evaluate(loop.lower);
    std::int64_t upper = evaluate(loop.upper);
    if (loop.limit.is_valid()) upper = std::min(upper, evaluate(loop.limit));
    if (loop.kind != LoopKind::Vector) {
      for (std::int64_t i = lower; i < upper; i += loop.step) run_iteration(loop, i);
      return;
    }
    const auto step = static_cast<std::int64_t>(get_step(loop));
    const std::int64_t lanes = std::max<std::int64_t>(1, loop.lanes);
    const std::int64_t count = std::max<std::int64_t>(0, upper - lower);
    const std::int64_t whole = count - count % step;
    for (std::int64_t k = 0; k < count; ++k) {
      partial_ = static_cast<std::size_t>(k < whole ? k % step : k % lanes);
      run_iteration(loop, lower + k);
    }
  }

  void run_nodes(const std::vector<NodeId>& nodes) {
    for (const NodeId id : nodes) run_node(id, kernel_.get(id));
  }

  std::uint64_t get(const Node& node, int operand) const {
    return operand < node.operand_count ? values_[node.operands[operand].index()] : 0;
  }

  void check_bounds(const Access& access, std::int64_t index) const {
    const std::int64_t count = kernel_.get(access.buffer).count;
    REPRISE_CHECK(index >= 0 && (count < 0 || index < count), "buffer " + std::to_string(access.buffer.index()) +
                                                                  " of " + std::to_string(count) + " elements at " +
                                                                  std::to_string(index));
  }

  void run_node(NodeId id, const Node& node) {
    std::uint64_t& value = values_[id.index()];
    switch (node.op) {
      case ScalarOp::Const:
        value = node.payload;
        return;
      case ScalarOp::Param:
      case ScalarOp::LoopVar:
        return;
      case ScalarOp::Index:
        value = static_cast<std::uint64_t>(evaluate(IndexId(static_cast<std::uint32_t>(node.payload))));
        return;
      case ScalarOp::Load: {
        value = 0;
        if (node.operand_count == 1 && get(node, 0) == 0) return;
        const Access& access = kernel_.get_access(node);
        const std::int64_t index = evaluate(access.index);
        check_bounds(access, index);
        value = read_element(node.dtype, bases_[access.buffer.index()], index);
        return;
      }
      case ScalarOp::Store: {
        if (node.operand_count == 2 && get(node, 1) == 0) return;
        const Access& access = kernel_.get_access(node);
        const std::int64_t index = evaluate(access.index);
        check_bounds(access, index);
        void* base = bases_[access.buffer.index()];
        std::uint64_t bits = get(node, 0);
        if (access.mode != StoreMode::Set) {
          const std::uint64_t old = read_element(node.dtype, base, index);
          bits = evaluate_op(ScalarOp::Add, node.dtype, node.dtype, old, bits, 0);
        }
        write_element(node.dtype, base, index, bits);
        return;
      }
      case ScalarOp::Math: {
        const double a = to_double(node.dtype, get(node, 0));
        const double b = node.operand_count == 2 ? to_double(node.dtype, get(node, 1)) : 0;
        value = from_double(node.dtype,
                            math_(Kernel::get_math_function(node), Kernel::get_numerics(node), node.dtype, a, b));
        return;
      }
      case ScalarOp::Accumulator:
        partials_[id.index()].assign(partial_counts_[id.index()], get_start(Kernel::get_combine(node), node.dtype));
        return;
      case ScalarOp::Reduce:
      case ScalarOp::Scan: {
        const NodeId accumulator = node.operands[0];
        const bool is_outside = analysis_.get_vector_loop(accumulator) != analysis_.get_vector_loop(id);
        Partial& partial = partials_[accumulator.index()][is_outside ? partial_ : 0];
        partial = combine_partials(Kernel::get_combine(kernel_.get(accumulator)), node.dtype, partial,
                                   {get(node, 1), static_cast<std::int64_t>(get(node, 2))});
        value = partial.bits;
        return;
      }
      case ScalarOp::Result:
        value = fold(node.operands[0]).bits;
        return;
      case ScalarOp::ResultIndex:
        value = static_cast<std::uint64_t>(fold(node.operands[0]).index);
        return;
      case ScalarOp::Loop:
        run_loop(LoopId(static_cast<std::uint32_t>(node.payload)));
        return;
      case ScalarOp::VectorCall:
        run_call(kernel_.calls[node.payload]);
        return;
      default: {
        const int first = node.op == ScalarOp::Select ? 1 : 0;
        const DType dtype = kernel_.get(node.operands[first]).dtype;
        value = evaluate_op(node.op, dtype, node.dtype, get(node, 0), get(node, 1), get(node, 2));
      }
    }
  }

  Partial fold(NodeId accumulator) const {
    const Node& node = kernel_.get(accumulator);
    std::vector<Partial> partials = partials_[accumulator.index()];
    for (std::size_t half = partials.size() / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        partials[i] = combine_partials(Kernel::get_combine(node), node.dtype, partials[i], partials[i + half]);
      }
    }
    return partials[0];
  }

  void run_call(const VectorCall& call) {
    const DType dtype = kernel_.get(call.operand).dtype;
    const std::int64_t count = evaluate(call.count);
    REPRISE_CHECK(count <= kernel_.get(call.operand).count && count <= kernel_.get(call.result).count,
                  "a vector call over " + std::to_string(count) + " elements");
    for (std::int64_t i = 0; i < count; ++i) {
      const double a = to_double(dtype, read_element(dtype, bases_[call.operand.index()], i));
      write_element(dtype, bases_[call.result.index()], i,
                    from_double(dtype, math_(call.function, call.numerics, dtype, a, 0)));
    }
  }

  const Kernel& kernel_;
  Analysis analysis_;
  MathEvaluator math_;
  std::vector<void*> bases_;
  std::vector<std::vector<std::uint8_t>> locals_;
  std::vector<std::uint64_t> values_;
  std::vector<std::vector<Partial>> partials_;
  std::vector<std::size_t> partial_counts_;
  std::size_t partial_ = 0;  // of the current iteration of the innermost vector loop
};

}  // namespace

double evaluate_with_libm(MathFunction function, Numerics, DType dtype, double a, double b) {
  if (dtype == DType::Float64) return evaluate_libm(function, a, b);
  return static_cast<double>(evaluate_libm(function, static_cast<float>(a), static_cast<float>(b)));
}

void interpret(const Kernel& kernel, void* const* buffers, const std::int64_t* scalars, std::int64_t begin,
               std::int64_t end, MathEvaluator math) {
  Interpreter(kernel, buffers, scalars, math).run(begin, end);
}

std::int64_t count_units(const Kernel& kernel, const std::int64_t* scalars) {
  std::vector<void*> no_buffers(kernel.buffers.size());
  const Interpreter interpreter(kernel, no_buffers.data(), scalars, evaluate_with_libm);
  std::int64_t units = 0;
  for (const LoopId body : kernel.bodies) units += interpreter.count_units(body);
  return units;
}

}  // namespace reprise::kernel
