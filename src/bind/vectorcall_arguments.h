// A tuple and a dict of arguments in the form of CPython's vectorcall.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

namespace reprise::bind {

/// Borrows the values, which `args` and `kwargs` must keep alive.
class VectorcallArguments {
 public:
  VectorcallArguments(const nanobind::tuple& args, const nanobind::dict& kwargs)
      : positional_count_(static_cast<Py_ssize_t>(args.size())) {
    for (nanobind::handle value : args) values_.push_back(value.ptr());
    for (nanobind::handle value : kwargs.values()) values_.push_back(value.ptr());
    if (kwargs.size() > 0) names_ = nanobind::tuple(kwargs.keys());
  }

  PyObject* const* values() const { return values_.data(); }
  Py_ssize_t positional_count() const { return positional_count_; }
  /// Null without keywords.
  PyObject* names() const { return names_.ptr(); }

 private:
  std::vector<PyObject*> values_;
  Py_ssize_t positional_count_;
  nanobind::object names_;
};

}  // namespace reprise::bind
