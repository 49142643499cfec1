// The torch state word: every switch of torch, global or of this thread, that a recorded trace may have read.
//
// A trace folds such reads to constants and its tensor nodes obeyed the switches, so an entry holds only while the word
// is equal to the one of its recording. The rows of state_word.def say what is in it. Not in it: the number of threads,
// random generators, streams, autocast's weight cache, profilers, warning filters: reading those is no constant (see
// torch_callables.def).
//
// A word belongs to the thread that captured it. Capturing and comparing run no Python code and need the GIL; without
// modes, hooks or functorch levels it is some 60 loads. Builds without torch: all words are equal.
#pragma once

#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace reprise::host {

struct StateWord {
  static constexpr size_t kWordCount = 24;
  std::array<uint64_t, kWordCount> words{};  // laid out by state_word.def; callers only compare

  bool operator==(const StateWord& other) const noexcept {
    uint64_t difference = 0;
    for (size_t i = 0; i < kWordCount; ++i) difference |= words[i] ^ other.words[i];
    return difference == 0;
  }
};

/// The word of the calling thread, now.
StateWord capture_state_word() noexcept;
/// The same in place, for guards.
void capture_state_word(StateWord& word) noexcept;

/// Every difference in words, "; " between them: "grad mode: on when recorded, off now". Empty if equal.
std::string describe_state_difference(const StateWord& recorded, const StateWord& now);

/// Is grad mode on in this thread?
bool is_grad_mode() noexcept;
/// Has torch initialised CUDA? It never goes back; the word differs before and after.
bool is_cuda_initialised() noexcept;
/// Do Python objects of the user's see the operations or tensors of this thread: a torch function mode (other than the
/// default device's), a dispatch mode, saved-tensor hooks? They are in the word by identity. A recorder should not
/// record under them: what they do is not in the trace.
bool has_user_modes(const StateWord& word) noexcept;
/// Is a functorch transform (vmap, grad, jvp) active?
bool has_functorch_levels(const StateWord& word) noexcept;

/// The word of a recording, kept for an entry. A word names modes and hooks by address, and addresses are used again;
/// this holds weak references to those objects (strong ones where the type allows no weak ones), so that a new mode
/// in an old one's place is not taken for it. Destroy with the GIL held.
class RecordedState {
 public:
  static RecordedState capture();

  RecordedState() = default;
  RecordedState(RecordedState&& other) noexcept;
  RecordedState& operator=(RecordedState&& other) noexcept;
  ~RecordedState();

  const StateWord& word() const noexcept { return word_; }
  bool check(const StateWord& now) const noexcept { return word_ == now && (references_.empty() || is_alive()); }

 private:
  bool is_alive() const noexcept;

  StateWord word_;
  std::vector<PyObject*> references_;  // owned: weak references, or the objects themselves
};

/// Sets grad mode for a scope.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled) noexcept;
  ~GradModeGuard();
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  bool previous_;
};

}  // namespace reprise::host
