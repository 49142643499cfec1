// What one CompileContext counts, for explain and for tests. Plain numbers; written with the GIL held.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace reprise::runtime {

enum class Phase : uint8_t {
#define X(name, text, doc) name,
#include "runtime/phases.def"
};

inline constexpr size_t kPhaseCount = []() constexpr {
  size_t count = 0;
#define X(name, text, doc) ++count;
#include "runtime/phases.def"
  return count;
}();

struct Statistics {
#define X(name, text) uint64_t name = 0;
#include "runtime/counters.def"

  std::array<double, kPhaseCount> phase_seconds{};

  double& seconds(Phase phase) { return phase_seconds[static_cast<size_t>(phase)]; }
};

/// Adds the wall-clock seconds of its scope to one phase. Scopes of one phase must not nest.
class PhaseTimer {
 public:
  PhaseTimer(Statistics& statistics, Phase phase)
      : seconds_(statistics.seconds(phase)), start_(std::chrono::steady_clock::now()) {}
  ~PhaseTimer() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace reprise::runtime
