// Ordinary traffic: Ethernet frames that are not SwitchML packets (p4/common/forwarding.p4).
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/pipeline/egress.h"
#include "dataplane/softswitch/native/ports/packet_view.h"
#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "dataplane/softswitch/native/tables/tables.h"

namespace switchml::soft {

class Forwarding {
 public:
  // All of the arguments must outlive this object.
  Forwarding(Tables* tables, Egress* egress, DropCounters* drops) : tables_(tables), egress_(egress), drops_(drops) {}

  // Answers, forwards or drops a frame.
  void process(const PipelinePort& ingress, const PacketView& packet);

 private:
  void flood(uint16_t group, const PipelinePort& ingress, const PacketView& packet);

  Tables* tables_;
  Egress* egress_;
  DropCounters* drops_;
  std::vector<uint8_t> reply_;
};

}  // namespace switchml::soft
