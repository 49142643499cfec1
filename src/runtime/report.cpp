#include "runtime/report.h"

#include "base/result.h"
#include "entry/entry.h"

namespace reprise::runtime {
namespace {

std::string to_text(PyObject* string) {
  const char* text = PyUnicode_AsUTF8(string);
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? "?" : text;
}

std::string describe_snapshot(const trace::Trace& trace, int32_t snapshot) {
  if (snapshot < 0) return {};
  return trace::describe_place(trace.frame_states[trace.snapshots[snapshot].frame]);
}

std::vector<ExitReport> list_exits(entry::Entry& entry) {
  const trace::Trace& trace = entry.trace();
  const entry::Entry::Statistics& statistics = entry.statistics;
  std::vector<ExitReport> exits;
  for (size_t i = 0; i < trace.guards.size(); ++i) {
    const trace::Guard& guard = trace.guards[i];
    if (guard.snapshot < 0) continue;
    const uint64_t count = i < statistics.guard_exits.size() ? statistics.guard_exits[i] : 0;
    const auto code = trace.values[guard.value].varies ? base::UnsupportedCode::SizeBranch
                                                       : base::UnsupportedCode::DataDependentBranch;
    exits.push_back({describe_snapshot(trace, guard.snapshot), "guard", trace::describe_guard(trace, guard),
                     std::string(base::get_unsupported_code_name(code)), std::string(base::get_unsupported_hint(code)),
                     count});
  }
  if (trace.end == trace::EndKind::Exit) {
    const auto code = static_cast<base::UnsupportedCode>(trace.end_reason);
    exits.push_back({describe_snapshot(trace, trace.end_snapshot), "end", trace.end_text,
                     std::string(base::get_unsupported_code_name(code)), std::string(base::get_unsupported_hint(code)),
                     statistics.end_exits});
  }
  if (statistics.region_exits > 0) {
    exits.push_back({"", "region", "a region could not go on", "", "", statistics.region_exits});
  }
  if (statistics.error_exits > 0) {
    exits.push_back({"", "error", "an operation raised an exception", "", "", statistics.error_exits});
  }
  return exits;
}

EntryReport report_entry(PublishedEntry& published) {
  entry::Entry& entry = published.entry();
  const trace::Trace& trace = entry.trace();
  EntryReport report;
  report.serial = published.serial;
  report.returns = trace.end == trace::EndKind::Return;
  report.why = published.why;
  report.run_count = published.run_count;
  report.item_count = trace.items.size();
  report.step_count = entry.steps().size();
  report.size_bytes = entry.size_bytes();
  for (const trace::Guard& guard : trace.guards) {
    if (guard.snapshot < 0) report.guards.push_back(trace::describe_guard(trace, guard));
  }
  report.exits = list_exits(entry);
  report.regions = entry.region_notes;
  for (const entry::RegionStep& step : entry.regions()) {
    const trace::Region& region = entry.region_plan().regions[step.region];
    report.regions.push_back("region of " + std::to_string(region.tensor_node_count) +
                             " torch calls: " + (step.runner == nullptr ? "not compiled" : step.runner->describe()));
  }
  if (entry.statistics.guard_failures > 0) report.last_guard_failure = entry.describe_last_failure();
  return report;
}

PlaceReport report_place(Place& place) {
  PyCodeObject* code = place.code();
  PlaceReport report;
  report.file = to_text(code->co_filename);
  report.line = place.unit() <= 0 ? code->co_firstlineno
                                  : PyCode_Addr2Line(code, place.unit() * static_cast<int>(sizeof(uint16_t)));
  report.function = to_text(code->co_qualname);
  report.unit = place.unit();
  report.why = place.why;
  report.last_failure = place.last_failure;
  report.miss_count = place.misses;
  report.attempt_count = place.attempts;
  report.is_blacklisted = place.is_blacklisted;
  for (const EntryRef& entry : place.entries()) report.entries.push_back(report_entry(*entry));
  return report;
}

}  // namespace

ContextReport make_report(CompileContext& context) {
  ContextReport report;
  report.name = context.name;
  const Statistics& statistics = context.statistics;
#define X(name, text)                                   \
  report.counters.emplace_back(#name, statistics.name); \
  report.counter_texts.emplace_back(#name, text);
#include "runtime/counters.def"
#define X(name, text, doc)                                                                        \
  if (double seconds = statistics.phase_seconds[static_cast<size_t>(Phase::name)]; seconds > 0) { \
    report.phase_seconds.emplace_back(text, seconds);                                             \
  }
#include "runtime/phases.def"
  for (Place* place : context.list_places()) {
    if (!place->is_idle() || place->attempts > 0) report.places.push_back(report_place(*place));
  }
  return report;
}

}  // namespace reprise::runtime
