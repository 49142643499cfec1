// Objects whose death runs code: an entry lets go of what a frame had when it is done, not where the program does.
#pragma once

#include <Python.h>

namespace reprise::runtime {

/// Whether one of the slots is the last reference to an object that runs code when it dies (a `__del__`, a callback of
/// a weak reference, a generator inside of try or with), or to one that holds such an object. Looks a few objects deep.
bool own_finaliser(PyObject* const* slots, int count);

}  // namespace reprise::runtime
