#include "runtime/exit.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "entry/exit_program.h"
#include "runtime/run_node.h"

namespace reprise::runtime {

using entry::Entry;
using entry::ExitFrame;
using entry::ExitProgram;
using entry::RebuildStep;
using entry::Ref;

namespace {

// An exception that waits while the exit is prepared.
class PendingException {
 public:
  void take() { PyErr_Fetch(&type_, &value_, &traceback_); }
  void restore() {
    PyErr_Restore(type_, value_, traceback_);
    type_ = value_ = traceback_ = nullptr;
  }
  /// What the raising instruction would have seen as sys.exception() becomes its context.
  void set_context(PyObject* handled) {
    if (handled == nullptr || type_ == nullptr) return;
    PyErr_NormalizeException(&type_, &value_, &traceback_);
    if (value_ == nullptr || value_ == handled) return;
    PyObject* context = PyException_GetContext(value_);
    if (context == nullptr) PyException_SetContext(value_, Py_NewRef(handled));
    Py_XDECREF(context);
  }
  ~PendingException() {
    Py_XDECREF(type_);
    Py_XDECREF(value_);
    Py_XDECREF(traceback_);
  }

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

// Objects that only this exit needs, and the frames' state made of them and of the slots of the run.
class FrameBuilder {
 public:
  FrameBuilder(const ExitProgram& program, PyObject* const* slots)
      : program_(program), slots_(slots), rebuilt_(static_cast<size_t>(program.rebuilt_count), nullptr) {}

  ~FrameBuilder() {
    drop_rebuilt();
    for (PyObject* slot : frame_slots_) Py_XDECREF(slot);
    for (host::FrameSpec& spec : specs_) Py_XDECREF(spec.mode_value);
    for (PyObject* function : functions_) Py_DECREF(function);
    Py_XDECREF(handled_exception_);
  }
  FrameBuilder(const FrameBuilder&) = delete;
  FrameBuilder& operator=(const FrameBuilder&) = delete;

  /// false: an exception is set.
  bool build(bool is_raising) {
    operands_.resize(program_.max_operand_count);
    for (const RebuildStep& step : program_.steps) {
      if (!run_step(step)) return false;
    }
    frame_slots_.reserve(program_.refs.size());
    for (const ExitFrame& frame : program_.frames) add_frame(frame, is_raising);
    size_t first = 0;
    for (host::FrameSpec& spec : specs_) {
      spec.slots = frame_slots_.data() + first;
      first += static_cast<size_t>(spec.slot_count);
    }
    handled_exception_ = Py_XNewRef(get(program_.handled_exception));
    drop_rebuilt();  // what is left of them lives in the frames
    return true;
  }

  std::vector<host::FrameSpec>& specs() { return specs_; }
  /// What the frames are made of, as the arguments of a branch.
  std::span<PyObject* const> list_arguments() {
    arguments_ = frame_slots_;
    for (size_t i = 0; i < specs_.size(); i++) {
      if (program_.frames[i].is_function_made) arguments_.push_back(functions_[i]);
      if (specs_[i].mode == host::ResumeMode::PushValue) arguments_.push_back(specs_[i].mode_value);
    }
    return arguments_;
  }
  PyObject* handled_exception() const { return handled_exception_; }

 private:
  PyObject* get(const Ref& ref) const {
    switch (ref.kind()) {
      case Ref::Kind::Null:
        return nullptr;
      case Ref::Kind::Slot:
        return slots_[ref.index()];
      case Ref::Kind::Rebuilt:
        return rebuilt_[ref.index()];
      case Ref::Kind::Constant:
        return program_.constants[ref.index()];
    }
    REPRISE_UNREACHABLE("kind of reference");
  }

  bool run_step(const RebuildStep& step) {
    for (uint32_t i = 0; i < step.operand_count; i++) operands_[i] = get(program_.refs[step.operands + i]);
    PyObject* result = nullptr;
    switch (step.kind) {
      case RebuildStep::Kind::Node:
        result = run_node(step.node, step.n, step.object, operands_.data(), step.operand_count);
        break;
      case RebuildStep::Kind::Placeholder:
        return run_placeholder(step);
      case RebuildStep::Kind::Enumerate:
        result = make_enumerate(step);
        break;
      case RebuildStep::Kind::Advance:
        return advance_iterator(operands_[0], step.n);
      case RebuildStep::Kind::Generator:
        result = make_generator(step);
        break;
    }
    if (result == nullptr && PyErr_Occurred()) return false;
    rebuilt_[step.result] = result;
    return true;
  }

  bool run_placeholder(const RebuildStep& step) {
    operands_[step.operand_count] = Py_None;
    PyObject* none = run_node(step.node, step.n, step.object, operands_.data(), step.operand_count + 1);
    Py_XDECREF(none);
    if (none == nullptr) PyErr_Clear();  // a slot that takes no None: the store that counts follows
    return true;
  }

  // source[, start]
  PyObject* make_enumerate(const RebuildStep& step) {
    PyObject* count = PyLong_FromLong(step.n);
    PyObject* start = count;
    if (count != nullptr && step.operand_count > 1) {
      start = PyNumber_Add(operands_[1], count);
      Py_DECREF(count);
    }
    if (start == nullptr) return nullptr;
    PyObject* arguments[] = {operands_[0], start};
    PyObject* result = PyObject_Vectorcall(step.object, arguments, 2, nullptr);
    Py_DECREF(start);
    return result;
  }

