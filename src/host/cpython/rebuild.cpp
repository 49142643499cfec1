#include "host/cpython/rebuild.h"

#include <vector>

#include "host/cpython/capture_request.h"
#include "host/cpython/frame_exit.h"
#include "host/cpython/frame_view.h"
#include "host/cpython/hook.h"
#include "host/cpython/host_state.h"
#include "host/cpython/private_api.h"

namespace reprise::host {
namespace {

void drop_slots(FrameSpec& spec) {
  if (spec.slots != nullptr) {
    for (int32_t i = 0; i < spec.slot_count; ++i) Py_CLEAR(spec.slots[i]);
  }
  spec.slots = nullptr;
  Py_CLEAR(spec.mode_value);
}

void push(Frame* frame, PyObject* value) { frame->localsplus[frame->stacktop++] = value; }

PyObject* pop(Frame* frame) { return frame->localsplus[--frame->stacktop]; }

// How a callee came back.
enum class Completion : uint8_t { Value, GeneratorReturned, Raised };

// A chain of frames that is being rebuilt; see resume_chain.
class Chain {
 public:
  Chain(PyThreadState* thread, FrameSpec* specs, int32_t count, ContinueFrame continue_frame, void* context)
      : thread_(thread), specs_(specs), count_(count), continue_frame_(continue_frame), context_(context) {}

  ~Chain() {
    for (int32_t i = 0; i < count_; ++i) drop_slots(specs_[i]);
    if (raises_) PyErr_Restore(type_, value_, traceback_);  // never reached the innermost frame
  }

  void set_handled_exception(PyObject* exception) { handled_exception_ = exception; }
  void take_exception() {
    raises_ = true;
    PyErr_Fetch(&type_, &value_, &traceback_);
  }

  PyObject* run(Frame* outermost) {
    if (outermost == nullptr) {
      PyObject* result = nullptr;
      start(0, &result);
      return result;
    }
    fill_frame(outermost, specs_[0]);
    return run_filled(0, outermost);
  }

 private:
  // Makes frame `index` and runs it together with the ones that it waits for.
  Completion start(int32_t index, PyObject** result) {
    const FrameSpec& spec = specs_[index];
    const int32_t outer = starting_;
    starting_ = index;
    CaptureRequest request;
    request.thread = thread_;
    request.run = run_captured;
    request.context = this;
    Completion completion = Completion::Value;
    if (spec.generator != nullptr) {
      request.frame = find_generator_frame(spec.generator);
      CaptureScope scope(request);
      const PySendResult sent = PyIter_Send(spec.generator, Py_None, result);
      completion = sent == PYGEN_RETURN ? Completion::GeneratorReturned : Completion::Value;
    } else {
      request.function = spec.function;
      CaptureScope scope(request);
      *result = call_with_placeholders(spec.function);
    }
    starting_ = outer;
    return *result == nullptr ? Completion::Raised : completion;
  }

  static PyObject* run_captured(void* context, PyThreadState*, Frame* frame) {
    auto* chain = static_cast<Chain*>(context);
    const int32_t index = chain->starting_;
    fill_frame(frame, chain->specs_[index]);
    return chain->run_filled(index, frame);
  }

  PyObject* run_filled(int32_t index, Frame* frame) {
    if (index + 1 == count_) return run_innermost(frame);
    const CodeInfo* info = get_code_info(view::code(frame));
    const Instruction* call = info != nullptr ? info->find_before(specs_[index].next_unit) : nullptr;
    const int32_t call_unit = call != nullptr ? call->op_unit : specs_[index].next_unit - 1;
    const int depth = frame->stacktop;
    view::FrameLink link;
    link.enter(thread_, frame);
    view::set_current(frame, view::first_unit(view::code(frame)), call_unit);
    PyObject* result = nullptr;
    Completion completion = start(index + 1, &result);
    link.leave(thread_);
    frame->stacktop = depth;
    view::set_boundary(frame, specs_[index].next_unit);
    completion = complete_call(specs_[index], frame, call, completion, result);
    if (completion == Completion::Raised && !raise_in_frame(thread_, frame, call_unit)) return nullptr;
    return continue_frame_(context_, thread_, frame, 0);
  }

  PyObject* run_innermost(Frame* frame) {
    if (handled_exception_ != nullptr) PyErr_SetHandledException(handled_exception_);
    if (raises_) {
      raises_ = false;
      PyErr_Restore(type_, value_, traceback_);
      const int32_t next_unit = specs_[count_ - 1].next_unit;
      const CodeInfo* info = get_code_info(view::code(frame));
      const Instruction* failing = info != nullptr ? info->find_before(next_unit) : nullptr;
      const int32_t unit = failing != nullptr ? failing->op_unit : next_unit - 1;
      if (!raise_in_frame(thread_, frame, unit)) return nullptr;
    }
    return continue_frame_(context_, thread_, frame, 0);
  }

