#include "runtime/prepare.h"

#include "host/cpython/hook.h"
#include "runtime/compiled_callable.h"
#include "runtime/disabled_callable.h"
#include "runtime/errors.h"

namespace reprise::runtime {

int prepare(PyObject* module) {
  if (!host::prepare()) return -1;
  if (add_compiled_type(module) < 0 || add_disabled_type(module) < 0) return -1;
  return add_exception_types(module);
}

}  // namespace reprise::runtime
