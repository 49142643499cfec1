// Library calls of a ProgramRunner by the graph's reference evaluator: a graph of one node for each step.
#pragma once

#include "graph/evaluate.h"
#include "program_runner.h"

namespace reprise::test {

std::string call_by_evaluator(ProgramRunner& runner, const program::Step& step);

RunValue make_run_value(const graph::Datum& datum, const graph::Value& value);  // fresh memory with the same geometry
graph::Datum make_datum(const RunValue& value);                                 // contiguous

}  // namespace reprise::test