  // Does what is left of the instruction that waited for its callee. Steals `result`. The frame is not linked.
  static Completion complete_call(FrameSpec& spec, Frame* frame, const Instruction* call, Completion completion,
                                  PyObject* result) {
    const Op op = call != nullptr ? call->op : Op::Call;
    switch (completion) {
      case Completion::Raised:
        if (op != Op::ForIter || !PyErr_ExceptionMatches(PyExc_StopIteration)) return Completion::Raised;
        PyErr_Clear();
        end_loop(frame, *call);
        return Completion::Value;
      case Completion::GeneratorReturned:
        return complete_generator_return(frame, call, op, result);
      case Completion::Value:
        break;
    }
    if (op == Op::GetIter && !PyIter_Check(result)) {
      PyErr_Format(PyExc_TypeError, "iter() returned non-iterator of type '%.100s'", Py_TYPE(result)->tp_name);
      Py_DECREF(result);
      return Completion::Raised;
    }
    push_result(spec, frame, result);
    return Completion::Value;
  }

  static void push_result(FrameSpec& spec, Frame* frame, PyObject* result) {
    switch (spec.mode) {
      case ResumeMode::Push:
      case ResumeMode::Never:  // nobody makes such a snapshot; pushing is the harmless reading
        push(frame, result);
        break;
      case ResumeMode::PushNullFirst:
        if (kPythonMinor < 13) push(frame, nullptr);
        push(frame, result);
        if (kPythonMinor >= 13) push(frame, nullptr);
        break;
      case ResumeMode::Drop:
        Py_DECREF(result);
        break;
      case ResumeMode::PushValue:
        Py_DECREF(result);
        push(frame, spec.mode_value);
        spec.mode_value = nullptr;
        break;
    }
  }

  static Completion complete_generator_return(Frame* frame, const Instruction* call, Op op, PyObject* result) {
    if (op == Op::ForIter) {
      Py_DECREF(result);
      end_loop(frame, *call);
      return Completion::Value;
    }
    if (op == Op::Send) {
      if (kPythonMinor < 12) Py_DECREF(pop(frame));  // the receiver; later END_SEND does it
      push(frame, result);
      jump(frame, *call);
      return Completion::Value;
    }
    PyObject* stop = PyObject_CallOneArg(PyExc_StopIteration, result);
    Py_DECREF(result);
    if (stop != nullptr) PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
    return Completion::Raised;
  }

  static void end_loop(Frame* frame, const Instruction& for_iter) {
    Py_DECREF(pop(frame));
    jump(frame, for_iter);
  }

  static void jump(Frame* frame, const Instruction& instruction) {
    view::set_boundary(frame, get_code_info(view::code(frame))->instructions[instruction.target].unit);
  }

