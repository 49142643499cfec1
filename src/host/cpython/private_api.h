// Functions that every supported libpython exports but that its public headers hide or rename. One place for them all.
//
// Names here are ours; the linker gets CPython's. All need the GIL; results are new references unless said otherwise.
#pragma once

#include <Python.h>

#define REPRISE_EXPORTED_AS(name) __asm__(#name)

namespace reprise::host {
extern "C" {

/// 1: `*method` is an unbound method to be called with the object in front; 0: `*method` is the attribute, or nullptr
/// with an exception set.
int find_method(PyObject* object, PyObject* name, PyObject** method) REPRISE_EXPORTED_AS(_PyObject_GetMethod);

/// A special method, looked up on the type and bound. nullptr without an exception: there is none.
PyObject* find_special_method(PyObject* object, PyObject* name) REPRISE_EXPORTED_AS(_PyObject_LookupSpecial);

/// 1: found; 0: `*result` is nullptr, there is no such attribute; -1: an exception is set.
#if PY_VERSION_HEX >= 0x030D0000
int find_attribute(PyObject* object, PyObject* name, PyObject** result) REPRISE_EXPORTED_AS(PyObject_GetOptionalAttr);
#else
int find_attribute(PyObject* object, PyObject* name, PyObject** result) REPRISE_EXPORTED_AS(_PyObject_LookupAttr);
#endif

/// None, or nullptr with an exception set.
PyObject* extend_list(PyListObject* list, PyObject* iterable) REPRISE_EXPORTED_AS(_PyList_Extend);

int update_set(PyObject* set, PyObject* iterable) REPRISE_EXPORTED_AS(_PySet_Update);

/// `override`: 2 raises KeyError for a key that is there already.
int merge_dict(PyObject* dict, PyObject* update, int override) REPRISE_EXPORTED_AS(_PyDict_MergeEx);

PyObject* join_strings(PyObject* separator, PyObject* const* items, Py_ssize_t count)
    REPRISE_EXPORTED_AS(_PyUnicode_JoinArray);

/// "f()", for messages.
PyObject* describe_callable(PyObject* callable) REPRISE_EXPORTED_AS(_PyObject_FunctionStr);

/// Sets an exception whose cause and context are the one that is set.
PyObject* format_from_cause(PyObject* type, const char* format, ...) REPRISE_EXPORTED_AS(_PyErr_FormatFromCause);

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
PyObject* make_traceback(PyObject* next, PyFrameObject* frame) REPRISE_EXPORTED_AS(_PyTraceBack_FromFrame);
#endif

#if PY_VERSION_HEX >= 0x030D0000
/// Clears a frame that is not linked and takes it off the thread's stack of frames, or finishes its generator.
void clear_and_pop_frame(PyThreadState* thread, struct _PyInterpreterFrame* frame)
    REPRISE_EXPORTED_AS(_PyEval_FrameClearAndPop);
int do_pending_work(PyThreadState* thread) REPRISE_EXPORTED_AS(_Py_HandlePending);
PyObject* get_awaitable_iterator(PyObject* object) REPRISE_EXPORTED_AS(_PyCoro_GetAwaitableIter);
int match_exception_group(PyObject* exception, PyObject* type, PyObject** match, PyObject** rest)
    REPRISE_EXPORTED_AS(_PyEval_ExceptionGroupMatch);
#endif

}  // extern "C"
}  // namespace reprise::host

#undef REPRISE_EXPORTED_AS
