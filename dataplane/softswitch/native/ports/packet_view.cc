#include "dataplane/softswitch/native/ports/packet_view.h"

#include "native/wire/constants.h"

namespace switchml::soft {

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
  if (wire::load16(datagram + wire::udp::dst) != wire::protocol::udp_port) return view;
  view.content = PacketView::Content::ours;
  view.traffic_class = ip[wire::ipv4::traffic_class];
  view.ipv4_length = wire::load16(ip + wire::ipv4::total_length);
  view.udp_src = wire::load16(datagram + wire::udp::src);
  view.udp_length = wire::load16(datagram + wire::udp::length);
  view.payload = datagram + wire::udp::bytes;
  view.payload_bytes = left - wire::udp::bytes;
  return view;
}

}  // namespace switchml::soft