  PyThreadState* thread_;
  FrameSpec* specs_;
  int32_t count_;
  ContinueFrame continue_frame_;
  void* context_;
  int32_t starting_ = 0;  // the frame that is being made
  PyObject* handled_exception_ = nullptr;
  bool raises_ = false;
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000

// 3.12 exports nothing that clears a frame: its evaluator must execute a RETURN_VALUE. Almost every code has one.
const Instruction* find_return(PyCodeObject* code) {
  const CodeInfo* info = get_code_info(code);
  if (info == nullptr) return nullptr;
  for (int32_t i = 0; i < info->instruction_count; ++i) {
    if (info->instructions[i].op == Op::ReturnValue) return &info->instructions[i];
  }
  return nullptr;
}

// Lends the frame a code object that has nothing but RETURN_VALUE.
PyObject* finish_on_trampoline(PyThreadState* thread, Frame* frame, PyObject* value) {
  PyCodeObject* const code = frame->f_code;
  _Py_CODEUNIT* const position = frame->prev_instr;
  PyFrameObject* const object = frame->frame_obj;
  const bool is_held = object != nullptr && Py_REFCNT(object) > 1;
  if (is_held) Py_INCREF(object);
  while (frame->stacktop > 0) Py_XDECREF(pop(frame));
  PyCodeObject* const trampoline = get_host_state().trampoline_code;
  Py_INCREF(trampoline);
  frame->f_code = trampoline;
  frame->prev_instr = view::first_unit(trampoline) - (value != nullptr ? 1 : 0);
  if (value != nullptr) push(frame, value);
  PyObject* result = run_default(thread, frame, value == nullptr);
  if (is_held) {  // the frame lives on in its object: that shows its own code again
    Frame* survivor = object->f_frame;
    if (survivor->f_code == trampoline) {
      Py_INCREF(code);
      survivor->f_code = code;
      survivor->prev_instr = position;
      Py_DECREF(trampoline);
    }
    Py_DECREF(object);
  }
  Py_DECREF(code);
  return result;
}

#endif

}  // namespace

PyObject* continue_default(void*, PyThreadState* thread, Frame* frame, int throwflag) {
  return run_default(thread, frame, throwflag);
}

void fill_frame(Frame* frame, FrameSpec& spec) {
  const int32_t old_count = frame->stacktop;
  const std::vector<PyObject*> old(frame->localsplus, frame->localsplus + old_count);
  for (int32_t i = 0; i < spec.slot_count; ++i) {
    frame->localsplus[i] = spec.slots[i];
    spec.slots[i] = nullptr;
  }
  spec.slots = nullptr;
  view::set_boundary(frame, spec.next_unit, frame->localsplus + spec.slot_count);
  for (PyObject* object : old) Py_XDECREF(object);
}

PyObject* resume_chain(PyThreadState* thread, Frame* outermost, FrameSpec* specs, int32_t count,
                       PyObject* handled_exception, bool raise_innermost, ContinueFrame continue_frame, void* context) {
  PyObject* saved = nullptr;
  if (handled_exception != nullptr) saved = PyErr_GetHandledException();
  PyObject* result;
  {
    Chain chain(thread, specs, count, continue_frame, context);
    chain.set_handled_exception(handled_exception);
    if (raise_innermost) chain.take_exception();
    result = chain.run(outermost);
  }
  if (handled_exception != nullptr) {
    PyErr_SetHandledException(saved);
    Py_XDECREF(saved);
  }
  return result;
}

bool raise_in_frame(PyThreadState* thread, Frame* frame, int32_t op_unit) {
  PyCodeObject* const code = view::code(frame);
  PyObject** const stack_pointer = frame->localsplus + frame->stacktop;
  view::FrameLink link;
  link.enter(thread, frame);
  view::set_current(frame, view::first_unit(code), op_unit);
  Handler handler;
  if (!find_handler(code, op_unit, &handler)) {
    exit_raising(thread, frame, link, stack_pointer);
    return false;
  }
  add_traceback(frame);
  PyObject** const handled = unwind_to_handler(frame, stack_pointer, handler);
  link.leave(thread);
  view::set_boundary(frame, handler.unit, handled);
  return true;
}

PyObject* finish_frame(PyThreadState* thread, Frame* frame, PyObject* value) {
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
  const Instruction* return_value = value != nullptr ? find_return(frame->f_code) : nullptr;
  if (return_value == nullptr) return finish_on_trampoline(thread, frame, value);
#endif
  const int bottom = view::code(frame)->co_nlocalsplus;
  while (frame->stacktop > bottom) Py_XDECREF(pop(frame));
#if PY_VERSION_HEX >= 0x030D0000
  clear_and_pop_frame(thread, frame);
  return value;
#elif PY_VERSION_HEX >= 0x030C0000
  view::set_boundary(frame, return_value->unit);
  push(frame, value);
  return run_default(thread, frame, 0);
#else
  (void)thread;  // the caller clears the frame
  return value;
#endif
}

PyObject* make_generator(FrameSpec& spec, GeneratorState state, PyObject* handled_exception) {
  CaptureRequest request;
  request.thread = PyThreadState_Get();
  request.function = spec.function;
  request.run = [](void*, PyThreadState* thread, Frame* frame) { return run_default(thread, frame, 0); };
  PyObject* object;
  {
    CaptureScope scope(request);
    object = call_with_placeholders(spec.function);
  }
  if (object == nullptr || (spec.slots == nullptr && state == GeneratorState::Created)) {
    drop_slots(spec);
    return object;
  }
  Frame* frame = find_generator_frame(object);
  fill_frame(frame, spec);
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  if (state == GeneratorState::Suspended) {
    generator->gi_frame_state = FRAME_SUSPENDED;
#if PY_VERSION_HEX >= 0x030D0000
    const CodeInfo* info = get_code_info(view::code(frame));
    const Instruction* yield = info != nullptr ? info->find_before(spec.next_unit) : nullptr;
    if (yield != nullptr && yield->op == Op::YieldValue && yield->arg == 1) {
      generator->gi_frame_state = FRAME_SUSPENDED_YIELD_FROM;
    }
#endif
  }
  Py_XINCREF(handled_exception);
  Py_XSETREF(generator->gi_exc_state.exc_value, handled_exception);
  return object;
}

}  // namespace reprise::host
