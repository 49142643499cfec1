// From the recorded graph of a region to the functional one that is split and run.
//
// Value ids of the forward are the same for every trace of the same callables, whatever the backward needs: so a
// backward of another key fits the values that the first forward saved.
#pragma once

#include "aot/region.h"

namespace reprise::aot {

base::Result<graph::Graph> make_functional(const RegionTrace& trace);

}  // namespace reprise::aot
