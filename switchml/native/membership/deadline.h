// Deadlines after numbers of seconds, which callers choose.
#pragma once

#include <algorithm>
#include <chrono>

namespace switchml::client {

// Returns a time after now; a number of seconds beyond some thirty years, which a clock may not be able to count, is
// that long.
inline std::chrono::steady_clock::time_point after(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double kLongest = 1e9;
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, kLongest)));
}

}  // namespace switchml::client
