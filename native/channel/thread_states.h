// The counters of a rank's process, up to now.
#pragma once

#include <atomic>
#include <cstdint>

#include "native/channel/channel.h"
#include "native/counters/counters.h"

namespace switchml::channel {

enum class ThreadState : uint8_t { idle, quantize, wait, dequantize };

// The time that the threads that move the values have spent in each state. `now` is monotonic_nanoseconds(). A thread
// that changes its state all the time is read as of its last change.
inline counters::Thread thread_times_of(const ProcessCounters& counters, uint64_t now) {
  constexpr int kTries = 8;
  counters::Thread times;
  for (int tried = 0; tried < kTries; ++tried) {
    const uint64_t since = counters.since.load(std::memory_order_acquire);
    const uint64_t state = counters.state.load(std::memory_order_relaxed);
    times = {counters.quantize_ns.load(std::memory_order_relaxed), counters.wait_ns.load(std::memory_order_relaxed),
             counters.dequantize_ns.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (since == 0 || since > now || counters.since.load(std::memory_order_relaxed) != since) continue;
    if (state == static_cast<uint64_t>(ThreadState::quantize)) times.quantize_ns += now - since;
    if (state == static_cast<uint64_t>(ThreadState::wait)) times.wait_ns += now - since;
    if (state == static_cast<uint64_t>(ThreadState::dequantize)) times.dequantize_ns += now - since;
    break;
  }
  return times;
}

inline counters::Process process_counters_of(const ProcessCounters& counters, const CallLog& calls) {
  counters::Process found = calls.totals();
  found.sleeps = counters.sleeps.load(std::memory_order_relaxed);
  found.sparse_calls_dense = counters.sparse_calls_dense.load(std::memory_order_relaxed);
  return found;
}

}  // namespace switchml::channel
