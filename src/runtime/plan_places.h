// Where the program will pass after a trace or an entry ended in the middle of it: the places to make there.
//
// Behind an end the next recording starts: behind the instruction that could not be recorded, at the header of the loop
// where the trace was cut, or at the guard that failed again; and each caller's frame goes on behind its call.
// Generators and coroutines get no places.
//
// Threads: the GIL is held; no Python code runs and a pending exception stays as it is.
#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/compile_context.h"
#include "trace/trace.h"

namespace reprise::runtime {

/// One frame of the state that a trace or an exit ends in.
struct ResumePoint {
  PyCodeObject* code = nullptr;
  int32_t unit = 0;  // the boundary where the frame goes on
};

/// The frames of a snapshot, outermost first.
std::vector<ResumePoint> list_resume_points(const trace::Trace& trace, int32_t snapshot);

enum class PlanFrom : uint8_t {
  Here,    // record from the innermost frame's boundary
  Behind,  // the instruction there cannot be recorded: record from behind it
};

/// The trace ends because of its length, at a loop header: what follows can be recorded.
bool is_cut(const trace::Trace& trace);

/// `frames`: outermost first. `why` goes to explain.
void plan_places(CompileContext& context, std::span<const ResumePoint> frames, PlanFrom from, const std::string& why);

/// The same for the end of a trace (no-op unless it ends in an exit). The driver calls it when a recording has ended,
/// before the frames are driven on.
void plan_places_behind(CompileContext& context, const trace::Trace& trace);

}  // namespace reprise::runtime
