#include "runtime/hook.h"

#include <utility>

#include "host/cpython/hook.h"
#include "runtime/compile_requests.h"
#include "runtime/drive.h"
#include "runtime/errors.h"

namespace reprise::runtime {
namespace {

struct ThreadState {
  CompileContext* driven = nullptr;
  const Place* seen = nullptr;
  int disabled_depth = 0;
};

// See globals.def: frame_hook, thread_state.
int hook_scopes = 0;
int disabled_scopes = 0;
CompileRequests* recorder = nullptr;
thread_local ThreadState thread_state;

PyObject* route_frame(PyThreadState* thread, host::Frame* frame, int throwflag) {
  if (recorder != nullptr && recorder->is_recording()) return recorder->on_recorded_frame(thread, frame, throwflag);
  const ThreadState& state = thread_state;
  if (state.driven != nullptr && state.disabled_depth == 0 && throwflag == 0 &&
      should_drive(*state.driven, thread, frame)) {
    return drive(*state.driven, thread, frame, throwflag);
  }
  return host::run_previous(thread, frame, throwflag);
}

PyObject* on_frame(PyThreadState* thread, host::Frame* frame, int throwflag) {
  try {
    return route_frame(thread, frame, throwflag);
  } catch (const base::InternalError& error) {
    return raise_bug(error);
  }
}

}  // namespace

HookScope::HookScope(CompileRequests& requests) {
  recorder = &requests;
  if (hook_scopes++ == 0) host::install_frame_hook(on_frame);
}

HookScope::~HookScope() {
  if (--hook_scopes == 0) host::remove_frame_hook();
}

DriveScope::DriveScope(CompileContext& context, const Place* seen) : context_(&context), hook_(context.requests) {
  outer_ = std::exchange(thread_state.driven, &context);
  thread_state.seen = seen;
}

DriveScope::~DriveScope() {
  thread_state.driven = outer_;
  thread_state.seen = nullptr;
}

const Place* take_seen_place() { return std::exchange(thread_state.seen, nullptr); }

PauseScope::PauseScope() : outer_(nullptr), is_paused_(hook_scopes > 0) {
  if (is_paused_) outer_ = std::exchange(thread_state.driven, nullptr);
}

PauseScope::~PauseScope() {
  if (is_paused_) thread_state.driven = outer_;
}

void enter_disabled() {
  ++disabled_scopes;
  ++thread_state.disabled_depth;
}

void leave_disabled() {
  if (thread_state.disabled_depth == 0) return;  // left more often than entered: `with` on another thread
  --disabled_scopes;
  --thread_state.disabled_depth;
}

bool is_disabled() { return thread_state.disabled_depth > 0; }

CompileContext* find_driven_context() { return thread_state.driven; }

bool is_hook_installed() { return hook_scopes > 0; }

bool is_any_thread_special() { return (hook_scopes | disabled_scopes) != 0; }

}  // namespace reprise::runtime
