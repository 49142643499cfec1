// The engine on codegen/llvm: a first tier at once, the second by the worker.
#pragma once

#include <memory>

#include "driver/background_worker.h"
#include "driver/native_engine.h"

namespace reprise::driver {

/// Unsupported in a build without LLVM. The worker outlives the engine.
base::Result<std::unique_ptr<NativeEngine>> make_llvm_engine(BackgroundWorker& worker);

}  // namespace reprise::driver
