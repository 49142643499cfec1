// What the files of models share: the signature of a model and the check of its arguments.
#pragma once

#include <Python.h>

namespace reprise::capture {

/// The class of `object` has Python code, or anything but a method of a C type, under that name.
bool is_overridden(PyObject* object, PyObject* name);
/// `callable` is the method of a C type, and the class of `self` overrides it.
bool passes_override(PyObject* callable, PyObject* self, PyObject* name);

}  // namespace reprise::capture

#define MODEL(name)                                                                                       \
  Outcome Recorder::model_##name([[maybe_unused]] Operand callable, [[maybe_unused]] const Operand* args, \
                                 [[maybe_unused]] int n, [[maybe_unused]] PyObject* kwnames,              \
                                 [[maybe_unused]] Operand* out)
// A method of a built-in container that Python code of a subclass passes its own override by (super().__len__()).
#define PAST_OVERRIDE(member, method) \
  if (passes_override(callable.object, args[0].object, names().member)) return method(callable, args, out);
#define NO_KEYWORDS(count_min, count_max)                                \
  if (kwnames != nullptr || n < (count_min) || n > (count_max)) {        \
    return stop("an unusual call of " + callable_name(callable.object)); \
  }
