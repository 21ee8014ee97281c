// RoCEv2: the headers between UDP and a SwitchML packet of an RDMA card, one UD SEND (InfiniBand Architecture
// Specification, volume 1, chapter 9 and annex A17). Where the fields are, in bytes from the start of each header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/wire/constants.h"
#include "native/wire/frame_headers.h"
#include "native/wire/wire.h"

namespace switchml::wire {

// Base transport header.
namespace bth {
constexpr size_t bytes = 12;
constexpr size_t opcode = 0;
constexpr size_t flags = 1;  // solicited event, migration state, 2 bits of padding, 4 of version
constexpr size_t partition_key = 2;
constexpr size_t congestion = 4;
constexpr size_t destination_queue_pair = 5;  // 24 bits
constexpr size_t sequence_number = 8;         // 24 bits behind the request for an acknowledgement
constexpr uint8_t migrated = 0x40;
constexpr uint8_t padding_and_version = 0x3F;
}  // namespace bth

// Datagram extended transport header.
namespace deth {
constexpr size_t bytes = 8;
constexpr size_t queue_key = 0;
constexpr size_t source_queue_pair = 5;            // 24 bits
constexpr uint32_t users_queue_keys = 0x7FFFFFFF;  // with the highest bit, a key is the system's
}  // namespace deth

constexpr size_t kIcrcBytes = 4;
constexpr size_t kBetweenUdpAndHeader = bth::bytes + deth::bytes;
static_assert(kBetweenUdpAndHeader + kIcrcBytes == rocev2::overhead_bytes);

// In worker_table, a sender is its UDP port, or its queue pair with this bit.
constexpr uint32_t kIsQueuePair = rocev2::queue_pairs;

inline uint32_t load24(const uint8_t* p) { return static_cast<uint32_t>(load16(p)) << 8U | p[2]; }
inline void store24(uint8_t* p, uint32_t v) {
  store16(p, static_cast<uint16_t>(v >> 8U));
  p[2] = static_cast<uint8_t>(v);
}

// Returns whether a BTH is that of a UD SEND to the switch; all other RDMA traffic is ordinary.
inline bool is_for_switch(const uint8_t* header) {
  return header[bth::opcode] == rocev2::opcode && load24(header + bth::destination_queue_pair) == rocev2::queue_pair;
}

}  // namespace switchml::wire
