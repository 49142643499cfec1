// What the files of models share: the signature of a model and the check of its arguments.
#pragma once

#define MODEL(name)                                                                                       \
  Outcome Recorder::model_##name([[maybe_unused]] Operand callable, [[maybe_unused]] const Operand* args, \
                                 [[maybe_unused]] int n, [[maybe_unused]] PyObject* kwnames,              \
                                 [[maybe_unused]] Operand* out)
#define NO_KEYWORDS(count_min, count_max)                                \
  if (kwnames != nullptr || n < (count_min) || n > (count_max)) {        \
    return stop("an unusual call of " + callable_name(callable.object)); \
  }
