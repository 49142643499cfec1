// One recording from start to published entry.
//
// The order of phases: record (live, the program's own work included) -> trace -> entry -> publish. A recording that
// ends inside a frame publishes at once, before the frame goes on, so that the next turn of a loop can use the entry.
// Threads: lives on the thread that records. Ownership: holds its context.
#pragma once

#include <Python.h>

#include <string>

#include "capture/recorder.h"
#include "host/cpython/frame.h"
#include "runtime/compile_context.h"

namespace reprise::driver {

class Session {
 public:
  Session(runtime::CompileContext& context, runtime::Place& place, PyThreadState* thread);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// The recording session of this thread, or nullptr.
  static Session* find_current();

  capture::Recorder& recorder() { return recorder_; }
  const capture::Recorder& recorder() const { return recorder_; }
  runtime::CompileContext& context() { return *context_; }

  /// Evaluates a frame that belongs to the recording; goes on with it in plain mode when the recording ends inside.
  PyObject* run_frame(PyThreadState* thread, host::Frame* frame, bool throwflag);
  /// A frame that is none of the recording's business.
  PyObject* pass_through(PyThreadState* thread, host::Frame* frame, bool throwflag);
  /// As pass_through, and the recorder hears whether the frame may have written something.
  PyObject* witness(PyThreadState* thread, host::Frame* frame, bool throwflag);
  /// Turns what was recorded into an entry, once; later calls do nothing.
  void finish();
  static void renew(runtime::CompileContext& context, runtime::PublishedEntry& entry);
  /// fullgraph: the recording ended where the user asked for none; an exception is set. False: nothing of the kind.
  bool raise_if_graph_break();

 private:
  runtime::ContextRef context_;
  runtime::Place& place_;
  trace::VaryingSources varying_;  // as they were when the recording began
  capture::Recorder recorder_;
  Session* outer_;
  bool is_finished_ = false;
  std::string end_place_;  // file:line where the recording ended
};

}  // namespace reprise::driver
