#include "dataplane/softswitch/native/pipeline/forwarding.h"

#include "dataplane/softswitch/native/pipeline/own_address.h"
#include "native/wire/frame_headers.h"

namespace switchml::soft {

void Forwarding::process(const PipelinePort& ingress, const PacketView& packet) {
  const SwitchAddress& own = tables_->switch_address;
  // A forged RESULT need not use the SwitchML UDP port: an agent may listen at any port, and recognizes the switch by
  // its address.
  if (ingress.has_own_source(packet, own)) {
    (*drops_)[wire::DropReason::forged_result].add(1, packet.frame_bytes);
    return;
  }
  if (answer(packet.frame, packet.frame_bytes, own, &reply_)) {
    egress_->send_frame(ingress.number(), reply_.data(), reply_.size());
    return;
  }
  const L2Action& action = tables_->find_l2(wire::load48(packet.frame + wire::ethernet::dst));
  if (action.kind == L2Action::Kind::flood) {
    flood(action.port_or_group, ingress, packet);
    return;
  }
  // Out of the port it came from, the frame would be a second copy on that link.
  if (action.kind == L2Action::Kind::drop_no_route || action.port_or_group == ingress.number()) {
    (*drops_)[wire::DropReason::no_route].add(1, packet.frame_bytes);
    return;
  }
  egress_->send_frame(action.port_or_group, packet.frame, packet.frame_bytes);
}

// A group that does not exist has no members. BMv2's program cannot detect that, so nothing is counted here either.
void Forwarding::flood(uint16_t group, const PipelinePort& ingress, const PacketView& packet) {
  const std::vector<Replica>* replicas = tables_->find_group(group);
  if (replicas == nullptr) return;
  for (const Replica& replica : *replicas) {
    if (replica.port != ingress.number()) egress_->send_frame(replica.port, packet.frame, packet.frame_bytes);
  }
}

}  // namespace switchml::soft
