#include "dataplane/softswitch/native/ports/ethernet_port.h"

#include <cstring>

namespace switchml::soft {

PortCounters EthernetPort::counters() const {
  PortCounters counters = common_counters();
  counters.receive_overflow = socket_.receive_drops();
  counters.set_sending(queue_.counters());
  counters.receive_buffer = socket_.receive_buffer();
  counters.send_buffer = socket_.send_buffer();
  return counters;
}

void EthernetPort::send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                                const SwitchAddress& own, Counter* injected_loss) {
  for (const OutgoingPacket& packet : packets) {
    results_.start(packet);
    for (const RankAddress& rank : ranks) {
      const std::vector<uint8_t>& frame = results_.frame_to(rank, own);
      send_frame(frame.data(), frame.size(), injected_loss);
    }
  }
}

bool EthernetPort::send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) {
  if (!has_egress_faults()) {
    enqueue(frame, bytes);
    return true;
  }
  const int copies = copies_to_send(frame, bytes, nullptr, 0, {}, injected_loss);
  for (int copy = 0; copy < copies; ++copy) enqueue(frame, bytes);
  for (const HeldPacket& packet : egress_due()) enqueue(packet.bytes.data(), packet.bytes.size());
  egress_due().clear();
  return true;
}

void EthernetPort::enqueue(const uint8_t* frame, size_t bytes) {
  std::memcpy(queue_.add(bytes), frame, bytes);
  if (queue_.size() == FrameSendQueue::kMostFrames) flush();
}

void EthernetPort::send_due() {
  for (const HeldPacket& packet : egress_due()) enqueue(packet.bytes.data(), packet.bytes.size());
  egress_due().clear();
  flush();
}

}  // namespace switchml::soft
