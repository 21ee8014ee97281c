// From a decision to a port: what the P4 program does in egress, and which port that is.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "dataplane/softswitch/native/tables/tables.h"

namespace switchml::soft {

class Egress {
 public:
  // All of them outlive it.
  Egress(Tables* tables, const PortTable* ports, DropCounters* drops) : tables_(tables), ports_(ports), drops_(drops) {}

  // Sends each packet to each rank out of `port`. Does nothing if the port does not exist.
  void send_results(uint16_t port, const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks);

  // Sends a frame out of `port`. A port that is not there takes it as BMv2 does, whose program cannot know: nothing is
  // counted. A UDP port has no place for a frame (no_route).
  void send_frame(uint16_t port, const uint8_t* frame, size_t bytes);

  // Sends what waits in the ports.
  void flush();

 private:
  void send_what_is_not_lost(PipelinePort* port, const std::vector<OutgoingPacket>& packets,
                             const std::vector<RankAddress>& ranks);
  void flush_later(uint16_t port);

  Tables* tables_;
  const PortTable* ports_;
  DropCounters* drops_;
  std::vector<Port*> waiting_;  // to be flushed
  std::bitset<kPortNumbers> is_waiting_;
  // Of one destination, while egress loss is set.
  std::vector<OutgoingPacket> kept_;
};

}  // namespace switchml::soft
