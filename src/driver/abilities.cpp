#include "driver/abilities.h"

#include "codegen/cpu.h"
#include "host/torch/native_program.h"

namespace reprise::driver {

bool has_code_generator() { return codegen::has_code_generator(); }
bool draws_many_at_a_time() { return host::draws_many_at_a_time(); }

}  // namespace reprise::driver
