#include "dataplane/softswitch/native/ethernet_port.h"

#include <cstring>

#include "dataplane/native/constants.h"
#include "dataplane/native/frame_headers.h"

namespace switchml {
namespace {

// The headers of a RESULT up to its UDP payload (DESIGN: "The wire"; ResultHeaders in p4/common/aggregation.p4).
void store_headers(uint8_t* frame, const SwitchAddress& own, const RankAddress& rank, uint8_t traffic_class,
                   size_t udp_payload_bytes) {
  wire::store48(frame + ethernet::dst, rank.eth_dst);
  wire::store48(frame + ethernet::src, own.mac);
  wire::store16(frame + ethernet::type, ethernet::type_ipv4);
  uint8_t* ip = frame + ethernet::bytes;
  ip[ipv4::version_and_length] = ipv4::version_4_without_options;
  ip[ipv4::traffic_class] = traffic_class;
  const size_t udp_length = udp::bytes + udp_payload_bytes;
  wire::store16(ip + ipv4::total_length, static_cast<uint16_t>(ipv4::bytes + udp_length));
  wire::store16(ip + ipv4::identification, 0);
  wire::store16(ip + ipv4::fragment, ipv4::dont_fragment);
  ip[ipv4::ttl] = protocol::ipv4_ttl;
  ip[ipv4::protocol] = ipv4::protocol_udp;
  wire::store32(ip + ipv4::src, own.ip);
  wire::store32(ip + ipv4::dst, rank.ipv4_dst);
  store_ipv4_checksum(ip);
  uint8_t* datagram = ip + ipv4::bytes;
  wire::store16(datagram + udp::src, protocol::udp_port);
  wire::store16(datagram + udp::dst, rank.udp_dst);
  wire::store16(datagram + udp::length, static_cast<uint16_t>(udp_length));
  wire::store16(datagram + udp::checksum, 0);  // none (RFC 768): the values are covered by our own check
}

// BMv2's deparser puts back whatever the parser left, so the end of a frame that is longer than its datagram travels on
// with the RESULT.
void make_result(const OutgoingPacket& packet, const RankAddress& rank, const SwitchAddress& own,
                 std::vector<uint8_t>* frame) {
  frame->resize(packet.frame_bytes());
  uint8_t* at = frame->data();
  store_headers(at, own, rank, packet.traffic_class, packet.header_bytes + packet.payload_bytes);
  at += kHeadersBeforeUdpPayload;
  std::memcpy(at, packet.header, packet.header_bytes);
  at += packet.header_bytes;
  if (packet.payload_bytes > 0) std::memcpy(at, packet.payload, packet.payload_bytes);
  if (packet.trailer_bytes > 0) std::memcpy(at + packet.payload_bytes, packet.trailer, packet.trailer_bytes);
}

}  // namespace

PortCounters EthernetPort::counters() const {
  PortCounters counters = common_counters();
  counters.receive_overflow = socket_.receive_drops();
  counters.sending = queue_.counters();
  counters.receive_buffer = socket_.receive_buffer();
  counters.send_buffer = socket_.send_buffer();
  return counters;
}

void EthernetPort::send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                                const SwitchAddress& own, Counter* injected_loss) {
  for (const OutgoingPacket& packet : packets) {
    for (const RankAddress& rank : ranks) {
      make_result(packet, rank, own, &result_);
      send_frame(result_.data(), result_.size(), injected_loss);
    }
  }
}

bool EthernetPort::send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) {
  if (!has_egress_faults()) {
    enqueue(frame, bytes);
    return true;
  }
  const int copies = copies_to_send(frame, bytes, nullptr, 0, {}, injected_loss);
  for (int copy = 0; copy < copies; ++copy) enqueue(frame, bytes);
  for (const HeldPacket& packet : egress_due()) enqueue(packet.bytes.data(), packet.bytes.size());
  egress_due().clear();
  return true;
}

void EthernetPort::enqueue(const uint8_t* frame, size_t bytes) {
  std::memcpy(queue_.add(bytes), frame, bytes);
  if (queue_.size() == FrameSendQueue::kMostFrames) flush();
}

void EthernetPort::send_due() {
  for (const HeldPacket& packet : egress_due()) enqueue(packet.bytes.data(), packet.bytes.size());
  egress_due().clear();
  flush();
}

}  // namespace switchml
