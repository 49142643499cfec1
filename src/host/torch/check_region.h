// Checked before use: a region's code against its callables, on copies of the inputs.
//
// check_region() runs the callables and the code once each, from the same torch state and random state, and compares
// results, inputs that are written to, and gradients for made-up tangents. Nothing that the program can see changes:
// inputs are detached, written ones copied, hooks do not run. Python objects are borrowed; the GIL is held.
#pragma once

#include <Python.h>

#include <memory>
#include <span>
#include <string>

#include "host/torch/region_node.h"

namespace reprise::host {

struct RegionCheck {
  enum class Outcome : uint8_t {
    Agrees,
    Differs,     // `text` says what: the code must not be used
    Raised,      // one of the two raised: nothing is known; no exception is set
    NotChecked,  // `text` says why it cannot be: inputs that are written to share memory
  };
  Outcome outcome = Outcome::Agrees;
  std::string text;
};

RegionCheck check_region(const std::shared_ptr<RegionCode>& code, std::span<PyObject* const> inputs);

}  // namespace reprise::host
