#include "host/cpython/watch.h"

#include "host/cpython/class_lookup.h"
#include "host/cpython/host_state.h"

namespace reprise::host {
namespace {

constexpr bool kHasWatchers = PY_VERSION_HEX >= 0x030C0000;
// In 3.13 an attribute store into a dict that shares its values with the object does not renew the tag.
constexpr bool kHasTags = PY_VERSION_HEX < 0x030D0000;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
const uint64_t* get_tag_address(PyObject* dict) { return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#pragma GCC diagnostic pop

#if PY_VERSION_HEX >= 0x030C0000
int on_dict_event(PyDict_WatchEvent, PyObject*, PyObject*, PyObject*) {
  ++get_host_state().watch_epoch;
  return 0;
}

int on_type_modified(PyTypeObject*) {
  ++get_host_state().watch_epoch;
  return 0;
}
#endif

bool has_type_version(PyTypeObject* type) {
  constexpr bool kHasFlag = PY_VERSION_HEX < 0x030D0000;
  return type->tp_version_tag != 0 && (!kHasFlag || PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG));
}

#if PY_VERSION_HEX >= 0x030D0000
// An object's dict may share its values with the object, and then attribute stores report nothing (3.13.0). popitem
// makes the dict a table of its own; the item goes back to its place, the last. false: the dict still shares, or may.
bool separate_from_object(PyObject* dict) {
  const auto shares = [dict] { return reinterpret_cast<PyDictObject*>(dict)->ma_values != nullptr; };
  if (!shares()) return true;
  if (!PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) == 0) return false;
  PyObject* item = PyObject_CallMethod(dict, "popitem", nullptr);
  if (item == nullptr) return false;
  const bool is_back = PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1)) == 0;
  Py_DECREF(item);
  return is_back && !shares();
}
#endif

}  // namespace

void prepare_watchers(HostState* state) {
#if PY_VERSION_HEX >= 0x030C0000
  state->dict_watcher = PyDict_AddWatcher(on_dict_event);
  state->type_watcher = PyType_AddWatcher(on_type_modified);
  PyErr_Clear();
#else
  (void)state;
#endif
}

bool stamps_have_tags() { return kHasTags; }

bool stamps_have_watchers() {
  return kHasWatchers && get_host_state().dict_watcher >= 0 && get_host_state().type_watcher >= 0;
}

uint64_t get_dict_version(PyObject* dict) { return *get_tag_address(dict) & kDictTagMask; }

HeapStamp make_dict_stamp(PyObject* dict) { return {get_tag_address(dict), get_dict_version(dict)}; }

uint32_t get_type_version(PyTypeObject* type) {
  if (has_type_version(type)) return type->tp_version_tag;
#if PY_VERSION_HEX >= 0x030C0000
  PyUnstable_Type_AssignVersionTag(type);
#else
  find_in_class(type, get_names().dunder_class);  // assigns it
#endif
  return has_type_version(type) ? type->tp_version_tag : 0;
}

HeapStamp make_type_stamp(PyTypeObject* type) {
  constexpr uint64_t kNever = uint64_t{1} << 32;
  const uint32_t version = get_type_version(type);
  return {&type->tp_version_tag, kTypeStampBit | (version != 0 ? version : kNever)};
}

bool watch_dict(PyObject* dict) {
#if PY_VERSION_HEX >= 0x030C0000
  const int watcher = get_host_state().dict_watcher;
  if (watcher < 0) return false;
#if PY_VERSION_HEX >= 0x030D0000
  if (!separate_from_object(dict)) {
    PyErr_Clear();
    return false;
  }
#endif
  if (PyDict_Watch(watcher, dict) == 0) return true;
  PyErr_Clear();
#else
  (void)dict;
#endif
  return false;
}

bool watch_type(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  const int watcher = get_host_state().type_watcher;
  if (watcher < 0 || get_type_version(type) == 0) return false;  // without a version no change is reported
  if (PyType_Watch(watcher, reinterpret_cast<PyObject*>(type)) == 0) return true;
  PyErr_Clear();
#else
  (void)type;
#endif
  return false;
}

uint64_t get_watch_epoch() { return get_host_state().watch_epoch; }

PyObject* get_function_code(PyObject* function) { return PyFunction_GET_CODE(function); }

}  // namespace reprise::host
