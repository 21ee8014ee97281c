#include "host_agent/native/assignment.h"

#include <stdexcept>

#include "native/runtime/precedence.h"
#include "native/wire/constants.h"

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
  require(assignment.epoch != 0, "epoch must not be 0");
  return assignment;
}

}  // namespace switchml::agent
