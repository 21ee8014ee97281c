#include "host_agent/native/rank_profile.h"

#include "native/channel/thread_states.h"
#include "native/runtime/stopwatch.h"

namespace switchml::agent {

RankProfile profile_of(const channel::ChannelControl& control, uint64_t most) {
  RankProfile profile;
  profile.taken_at = runtime::monotonic_nanoseconds();
  static_cast<counters::Thread&>(profile) = channel::thread_times_of(control.process, profile.taken_at);
  static_cast<counters::Process&>(profile) = channel::process_counters_of(control.process, control.calls);
  profile.sum_ns = control.server.sum_ns.load(std::memory_order_relaxed);
  profile.latest = control.calls.latest(most, profile.taken_at);
  return profile;
}

}  // namespace switchml::agent
