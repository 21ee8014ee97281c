// A packet as the pipeline looks at it, whichever kind of port it came in through.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>

#include "native/net/udp_batch.h"
#include "native/wire/frame_headers.h"

namespace switchml::soft {

// Numbers are in host byte order. It points into the packet and is valid no longer than that.
struct PacketView {
  enum class Content : uint8_t {
    ours,      // SwitchML, well-formed or not
    ordinary,  // any other Ethernet frame
    runt,      // shorter than an Ethernet header
  };

  Content content = Content::runt;
  const uint8_t* frame = nullptr;  // from the Ethernet header on; null when there is none, behind a UDP port
  size_t frame_bytes = 0;          // what counters count: of a datagram, the frame that it stands for

  // What the headers say. 0 where there is no such header; length and UDP fields only of what is ours.
  uint64_t eth_src = 0;
  uint32_t ipv4_src = 0;
  uint16_t udp_src = 0;
  uint8_t traffic_class = 0;
  size_t ipv4_length = 0;
  size_t udp_length = 0;

  // What is there from the SwitchML header on, to the end of the frame, which may lie behind the end of the datagram.
  const uint8_t* payload = nullptr;
  size_t payload_bytes = 0;
};

// Everything that arrives at a UDP port is ours, and the kernel saw to it that its lengths agree.
inline PacketView view_of_datagram(const net::Datagram& datagram) {
  PacketView view;
  view.content = PacketView::Content::ours;
  view.frame_bytes = datagram.length + wire::kHeadersBeforeUdpPayload;
  view.ipv4_src = ntohl(datagram.source.sin_addr.s_addr);
  view.udp_src = ntohs(datagram.source.sin_port);
  view.udp_length = datagram.length + wire::udp::bytes;
  view.ipv4_length = view.udp_length + wire::ipv4::bytes;
  view.payload = datagram.data;
  view.payload_bytes = datagram.length;
  return view;
}

// The parser (p4/common/parser.p4): a frame is ours when a UDP header with our destination port begins right after 20
// bytes of IPv4, so not in a fragment and not after IPv4 options.
PacketView view_of_frame(const uint8_t* frame, size_t bytes);

}  // namespace switchml::soft
