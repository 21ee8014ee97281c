// Packets and bytes, as P4Runtime counts them (unit BOTH).
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchml {

struct Counter {
  uint64_t packets = 0;
  uint64_t bytes = 0;

  void add(size_t packet_count, size_t bytes_each) {
    packets += packet_count;
    bytes += packet_count * bytes_each;
  }
};

// Ethernet, IPv4 and UDP headers. A UDP port has no frames of its own: its packets count as the frames they stand for.
constexpr size_t kHeadersBeforeUdpPayload = 14 + 20 + 8;

}  // namespace switchml
