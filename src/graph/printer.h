// Text of a graph. Deterministic, readable, and read back by parser.h to the same graph.
//
//   graph {                                                   "graph functional {" for the functional form
//     symbol s0 in [2, 4096] hint 8
//     %0 = parameter mutated : float32[8, s0]
//     %1 = input : float32[8, 4; 1, 8] @2 storage 3 cuda:0 conj
//     %2 = constant 0 : int64[]
//     %3 = input : int {s0}
//     %4 = aten::add.Tensor(%0, wrapped 2.0, 1) : float32[8, s0]
//     %5, [%6, _], _ = vendor::op([%4, none], {s0 + 1}, true, "text", float32) : float32[], [int64[2], _], _  !17
//     %0 = aten::add_.Tensor(mut %0, %1, 1)                   recorded form
//     _ = aten::add_.Tensor(%0 => %9, %1, 1) : float32[8, 4]  functional form: %9 is the new value of %0
//     backward:
//     ...
//     return %4, input 0, view of input 1 as float32[4; 2] @3, view of output 0 as float32[2], output 0, none
//     effect copy input 0 <- %9
//     gradient of input 0: %12
//     save %4, %6
//   }
//
// A tensor is dtype[sizes; strides]: strides are left out if contiguous, "@offset", storage, device and flags if they
// are 0, its own alone, cpu and none. Types behind the colon follow results, then new values; a result with an earlier
// definition has none. "!17" is the source.
#pragma once

#include <string>

#include "base/export.h"
#include "graph/graph.h"

namespace reprise::graph {

REPRISE_EXPORT std::string print_graph(const Graph& graph);
REPRISE_EXPORT std::string print_node(const Graph& graph, const Node& node);
REPRISE_EXPORT std::string print_meta(const Context& context, const TensorMeta& meta);
REPRISE_EXPORT std::string print_arg(const Context& context, const Arg& arg);

}  // namespace reprise::graph
