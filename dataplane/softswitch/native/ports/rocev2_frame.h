// RoCEv2 in frames: the headers of a UD SEND, and the ICRC that RDMA cards verify.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "native/kernels/crc32.h"
#include "native/wire/rocev2.h"

namespace switchml::soft {

// Returns the CRC of what an ICRC covers in front of the SwitchML header; `ip` is the IPv4 header of the frame. It is
// the CRC of Ethernet over eight bytes of ones, and the headers with ones for what routers and switches may change.
uint32_t crc_of_headers(const uint8_t* ip);

// Returns whether the ICRC behind `bytes` bytes of SwitchML header and values at `packet` is that of the frame, and
// nothing is wrong with the padding and the version of its BTH.
bool has_right_icrc(const uint8_t* ip, const uint8_t* packet, size_t bytes);

// Makes frames that carry a UDP packet longer: turns their headers, from Ethernet to UDP, into those of a UD SEND. They
// have no IPv4 checksum yet.
void store_ud_send(uint8_t* frame, uint32_t queue_pair, uint32_t secret);

// Computes the ICRCs of copies of one packet, whose header and values are read once.
class CopiedIcrc {
 public:
  // Begins with another packet: its SwitchML header and its values.
  void start(const uint8_t* header, size_t header_bytes, const uint8_t* values, size_t value_bytes);
  // Writes the ICRC of a copy in a frame with these headers.
  void store(const uint8_t* ip, uint8_t* icrc) const;

 private:
  kernels::Crc32Join join_{0};
  uint32_t packet_crc_ = 0;
};

}  // namespace switchml::soft
