// Assignments from the controller, and an agent's report of their state.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <vector>

#include "native/counters/counters.h"
#include "native/wire/constants.h"
#include "native/wire/epoch_limit.h"
#include "native/wire/wire.h"

namespace switchml::agent {

// The most switches that may share the slots of a job: MAXIMUM_AGGREGATORS in switchml/common/job_numbers.py.
constexpr size_t kMostAggregators = 64;

struct Aggregator {
  std::string address;  // IPv4
  uint16_t udp_port;
};

// One rank of a job in one epoch.
struct RankAssignment {
  std::string address;         // IPv4 address of the host's data interface
  std::string switch_address;  // destination of contributions
  uint16_t switch_udp_port;
  uint16_t job;
  uint16_t rank;
  uint8_t worker;  // its number in packets: among the ranks at its switch, if the job is on several
  uint16_t epoch;
  uint32_t world_size;
  uint16_t slot_base;             // first pool index
  uint32_t slots;                 // a power of two
  uint32_t values;                // per packet
  std::string multicast_address;  // IPv4 group to which results are also sent; empty: no group
  uint32_t secret = 0;            // of the epoch; part of every packet of the job
  bool optional_values = false;   // the pipelines take contributions without values in any phase (channel.h)
  bool owned_results = false;     // the pipelines send values that one rank reads to this rank only
  bool one_port = false;          // all ranks of the job are at the same port of one switch
  // Bit f: the switches take contributions with values in wire::Format f.
  uint32_t formats = 1U << static_cast<uint32_t>(wire::Format::int32);
  uint32_t slot_uses = wire::kSlotUses;  // the limit of uses of a slot in the epoch
  // Above the `worker` of all ranks of the job at this agent; 0: the world size.
  uint32_t workers = 0;
  // Among the jobs of one tenant at this agent, those with the highest priority send first.
  uint8_t priority = 0;
  uint64_t tenant = 0;  // 0: none
  uint8_t dscp = 0;     // of the IPv4 header of contributions
  // The switches that share the slots, by switch_of_slot() in slot_blocks.h; none: all slots are at `switch_address`.
  // GCC warns of lists of initializers that leave out a member without one.
  std::vector<Aggregator> aggregators{};  // NOLINT(readability-redundant-member-init)
  // In a tree whose lowest switches send values only to the ranks that read them: the ranks at this rank's switch, each
  // at the place of its number there.
  std::vector<uint16_t> switch_ranks{};  // NOLINT(readability-redundant-member-init)

  unsigned switches() const { return aggregators.empty() ? 1 : static_cast<unsigned>(aggregators.size()); }
};

// Returns `assignment`. Throws std::invalid_argument if a value is out of range.
RankAssignment checked(RankAssignment assignment);

// Returns how the rank's switch numbers the ranks that an `owner` can name.
wire::OwnerNumbers owner_numbers(const RankAssignment& assignment);

// Returns the addresses of the switches that have the slots, as switch_of_slot() numbers them. Throws
// std::invalid_argument if one is not an IPv4 address.
std::vector<sockaddr_in> switch_endpoints(const RankAssignment& assignment);

struct RankStatus : counters::Rank {
  uint64_t position = 0;        // contributions sent for the first time; the rank with the fewest lags
  uint64_t gso_batch_size = 0;  // see JobTransport
  uint64_t window = 0;          // packets that may be in flight; 0 for ranks that share memory with the switch
  double round_trip_seconds = 0;
  uint64_t uses = 0;         // of the slot that was used most
  bool epoch_spent = false;  // the epoch must end soon, because a slot was used nearly as often as is allowed
};

}  // namespace switchml::agent
