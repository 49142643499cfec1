// Has this dict, type or function changed since I last looked? The version-neutral half of heap stamps.
//
// Two mechanisms, and a guard program uses what the running Python has:
//   tags     3.11, 3.12: every dict has a 64-bit tag, unique in the process, that each change renews. A stamp is the
//   tag's
//            address and the value it had: check_stamp reads one word.
//   watchers 3.12 and later: a watched dict or type reports its next change; all reports bump one epoch. Nothing
//   changed
//            while the epoch stands still.
// Types have a 32-bit version on every version (0 after a change until it is assigned again; never reused).
//
// Threads: all functions need the GIL. No function here runs Python code.
#pragma once

#include <Python.h>

#include <cstdint>

namespace reprise::host {

/// A word in the heap and the value that it had. Whoever holds the stamp keeps the address alive, or checks that it is.
struct HeapStamp {
  const void* address = nullptr;
  uint64_t value = 0;
};

/// Dicts have version tags.
bool stamps_have_tags();
/// Dicts and types can be watched (a watcher was registered).
bool stamps_have_watchers();

/// The tag of a dict. Only where stamps_have_tags().
uint64_t get_dict_version(PyObject* dict);
HeapStamp make_dict_stamp(PyObject* dict);
/// Assigns a version if there is none. 0: the type can have none (the versions are used up).
uint32_t get_type_version(PyTypeObject* type);
/// A stamp of a type that can have no version never checks.
HeapStamp make_type_stamp(PyTypeObject* type);

// Dict tags of 3.12 carry the watcher ids in their low byte.
inline constexpr uint64_t kDictTagMask = PY_VERSION_HEX >= 0x030C0000 ? ~uint64_t{0xff} : ~uint64_t{0};
inline constexpr uint64_t kTypeStampBit = uint64_t{1} << 63;  // marks a stamp of a 32-bit word

inline bool check_stamp(const HeapStamp& stamp) {
  if (stamp.value & kTypeStampBit) return (*static_cast<const uint32_t*>(stamp.address) | kTypeStampBit) == stamp.value;
  return (*static_cast<const uint64_t*>(stamp.address) & kDictTagMask) == stamp.value;
}

/// From now on the next change of the object bumps the epoch. Watching twice is harmless. false: it cannot be watched
/// (on 3.13 also an empty dict of an object). Call it with no exception set.
bool watch_dict(PyObject* dict);
bool watch_type(PyTypeObject* type);
/// Bumped in front of every change of a watched object, and when a watched object dies. Stays 0 without watchers.
uint64_t get_watch_epoch();

/// The code that a function runs now: `f.__code__ = ...` moves it. Borrowed.
PyObject* get_function_code(PyObject* function);

}  // namespace reprise::host
