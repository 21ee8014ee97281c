#include "dataplane/softswitch/native/ports/packet_view.h"

#include <algorithm>

#include "dataplane/softswitch/native/ports/rocev2_frame.h"
#include "native/wire/constants.h"
#include "native/wire/rocev2.h"

namespace switchml::soft {
namespace {

// Turns the view of a UDP packet with a UD SEND into that of the UDP packet that it stands for.
void decapsulate(PacketView* view) {
  const auto without = [](size_t bytes, size_t headers) { return bytes - std::min(bytes, headers); };
  const uint8_t* deth = view->payload + wire::bth::bytes;
  const bool whole = view->payload_bytes >= wire::kBetweenUdpAndHeader;
  view->sender = wire::kIsQueuePair | (whole ? wire::load24(deth + wire::deth::source_queue_pair) : 0);
  view->ipv4_length = without(view->ipv4_length, wire::rocev2::overhead_bytes);
  view->udp_length = without(view->udp_length, wire::rocev2::overhead_bytes);
  view->payload += std::min(view->payload_bytes, wire::kBetweenUdpAndHeader);
  view->payload_bytes = without(view->payload_bytes, wire::kBetweenUdpAndHeader);
  view->icrc_bytes = wire::kIcrcBytes;
}

}  // namespace

PacketView view_of_frame(const uint8_t* frame, size_t bytes) {
  PacketView view;
  view.frame = frame;
  view.frame_bytes = bytes;
  if (bytes < wire::ethernet::bytes) return view;
  view.content = PacketView::Content::ordinary;
  view.eth_src = wire::load48(frame + wire::ethernet::src);
  if (wire::load16(frame + wire::ethernet::type) != wire::ethernet::type_ipv4) return view;
  const uint8_t* ip = frame + wire::ethernet::bytes;
  size_t left = bytes - wire::ethernet::bytes;
  if (left < wire::ipv4::bytes) return view;
  view.ipv4_src = wire::load32(ip + wire::ipv4::src);
  left -= wire::ipv4::bytes;
  if (ip[wire::ipv4::version_and_length] != wire::ipv4::version_4_without_options ||
      ip[wire::ipv4::protocol] != wire::ipv4::protocol_udp ||
      (wire::load16(ip + wire::ipv4::fragment) & wire::ipv4::more_fragments_or_offset) != 0 ||
      left < wire::udp::bytes) {
    return view;
  }
  const uint8_t* datagram = ip + wire::ipv4::bytes;
  left -= wire::udp::bytes;
  const uint16_t port = wire::load16(datagram + wire::udp::dst);
  const bool is_ud_send =
      port == wire::rocev2::udp_port && left >= wire::bth::bytes && wire::is_for_switch(datagram + wire::udp::bytes);
  if (port != wire::protocol::udp_port && !is_ud_send) return view;
  view.content = PacketView::Content::ours;
  view.traffic_class = ip[wire::ipv4::traffic_class];
  view.ipv4_length = wire::load16(ip + wire::ipv4::total_length);
  view.sender = wire::load16(datagram + wire::udp::src);
  view.udp_length = wire::load16(datagram + wire::udp::length);
  view.payload = datagram + wire::udp::bytes;
  view.payload_bytes = left;
  if (is_ud_send) decapsulate(&view);
  return view;
}

bool is_intact(const PacketView& packet) {
  return packet.icrc_bytes == 0 ||
         has_right_icrc(packet.frame + wire::ethernet::bytes, packet.payload, packet.udp_length - wire::udp::bytes);
}

}  // namespace switchml::soft
