// What this library and this PyTorch can do, for tests and reports.
#pragma once

namespace reprise::driver {

/// False: built with REPRISE_LLVM=OFF.
bool has_code_generator();
/// Dropout's numbers are drawn by our code, since it gives PyTorch's (host/torch/native_program.h).
bool draws_many_at_a_time();

}  // namespace reprise::driver
