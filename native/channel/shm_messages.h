// The messages between an agent and a switch on the same machine over the SEQPACKET socket of a shm port, once per
// rank. Both ends are of one release and on one machine, so a message is the structure as it is in memory.
//
// The agent sends a ShmRequest; the switch answers with a ShmAnswer. After a `bind` that was granted the connection
// stands for the rank: its number takes the place of the UDP source port in worker_table and rank_table, and the rank
// is served until the connection is closed. Over it the agent may send `freeze`, and then `fetch`, which is followed by
// one uint32_t for each slot (docs/understand/correctness.md, "Epoch change"). The answer to either is followed by one
// uint32_t for each slot: the number of its phases that the rank holds. Two descriptors come with the answer to `bind`:
// the rank's memory (channel.h) and its doorbell, an eventfd; and a third one, the job's memory for direct calls
// (direct_memory.h), if all its ranks come to this port.
#pragma once

#include <array>
#include <cstdint>

#include "native/wire/wire.h"

namespace switchml::channel {

struct ShmRequest {
  static constexpr uint64_t kMagic = 0x53574D4C53523039;  // "SWMLSR09"
  static constexpr uint32_t kWhoAreYou = 1;               // asks for the switch and the number of its port
  static constexpr uint32_t kBind = 2;
  static constexpr uint32_t kFreeze = 3;
  static constexpr uint32_t kFetch = 4;

  uint64_t magic;
  uint32_t kind;
  uint32_t ipv4;  // the agent's, in host byte order, as it stands in worker_table
  uint32_t slots;
  uint32_t values;
  uint16_t slot_base;
  uint16_t job;
  uint16_t epoch;
  uint16_t rank;
  uint16_t world_size;
  uint8_t worker;   // the rank's number in packets: among the senders at the switch
  uint8_t workers;  // above all such numbers that the agent knows of
  uint32_t secret;
  uint32_t optional_values;  // 0 or 1; as in Geometry
  uint32_t owned_results;    // the same
  uint32_t formats;          // as in Geometry
  uint32_t priority;         // among the jobs of the tenant
  uint64_t tenant;
  uint32_t one_port;  // 1: all ranks of the job come to this port, so that they can share memory with each other
  wire::OwnerNumbers owners;  // of the switch
};

struct ShmAnswer {
  static constexpr uint64_t kMagic = 0x53574D4C53413031;  // "SWMLSA01"

  uint64_t magic;
  uint32_t granted;  // 0: refused; `reason` says why
  uint16_t port;     // of the switch
  uint16_t connection;
  std::array<char, 240> reason;  // ends with a zero
};

constexpr size_t kShmDescriptors = 3;

}  // namespace switchml::channel
