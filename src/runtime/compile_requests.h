// What the run time asks of the driver: record from here. Implemented in src/driver; runtime/ never names it.
//
// Threads: called with the GIL held, on the thread that runs the program.
#pragma once

#include <Python.h>

#include <cstddef>
#include <memory>

#include "host/cpython/frame.h"
#include "trace/trace.h"

namespace reprise::runtime {

class CompileContext;
class Place;
class PublishedEntry;

struct RecordResult {
  enum class Frame : uint8_t {
    Intact,  // the frame stands at a boundary, unlinked, and the caller goes on with it
    Gone,    // the frame has been left: `value` is its result, or null with a Python exception set
  };
  Frame frame = Frame::Intact;
  PyObject* value = nullptr;  // new reference
};

/// A recording that begins with the frames of an exit. The host runs them innermost first; each goes through run_frame.
class BranchRecording {
 public:
  virtual ~BranchRecording() = default;
  virtual bool is_recording() const = 0;
  /// Runs the next frame. Intact: the recording has ended inside it; the entry, if there is one, is published.
  virtual RecordResult run_frame(PyThreadState* thread, host::Frame* frame) = 0;
};

class CompileRequests {
 public:
  virtual ~CompileRequests() = default;

  /// A call of a compiled callable that no entry serves: installs a recording, calls `function` (vectorcall
  /// convention) and publishes what came of it at `context.get_place(code, 0)`. The value is the call's own.
  virtual PyObject* record_call(CompileContext& context, PyObject* function, PyObject* const* args, size_t nargsf,
                                PyObject* kwnames) = 0;

  /// Records from a boundary of an existing frame that is being driven. `frame` is unlinked and stands in front of
  /// the instruction at `place`. When the recording ends inside the frame, the frame is left intact at that boundary.
  virtual RecordResult record_from(CompileContext& context, PyThreadState* thread, host::Frame* frame,
                                   Place& place) = 0;

  /// Records what follows the exit of `parent` at `snapshot`; publishes at `place`. Null: such frames can't be
  /// recorded.
  virtual std::unique_ptr<BranchRecording> record_branch(CompileContext& context, PyThreadState* thread, Place& place,
                                                         const trace::Trace& parent, int32_t snapshot) = 0;

  /// Makes the entry again without its regions that have given up, and puts it in the old one's place.
  virtual void renew_entry(CompileContext& context, PublishedEntry& entry) = 0;

  /// Whether this thread is recording.
  virtual bool is_recording() const = 0;

  /// A frame that reached the frame hook while this thread is recording. Returns the frame's result.
  virtual PyObject* on_recorded_frame(PyThreadState* thread, host::Frame* frame, int throwflag) = 0;
};

}  // namespace reprise::runtime
