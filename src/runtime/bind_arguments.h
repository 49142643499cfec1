// Binding the arguments of a call to the parameters of a Python function, as CPython does, without making a frame.
//
// The result is laid out like the parameters in localsplus: positional, keyword-only, then the tuple of *args and the
// dict of **kwargs. A call that CPython would refuse, or that could run user code while it is bound (keywords that are
// not exact strings), is not bound: the caller leaves it to the function itself, whose errors are the right ones.
//
// Threads: the GIL is held; no Python code runs.
#pragma once

#include <Python.h>

#include <cstdint>

namespace reprise::runtime {

/// What binding needs to know of a code object.
struct Signature {
  explicit Signature(PyCodeObject* code);

  PyCodeObject* code;        // borrowed
  int32_t positional_count;  // positional-only ones included
  int32_t positional_only_count;
  int32_t keyword_only_count;
  bool has_varargs;
  bool has_varkeywords;
  int32_t slot_count;  // parameters in all
  bool is_simple;      // positional parameters only: a full positional call is its own binding
};

/// Bound arguments. `slots` are borrowed from the caller's arguments or held here.
class BoundArguments {
 public:
  BoundArguments() = default;
  ~BoundArguments() {
    if (held_count_ > 0 || heap_slots_ != nullptr) release();
  }
  BoundArguments(const BoundArguments&) = delete;
  BoundArguments& operator=(const BoundArguments&) = delete;

  PyObject* const* slots() const { return slots_; }

  /// `function` gives the defaults. False: not bound, no exception set.
  bool bind(const Signature& signature, PyFunctionObject* function, PyObject* const* args, Py_ssize_t nargs,
            PyObject* kwnames) {
    if (signature.is_simple && kwnames == nullptr && nargs == signature.positional_count) {
      slots_ = args;
      return true;
    }
    return bind_general(signature, function, args, nargs, kwnames);
  }

 private:
  static constexpr int32_t kInlineSlots = 16;
  static constexpr int32_t kMaxHeld = 2;  // the tuple and the dict; defaults are held by their own containers

  bool bind_general(const Signature& signature, PyFunctionObject* function, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames);
  bool bind_keywords(const Signature& signature, PyObject* const* values, PyObject* kwnames, PyObject** slots);
  bool fill_defaults(const Signature& signature, PyFunctionObject* function, PyObject** slots);
  void release();
  void hold(PyObject* owned) { held_[held_count_++] = owned; }

  PyObject* const* slots_ = nullptr;
  PyObject* inline_slots_[kInlineSlots];
  PyObject** heap_slots_ = nullptr;
  PyObject* held_[kMaxHeld + 2];  // and the containers of positional and keyword-only defaults
  int32_t held_count_ = 0;
};

}  // namespace reprise::runtime
