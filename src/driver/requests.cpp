#include "driver/requests.h"

#include "driver/session.h"
#include "host/cpython/hook.h"
#include "interp/evaluator.h"
#include "runtime/compile_context.h"
#include "runtime/drive.h"
#include "runtime/foreign_modes.h"
#include "runtime/hook.h"

namespace reprise::driver {

namespace {

class Branch final : public runtime::BranchRecording {
 public:
  static std::unique_ptr<runtime::BranchRecording> make(runtime::CompileRequests& requests,
                                                        runtime::CompileContext& context, PyThreadState* thread,
                                                        runtime::Place& place, const trace::Trace& parent,
                                                        int32_t snapshot) {
    auto branch = std::make_unique<Branch>(requests, context, thread, place);
    if (!branch->session_.recorder().begin_branch(parent, snapshot)) return nullptr;
    place.note_recording_started();
    return branch;
  }

  Branch(runtime::CompileRequests& requests, runtime::CompileContext& context, PyThreadState* thread,
         runtime::Place& place)
      : context_(&context), hook_(requests), session_(context, place, thread) {}
  ~Branch() override {
    if (has_run_) session_.finish();
  }

  bool is_recording() const override { return session_.recorder().is_recording(); }

  runtime::RecordResult run_frame(PyThreadState* thread, host::Frame* frame) override {
    has_run_ = true;
    session_.recorder().expect_branch_frame(frame);
    interp::RunResult result = interp::run_frame(session_.recorder(), thread, frame, false);
    if (!is_recording()) session_.finish();
    if (result.status == interp::RunResult::Returned) return {runtime::RecordResult::Frame::Gone, result.value};
    return {runtime::RecordResult::Frame::Intact, nullptr};
  }

 private:
  runtime::ContextRef context_;
  runtime::HookScope hook_;
  Session session_;
  bool has_run_ = false;
};

class Requests : public runtime::CompileRequests {
 public:
  PyObject* record_call(runtime::CompileContext& context, PyObject* function, PyObject* const* args, size_t nargsf,
                        PyObject* kwnames) override {
    runtime::ContextRef hold(&context);
    // Under functorch levels and the user's modes torch calls mean something else: such calls run as they are.
    if (runtime::has_foreign_modes()) return PyObject_Vectorcall(function, args, nargsf, kwnames);
    runtime::Place& place = context.get_place(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function)), 0);
    place.note_recording_started();
    runtime::HookScope hook(*this);
    PyObject* result;
    {
      runtime::PhaseTimer timer(context.statistics, runtime::Phase::Record);
      Session session(context, place, PyThreadState_Get());
      session.recorder().expect_root_call(function);
      result = PyObject_Vectorcall(function, args, nargsf, kwnames);
      session.finish();
    }
    return result;
  }

  runtime::RecordResult record_from(runtime::CompileContext& context, PyThreadState* thread, host::Frame* frame,
                                    runtime::Place& place) override {
    runtime::ContextRef hold(&context);
    if (runtime::has_foreign_modes()) return {runtime::RecordResult::Frame::Intact, nullptr};
    place.note_recording_started();
    runtime::HookScope hook(*this);
    Session session(context, place, thread);
    session.recorder().expect_root_frame(frame);
    interp::RunResult result = interp::run_frame(session.recorder(), thread, frame, false);
    session.finish();
    if (result.status == interp::RunResult::Returned) return {runtime::RecordResult::Frame::Gone, result.value};
    if (session.raise_if_graph_break()) {
      return {runtime::RecordResult::Frame::Gone, host::run_default(thread, frame, 1)};
    }
    return {runtime::RecordResult::Frame::Intact, nullptr};
  }

  std::unique_ptr<runtime::BranchRecording> record_branch(runtime::CompileContext& context, PyThreadState* thread,
                                                          runtime::Place& place, const trace::Trace& parent,
                                                          int32_t snapshot) override {
    if (runtime::has_foreign_modes()) return nullptr;
    return Branch::make(*this, context, thread, place, parent, snapshot);
  }

  void renew_entry(runtime::CompileContext& context, runtime::PublishedEntry& entry) override {
    Session::renew(context, entry);
  }

  bool is_recording() const override {
    Session* session = Session::find_current();
    return session != nullptr && session->recorder().is_recording();
  }

  PyObject* on_recorded_frame(PyThreadState* thread, host::Frame* frame, int throwflag) override {
    Session& session = *Session::find_current();
    using Use = capture::Recorder::FrameUse;
    const Use use = session.recorder().classify_frame(frame, throwflag);
    if (use == Use::Record && host::can_drive(thread, frame)) return session.run_frame(thread, frame, throwflag);
    return use == Use::Witness ? session.witness(thread, frame, throwflag)
                               : session.pass_through(thread, frame, throwflag);
  }
};

}  // namespace

runtime::CompileRequests& requests() {
  static Requests kRequests;
  return kRequests;
}

}  // namespace reprise::driver
