// The interface of every kind of port to the pipeline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
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

// One RESULT to send: the memory that it consists of, and the fields that its frame copies from the packet that
// triggered it.
struct OutgoingPacket {
  const uint8_t* header;
  size_t header_bytes;
  const uint8_t* payload;
  size_t payload_bytes;
  uint8_t traffic_class;
  const uint8_t* trailer;  // the bytes of the triggering frame behind its datagram
  size_t trailer_bytes;
  size_t trigger_bytes;  // bytes of the triggering frame, for counters

  // Returns the bytes of the frame, or of the frame that carries the datagram.
  size_t frame_bytes() const { return wire::kHeadersBeforeUdpPayload + header_bytes + payload_bytes + trailer_bytes; }
};

// Counters and settings of one port since it was made, in both directions.
struct PortCounters : counters::Port, counters::Faults {
  int last_send_errno = 0;    // of the last send error; 0 without one
  size_t receive_buffer = 0;  // bytes
  size_t send_buffer = 0;     // bytes
  uint16_t udp_port = 0;      // 0 for a port that is not UDP
  bool gso = false;
  bool gro = false;

  void set_sending(const net::SendCounters& sending);
  // Adds what another shard's socket of the same port has seen; buffers are each socket's own.
  void add(const PortCounters& other);
};

// A port of the pipeline: contributions come in and results leave through it. It injects faults in both directions.
class PipelinePort {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~PipelinePort() = default;
  PipelinePort(const PipelinePort&) = delete;
  PipelinePort& operator=(const PipelinePort&) = delete;

  uint16_t number() const { return number_; }
  // True for a port of Ethernet frames, false for a port of UDP payloads.
  bool carries_frames() const { return carries_frames_; }
  virtual PortCounters counters() const = 0;
  // Returns whether a packet that came in here claims to come from the switch itself. Not virtual, because it is called
  // for every packet.
  bool has_own_source(const PacketView& packet, const SwitchAddress& own) const {
    return carries_frames_ ? has_own_address(packet, own) : comes_from_own_socket(packet, own);
  }

  // Sets the faults of both directions, which draw independent random numbers from one seed. Throws
  // std::invalid_argument for a rate outside 0..1.
  void set_faults(const FaultRates& rates, uint64_t seed);

  // Applies the faults of this port to a packet that came in, and calls accept(packet) for each copy that is left and
  // for each held packet that is now released.
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
    ingress_faults_.take_reordered(&ingress_due_);
    deliver_due(accept);
  }

  // Sends each packet to each rank through the faults of this port. The packets are not needed afterwards.
  virtual void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                            const SwitchAddress& own, Counter* injected_loss) = 0;
  // Releases packets that the faults have held long enough; call it no later than next_deadline().
  template <class Accept>
  void release_expired(Clock::time_point now, Accept&& accept) {
    ingress_faults_.take_expired(now, &ingress_due_);
    deliver_due(accept);
    egress_faults_.take_expired(now, &egress_due_);
    send_due();
  }
  std::optional<Clock::time_point> next_deadline() const;

 protected:
  // The address and port of a bound UDP socket. The address is 0 if it is bound to every address.
  struct Endpoint {
    uint32_t address = 0;
    uint16_t udp_port = 0;
  };

  // A port of UDP payloads must set its endpoint as soon as it is bound.
  PipelinePort(uint16_t number, bool carries_frames) : number_(number), carries_frames_(carries_frames) {}
  void set_own_endpoint(Endpoint endpoint) { own_endpoint_ = endpoint; }

  // Applies the faults to one outgoing packet and returns the number of copies to send now. Held packets that are now
  // released are added to egress_due().
  int copies_to_send(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes,
                     const sockaddr_in& destination, Counter* injected_loss);
  bool has_egress_faults() const { return egress_faults_.active(); }
  bool has_faults() const { return ingress_faults_.active() || egress_faults_.active(); }
  // Counts a packet that does not go through deliver().
  void count_received() { ++received_; }
  std::vector<HeldPacket>& egress_due() { return egress_due_; }
  // Sends egress_due() and empties it.
  virtual void send_due() = 0;

  // Returns the part of counters() that is the same for every kind of port.
  PortCounters common_counters() const;

 private:
  // Returns the bytes of the headers in which the fault injector flips no bits, because their own checksums protect
  // them.
  size_t sheltered() const { return carries_frames_ ? wire::kHeadersBeforeUdpPayload : 0; }

  template <class Accept>
  void deliver_due(Accept&& accept) {
    for (const HeldPacket& packet : ingress_due_)
      accept(net::Datagram{packet.bytes.data(), packet.bytes.size(), packet.peer});
    ingress_due_.clear();
  }

  // An address that is not set matches no packet, although DHCP clients send from 0.0.0.0.
  static bool has_own_address(const PacketView& packet, const SwitchAddress& own) {
    return (own.mac != 0 && packet.eth_src == own.mac) || (own.ip != 0 && packet.ipv4_src == own.ip);
  }
  // Hosts may have the same IPv4 address as the switch (127.0.0.1), so the UDP port must match, too.
  bool comes_from_own_socket(const PacketView& packet, const SwitchAddress& own) const {
    if (packet.sender != own_endpoint_.udp_port) return false;
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

// A new port: the part of each shard. The header of each transport has a struct that describes a port of it, and a
// function open_port() that opens one.
using PortParts = std::vector<std::unique_ptr<PipelinePort>>;

// For a port that cannot be divided: throws std::invalid_argument if there are several shards.
void require_one_shard(size_t shards);

}  // namespace switchml::soft
