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

void ResultFrames::start(const OutgoingPacket& packet) {
  packet_ = &packet;
  has_icrc_ = false;
}

const std::vector<uint8_t>& ResultFrames::frame_to(const RankAddress& rank, const SwitchAddress& own) {
  const OutgoingPacket& packet = *packet_;
  frame_.resize(packet.frame_bytes() + (rank.queue_pair ? wire::rocev2::overhead_bytes : 0));
  uint8_t* ip = frame_.data() + wire::ethernet::bytes;
  uint8_t* at = frame_.data() + wire::kHeadersBeforeUdpPayload;
  store_result_headers(packet, rank, own, frame_.data());
  if (rank.queue_pair) {
    store_ud_send(frame_.data(), *rank.queue_pair, wire::load_header(packet.header).secret);
    at += wire::kBetweenUdpAndHeader;
  }
  wire::store_ipv4_checksum(ip);
  std::memcpy(at, packet.header, packet.header_bytes);
  at += packet.header_bytes;
  if (packet.payload_bytes > 0) std::memcpy(at, packet.payload, packet.payload_bytes);
  at += packet.payload_bytes;
  if (rank.queue_pair) {
    if (!has_icrc_) icrc_.start(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes);
    has_icrc_ = true;
    icrc_.store(ip, at);
    at += wire::kIcrcBytes;
  }
  if (packet.trailer_bytes > 0) std::memcpy(at, packet.trailer, packet.trailer_bytes);
  return frame_;
}

}  // namespace switchml::soft
