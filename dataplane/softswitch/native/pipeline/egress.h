// Egress: finds the port of a forwarding decision and does what the P4 program does in its egress control.
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
  // All of the arguments must outlive this object.
  Egress(Tables* tables, const PortTable* ports, DropCounters* drops) : tables_(tables), ports_(ports), drops_(drops) {}

  // Sends each packet to each rank out of `port`. Does nothing if the port does not exist. If a rank has a queue pair
  // and the port is one of UDP, the packets are dropped and counted as no_route.
  void send_results(uint16_t port, const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks);

  // Sends a frame out of `port`. A frame to a port that does not exist is dropped without being counted, as in BMv2,
  // whose program cannot know. A UDP port cannot carry a frame; it is dropped and counted as no_route.
  void send_frame(uint16_t port, const uint8_t* frame, size_t bytes);

  // Sends the packets that wait in the ports.
  void flush();

 private:
  // Returns whether it has dropped the packets.
  bool drop_for_queue_pairs(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks);
  void send_what_is_not_lost(PipelinePort* port, const std::vector<OutgoingPacket>& packets,
                             const std::vector<RankAddress>& ranks);
  void flush_later(uint16_t port);

  Tables* tables_;
  const PortTable* ports_;
  DropCounters* drops_;
  std::vector<Port*> waiting_;  // ports that flush() must flush
  std::bitset<kPortNumbers> is_waiting_;
  // The packets to one destination that were not lost; used while egress loss is set.
  std::vector<OutgoingPacket> kept_;
};

}  // namespace switchml::soft
