#include "dataplane/softswitch/native/pipeline/egress.h"

#include <algorithm>

namespace switchml::soft {

void Egress::send_results(uint16_t port, const std::vector<OutgoingPacket>& packets,
                          const std::vector<RankAddress>& ranks) {
  PipelinePort* out = ports_->find(port);
  if (out == nullptr) return;
  if (!out->carries_frames() && drop_for_queue_pairs(packets, ranks)) return;
  if (tables_->loss_egress.covers(port)) {
    send_what_is_not_lost(out, packets, ranks);
  } else {
    out->send_results(packets, ranks, tables_->switch_address, &(*drops_)[wire::DropReason::injected_loss]);
  }
  flush_later(port);
}

// The kernel writes the headers of a UDP port's packets. A burst of which a copy is for a queue pair is not sent there:
// the controller never asks for one.
bool Egress::drop_for_queue_pairs(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks) {
  const bool any = std::any_of(ranks.begin(), ranks.end(), [](const RankAddress& rank) { return rank.queue_pair; });
  if (!any) return false;
  for (const OutgoingPacket& packet : packets) {
    (*drops_)[wire::DropReason::no_route].add(ranks.size(), packet.trigger_bytes);
  }
  return true;
}

// Each copy of a packet is lost independently of the others.
void Egress::send_what_is_not_lost(PipelinePort* port, const std::vector<OutgoingPacket>& packets,
                                   const std::vector<RankAddress>& ranks) {
  Counter* lost = &(*drops_)[wire::DropReason::injected_loss];
  for (const RankAddress& rank : ranks) {
    kept_.clear();
    for (const OutgoingPacket& packet : packets) {
      if (tables_->loss_egress.loses(port->number())) {
        lost->add(1, packet.trigger_bytes);
      } else {
        kept_.push_back(packet);
      }
    }
    if (!kept_.empty()) port->send_results(kept_, {rank}, tables_->switch_address, lost);
  }
}

void Egress::send_frame(uint16_t port, const uint8_t* frame, size_t bytes) {
  if (tables_->loss_egress.loses(port)) {
    (*drops_)[wire::DropReason::injected_loss].add(1, bytes);
    return;
  }
  if (ports_->find(port) == nullptr) return;
  Port* out = ports_->find_packet_port(port);
  if (out != nullptr && out->send_frame(frame, bytes, &(*drops_)[wire::DropReason::injected_loss])) {
    flush_later(port);
  } else {
    (*drops_)[wire::DropReason::no_route].add(1, bytes);
  }
}

void Egress::flush_later(uint16_t port) {
  Port* out = ports_->find_packet_port(port);
  if (out == nullptr || !out->carries_frames() || is_waiting_[port]) return;
  is_waiting_.set(port);
  waiting_.push_back(out);
}

void Egress::flush() {
  for (Port* port : waiting_) {
    port->flush();
    is_waiting_.reset(port->number());
  }
  waiting_.clear();
}

}  // namespace switchml::soft
