// The processing of a packet in the switch (docs/understand/protocol.md), in one pass and with the same decisions as
// the P4 program. For the same frames both must send the same bytes and count the same numbers.
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

// A contribution without a packet: the fields that its headers would have, and its values, if it has any.
struct BareContribution {
  wire::Header header;
  uint32_t ipv4_src = 0;
  uint16_t sender = 0;       // the number of the connection
  size_t payload_bytes = 0;  // of the values that its packet would have
  Values values;             // words, never codes
};

// Tables, registers and counters of one switch, and the path of a packet through them. Not thread-safe: the owner must
// let only one thread at a time use it.
class Pipeline {
 public:
  static constexpr size_t kJobCounterEntries = wire::protocol::max_jobs << 4U;

  // `ports` must outlive the pipeline.
  Pipeline(std::unique_ptr<SlotStore> slots, const PortTable* ports);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Processes one packet from a port, after the port's faults. Packets that it sends may wait until flush(). Does not
  // throw.
  void receive(PipelinePort* ingress, const net::Datagram& packet);
  // Processes a contribution without a packet. Returns the verdict, or nothing if the contribution was dropped before
  // it reached the slot.
  std::optional<wire::Verdict> contribute(const PipelinePort& ingress, const BareContribution& contribution);
  // Sends the result of a half whose sum was made after its last contribution (SlotStore::complete).
  void send_completed(size_t half, const Completion& completion);
  // Processes packets that a port's faults have held long enough.
  void release_expired(PipelinePort* port, PipelinePort::Clock::time_point now);
  // Sends all waiting packets. Call it at the end of a burst, before any other use of this object.
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
  // Returns whether the frame, or a length in its headers, ends before the SwitchML header or the values do.
  bool ends_early(const PacketView& packet) const;
  // Returns why a packet cannot be a contribution of any sender.
  std::optional<wire::DropReason> malformed(const PipelinePort& ingress, const PacketView& packet,
                                            const wire::Header& header) const;
  // Returns the values of a contribution as words: those that its codes stand for, if it has codes. Valid until the
  // next call.
  Values in_words(const wire::Header& header, const Values& values);
  // Returns why a packet is not admitted that nothing else is wrong with: worker_table has no entry for it, or it is
  // not intact.
  wire::DropReason why_not_admitted(const wire::Header& header, bool intact) const;
  // Returns the entry that admits a packet, or null.
  WorkerEntry* find_sender(const PipelinePort& ingress, const PacketView& packet, const wire::Header& header);
  // Updates the slot's registers, sends what follows from them and returns the verdict.
  wire::Verdict aggregate(const PipelinePort& ingress, const PacketView& packet, const wire::Header& header,
                          const Values& values, const Admission& admission);
  // Updates the slot's registers by a contribution and returns the verdict; `aggregated` also if it is the last one.
  wire::Verdict take_contribution(const wire::Header& header, const Values& values, const Admission& admission,
                                  HalfState* half);
  // Replaces what a half holds by a RESULT of the parent and returns the verdict, as take_contribution() does.
  wire::Verdict take_parents_result(const wire::Header& header, const Values& values, const Admission& admission,
                                    HalfState* half);
  // Returns the header of a packet with the contents of a half, which otherwise is that of `trigger`.
  wire::Header header_of(const HalfState& half, const wire::Header& trigger, wire::Kind kind) const;
  // Sends the sum of the ranks below to the parent as this switch's contribution.
  void send_to_parent(const PacketView& packet, const wire::Header& header, const Admission& admission,
                      HalfState* half);
  void store_first(const wire::Header& header, const Values& values, const Admission& admission, HalfState* half);
  void add(const wire::Header& header, const Values& values, const Admission& admission, HalfState* half);
  void store_values(const wire::Header& header, const Values& values);

  static bool is_result(const wire::Header& header) { return header.kind == static_cast<uint8_t>(wire::Kind::result); }
  static bool has_values(const wire::Header& header) { return (header.flags & wire::flag::without_values) == 0; }
  size_t payload_bytes(const wire::Header& header) const {
    return has_values(header) ? slots_->values_per_packet() * wire::value_bytes(header.format) : 0;
  }

  std::unique_ptr<SlotStore> slots_;
  std::vector<Counter> job_counters_;
  std::vector<uint8_t> expanded_;  // the words of one contribution
  Egress egress_;
  ResultSender results_;
  Forwarding forwarding_;
};

}  // namespace switchml::soft
