// From the recorded graph of a region to the functional one that is split and run.
//
// Backwards of other keys are traced again: their forward is the same list of nodes, but new values may have other ids.
// `forward_results` is what the two have in common: the results of forward nodes in order.
#pragma once

#include <optional>
#include <vector>

#include "aot/region.h"

namespace reprise::aot {

struct FunctionalRegion {
  graph::Graph graph;
  std::vector<graph::ValueId> forward_results;
  size_t forward_value_count = 0;  // recorded ids below it are the same in every trace
};

base::Result<FunctionalRegion> make_functional(const RegionTrace& trace);

/// Values of `from` as values of `to`, another trace of the same callables. Nothing if one of them has no counterpart:
/// a pass made it, or the callables did something else this time.
std::optional<std::vector<graph::ValueId>> translate_values(const std::vector<graph::ValueId>& values,
                                                            const FunctionalRegion& from, const FunctionalRegion& to);

}  // namespace reprise::aot
