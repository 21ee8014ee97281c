// The division of slots among threads: the agent's data threads, and the shards of the soft switch.
//
// The slot field of a packet alone decides which thread gets it, so that the kernel can pass each packet to the socket
// of the right thread (open_udp_sockets). The kernel looks only at the first packet of a GSO batch; so a batch never
// crosses from one block of slots into the next, and belongs to one thread as a whole.
#pragma once

#include <cstdint>

namespace switchml::wire {

constexpr unsigned kSlotBlockBits = 7;

// Returns the part, from 0 to `parts` - 1, to which a pool index belongs.
constexpr unsigned part_of_slot(uint32_t slot, unsigned parts) {
  return parts == 1 ? 0 : static_cast<unsigned>(slot >> kSlotBlockBits) % parts;
}

// Returns which of the switches that share the slots of a job has a slot of its pool. The loads of the switches differ
// by at most one slot of the pool.
constexpr unsigned switch_of_slot(uint32_t slot, unsigned switches) { return switches == 1 ? 0 : slot % switches; }

// Returns whether packets of the two slots may be in one GSO batch.
constexpr bool in_same_block(uint32_t slot, uint32_t other) {
  return slot >> kSlotBlockBits == other >> kSlotBlockBits;
}

}  // namespace switchml::wire
