// Gathers results and sends them in bursts, without copying them from slot memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/pipeline/egress.h"
#include "dataplane/softswitch/native/pipeline/slot_memory.h"
#include "dataplane/softswitch/native/ports/packet_view.h"
#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "dataplane/softswitch/native/tables/tables.h"
#include "native/wire/constants.h"
#include "native/wire/wire.h"

namespace switchml::soft {

// Results of one burst share job, receivers and size, apart from copies without values. Values are not copied, so a
// half whose result is still waiting must not be written to: see holds().
class ResultSender {
 public:
  // One result: the header to send, and the half that holds its values, if it has any.
  struct Result {
    const wire::Header& header;
    size_t payload_bytes;
    HalfState* half;
    const uint8_t* values;
  };

  // All of the arguments must outlive this object.
  ResultSender(const Tables* tables, Egress* egress, DropCounters* drops);

  // Queues a result for every replica of a group. `trigger` is the packet that it answers. As in the replication engine
  // of any P4 target, a group or port that does not exist makes no copies, and nothing is counted as dropped.
  void multicast(uint16_t group, const PacketView& trigger, const Result& result);
  // Queues a result only for the worker named in its header, out of `port`.
  void resend(uint16_t port, const PacketView& trigger, const Result& result);

  // Returns whether the values of this half are waiting to be sent.
  bool holds(const HalfState& half) const { return half.result_burst == burst_; }

  void flush();

 private:
  static constexpr size_t kMostPackets = 64;

  // The properties that all packets of a burst share.
  struct Receivers {
    bool multicast = false;
    uint16_t job = 0;
    uint16_t group_or_port = 0;
    uint8_t worker = 0;  // of a resend
    bool owned = false;  // each result has an owner, and values only in the copies for it
    size_t payload_bytes = 0;

    bool operator==(const Receivers& other) const;
  };

  void queue(const Receivers& receivers, const PacketView& trigger, const Result& result);
  void send_to_group();
  // Sends the burst to the destination: the results whose owner is there with their values, then the others without.
  void send_owned(uint16_t port);
  // Appends the address of a rank; counts the burst as dropped if the rank has no address.
  void add_destination(uint16_t rank);
  void send_out_of(uint16_t port);
  void count_dropped(wire::DropReason reason, size_t copies);

  const Tables* tables_;
  Egress* egress_;
  DropCounters* drops_;
  Receivers receivers_;
  uint32_t block_slot_ = 0;  // the slot of one packet of the burst
  size_t most_packets_ = kMostPackets;
  std::array<std::array<uint8_t, wire::protocol::header_bytes>, kMostPackets> headers_{};
  std::vector<OutgoingPacket> packets_;
  std::vector<uint8_t> owners_;  // of packets_, as their headers name them
  std::array<std::array<uint8_t, wire::protocol::header_bytes>, kMostPackets> headers_without_values_{};
  std::vector<OutgoingPacket> copies_;  // of packets_ for one replica
  std::vector<RankAddress> destinations_;
  // Marks halves as held. Each flush begins a new burst, so marks never need clearing; 0 marks nothing. After 2^32
  // bursts an old mark can equal a new one, which only costs an unnecessary flush.
  uint32_t burst_ = 1;
};

}  // namespace switchml::soft
