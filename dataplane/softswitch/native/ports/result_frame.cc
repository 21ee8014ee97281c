#include "dataplane/softswitch/native/ports/result_frame.h"

#include <cstring>

#include "native/wire/udp_frame.h"

namespace switchml::soft {

void store_result_headers(const OutgoingPacket& packet, const RankAddress& rank, const SwitchAddress& own,
                          uint8_t* frame) {
  const wire::FrameAddresses addresses{
      rank.eth_dst, own.mac, own.ip, rank.ipv4_dst, wire::protocol::udp_port, rank.udp_dst, packet.traffic_class};
  wire::store_frame_headers(frame, addresses, packet.header_bytes + packet.payload_bytes);
}

void make_result(const OutgoingPacket& packet, const RankAddress& rank, const SwitchAddress& own,
                 std::vector<uint8_t>* frame) {
  frame->resize(packet.frame_bytes());
  uint8_t* at = frame->data();
  store_result_headers(packet, rank, own, at);
  wire::store_ipv4_checksum(at + wire::ethernet::bytes);
  at += wire::kHeadersBeforeUdpPayload;
  std::memcpy(at, packet.header, packet.header_bytes);
  at += packet.header_bytes;
  if (packet.payload_bytes > 0) std::memcpy(at, packet.payload, packet.payload_bytes);
  if (packet.trailer_bytes > 0) std::memcpy(at + packet.payload_bytes, packet.trailer, packet.trailer_bytes);
}

}  // namespace switchml::soft
