#include "host_agent/native/rank_profile.h"

#include "native/channel/thread_states.h"
#include "native/runtime/stopwatch.h"

namespace switchml::agent {

RankProfile profile_of(const channel::ChannelControl& control, uint64_t most) {
  const auto read = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  RankProfile profile;
  profile.sleeps = read(control.process.sleeps);
  profile.calls = control.calls.ended();
  profile.bytes = control.calls.bytes();
  profile.call_time = control.calls.nanoseconds();
  for (size_t bucket = 0; bucket < runtime::kDurationBuckets; ++bucket) {
    profile.calls_took[bucket] = control.calls.took(bucket);
  }
  profile.summing = read(control.server.summing);
  profile.taken_at = runtime::monotonic_nanoseconds();
  const channel::ThreadTimes spent = channel::thread_times_of(control.process, profile.taken_at);
  profile.quantize = spent.quantize;
  profile.waiting = spent.waiting;
  profile.dequantize = spent.dequantize;
  profile.latest = control.calls.latest(most, profile.taken_at);
  return profile;
}

}  // namespace switchml::agent
