#include "host/cpython/frame.h"

#include "host/cpython/frame_view.h"

namespace reprise::host {

PyCodeObject* get_code(const Frame* frame) { return view::code(frame); }
PyObject* get_function(const Frame* frame) { return view::function(frame); }
PyObject* get_globals(const Frame* frame) { return frame->f_globals; }
PyObject* get_builtins(const Frame* frame) { return frame->f_builtins; }
PyObject* find_namespace(const Frame* frame) { return frame->f_locals; }
PyObject** get_locals(Frame* frame) { return frame->localsplus; }
int32_t get_slot_count(const Frame* frame) { return frame->stacktop; }
int32_t get_current_unit(const Frame* frame) { return view::current_unit(frame); }
int32_t get_next_unit(const Frame* frame) { return view::next_unit(frame); }
bool is_at_start(const Frame* frame) { return view::next_unit(frame) == 0; }
bool is_generator_frame(const Frame* frame) { return view::is_owned_by_generator(frame); }
bool has_frame_object(const Frame* frame) { return frame->frame_obj != nullptr; }
Frame* find_previous(const Frame* frame) { return frame->previous; }
Frame* find_current_frame(PyThreadState* thread) { return view::current_frame(thread); }

PyObject* find_generator(Frame* frame) {
  if (!view::is_owned_by_generator(frame)) return nullptr;
  return reinterpret_cast<PyObject*>(view::generator_of(frame));
}

Frame* find_generator_frame(PyObject* object) {
  if (!PyGen_CheckExact(object) && !PyCoro_CheckExact(object) && !PyAsyncGen_CheckExact(object)) return nullptr;
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  return generator->gi_frame_state < FRAME_COMPLETED ? view::frame_of(generator) : nullptr;
}

}  // namespace reprise::host
