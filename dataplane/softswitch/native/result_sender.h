// Gathers results and sends them in bursts, straight from slot memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/native/constants.h"
#include "dataplane/native/wire.h"
#include "dataplane/softswitch/native/counter.h"
#include "dataplane/softswitch/native/slot_memory.h"
#include "dataplane/softswitch/native/tables.h"
#include "dataplane/softswitch/native/udp_port.h"

namespace switchml {

constexpr uint16_t kPortNumbers = 512;  // ports are 9 bits wide, as in v1model

// The ports of a switch by number; null where there is none.
using Ports = std::array<std::unique_ptr<UdpPort>, kPortNumbers>;

// drop_counter, by DropReason.
class DropCounters {
 public:
  static constexpr size_t kEntries = 32;

  Counter& operator[](DropReason reason) { return counters_[static_cast<size_t>(reason)]; }
  Counter& at(size_t index) { return counters_[index]; }

 private:
  std::array<Counter, kEntries> counters_{};
};

// Results of one burst share job, receivers and size. Values are not copied, so a half whose result is still waiting
// must not be written to: see holds().
class ResultSender {
 public:
  ResultSender(Tables* tables, const Ports* ports, DropCounters* drops);

  // Queues the result in `half` for every replica of a group. `header` is complete; a header that is exponent-only
  // leaves the values out.
  void multicast(uint16_t group, const Header& header, size_t payload_bytes, HalfState* half, const uint8_t* values);
  // Queues it for the worker named in `header` alone, out of `port`.
  void resend(uint16_t port, const Header& header, size_t payload_bytes, HalfState* half, const uint8_t* values);

  // Whether the values of this half are waiting to be sent.
  bool holds(const HalfState& half) const { return half.result_burst == burst_; }

  void flush();

 private:
  static constexpr size_t kMostPackets = 64;

  // What the packets of a burst have in common.
  struct Receivers {
    bool multicast = false;
    uint16_t job = 0;
    uint16_t group_or_port = 0;
    uint8_t worker = 0;  // of a resend
    size_t payload_bytes = 0;

    bool operator==(const Receivers& other) const;
  };

  void queue(const Receivers& receivers, const Header& header, HalfState* half, const uint8_t* values);
  void send_to_group();
  // Appends the address of a rank; counts the burst as dropped when it has none.
  void add_destination(uint16_t rank);
  void send_out_of(uint16_t port);
  void count_dropped(DropReason reason, size_t copies);

  Tables* tables_;
  const Ports* ports_;
  DropCounters* drops_;
  Receivers receivers_;
  size_t most_packets_ = kMostPackets;
  std::array<std::array<uint8_t, protocol::header_bytes>, kMostPackets> headers_{};
  std::vector<OutgoingPacket> packets_;
  std::vector<sockaddr_in> destinations_;
  // Marks halves as held. Each flush begins a new burst, so marks never need clearing; 0 marks nothing. After 2^32
  // bursts an old mark can be taken for a new one, which costs a flush and no more.
  uint32_t burst_ = 1;
};

}  // namespace switchml
