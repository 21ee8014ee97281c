// Assignments from the controller, and an agent's report of their state.
#pragma once

#include <cstdint>
#include <string>

#include "native/counters/counters.h"
#include "native/wire/epoch_limit.h"

namespace switchml::agent {

// One rank of a job in one epoch.
struct RankAssignment {
  std::string address;         // IPv4 address of the host's data interface
  std::string switch_address;  // where contributions go
  uint16_t switch_udp_port;
  uint16_t job;
  uint8_t rank;
  uint16_t epoch;
  uint32_t world_size;
  uint16_t slot_base;                    // first pool index
  uint32_t slots;                        // a power of two
  uint32_t values;                       // per packet
  std::string multicast_address;         // IPv4 group that results come to as well; empty: none
  uint32_t secret = 0;                   // of the epoch: stands in every packet of the job
  uint32_t slot_uses = wire::kSlotUses;  // how often a slot may be used in the epoch
};

// `assignment` again. Throws std::invalid_argument for what cannot be.
RankAssignment checked(RankAssignment assignment);

struct RankStatus : counters::Rank {
  uint64_t position = 0;        // contributions sent for the first time: the rank that lags is the one with the fewest
  uint64_t gso_batch_size = 0;  // as JobTransport's
  double round_trip_seconds = 0;
  uint64_t uses = 0;         // of the slot that was used most
  bool epoch_spent = false;  // the epoch must end soon: a slot was used nearly as often as it may be
};

}  // namespace switchml::agent
