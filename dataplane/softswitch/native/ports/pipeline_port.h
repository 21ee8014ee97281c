// What the pipeline knows of a port, whatever is behind it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/softswitch/native/ports/fault_injector.h"
#include "dataplane/softswitch/native/ports/packet_view.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "dataplane/softswitch/native/tables/tables.h"
#include "native/counters/counters.h"
#include "native/net/udp_batch.h"
#include "native/wire/frame_headers.h"

namespace switchml::soft {

// One RESULT about to leave: the memory it is made of, and what its frame takes over from the packet that triggered it.
struct OutgoingPacket {
  const uint8_t* header;
  size_t header_bytes;
  const uint8_t* payload;
  size_t payload_bytes;
  uint8_t traffic_class;
  const uint8_t* trailer;  // what the frame had behind its datagram
  size_t trailer_bytes;
  size_t trigger_bytes;  // the frame that the result answers, which is what counters count

  // The frame's, or of the frame that a datagram stands for.
  size_t frame_bytes() const { return wire::kHeadersBeforeUdpPayload + header_bytes + payload_bytes + trailer_bytes; }
};

// What one port has seen since it was made, in both directions.
struct PortCounters : counters::Port, counters::Faults {
  int last_send_errno = 0;    // of the last send error; 0 without one
  size_t receive_buffer = 0;  // bytes
  size_t send_buffer = 0;     // bytes
  uint16_t udp_port = 0;      // 0 where there is none
  bool gso = false;
  bool gro = false;

  void set_sending(const net::SendCounters& sending);
  // Adds what another shard's socket of the same port has seen; buffers are each socket's own.
  void add(const PortCounters& other);
};

// A port as the pipeline knows it: where a contribution comes from, and where results leave. Faults on purpose are its
// own in both directions.
class PipelinePort {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~PipelinePort() = default;
  PipelinePort(const PipelinePort&) = delete;
  PipelinePort& operator=(const PipelinePort&) = delete;

  uint16_t number() const { return number_; }
  // Ethernet frames, or else the payloads of UDP datagrams.
  bool carries_frames() const { return carries_frames_; }
  virtual PortCounters counters() const = 0;
  // Whether a packet that came in here pretends to come from the switch. Asked for every packet, so not virtual.
  bool has_own_source(const PacketView& packet, const SwitchAddress& own) const {
    return carries_frames_ ? has_own_address(packet, own) : comes_from_own_socket(packet, own);
  }

  // Each direction decides on its own, from one seed. Throws std::invalid_argument for a rate outside 0..1.
  void set_faults(const FaultRates& rates, uint64_t seed);

  // Puts a packet that came in through the faults of this port and calls accept(packet) for what is left of it and
  // for what is released by its passing.
  template <class Accept>
  void deliver(const net::Datagram& packet, Counter* injected_loss, Accept&& accept) {
    ++received_;
    if (!ingress_faults_.active()) {
      accept(packet);
      return;
    }
    const auto fate = ingress_faults_.decide(packet.data, packet.length, nullptr, 0, packet.source, sheltered());
    if (fate == FaultInjector::Fate::dropped) {
      injected_loss->add(1, packet.length + (carries_frames_ ? 0 : wire::kHeadersBeforeUdpPayload));
    }
    if (fate == FaultInjector::Fate::pass_once || fate == FaultInjector::Fate::pass_twice) accept(packet);
    if (fate == FaultInjector::Fate::pass_twice) accept(packet);
    ingress_faults_.take_overtaken(&ingress_due_);
    deliver_due(accept);
  }

  // Sends each packet to each rank through the faults of this port. The packets are not needed afterwards.
  virtual void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                            const SwitchAddress& own, Counter* injected_loss) = 0;
  // Lets go of what the faults held long enough; call it no later than next_deadline().
  template <class Accept>
  void release_expired(Clock::time_point now, Accept&& accept) {
    ingress_faults_.take_expired(now, &ingress_due_);
    deliver_due(accept);
    egress_faults_.take_expired(now, &egress_due_);
    send_due();
  }
  std::optional<Clock::time_point> next_deadline() const;

 protected:
  // Where a UDP socket is bound. The address is 0 when it is bound to every address.
  struct Endpoint {
    uint32_t address = 0;
    uint16_t udp_port = 0;
  };

  // A port of UDP payloads says where it is bound as soon as it is.
  PipelinePort(uint16_t number, bool carries_frames) : number_(number), carries_frames_(carries_frames) {}
  void set_own_endpoint(Endpoint endpoint) { own_endpoint_ = endpoint; }

  // Decides about one packet on its way out: how many copies leave now. What is released by its passing joins
  // egress_due().
  int copies_to_send(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes,
                     const sockaddr_in& destination, Counter* injected_loss);
  bool has_egress_faults() const { return egress_faults_.active(); }
  bool has_faults() const { return ingress_faults_.active() || egress_faults_.active(); }
  // Of a packet that does not go through deliver().
  void count_received() { ++received_; }
  std::vector<HeldPacket>& egress_due() { return egress_due_; }
  // Sends egress_due() and empties it.
  virtual void send_due() = 0;

  // The part of counters() that is the same for every port.
  PortCounters common_counters() const;

 private:
  // Headers that the fault injector leaves alone: their own checksums guard them.
  size_t sheltered() const { return carries_frames_ ? wire::kHeadersBeforeUdpPayload : 0; }

  template <class Accept>
  void deliver_due(Accept&& accept) {
    for (const HeldPacket& packet : ingress_due_)
      accept(net::Datagram{packet.bytes.data(), packet.bytes.size(), packet.peer});
    ingress_due_.clear();
  }

  // An address that is not set yet is nobody's: 0.0.0.0 is a source that DHCP clients use.
  static bool has_own_address(const PacketView& packet, const SwitchAddress& own) {
    return (own.mac != 0 && packet.eth_src == own.mac) || (own.ip != 0 && packet.ipv4_src == own.ip);
  }
  // Hosts may share the switch's IPv4 address (127.0.0.1), so a packet is the switch's own only by the port as well.
  bool comes_from_own_socket(const PacketView& packet, const SwitchAddress& own) const {
    if (packet.udp_src != own_endpoint_.udp_port) return false;
    return packet.ipv4_src == (own_endpoint_.address != 0 ? own_endpoint_.address : own.ip);
  }

  uint16_t number_;
  bool carries_frames_;
  Endpoint own_endpoint_;
  uint64_t received_ = 0;
  FaultInjector ingress_faults_;
  FaultInjector egress_faults_;
  std::vector<HeldPacket> ingress_due_;
  std::vector<HeldPacket> egress_due_;
};

}  // namespace switchml::soft
