// What the switch does with a packet: docs/protocol.md, one pass, the same decisions as the P4 program. Both must do
// the same to frames, byte for byte and count for count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/softswitch/native/pipeline/egress.h"
#include "dataplane/softswitch/native/pipeline/forwarding.h"
#include "dataplane/softswitch/native/pipeline/result_sender.h"
#include "dataplane/softswitch/native/pipeline/slot_store.h"
#include "dataplane/softswitch/native/ports/packet_view.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "dataplane/softswitch/native/tables/tables.h"
#include "native/net/udp_batch.h"
#include "native/wire/constants.h"
#include "native/wire/wire.h"

namespace switchml::soft {

// A contribution without a packet: what would stand in its headers, and its values, if it has any.
struct BareContribution {
  wire::Header header;
  uint32_t ipv4_src = 0;
  uint16_t udp_src = 0;      // the number of the connection
  size_t payload_bytes = 0;  // of the values that its packet would have
  Values values;
};

// Tables, registers and counters of one switch, and the path of a packet through them. Not thread-safe: the owner
// lets one thread at a time in.
class Pipeline {
 public:
  static constexpr size_t kJobCounterEntries = wire::protocol::max_jobs << 4U;

  // `ports` outlive the pipeline.
  Pipeline(std::unique_ptr<SlotStore> slots, const PortTable* ports);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Takes one packet from a port, through the port's faults. What it sends may wait until flush(). Does not throw.
  void receive(PipelinePort* ingress, const net::Datagram& packet);
  // Takes a contribution without a packet. Returns the verdict; nothing when it was dropped before the slot was looked
  // at.
  std::optional<wire::Verdict> contribute(const PipelinePort& ingress, const BareContribution& contribution);
  // Sends the result of a half whose sum was made after its last contribution (SlotStore::complete).
  void send_completed(size_t half, const Completion& completion);
  // Lets go of packets that a port's faults held long enough.
  void release_expired(PipelinePort* port, PipelinePort::Clock::time_point now);
  // Sends everything that waits. Call it at the end of a burst, before anything else touches this object.
  void flush();

  SlotStore& slots() { return *slots_; }

  Tables tables;
  DropCounters drops;

  // job_counter; `index` is (job << 4) | verdict, below kJobCounterEntries.
  Counter& job_counter(size_t index) { return job_counters_[index]; }

 private:
  static PacketView view_without_packet(size_t payload_bytes);
  void process(const PipelinePort& ingress, const net::Datagram& received);
  void contribute_packet(const PipelinePort& ingress, const PacketView& packet);
  std::optional<wire::Verdict> decide(const PipelinePort& ingress, const PacketView& packet, const wire::Header& header,
                                      const Values& values);
  // Whether the lengths in a frame's headers end before our header or our values do, or the frame does.
  bool ends_early(const PacketView& packet) const;
  // Why a packet cannot be a contribution, whoever sent it.
  std::optional<wire::DropReason> malformed(const PipelinePort& ingress, const PacketView& packet,
                                            const wire::Header& header) const;
  // Why worker_table has no entry for a packet.
  wire::DropReason why_not_admitted(const wire::Header& header) const;
  // The slot's decision; what it means for the registers is done, too.
  wire::Verdict aggregate(const PipelinePort& ingress, const PacketView& packet, const wire::Header& header,
                          const Values& values, const Admission& admission);
  void store_first(const wire::Header& header, const Values& values, const Admission& admission, HalfState* half);
  void add(const wire::Header& header, const Values& values, const Admission& admission, HalfState* half);

  static bool has_values(const wire::Header& header) { return (header.flags & wire::flag::without_values) == 0; }
  size_t payload_bytes(const wire::Header& header) const {
    return has_values(header) ? slots_->values_per_packet() * sizeof(uint32_t) : 0;
  }

  std::unique_ptr<SlotStore> slots_;
  std::vector<Counter> job_counters_;
  Egress egress_;
  ResultSender results_;
  Forwarding forwarding_;
};

}  // namespace switchml::soft
