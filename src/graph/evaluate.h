// The reference evaluator: runs a graph on small arrays, slowly and plainly. The oracle of tests for passes.
//
// It knows the ops of evaluate_ops.cpp (pointwise, views, copies, simple reductions, products, joins, lists, numbers)
// on bool, int64, int32, float32 and float64; sizes must be constants. An op that it does not know is a text, not an
// error. Both forms run: in the recorded form writes go through views, in the functional one effects are applied at
// the end. So either way the inputs are changed as the program changes them.
// Random ops draw from a counter: the same draws in the same order give the same numbers. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/export.h"
#include "graph/graph.h"

namespace reprise::graph {

// One element: the bits of a double for float dtypes, an integer for the others.
struct Element {
  bool is_float = false;
  double real = 0;
  std::int64_t integer = 0;

  double as_real() const { return is_float ? real : static_cast<double>(integer); }
  std::int64_t as_integer() const { return is_float ? static_cast<std::int64_t>(real) : integer; }
  bool as_bool() const { return is_float ? real != 0 : integer != 0; }
};

// A strided array. Copies share the elements.
struct REPRISE_EXPORT Array {
  std::shared_ptr<std::vector<std::uint64_t>> elements;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  types::DType dtype = types::DType::Float32;

  Element get(std::int64_t place) const;  // place: index into elements
  void set(std::int64_t place, Element element);
  std::int64_t get_numel() const;
  // Places of all elements in row-major order.
  std::vector<std::int64_t> list_places() const;
  // Zeros, with the geometry of the metadata (sizes must be constants).
  static Array make(const TensorMeta& meta);
  Array clone() const;  // own elements, same geometry
};

struct Datum {
  std::variant<std::monostate, Array, Element> value;
};

struct Evaluation {
  std::string error;  // empty: it ran
  std::vector<Datum> outputs;
  std::vector<Datum> gradients;
  std::vector<Datum> saved;
  std::uint64_t draw_count = 0;
};

// `inputs` and `constants` are in the order of the graph; arrays among the inputs that share storage ids have to share
// elements (make_inputs does it). Arrays of mutated inputs are changed.
REPRISE_EXPORT Evaluation evaluate(const Graph& graph, std::vector<Datum>& inputs, const std::vector<Datum>& constants,
                                   std::uint64_t first_draw = 0);

// The result of a scalar:: op on constant numbers, as Python has it; nothing if an argument is not constant, if the op
// fails on them or if the number does not fit.
REPRISE_EXPORT std::optional<Arg> fold_scalar(OpId op, std::span<const Arg> args);

// Inputs with elements from `next()`, aliased as the metadata says.
REPRISE_EXPORT std::vector<Datum> make_inputs(const Graph& graph, std::uint64_t seed);
REPRISE_EXPORT std::vector<Datum> clone_inputs(const Graph& graph, const std::vector<Datum>& inputs);

// "" if equal, bit for bit (any NaN equals any); else what differs.
REPRISE_EXPORT std::string compare(const Datum& a, const Datum& b);
// `tolerance` is relative to 1 + |a|; for comparisons across reassociated sums.
REPRISE_EXPORT std::string compare_loosely(const Datum& a, const Datum& b, double tolerance);

}  // namespace reprise::graph
