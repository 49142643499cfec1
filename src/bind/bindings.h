// What module.cpp calls: one function a subject, each in a file of its name.
#pragma once

#include <nanobind/nanobind.h>

namespace reprise::bind {

// Options, log words and what this module was built for (bind_base.cpp).
void bind_base(nanobind::module_& m);

// Compiled and disabled callables (bind_callables.cpp).
void bind_callables(nanobind::module_& m);

// What explain shows (bind_report.cpp).
void bind_report(nanobind::module_& m);

}  // namespace reprise::bind
