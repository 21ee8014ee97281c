// The headers of SwitchML packets, for ports on which this process builds whole Ethernet frames.
#pragma once

#include "native/wire/constants.h"
#include "native/wire/frame_headers.h"

namespace switchml::wire {

// Numbers are in host byte order.
struct FrameAddresses {
  uint64_t eth_dst = 0;
  uint64_t eth_src = 0;
  uint32_t ipv4_src = 0;
  uint32_t ipv4_dst = 0;
  uint16_t udp_src = 0;
  uint16_t udp_dst = 0;
  uint8_t traffic_class = 0;
};

// Writes kHeadersBeforeUdpPayload bytes (docs/understand/protocol.md; ResultHeaders in p4/common/aggregation.p4). The
// IPv4 checksum is 0; store_ipv4_checksum() or the device fills it in. UDP has no checksum (RFC 768), because the check
// of the SwitchML header covers the values.
inline void store_frame_headers(uint8_t* frame, const FrameAddresses& addresses, size_t udp_payload_bytes) {
  store48(frame + ethernet::dst, addresses.eth_dst);
  store48(frame + ethernet::src, addresses.eth_src);
  store16(frame + ethernet::type, ethernet::type_ipv4);
  uint8_t* ip = frame + ethernet::bytes;
  ip[ipv4::version_and_length] = ipv4::version_4_without_options;
  ip[ipv4::traffic_class] = addresses.traffic_class;
  const size_t udp_length = udp::bytes + udp_payload_bytes;
  store16(ip + ipv4::total_length, static_cast<uint16_t>(ipv4::bytes + udp_length));
  store16(ip + ipv4::identification, 0);
  store16(ip + ipv4::fragment, ipv4::dont_fragment);
  ip[ipv4::ttl] = protocol::ipv4_ttl;
  ip[ipv4::protocol] = ipv4::protocol_udp;
  store16(ip + ipv4::checksum, 0);
  store32(ip + ipv4::src, addresses.ipv4_src);
  store32(ip + ipv4::dst, addresses.ipv4_dst);
  uint8_t* datagram = ip + ipv4::bytes;
  store16(datagram + udp::src, addresses.udp_src);
  store16(datagram + udp::dst, addresses.udp_dst);
  store16(datagram + udp::length, static_cast<uint16_t>(udp_length));
  store16(datagram + udp::checksum, 0);
}

}  // namespace switchml::wire
