// How slots are divided among threads: the agent's data threads, and the shards of the soft switch.
//
// The wire's slot field alone decides, so that the kernel can hand each packet to the right thread's socket
// (open_udp_sockets). It looks at the first packet of a run that was sent at once; so a run never crosses from one
// block of slots into the next, and belongs to one thread as a whole.
#pragma once

#include <cstdint>

namespace switchml::wire {

constexpr unsigned kSlotBlockBits = 7;

// Which of `parts` a pool index belongs to.
constexpr unsigned part_of_slot(uint32_t slot, unsigned parts) {
  return parts == 1 ? 0 : static_cast<unsigned>(slot >> kSlotBlockBits) % parts;
}

// Whether a run of packets may not go on from one slot to the other.
constexpr bool in_same_block(uint32_t slot, uint32_t other) {
  return slot >> kSlotBlockBits == other >> kSlotBlockBits;
}

}  // namespace switchml::wire
