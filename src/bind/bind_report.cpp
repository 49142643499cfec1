#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind/bindings.h"
#include "bind/vectorcall_arguments.h"
#include "runtime/compiled_callable.h"
#include "runtime/measure_guards.h"
#include "runtime/report.h"

namespace nb = nanobind;

namespace reprise::bind {
namespace {

nb::dict convert(const runtime::ExitReport& report) {
  nb::dict result;
  result["place"] = report.place;
  result["kind"] = report.kind;
  result["reason"] = report.reason;
  result["code"] = report.code;
  result["hint"] = report.hint;
  result["count"] = report.count;
  return result;
}

nb::dict convert(const runtime::EntryReport& report) {
  nb::dict result;
  result["serial"] = report.serial;
  result["returns"] = report.returns;
  result["why"] = report.why;
  result["runs"] = report.run_count;
  result["items"] = report.item_count;
  result["steps"] = report.step_count;
  result["size_bytes"] = report.size_bytes;
  result["guards"] = report.guards;
  nb::list exits;
  for (const runtime::ExitReport& exit : report.exits) exits.append(convert(exit));
  result["exits"] = exits;
  result["last_guard_failure"] = report.last_guard_failure;
  nb::list regions;
  for (const std::string& region : report.regions) regions.append(region);
  result["regions"] = regions;
  return result;
}

nb::dict convert(const runtime::PlaceReport& report) {
  nb::dict result;
  result["file"] = report.file;
  result["line"] = report.line;
  result["function"] = report.function;
  result["unit"] = report.unit;
  result["why"] = report.why;
  result["last_failure"] = report.last_failure;
  result["misses"] = report.miss_count;
  result["attempts"] = report.attempt_count;
  result["is_blacklisted"] = report.is_blacklisted;
  nb::list entries;
  for (const runtime::EntryReport& entry : report.entries) entries.append(convert(entry));
  result["entries"] = entries;
  return result;
}

nb::dict convert(const runtime::ContextReport& report) {
  nb::dict result, counters, texts, seconds;
  for (const auto& [name, count] : report.counters) counters[name.c_str()] = count;
  for (const auto& [name, text] : report.counter_texts) texts[name.c_str()] = text;
  for (const auto& [name, value] : report.phase_seconds) seconds[name.c_str()] = value;
  nb::list places;
  for (const runtime::PlaceReport& place : report.places) places.append(convert(place));
  result["name"] = report.name;
  result["counters"] = counters;
  result["counter_texts"] = texts;
  result["seconds"] = seconds;
  result["places"] = places;
  return result;
}

}  // namespace

void bind_report(nb::module_& m) {
  m.def(
      "report",
      [](nb::object compiled) {
        runtime::CompileContext* context = runtime::find_context(compiled.ptr());
        if (context == nullptr) throw nb::type_error("expected a CompiledFunction");
        return convert(runtime::make_report(*context));
      },
      nb::arg("compiled"), "Everything explain shows, as dicts, lists, texts and numbers.");
  m.def(
      "measure_guards_ns",
      [](nb::handle compiled, nb::tuple args, nb::dict kwargs, int checks, bool takes_values) -> std::optional<double> {
        VectorcallArguments call(args, kwargs);
        return runtime::measure_guards_ns(compiled.ptr(), call.values(), call.positional_count(), call.names(), checks,
                                          takes_values);
      },
      nb::arg("compiled"), nb::arg("args"), nb::arg("kwargs"), nb::arg("checks"), nb::arg("takes_values") = true,
      "Median nanoseconds of one guard check of a call, or None if no entry serves it; takes_values: with the "
      "references that the run needs. A module's object comes first in args.");
}

}  // namespace reprise::bind
