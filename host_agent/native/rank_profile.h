// The profile of one rank: counters of its process, the agent's data thread and a switch on the same machine.
#pragma once

#include <cstdint>
#include <vector>

#include "native/channel/call_log.h"
#include "native/channel/channel.h"
#include "native/counters/counters.h"

namespace switchml::agent {

// The values of the process (Thread, Process, latest) are not checked, because they concern only that process.
struct RankProfile : counters::Thread, counters::Process, counters::Path {
  std::vector<channel::CallTimes> latest;  // oldest first
  uint64_t taken_at = 0;                   // monotonic_nanoseconds() when this was read
};

// Returns the profile in the rank's memory, with up to `most` of the latest calls.
RankProfile profile_of(const channel::ChannelControl& control, uint64_t most);

}  // namespace switchml::agent
