// Reads the text of printer.h. For tests, repros and people.
//
// A missing type behind a node means: ask the rule of the op. Lines may be blank or start with "//". Errors are texts
// "line 7: found ..., expected ...".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/export.h"
#include "graph/graph.h"

namespace reprise::graph {

struct ParseError {
  int line = 0;
  std::string text;
};

REPRISE_EXPORT std::variant<Graph, ParseError> parse_graph(std::string_view text,
                                                           std::shared_ptr<Context> context = nullptr);

}  // namespace reprise::graph
