// Time since something began.
#pragma once

#include <chrono>
#include <cstdint>

namespace switchml {

class Stopwatch {
 public:
  uint64_t nanoseconds() const {
    return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count());
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace switchml
