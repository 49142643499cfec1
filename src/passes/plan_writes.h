// What a node with a `mut` mask may do with the memory of what it writes, for whoever runs it.
//
// A functional graph says: the argument is taken over or copied, then written. Taking over is right if nobody reads
// that memory later; writing straight into an input is right if, besides, the new value is what the input gets at the
// end: the effect is then done but for the version counter. An analysis; it changes nothing. Linear.
#pragma once

#include <cstdint>
#include <vector>

#include "base/export.h"
#include "graph/graph.h"

namespace reprise::passes {

enum class WriteKind : std::uint8_t {
  Copy,     // copy the argument, write the copy
  InPlace,  // write the argument
  OnInput,  // write input `input`, which is the argument; effect `effect` is done with that
};

struct Write {
  graph::NodeId node;
  graph::ValueId old_value;
  graph::ValueId new_value;
  WriteKind kind = WriteKind::Copy;
  std::uint32_t input = 0;
  std::uint32_t effect = 0;
};

// One for each new value, in order of the nodes.
REPRISE_EXPORT std::vector<Write> plan_writes(const graph::Graph& graph);

}  // namespace reprise::passes
