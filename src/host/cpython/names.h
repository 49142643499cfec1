// Interned names that the host half looks up at run time. Made once by prepare() (hook.h), never freed.
#pragma once

#include <Python.h>

namespace reprise::host {

struct Names {
#define REPRISE_NAME(member, text) PyObject* member = nullptr;
#include "host/cpython/names.def"
#undef REPRISE_NAME
};

const Names& get_names();

}  // namespace reprise::host
