#include "runtime/plan_places.h"

#include <algorithm>

#include "base/result.h"
#include "host/cpython/decode.h"

namespace reprise::runtime {
namespace {

void want_recording_at(CompileContext& context, PyCodeObject* code, int32_t unit, const std::string& why) {
  constexpr int kSuspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  if ((code->co_flags & (kSuspends | CO_OPTIMIZED)) != CO_OPTIMIZED) return;  // also no class bodies and modules
  const host::CodeInfo* info = host::get_code_info(code);
  if (info == nullptr || info->find_index(unit) < 0) return;
  context.get_place(code, unit).want_recording(why);
}

// Behind an instruction: its successors, also where it may jump to.
void want_recording_behind(CompileContext& context, PyCodeObject* code, int32_t unit, const std::string& why) {
  const host::CodeInfo* info = host::get_code_info(code);
  const int32_t index = info == nullptr ? -1 : info->find_index(unit);
  if (index < 0) return;
  const host::Instruction& instruction = info->instructions[index];
  if (host::get_op_kind(instruction.op) == host::OpKind::Exit) return;
  want_recording_at(context, code, instruction.next_unit, why);
  if (instruction.target >= 0) {
    want_recording_at(context, code, info->instructions[instruction.target].unit, why);
  }
}

}  // namespace

std::vector<ResumePoint> list_resume_points(const trace::Trace& trace, int32_t snapshot) {
  std::vector<ResumePoint> points;
  if (snapshot < 0) return points;
  for (int32_t state = trace.snapshots[snapshot].frame; state >= 0; state = trace.frame_states[state].caller) {
    points.push_back({trace.frame_states[state].code, trace.frame_states[state].unit});
  }
  std::reverse(points.begin(), points.end());
  return points;
}

void plan_places(CompileContext& context, std::span<const ResumePoint> frames, PlanFrom from, const std::string& why) {
  if (frames.empty()) return;
  const ResumePoint& innermost = frames.back();
  switch (from) {
    case PlanFrom::Here:
      want_recording_at(context, innermost.code, innermost.unit, why);
      break;
    case PlanFrom::Behind:
      want_recording_behind(context, innermost.code, innermost.unit, why);
      break;
  }
  for (const ResumePoint& caller : frames.first(frames.size() - 1)) {
    want_recording_at(context, caller.code, caller.unit, "a caller goes on here: " + why);
  }
}

bool is_cut(const trace::Trace& trace) {
  return trace.end == trace::EndKind::Exit && trace.end_reason == static_cast<int>(base::UnsupportedCode::TraceTooLong);
}

void plan_places_behind(CompileContext& context, const trace::Trace& trace) {
  if (trace.end != trace::EndKind::Exit) return;
  const bool cut = is_cut(trace);
  plan_places(context, list_resume_points(trace, trace.end_snapshot), cut ? PlanFrom::Here : PlanFrom::Behind,
              (cut ? "the trace was cut here: " : "behind ") + trace.end_text);
}

}  // namespace reprise::runtime
