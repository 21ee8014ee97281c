// The time that a rank's progress thread has spent in each of its states, up to now.
#pragma once

#include <atomic>
#include <cstdint>

#include "native/channel/channel.h"

namespace switchml::channel {

enum class ThreadState : uint8_t { idle, quantize, waiting, dequantize };

// Nanoseconds.
struct ThreadTimes {
  uint64_t quantize = 0;
  uint64_t waiting = 0;
  uint64_t dequantize = 0;
};

// `now` is monotonic_nanoseconds(). A thread that changes its state all the time is read as of its last change.
inline ThreadTimes thread_times_of(const ProcessCounters& counters, uint64_t now) {
  constexpr int kTries = 8;
  ThreadTimes times;
  for (int tried = 0; tried < kTries; ++tried) {
    const uint64_t since = counters.since.load(std::memory_order_acquire);
    const uint64_t state = counters.state.load(std::memory_order_relaxed);
    times = {counters.quantize.load(std::memory_order_relaxed), counters.waiting.load(std::memory_order_relaxed),
             counters.dequantize.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (since == 0 || since > now || counters.since.load(std::memory_order_relaxed) != since) continue;
    if (state == static_cast<uint64_t>(ThreadState::quantize)) times.quantize += now - since;
    if (state == static_cast<uint64_t>(ThreadState::waiting)) times.waiting += now - since;
    if (state == static_cast<uint64_t>(ThreadState::dequantize)) times.dequantize += now - since;
    break;
  }
  return times;
}

}  // namespace switchml::channel
