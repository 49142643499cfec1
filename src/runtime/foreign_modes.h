// Whether torch calls of this thread mean something that no recording knows: functorch levels, the user's own modes.
#pragma once

#include "host/torch/state_word.h"

namespace reprise::runtime {

/// Under these nothing is recorded and no frame is driven. About 40 ns.
inline bool has_foreign_modes() {
  const host::StateWord word = host::capture_state_word();
  return host::has_user_modes(word) || host::has_functorch_levels(word);
}

}  // namespace reprise::runtime
