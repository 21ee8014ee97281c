// Ethernet, ARP, IPv4, ICMP and UDP headers: where their fields are, in bytes from the start of each header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/wire/wire.h"

namespace switchml::wire {

namespace ethernet {
constexpr size_t bytes = 14;
constexpr size_t address_bytes = 6;
constexpr size_t dst = 0;
constexpr size_t src = 6;
constexpr size_t type = 12;
constexpr uint16_t type_ipv4 = 0x0800;
constexpr uint16_t type_arp = 0x0806;
constexpr uint16_t type_vlan = 0x8100;
}  // namespace ethernet

// RFC 826, for IPv4 over Ethernet.
namespace arp {
constexpr size_t bytes = 28;
constexpr size_t hardware_type = 0;
constexpr size_t protocol_type = 2;
constexpr size_t lengths = 4;  // 8 bits each: of a hardware address and of a protocol address
constexpr size_t operation = 6;
constexpr size_t sender_mac = 8;
constexpr size_t sender_ip = 14;
constexpr size_t target_mac = 18;
constexpr size_t target_ip = 24;
constexpr uint16_t hardware_ethernet = 1;
constexpr uint16_t lengths_of_mac_and_ipv4 = 0x0604;
constexpr uint16_t request = 1;
constexpr uint16_t reply = 2;
}  // namespace arp

// RFC 791, without options.
namespace ipv4 {
constexpr size_t bytes = 20;
constexpr size_t version_and_length = 0;
constexpr size_t traffic_class = 1;  // DSCP and ECN
constexpr size_t total_length = 2;
constexpr size_t identification = 4;
constexpr size_t fragment = 6;  // 3 bits of flags, 13 of offset
constexpr size_t ttl = 8;
constexpr size_t protocol = 9;
constexpr size_t checksum = 10;
constexpr size_t src = 12;
constexpr size_t dst = 16;
constexpr uint8_t version_4_without_options = 0x45;
constexpr uint16_t dont_fragment = 0x4000;
constexpr uint16_t more_fragments_or_offset = 0x3FFF;  // any bit set: a fragment
constexpr uint8_t protocol_icmp = 1;
constexpr uint8_t protocol_udp = 17;
// RFC 2474: the DSCP is the upper 6 bits of the traffic class.
constexpr uint8_t highest_dscp = 63;
constexpr uint8_t traffic_class_of(uint8_t dscp) { return static_cast<uint8_t>(dscp << 2U); }
}  // namespace ipv4

// RFC 792, an echo up to its data.
namespace icmp {
constexpr size_t bytes = 8;
constexpr size_t type_and_code = 0;
constexpr size_t checksum = 2;
constexpr uint16_t echo_request = 0x0800;  // type 8, code 0
constexpr uint16_t echo_reply = 0;
}  // namespace icmp

namespace udp {
constexpr size_t bytes = 8;
constexpr size_t src = 0;
constexpr size_t dst = 2;
constexpr size_t length = 4;
constexpr size_t checksum = 6;
}  // namespace udp

// Bytes in front of the UDP payload in a frame. A UDP port sees only payloads; its counters add these bytes, so that
// they count frames like those of the other ports.
constexpr size_t kHeadersBeforeUdpPayload = ethernet::bytes + ipv4::bytes + udp::bytes;

inline uint64_t load48(const uint8_t* p) { return static_cast<uint64_t>(load16(p)) << 32U | load32(p + 2); }

inline void store48(uint8_t* p, uint64_t v) {
  store16(p, static_cast<uint16_t>(v >> 32U));
  store32(p + 2, static_cast<uint32_t>(v));
}

// Returns the ones' complement sum of big-endian 16-bit words (RFC 1071); an odd last byte is the high half of a word.
inline uint16_t ones_complement_sum(const uint8_t* data, size_t bytes) {
  uint64_t sum = 0;
  for (; bytes >= 4; data += 4, bytes -= 4) sum += load32(data);
  if (bytes >= 2) {
    sum += load16(data);
    data += 2;
    bytes -= 2;
  }
  if (bytes > 0) sum += static_cast<uint64_t>(*data) << 8U;
  while (sum > 0xFFFF) sum = (sum >> 16U) + (sum & 0xFFFFU);
  return static_cast<uint16_t>(sum);
}

// Computes the checksum of an IPv4 header without options and writes it there.
inline void store_ipv4_checksum(uint8_t* header) {
  store16(header + ipv4::checksum, 0);
  store16(header + ipv4::checksum, static_cast<uint16_t>(~ones_complement_sum(header, ipv4::bytes)));
}

}  // namespace switchml::wire
