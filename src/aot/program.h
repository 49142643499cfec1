// A functional graph as a program of boxed ATen calls: slots, last uses, and which written arguments may be consumed.
//
// An argument in a `mut` mask is written to in place iff nothing else of its memory (itself, its views, what it was
// before) is used later and it is no input and no constant; else the program clones it. Linear in the size of the
// graph.
#pragma once

#include "base/result.h"
#include "graph/graph.h"
#include "host/torch/boxed_call.h"

namespace reprise::aot {

/// Results are the graph's outputs (those of other kinds than Value are absent), its effects' values, its saved values
/// and its gradients, in this order. Inputs are the graph's.
base::Result<host::BoxedProgram> make_boxed_program(const graph::Graph& graph, const host::TraceConstants& constants);

}  // namespace reprise::aot
