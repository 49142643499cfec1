#include "runtime/finalisers.h"

#include "host/cpython/frame.h"
#include "host/cpython/handlers.h"
#include "host/torch/tensor.h"

namespace reprise::runtime {

namespace {

constexpr int kMaxDepth = 4;
constexpr int kMaxObjects = 128;  // of a slot

struct Search {
  int depth = 0;
  int objects_left = kMaxObjects;
  bool is_found = false;
};

bool has_callback(PyObject* object) {
  const Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
  if (offset == 0 || PyType_Check(object)) return false;
  PyObject* first = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
  for (auto* reference = reinterpret_cast<PyWeakReference*>(first); reference != nullptr;
       reference = reference->wr_next) {
    if (reference->wr_callback != nullptr) return true;
  }
  return false;
}

bool runs_code_when_it_dies(PyObject* object) {
  if (PyGen_CheckExact(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object)) {
    host::Frame* frame = host::find_generator_frame(object);
    return frame != nullptr && !host::is_at_start(frame) && !host::closes_at_once(frame);
  }
  const bool is_python = PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE);
  return (is_python && Py_TYPE(object)->tp_finalize != nullptr) || has_callback(object);
}

int visit(PyObject* object, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (object == nullptr || Py_REFCNT(object) != 1 || host::is_tensor(object)) return 0;
  if (--search.objects_left < 0) return 1;
  if (runs_code_when_it_dies(object)) {
    search.is_found = true;
    return 1;
  }
  if (search.depth >= kMaxDepth || Py_TYPE(object)->tp_traverse == nullptr || !PyObject_IS_GC(object)) return 0;
  ++search.depth;
  const int stop = Py_TYPE(object)->tp_traverse(object, visit, data);
  --search.depth;
  return stop;
}

}  // namespace

bool own_finaliser(PyObject* const* slots, int count) {
  for (int i = 0; i < count; i++) {
    Search search;
    visit(slots[i], &search);
    if (search.is_found) return true;
  }
  return false;
}

}  // namespace reprise::runtime
