// The frame hook (PEP 523), when it is installed, and what each thread does with the frames that reach it.
//
// It is installed only while some thread records or drives frames in plain mode: HookScope counts. What happens to a
// frame, in this order: rebuilding takes it (host/cpython, before it reaches us); this thread records; this thread
// drives a context that has places in the frame's code; otherwise CPython's evaluator runs it. A thread that neither
// records nor drives passes its frames through.
//
// Threads: all functions need the GIL; scopes are left on the thread that entered them.
#pragma once

#include <Python.h>

#include "host/cpython/frame.h"
#include "runtime/compile_context.h"

namespace reprise::runtime {

/// Keeps the frame hook installed. `requests` is who records: the same object in all scopes.
class HookScope {
 public:
  explicit HookScope(CompileRequests& requests);
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
};

/// Keeps the frame hook installed and makes the frames of this thread be driven for `context`. Nests; the innermost
/// scope of a thread counts.
class DriveScope {
 public:
  /// `seen`: the place of the next frame that is driven, which its driver need not look at.
  explicit DriveScope(CompileContext& context, const Place* seen = nullptr);
  ~DriveScope();
  DriveScope(const DriveScope&) = delete;
  DriveScope& operator=(const DriveScope&) = delete;

 private:
  ContextRef context_;
  HookScope hook_;
  CompileContext* outer_;
};

/// Frames of this thread are not driven: while an entry runs, what its torch calls run in Python is part of the step.
class PauseScope {
 public:
  PauseScope();
  ~PauseScope();
  PauseScope(const PauseScope&) = delete;
  PauseScope& operator=(const PauseScope&) = delete;

 private:
  CompileContext* outer_;
  bool is_paused_;
};

/// reprise.disable: on this thread no frame is driven and compiled callables run plainly. Nests.
void enter_disabled();
void leave_disabled();
bool is_disabled();

/// The place given to the innermost DriveScope, once.
const Place* take_seen_place();

/// The context that this thread drives, or null.
CompileContext* find_driven_context();

/// Whether any thread keeps the frame hook installed.
bool is_hook_installed();

/// Whether any thread records, drives or is disabled. False: a call need not ask what its own thread does.
bool is_any_thread_special();

}  // namespace reprise::runtime
