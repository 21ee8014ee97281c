// A switch port that is a UDP socket: whoever is addressed in the rank table is its peer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/native/udp_batch.h"
#include "dataplane/softswitch/native/counter.h"
#include "dataplane/softswitch/native/fault_injector.h"

namespace switchml {

// One packet about to leave: the memory it is made of.
struct OutgoingPacket {
  const uint8_t* header;
  size_t header_bytes;
  const uint8_t* payload;
  size_t payload_bytes;
};

class UdpPort {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws what UdpSocket throws.
  UdpPort(uint16_t number, const std::string& address, uint16_t udp_port);

  uint16_t number() const { return number_; }
  const UdpSocket& socket() const { return socket_; }

  // Each direction decides on its own, from one seed. Throws std::invalid_argument for a rate outside 0..1.
  void set_faults(const FaultRates& rates, uint64_t seed);

  // Puts a datagram that came in through the faults of this port and calls accept(datagram) for what is left of it
  // and for what is released by its passing.
  template <class Accept>
  void deliver(const Datagram& datagram, Counter* injected_loss, Accept&& accept) {
    ++received_;
    if (!ingress_faults_.active()) {
      accept(datagram);
      return;
    }
    const auto fate = ingress_faults_.decide(datagram.data, datagram.length, nullptr, 0, datagram.source);
    if (fate == FaultInjector::Fate::dropped) {
      injected_loss->add(1, datagram.length + kHeadersBeforeUdpPayload);
    }
    if (fate == FaultInjector::Fate::pass_once || fate == FaultInjector::Fate::pass_twice) accept(datagram);
    if (fate == FaultInjector::Fate::pass_twice) accept(datagram);
    ingress_faults_.take_overtaken(&ingress_due_);
    deliver_due(accept);
  }

  // Sends each packet to each destination through the faults of this port.
  void send(const std::vector<OutgoingPacket>& packets, const std::vector<sockaddr_in>& destinations,
            Counter* injected_loss);

  // Lets go of what the faults held long enough; call it no later than next_deadline().
  template <class Accept>
  void release_expired(Clock::time_point now, Accept&& accept) {
    ingress_faults_.take_expired(now, &ingress_due_);
    deliver_due(accept);
    egress_faults_.take_expired(now, &egress_due_);
    send_due();
  }
  std::optional<Clock::time_point> next_deadline() const;

  uint64_t received() const { return received_; }  // datagrams, before faults
  const SendCounters& send_counters() const { return sender_.counters(); }
  bool gso() const { return sender_.gso(); }
  FaultCounters fault_counters() const;  // of both directions

 private:
  template <class Accept>
  void deliver_due(Accept&& accept) {
    for (const HeldPacket& packet : ingress_due_)
      accept(Datagram{packet.bytes.data(), packet.bytes.size(), packet.peer});
    ingress_due_.clear();
  }
  void send_with_faults(const std::vector<OutgoingPacket>& packets, const sockaddr_in& destination,
                        Counter* injected_loss);
  void send_due();

  uint16_t number_;
  UdpSocket socket_;
  SendBatch sender_;
  uint64_t received_ = 0;
  FaultInjector ingress_faults_;
  FaultInjector egress_faults_;
  std::vector<HeldPacket> ingress_due_;
  std::vector<HeldPacket> egress_due_;
};

}  // namespace switchml
