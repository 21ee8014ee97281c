#include "dataplane/softswitch/native/udp_port.h"

#include <algorithm>

namespace switchml {
namespace {

// A window of every worker of several jobs: what may arrive while the data thread is busy elsewhere.
constexpr size_t kSocketBufferBytes = size_t{32} << 20U;

constexpr uint64_t kEgressSeed = 0x9E3779B97F4A7C15;  // tells the two directions' random numbers apart

}  // namespace

UdpPort::UdpPort(uint16_t number, const std::string& address, uint16_t udp_port)
    : number_(number), socket_(address, udp_port, kSocketBufferBytes) {}

void UdpPort::set_faults(const FaultRates& rates, uint64_t seed) {
  ingress_faults_.configure(rates, seed);
  egress_faults_.configure(rates, ~seed * kEgressSeed);
}

void UdpPort::send(const std::vector<OutgoingPacket>& packets, const std::vector<sockaddr_in>& destinations,
                   Counter* injected_loss) {
  if (egress_faults_.active()) {
    for (const sockaddr_in& destination : destinations) send_with_faults(packets, destination, injected_loss);
    return;
  }
  for (const OutgoingPacket& packet : packets) {
    sender_.add(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes);
  }
  sender_.flush(socket_, destinations.data(), destinations.size());
}

void UdpPort::send_with_faults(const std::vector<OutgoingPacket>& packets, const sockaddr_in& destination,
                               Counter* injected_loss) {
  for (const OutgoingPacket& packet : packets) {
    const auto fate =
        egress_faults_.decide(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes, destination);
    if (fate == FaultInjector::Fate::dropped) {
      injected_loss->add(1, packet.header_bytes + packet.payload_bytes + kHeadersBeforeUdpPayload);
    }
    const int copies = fate == FaultInjector::Fate::pass_twice ? 2 : fate == FaultInjector::Fate::pass_once ? 1 : 0;
    for (int copy = 0; copy < copies; ++copy) {
      sender_.add(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes);
    }
    egress_faults_.take_overtaken(&egress_due_);
  }
  sender_.flush(socket_, destination);
  send_due();
}

void UdpPort::send_due() {
  for (const HeldPacket& packet : egress_due_) {
    sender_.add(packet.bytes.data(), packet.bytes.size(), nullptr, 0);
    sender_.flush(socket_, packet.peer);
  }
  egress_due_.clear();
}

std::optional<UdpPort::Clock::time_point> UdpPort::next_deadline() const {
  const auto in = ingress_faults_.next_deadline();
  const auto out = egress_faults_.next_deadline();
  if (in && out) return std::min(*in, *out);
  return in ? in : out;
}

FaultCounters UdpPort::fault_counters() const {
  const FaultCounters& in = ingress_faults_.counters();
  const FaultCounters& out = egress_faults_.counters();
  return {in.dropped + out.dropped, in.duplicated + out.duplicated, in.delayed + out.delayed};
}

}  // namespace switchml
