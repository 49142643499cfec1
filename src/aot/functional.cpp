#include "aot/functional.h"

namespace reprise::aot {

base::Result<graph::Graph> make_functional(const RegionTrace& trace) {
  graph::Graph result = trace.graph;
  std::erase_if(result.nodes, [](const graph::Node& node) { return node.mut != 0; });
  result.form = graph::Form::Functional;
  result.reset_producers();
  return result;
}

}  // namespace reprise::aot
