#include "host/cpython/pending.h"

#include "host/cpython/frame_view.h"
#include "host/cpython/host_state.h"
#include "host/cpython/private_api.h"

namespace reprise::host {

#if PY_VERSION_HEX >= 0x030D0000

bool handle_pending(PyThreadState* thread) { return do_pending_work(thread) == 0; }

#else

// Before 3.13 the function that does it all is not exported. Signals and pending calls have a public one, which shows
// the right frame to signal handlers. The rest is done by the RESUME of an empty function, which tracebacks must not
// show.
bool handle_pending(PyThreadState* thread) {
  if (Py_MakePendingCalls() < 0) return false;
  if (!view::has_pending_work(thread)) return true;
  PyObject* result = PyObject_Vectorcall(get_host_state().pending_function, nullptr, 0, nullptr);
  if (result != nullptr) {
    Py_DECREF(result);
    return true;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Py_CLEAR(traceback);
  if (value != nullptr && PyExceptionInstance_Check(value)) PyException_SetTraceback(value, Py_None);
  PyErr_Restore(type, value, traceback);
  return false;
}

#endif

}  // namespace reprise::host
