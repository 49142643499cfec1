// The engine on codegen/cpp and the system's compiler. A compiler that is missing or fails is an Unsupported of
// compile(), so that the program is run by PyTorch's kernels and the user is told.
#pragma once

#include <memory>

#include "driver/native_engine.h"

namespace reprise::driver {

std::unique_ptr<NativeEngine> make_cpp_engine();

}  // namespace reprise::driver
