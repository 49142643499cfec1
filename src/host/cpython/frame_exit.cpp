#include "host/cpython/frame_exit.h"

#include "host/cpython/hook.h"
#include "host/cpython/pending_exception.h"
#include "host/cpython/private_api.h"

namespace reprise::host {
namespace {

// A number of the exception table: six bits a byte, the highest first, bit 6 says that more follow.
class TableReader {
 public:
  explicit TableReader(PyObject* table)
      : position_(reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(table))),
        end_(position_ + PyBytes_GET_SIZE(table)) {}

  bool is_at_end() const { return position_ >= end_; }

  int32_t read() {
    int32_t value = 0;
    while (true) {
      const uint8_t byte = *position_++;
      value = value << 6 | (byte & 63);
      if (!(byte & 64)) return value;
    }
  }

 private:
  const uint8_t* position_;
  const uint8_t* end_;
};

void drop_stack(PyObject** bottom, PyObject** stack_pointer) {
  while (stack_pointer > bottom) Py_XDECREF(*--stack_pointer);
}

}  // namespace

bool find_handler(PyCodeObject* code, int32_t unit, Handler* handler) {
  TableReader reader(code->co_exceptiontable);
  while (!reader.is_at_end()) {
    const int32_t start = reader.read();
    if (start > unit) return false;  // rows are sorted
    const int32_t size = reader.read();
    handler->unit = reader.read();
    const int32_t depth_and_lasti = reader.read();
    if (unit >= start + size) continue;
    handler->depth = depth_and_lasti >> 1;
    handler->push_lasti = depth_and_lasti & 1;
    return true;
  }
  return false;
}

namespace {

// The class that a global name stands for; nullptr: none.
PyObject* find_global_class(Frame* frame, PyObject* name) {
  PyObject* found = PyDict_GetItemWithError(get_globals(frame), name);
  if (found == nullptr && !PyErr_Occurred() && PyDict_CheckExact(get_builtins(frame)))
    found = PyDict_GetItemWithError(get_builtins(frame), name);
  return found != nullptr && PyExceptionClass_Check(found) ? found : nullptr;
}

// Behind a handler that does nothing but pass GeneratorExit on: the unit that raises it again. -1: it may do more.
//   except A: ..., except (B, C): ...   clauses of global classes that do not match
//   COPY, POP_EXCEPT, RERAISE           the end of a handler
//   RuntimeError of StopIteration, the look for StopIteration in `yield from` (from 3.12 on)
int32_t find_passing_raise(Frame* frame, const CodeInfo& info, int32_t index) {
  constexpr int kStopIterationError = 3;
  const auto at = [&](int32_t i) -> const Instruction& { return info.instructions[static_cast<size_t>(i)]; };
  const int32_t count = info.instruction_count;
  const Instruction& first = at(index);
  const bool is_wrapper = first.op == Op::CallIntrinsic1 && first.arg == kStopIterationError;
  if (is_wrapper || first.op == Op::CleanupThrow) return first.op_unit;
  if (first.op == Op::Copy && index + 2 < count && at(index + 1).op == Op::PopExcept && at(index + 2).op == Op::Reraise)
    return at(index + 2).op_unit;
  if (first.op != Op::PushExcInfo) return -1;
  for (int32_t i = index + 1; i < count;) {
    if (at(i).op == Op::Reraise) return at(i).op_unit;
    const int32_t start = i;
    for (; i < count && at(i).op == Op::LoadGlobal; i++) {
      PyObject* type = at(i).object == nullptr ? nullptr : find_global_class(frame, at(i).object);
      if (type == nullptr || PyErr_GivenExceptionMatches(PyExc_GeneratorExit, type)) return -1;
    }
    if (i < count && at(i).op == Op::BuildTuple && at(i).arg == i - start) i++;
    if (i == start || i + 1 >= count || at(i).op != Op::CheckExcMatch || at(i + 1).op != Op::PopJumpIfFalse) return -1;
    if (at(i + 1).target <= i) return -1;
    i = at(i + 1).target;
  }
  return -1;
}

}  // namespace

bool closes_at_once(Frame* frame) {
  if (!is_generator_frame(frame)) return false;
  PyCodeObject* code = get_code(frame);
  const CodeInfo* info = get_code_info(code);
  int32_t unit = get_current_unit(frame);
  const PendingException pending;  // classes are looked up
  Handler handler;
  while (unit >= 0 && find_handler(code, unit, &handler)) {
    const int32_t index = info != nullptr ? info->find_index(handler.unit) : -1;
    unit = index < 0 || handler.unit <= unit ? -1 : find_passing_raise(frame, *info, index);
  }
  return unit >= 0;
}

void add_traceback(Frame* frame) {
  if (view::is_incomplete(frame)) return;
  if (PyFrameObject* object = PyEval_GetFrame()) PyTraceBack_Here(object);
}

PyObject** unwind_to_handler(Frame* frame, PyObject** stack_pointer, const Handler& handler) {
  PyObject** const bottom = frame->localsplus + view::code(frame)->co_nlocalsplus + handler.depth;
  drop_stack(bottom, stack_pointer);
  stack_pointer = bottom;
  if (handler.push_lasti) *stack_pointer++ = PyLong_FromLong(view::current_unit(frame));
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_XDECREF(type);
  *stack_pointer++ = value;
  return stack_pointer;
}

PyObject* exit_returning(PyThreadState* thread, Frame* frame, view::FrameLink& link, PyObject* value) {
  frame->stacktop = view::code(frame)->co_nlocalsplus;
  link.leave(thread);
#if PY_VERSION_HEX >= 0x030D0000
  clear_and_pop_frame(thread, frame);
#endif
  return value;
}

PyObject* exit_yielding(PyThreadState* thread, Frame* frame, view::FrameLink& link, const Instruction& yield,
                        PyObject** stack_pointer, PyObject* value) {
  PyGenObject* generator = view::generator_of(frame);
  frame->stacktop = static_cast<int>(stack_pointer - frame->localsplus);
  generator->gi_frame_state = FRAME_SUSPENDED;
  link.leave(thread);
#if PY_VERSION_HEX >= 0x030D0000
  if (yield.arg == 1) generator->gi_frame_state = FRAME_SUSPENDED_YIELD_FROM;
  view::set_boundary(frame, yield.next_unit);
#else
  (void)yield;  // the frame goes on standing at the yield
#endif
#if PY_VERSION_HEX >= 0x030C0000
  // Before 3.12 who resumed the generator does this.
  thread->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
  frame->previous = nullptr;
#endif
  return value;
}

void exit_raising(PyThreadState* thread, Frame* frame, view::FrameLink& link, PyObject** stack_pointer) {
#if PY_VERSION_HEX >= 0x030D0000
  add_traceback(frame);
  PyObject** const bottom = frame->localsplus + view::code(frame)->co_nlocalsplus;
  drop_stack(bottom, stack_pointer);
  frame->stacktop = static_cast<int>(bottom - frame->localsplus);
  link.leave(thread);
  clear_and_pop_frame(thread, frame);
#else
  frame->stacktop = static_cast<int>(stack_pointer - frame->localsplus);
  link.leave(thread);
  run_default(thread, frame, 1);  // adds the traceback entry, finds no handler, clears the frame
#endif
}

PyObject* raise_observed(PyThreadState* thread, Frame* frame, view::FrameLink& link, PyObject** stack_pointer,
                         int32_t unit) {
  // CPython looks for the handler of the unit in front of the boundary.
  view::set_boundary(frame, unit + 1, stack_pointer);
  link.leave(thread);
  return run_default(thread, frame, 1);
}

}  // namespace reprise::host