  PyObject* make_generator(const RebuildStep& step) {
    host::FrameSpec spec;
    spec.function = operands_[0];
    if (step.unit < 0) {
      PyObject* generator = host::make_generator(spec, host::GeneratorState::Created, nullptr);
      PyObject* closed = generator == nullptr ? nullptr : PyObject_CallMethod(generator, "close", nullptr);
      if (closed == nullptr) Py_CLEAR(generator);
      Py_XDECREF(closed);
      return generator;
    }
    std::vector<PyObject*> slots;
    for (uint32_t i = 1; i < step.operand_count; i++) slots.push_back(Py_XNewRef(operands_[i]));
    spec.slots = slots.data();
    spec.slot_count = static_cast<int32_t>(slots.size());
    spec.next_unit = step.unit;
    return host::make_generator(spec, step.state, nullptr);
  }

  void add_frame(const ExitFrame& frame, bool is_raising) {
    host::FrameSpec spec;
    PyObject* function = frame.function != nullptr ? frame.function : get(frame.function_value);
    functions_.push_back(Py_NewRef(function));
    spec.function = function;
    const bool is_innermost = &frame == &program_.frames.back();
    spec.next_unit = is_raising && is_innermost ? frame.raise_unit : frame.next_unit;
    spec.slot_count = static_cast<int32_t>(frame.slot_count);
    for (uint32_t i = 0; i < frame.slot_count; i++)
      frame_slots_.push_back(Py_XNewRef(get(program_.refs[frame.slots + i])));
    spec.mode = frame.mode;
    spec.mode_value = Py_XNewRef(get(frame.mode_value));
    spec.generator = get(frame.generator);  // the next outer frame holds it
    specs_.push_back(spec);
  }

  void drop_rebuilt() {
    std::vector<PyObject*> dying = std::move(rebuilt_);
    rebuilt_.clear();
    for (PyObject* object : dying) Py_XDECREF(object);
  }

  const ExitProgram& program_;
  PyObject* const* slots_;
  std::vector<PyObject*> rebuilt_;
  std::vector<PyObject*> operands_;
  std::vector<PyObject*> frame_slots_;  // of all frames; resume_chain takes the references and leaves NULL
  std::vector<PyObject*> functions_;
  std::vector<PyObject*> arguments_;  // borrowed
  std::vector<host::FrameSpec> specs_;
  PyObject* handled_exception_ = nullptr;
};

PyObject* leave_raising(PyThreadState* thread, host::Frame* root_frame) {
  if (root_frame != nullptr) host::finish_frame(thread, root_frame, nullptr);
  return nullptr;
}

bool build_frames(Entry& entry, const ExitInfo& info, FrameBuilder& builder) {
  try {
    return builder.build(info.kind == ExitKind::Error);
  } catch (const base::InternalError& error) {
    PyErr_Format(PyExc_SystemError, "reprise: cannot take an exit of %s: %s",
                 PyUnicode_AsUTF8(entry.trace().code->co_name), error.what());
    return false;
  }
}

void tell_exit(void* context, Entry& entry, const ExitInfo& info) {
  if (info.guard >= 0) {
    entry.statistics.guard_exits.resize(entry.trace().guards.size());
    ++entry.statistics.guard_exits[info.guard];
  }
  if (info.on_exit != nullptr) info.on_exit(context, entry, info);
}

const ExitProgram* find_program(Entry& entry, const ExitInfo& info) {
  try {
    return &entry.get_exit_program(info.item);
  } catch (const base::InternalError& error) {
    PyErr_Format(PyExc_SystemError, "reprise: cannot make an exit: %s", error.what());
    return nullptr;
  }
}

}  // namespace

PyObject* take_exit(PyThreadState* thread, Entry& entry, RunState& state, host::Frame* root_frame,
                    host::ContinueFrame continue_frame, void* context, ExitInfo& info) {
  PendingException exception;
  if (info.kind == ExitKind::Error) exception.take();
  const bool may_branch = info.guard >= 0 && !info.is_taken_back && info.find_branch != nullptr;
  if (!may_branch) tell_exit(context, entry, info);
  if (info.snapshot < 0) {
    state.clear();
    exception.restore();
    return leave_raising(thread, root_frame);
  }
  const ExitProgram* program = find_program(entry, info);
  if (program == nullptr) {
    state.clear();
    return leave_raising(thread, root_frame);
  }
  FrameBuilder builder(*program, state.slots);
  const bool is_built = build_frames(entry, info, builder);
  PendingException failure;
  if (!is_built) failure.take();
  state.clear();
  if (may_branch) {
    if (is_built && info.find_branch(context, entry, info, builder.list_arguments())) {
      info.is_branch_taken = true;
      return nullptr;
    }
    tell_exit(context, entry, info);
  }
  if (!is_built) {
    failure.restore();
    return leave_raising(thread, root_frame);
  }
  const bool is_raising = info.kind == ExitKind::Error;
  if (is_raising) {
    exception.set_context(builder.handled_exception());
    exception.restore();
  }
  std::vector<host::FrameSpec>& specs = builder.specs();
  PyObject* result = host::resume_chain(thread, root_frame, specs.data(), static_cast<int32_t>(specs.size()),
                                        builder.handled_exception(), is_raising, continue_frame, context);
  return result;
}

}  // namespace reprise::runtime
