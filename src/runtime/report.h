// What explain shows, as plain data: a snapshot of one CompileContext.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/compile_context.h"

namespace reprise::runtime {

/// One way an entry can end other than by returning.
struct ExitReport {
  std::string place;   // file:line in function
  std::string kind;    // "end", "guard", "region" or "error"
  std::string reason;  // what was found
  std::string code;    // of base/unsupported.def; empty for errors
  std::string hint;    // what the user can do
  uint64_t count = 0;  // how often it was taken
};

struct EntryReport {
  int32_t serial = 0;
  bool returns = false;  // the trace goes up to the function's return
  std::string why;
  uint64_t run_count = 0;
  uint64_t item_count = 0;  // of the trace
  uint64_t step_count = 0;
  uint64_t size_bytes = 0;
  std::vector<std::string> guards;
  std::vector<ExitReport> exits;
  std::string last_guard_failure;
  std::vector<std::string> regions;
};

struct PlaceReport {
  std::string file;
  int32_t line = 0;
  std::string function;
  int32_t unit = 0;
  std::string why;
  std::string last_failure;
  uint64_t miss_count = 0;
  int32_t attempt_count = 0;
  bool is_blacklisted = false;
  std::vector<EntryReport> entries;
};

struct ContextReport {
  std::string name;
  std::vector<std::pair<std::string, uint64_t>> counters;          // name in counters.def, value
  std::vector<std::pair<std::string, std::string>> counter_texts;  // name, meaning
  std::vector<std::pair<std::string, double>> phase_seconds;       // phases that took any time
  std::vector<PlaceReport> places;                                 // those that have or want entries, or failed
};

ContextReport make_report(CompileContext& context);

}  // namespace reprise::runtime
