#include "dataplane/softswitch/native/ports/packet_view.h"

#include "native/wire/constants.h"

namespace switchml {

PacketView view_of_frame(const uint8_t* frame, size_t bytes) {
  PacketView view;
  view.frame = frame;
  view.frame_bytes = bytes;
  if (bytes < ethernet::bytes) return view;
  view.content = PacketView::Content::ordinary;
  view.eth_src = wire::load48(frame + ethernet::src);
  if (wire::load16(frame + ethernet::type) != ethernet::type_ipv4) return view;
  const uint8_t* ip = frame + ethernet::bytes;
  size_t left = bytes - ethernet::bytes;
  if (left < ipv4::bytes) return view;
  view.ipv4_src = wire::load32(ip + ipv4::src);
  left -= ipv4::bytes;
  if (ip[ipv4::version_and_length] != ipv4::version_4_without_options || ip[ipv4::protocol] != ipv4::protocol_udp ||
      (wire::load16(ip + ipv4::fragment) & ipv4::more_fragments_or_offset) != 0 || left < udp::bytes) {
    return view;
  }
  const uint8_t* datagram = ip + ipv4::bytes;
  if (wire::load16(datagram + udp::dst) != protocol::udp_port) return view;
  view.content = PacketView::Content::ours;
  view.traffic_class = ip[ipv4::traffic_class];
  view.ipv4_length = wire::load16(ip + ipv4::total_length);
  view.udp_src = wire::load16(datagram + udp::src);
  view.udp_length = wire::load16(datagram + udp::length);
  view.payload = datagram + udp::bytes;
  view.payload_bytes = left - udp::bytes;
  return view;
}

}  // namespace switchml
