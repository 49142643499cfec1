// The Python module reprise._C: one bind_*() a subject, conversion only.
#include <nanobind/nanobind.h>

#include "bind/bindings.h"

NB_MODULE(_C, m) {
  m.doc() = "The host half of Reprise. Private: use the package reprise.";
  reprise::bind::bind_base(m);
  reprise::bind::bind_callables(m);
  reprise::bind::bind_report(m);
}
