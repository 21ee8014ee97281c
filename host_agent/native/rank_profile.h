// Where one rank's time goes: what its process, the agent's data thread and a switch on the same machine have counted.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "native/channel/call_log.h"
#include "native/channel/channel.h"
#include "native/runtime/durations.h"

namespace switchml::agent {

struct RankProfile {
  using Histogram = std::array<uint64_t, runtime::kDurationBuckets>;

  // As the process says, in nanoseconds of its progress thread. It can say what it likes, about itself alone.
  uint64_t quantize = 0;
  uint64_t waiting = 0;
  uint64_t dequantize = 0;
  uint64_t sleeps = 0;
  uint64_t calls = 0;      // that have ended
  uint64_t bytes = 0;      // of their tensors
  uint64_t call_time = 0;  // from submission to end, all of them together
  Histogram calls_took{};
  std::vector<channel::CallTimes> latest;  // oldest first
  uint64_t taken_at = 0;                   // monotonic_nanoseconds() when this was read

  uint64_t sending = 0;  // of the agent's data thread
  uint64_t receiving = 0;
  uint64_t sent_bytes = 0;  // of UDP payload
  uint64_t received_bytes = 0;
  Histogram round_trips{};
  uint64_t round_trip_time = 0;  // all of them together

  uint64_t summing = 0;  // of the switch's, where it shares the rank's memory
};

// Returns the profile in the rank's memory, with up to `most` of the latest calls.
RankProfile profile_of(const channel::ChannelControl& control, uint64_t most);

}  // namespace switchml::agent
