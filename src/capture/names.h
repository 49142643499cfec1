// Interned attribute names that the models look up; rows in names.def.
#pragma once

#include <Python.h>

namespace reprise::capture {

struct Names {
#define X(member, text) PyObject* member;
#include "capture/names.def"
};

/// Made at first use; the strings are immortal in practice.
const Names& names();

}  // namespace reprise::capture
