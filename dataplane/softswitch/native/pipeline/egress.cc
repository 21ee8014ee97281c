#include "dataplane/softswitch/native/pipeline/egress.h"

namespace switchml::soft {

void Egress::send_results(uint16_t port, const std::vector<OutgoingPacket>& packets,
                          const std::vector<RankAddress>& ranks) {
  Port* out = find(port);
  if (out == nullptr) return;
  if (tables_->loss_egress.covers(port)) {
    send_what_is_not_lost(out, packets, ranks);
  } else {
    out->send_results(packets, ranks, tables_->switch_address, &(*drops_)[wire::DropReason::injected_loss]);
  }
  flush_later(out);
}

// Each copy of a packet is lost on its own.
void Egress::send_what_is_not_lost(Port* port, const std::vector<OutgoingPacket>& packets,
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
  Port* out = find(port);
  if (out == nullptr) return;
  if (out->send_frame(frame, bytes, &(*drops_)[wire::DropReason::injected_loss])) {
    flush_later(out);
  } else {
    (*drops_)[wire::DropReason::no_route].add(1, bytes);
  }
}

void Egress::flush_later(Port* port) {
  if (!port->carries_frames() || is_waiting_[port->number()]) return;
  is_waiting_.set(port->number());
  waiting_.push_back(port);
}

void Egress::flush() {
  for (Port* port : waiting_) {
    port->flush();
    is_waiting_.reset(port->number());
  }
  waiting_.clear();
}

}  // namespace switchml::soft
