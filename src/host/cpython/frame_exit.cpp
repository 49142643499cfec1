#include "host/cpython/frame_exit.h"

#include "host/cpython/hook.h"
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
