// The view that the pipeline has of a packet, for every kind of port.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>

#include "native/net/udp_batch.h"
#include "native/wire/frame_headers.h"

namespace switchml::soft {

// Numbers are in host byte order. The view points into the packet and is valid only as long as that.
struct PacketView {
  enum class Content : uint8_t {
    ours,      // SwitchML, well-formed or not
    ordinary,  // any other Ethernet frame
    runt,      // shorter than an Ethernet header
  };

  Content content = Content::runt;
  const uint8_t* frame = nullptr;  // from the Ethernet header on; null for a datagram of a UDP port
  size_t frame_bytes = 0;          // counted by counters; for a datagram, the bytes of the frame that carried it

  // Fields of the headers; 0 where a header is absent. Only SwitchML packets have a sender and lengths. A UD SEND has
  // the lengths of the UDP packet that it stands for.
  uint64_t eth_src = 0;
  uint32_t ipv4_src = 0;
  uint32_t sender = 0;  // its UDP port, or its queue pair with wire::kIsQueuePair
  uint8_t traffic_class = 0;
  size_t ipv4_length = 0;
  size_t udp_length = 0;

  // The bytes from the SwitchML header to the end of the frame, which may be behind the end of the datagram.
  const uint8_t* payload = nullptr;
  size_t payload_bytes = 0;
  size_t icrc_bytes = 0;  // behind the datagram if the packet is a UD SEND, else 0
};

// Returns the view of a datagram. Every datagram at a UDP port is a SwitchML packet, and the kernel has checked its
// lengths.
inline PacketView view_of_datagram(const net::Datagram& datagram) {
  PacketView view;
  view.content = PacketView::Content::ours;
  view.frame_bytes = datagram.length + wire::kHeadersBeforeUdpPayload;
  view.ipv4_src = ntohl(datagram.source.sin_addr.s_addr);
  view.sender = ntohs(datagram.source.sin_port);
  view.udp_length = datagram.length + wire::udp::bytes;
  view.ipv4_length = view.udp_length + wire::ipv4::bytes;
  view.payload = datagram.data;
  view.payload_bytes = datagram.length;
  return view;
}

// Parses a frame like p4/common/parser.p4: it is a SwitchML packet if a UDP header with the SwitchML destination port
// begins right after 20 bytes of IPv4, so not in a fragment and not after IPv4 options, or if there is a UD SEND to the
// switch's queue pair.
PacketView view_of_frame(const uint8_t* frame, size_t bytes);

// Returns whether the ICRC of a packet is right, if it has one. The packet is complete and has the lengths of one.
bool is_intact(const PacketView& packet);

}  // namespace switchml::soft
