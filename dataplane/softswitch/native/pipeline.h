// What the switch does with a packet: docs/protocol.md, one pass, the same decisions as the P4 program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/native/constants.h"
#include "dataplane/native/udp_batch.h"
#include "dataplane/native/wire.h"
#include "dataplane/softswitch/native/counter.h"
#include "dataplane/softswitch/native/result_sender.h"
#include "dataplane/softswitch/native/slot_memory.h"
#include "dataplane/softswitch/native/tables.h"
#include "dataplane/softswitch/native/udp_port.h"

namespace switchml {

// Tables, registers and counters of one switch, and the path of a packet through them. Not thread-safe: the owner
// lets one thread at a time in.
class Pipeline {
 public:
  static constexpr size_t kJobCounterEntries = protocol::max_jobs << 4U;

  // Throws what SlotMemory throws. `ports` outlive the pipeline.
  Pipeline(size_t slots, size_t values, const Ports* ports);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Takes one datagram from a port, through the port's faults. Results may wait until flush(). Does not throw.
  void receive(UdpPort* ingress, const Datagram& datagram);
  // Lets go of packets that a port's faults held long enough.
  void release_expired(UdpPort* port, UdpPort::Clock::time_point now);
  // Sends every result that waits. Call it at the end of a burst, before anything else touches this object.
  void flush() { results_.flush(); }

  Tables tables;
  SlotMemory slots;
  DropCounters drops;

  // job_counter; `index` is (job << 4) | verdict, below kJobCounterEntries.
  Counter& job_counter(size_t index) { return job_counters_[index]; }

 private:
  void process(const UdpPort& ingress, const Datagram& datagram);
  // Why a packet cannot be a contribution, whoever sent it.
  std::optional<DropReason> malformed(const UdpPort& ingress, const Datagram& datagram, const Header& header) const;
  bool has_own_source(const UdpPort& ingress, const Datagram& datagram) const;
  // Why worker_table has no entry for a packet.
  DropReason why_not_admitted(const Header& header) const;
  // The slot's decision; what it means for the registers is done, too.
  Verdict aggregate(const UdpPort& ingress, const Header& header, const uint8_t* values, const Admission& admission);
  void store_first(const Header& header, const uint8_t* values, const Admission& admission, HalfState* half);
  void add(const Header& header, const uint8_t* values, const Admission& admission, HalfState* half);

  static bool has_values(const Header& header) { return (header.flags & flag::exponent_only) == 0; }
  size_t payload_bytes(const Header& header) const {
    return has_values(header) ? slots.values_per_packet() * sizeof(uint32_t) : 0;
  }

  std::vector<Counter> job_counters_;
  ResultSender results_;
};

}  // namespace switchml
