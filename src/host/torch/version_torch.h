// Everything that differs between the torch versions that Reprise is built for: 2.11 to 2.14 are checked.
//
// Only files of this folder that end in _torch.cpp include this header, and version tests stand nowhere else:
// the rest tests the feature names below. REPRISE_EXPOSE reads private members of torch's classes by explicit
// instantiation, to which C++ does not apply access checks; a member that is renamed or retyped fails the compile,
// it is never read wrongly. Why: torch's own getters cost a call each (and some throw when old and new switches of
// the same thing are mixed), and a guard reads about forty of them.
#pragma once

#include <torch/headeronly/version.h>

#define REPRISE_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !REPRISE_TORCH_AT_LEAST(2, 11)
#error "Reprise needs torch 2.11 or newer"
#endif

// Tensors with named dimensions and their dispatch key: gone in 2.13.
#define REPRISE_TORCH_HAS_NAMED_TENSORS !REPRISE_TORCH_AT_LEAST(2, 13)
// Switches that came later.
#define REPRISE_TORCH_HAS_CUDNN_DEPTHWISE_KERNEL REPRISE_TORCH_AT_LEAST(2, 13)
#define REPRISE_TORCH_HAS_SKIP_NEXT_TORCH_FUNCTION REPRISE_TORCH_AT_LEAST(2, 13)
#define REPRISE_TORCH_HAS_GRAD_LAYOUT_ENFORCEMENT REPRISE_TORCH_AT_LEAST(2, 13)
#define REPRISE_TORCH_HAS_CUBLASLT_GROUPED_GEMM REPRISE_TORCH_AT_LEAST(2, 14)
// ForwardADLevel::has_any_level(), an atomic load in place of a mutex.
#define REPRISE_TORCH_HAS_ANY_FORWARD_LEVEL REPRISE_TORCH_AT_LEAST(2, 14)

namespace reprise::host {

template <typename Tag, auto Member>
struct Expose {
  friend constexpr auto expose(Tag) { return Member; }
};

}  // namespace reprise::host

// In namespace reprise::host: `object.*expose(tag{})` is then object.member.
#define REPRISE_EXPOSE(tag, type, member) \
  struct tag {                            \
    friend constexpr auto expose(tag);    \
  };                                      \
  template struct Expose<tag, &type::member>
