// Which unrecorded Python may run during a recording without making the trace forget what it knows of the heap.
#pragma once

#include "host/cpython/frame.h"

namespace reprise::capture {

/// The frame writes nothing that a program reads: dispatch and class checks of libraries. Needs the GIL, raises
/// nothing.
bool is_quiet_frame(host::Frame* frame);

}  // namespace reprise::capture
