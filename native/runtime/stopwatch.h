// Time since something began.
#pragma once

#include <chrono>
#include <cstdint>

namespace switchml::runtime {

// Returns nanoseconds of a clock that all processes of a machine share; for durations and comparisons, not a time of
// day.
inline uint64_t monotonic_nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

class Stopwatch {
 public:
  uint64_t nanoseconds() const { return monotonic_nanoseconds() - begin_; }

 private:
  uint64_t begin_ = monotonic_nanoseconds();
};

}  // namespace switchml::runtime
