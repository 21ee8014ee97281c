#include "host_agent/native/assignment.h"

#include <stdexcept>

#include "native/net/udp_batch.h"
#include "native/runtime/precedence.h"
#include "native/wire/constants.h"
#include "native/wire/frame_headers.h"

namespace switchml::agent {

RankAssignment checked(RankAssignment assignment) {
  constexpr uint32_t kLargestPool = wire::protocol::max_slot_index + 1;
  const auto require = [](bool holds, const char* what) {
    if (!holds) {
      throw std::invalid_argument(what);
    }
  };
  require(assignment.slots >= 1 && (assignment.slots & (assignment.slots - 1)) == 0, "slots must be a power of two");
  require(assignment.slot_base % assignment.slots == 0, "slot_base must be a multiple of slots");
  require(assignment.slot_base + assignment.slots <= kLargestPool, "the slot range ends beyond the slot field");
  require(assignment.values >= 1 && assignment.values <= wire::protocol::max_values, "values must be 1..2048");
  require(assignment.world_size >= 1 && assignment.world_size <= wire::protocol::max_world,
          "world_size must be 1..4096");
  require(assignment.rank < assignment.world_size, "rank must be below world_size");
  require(assignment.worker <= assignment.rank, "worker must not be above rank");
  require(assignment.worker < wire::protocol::max_workers, "a switch tells only senders 0..63 apart");
  require(assignment.workers == 0 || assignment.worker < assignment.workers, "worker must be below workers");
  require(assignment.priority < runtime::Precedence::kPriorities, "priority must be 0..7");
  require(assignment.dscp <= wire::ipv4::highest_dscp, "dscp must be 0..63");
  require(assignment.epoch != 0, "epoch must not be 0");
  require(assignment.aggregators.size() <= kMostAggregators, "a job has at most 64 aggregators");
  require(assignment.switches() <= assignment.slots, "each aggregator needs a slot");
  const std::vector<uint16_t>& there = assignment.switch_ranks;
  require(there.size() <= wire::tree::parent_number, "a switch below another one has at most 63 ranks");
  require(there.empty() || (assignment.worker < there.size() && there[assignment.worker] == assignment.rank),
          "switch_ranks must have the rank at the place of its worker");
  return assignment;
}

wire::OwnerNumbers owner_numbers(const RankAssignment& assignment) {
  if (assignment.switch_ranks.empty()) return wire::unchanged_owners();
  wire::OwnerNumbers numbers;
  numbers.fill(wire::owner::first + wire::tree::parent_number);
  numbers[wire::owner::everyone] = wire::owner::everyone;
  for (size_t number = 0; number < assignment.switch_ranks.size(); ++number) {
    const size_t rank = wire::owner::first + assignment.switch_ranks[number];
    if (rank < numbers.size()) numbers[rank] = static_cast<uint8_t>(wire::owner::first + number);
  }
  return numbers;
}

std::vector<sockaddr_in> switch_endpoints(const RankAssignment& assignment) {
  if (assignment.aggregators.empty()) {
    return {net::ipv4_endpoint(net::parse_ipv4(assignment.switch_address), assignment.switch_udp_port)};
  }
  std::vector<sockaddr_in> endpoints;
  endpoints.reserve(assignment.aggregators.size());
  for (const Aggregator& aggregator : assignment.aggregators) {
    endpoints.push_back(net::ipv4_endpoint(net::parse_ipv4(aggregator.address), aggregator.udp_port));
  }
  return endpoints;
}

}  // namespace switchml::agent
