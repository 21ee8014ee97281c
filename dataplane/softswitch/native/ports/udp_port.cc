#include "dataplane/softswitch/native/ports/udp_port.h"

#include <utility>

namespace switchml::soft {
UdpPort::UdpPort(uint16_t number, net::UdpSocket socket) : Port(number, false), socket_(std::move(socket)) {
  set_own_endpoint({socket_.address(), socket_.port()});
}

PortCounters UdpPort::counters() const {
  PortCounters counters = common_counters();
  counters.receive_overflow = socket_.receive_drops();
  counters.set_sending(sender_.counters());
  counters.receive_buffer = socket_.receive_buffer();
  counters.send_buffer = socket_.send_buffer();
  counters.udp_port = socket_.port();
  counters.gso = sender_.gso();
  counters.gro = socket_.gro();
  return counters;
}

void UdpPort::send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                           const SwitchAddress& /*own: the kernel writes source addresses*/, Counter* injected_loss) {
  destinations_.clear();
  for (const RankAddress& rank : ranks) destinations_.push_back(net::ipv4_endpoint(rank.ipv4_dst, rank.udp_dst));
  if (has_egress_faults()) {
    for (const sockaddr_in& destination : destinations_) send_with_faults(packets, destination, injected_loss);
    return;
  }
  for (const OutgoingPacket& packet : packets) {
    sender_.add(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes);
  }
  sender_.flush(socket_, destinations_.data(), destinations_.size());
}

void UdpPort::send_with_faults(const std::vector<OutgoingPacket>& packets, const sockaddr_in& destination,
                               Counter* injected_loss) {
  for (const OutgoingPacket& packet : packets) {
    const int copies = copies_to_send(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes,
                                      destination, injected_loss);
    for (int copy = 0; copy < copies; ++copy) {
      sender_.add(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes);
    }
  }
  sender_.flush(socket_, destination);
  send_due();
}

void UdpPort::send_due() {
  for (const HeldPacket& packet : egress_due()) {
    sender_.add(packet.bytes.data(), packet.bytes.size(), nullptr, 0);
    sender_.flush(socket_, packet.peer);
  }
  egress_due().clear();
}

PortParts open_port(uint16_t number, const UdpPortSpec& spec, size_t shards) {
  PortParts parts;
  for (net::UdpSocket& socket :
       net::open_udp_sockets(spec.address, spec.udp_port, UdpPort::kSocketBufferBytes, static_cast<unsigned>(shards))) {
    parts.push_back(std::make_unique<UdpPort>(number, std::move(socket)));
  }
  return parts;
}

}  // namespace switchml::soft
