#include "dataplane/softswitch/native/pipeline/result_sender.h"

#include <algorithm>

#include "native/wire/slot_blocks.h"

namespace switchml::soft {

bool ResultSender::Receivers::operator==(const Receivers& other) const {
  return multicast == other.multicast && job == other.job && group_or_port == other.group_or_port &&
         worker == other.worker && payload_bytes == other.payload_bytes;
}

ResultSender::ResultSender(const Tables* tables, Egress* egress, DropCounters* drops)
    : tables_(tables), egress_(egress), drops_(drops) {
  packets_.reserve(kMostPackets);
}

void ResultSender::multicast(uint16_t group, const PacketView& trigger, const Result& result) {
  queue({true, result.header.job, group, 0, result.payload_bytes}, trigger, result);
}

void ResultSender::resend(uint16_t port, const PacketView& trigger, const Result& result) {
  queue({false, result.header.job, port, result.header.worker, result.payload_bytes}, trigger, result);
}

void ResultSender::queue(const Receivers& receivers, const PacketView& trigger, const Result& result) {
  // A GSO batch holds packets of one block of slots only, because one thread at the other end gets all of it.
  const bool same_block = packets_.empty() || wire::in_same_block(block_slot_, result.header.slot >> 1U);
  if (packets_.empty() || !same_block || !(receivers == receivers_)) {
    flush();
    receivers_ = receivers;
    block_slot_ = result.header.slot >> 1U;
    const size_t bytes = wire::protocol::header_bytes + receivers.payload_bytes;
    most_packets_ = std::min(kMostPackets, net::SendBatch::largest_gso_batch(bytes));
  }
  uint8_t* stored = headers_[packets_.size()].data();
  wire::store_header(stored, result.header);
  // The datagram of the trigger may be longer or shorter than that of the result.
  const size_t datagram_bytes = trigger.udp_length - wire::udp::bytes;
  const size_t trailer_bytes = trigger.payload_bytes - datagram_bytes;
  packets_.push_back({stored, wire::protocol::header_bytes, result.values, result.payload_bytes, trigger.traffic_class,
                      trailer_bytes > 0 ? trigger.payload + datagram_bytes : nullptr, trailer_bytes,
                      trigger.frame_bytes});
  if (result.payload_bytes > 0) result.half->result_burst = burst_;
  // The trailer is part of the received packet, which is not kept.
  if (packets_.size() == most_packets_ || trailer_bytes > 0) flush();
}

void ResultSender::flush() {
  if (packets_.empty()) return;
  if (receivers_.multicast) {
    send_to_group();
  } else {
    add_destination(receivers_.worker);
    send_out_of(receivers_.group_or_port);
  }
  packets_.clear();
  if (++burst_ == 0) burst_ = 1;
}

void ResultSender::send_to_group() {
  const std::vector<Replica>* replicas = tables_->find_group(receivers_.group_or_port);
  if (replicas == nullptr) return;
  for (size_t i = 0; i < replicas->size(); ++i) {
    const Replica& replica = (*replicas)[i];
    add_destination(replica.instance);
    const bool last_of_port = i + 1 == replicas->size() || (*replicas)[i + 1].port != replica.port;
    if (last_of_port) send_out_of(replica.port);
  }
}

void ResultSender::add_destination(uint16_t rank) {
  const RankAddress* address = tables_->find_rank(receivers_.job, rank);
  if (address == nullptr) {
    count_dropped(wire::DropReason::no_rank_address, 1);
  } else {
    destinations_.push_back(*address);
  }
}

void ResultSender::send_out_of(uint16_t port) {
  if (!destinations_.empty()) egress_->send_results(port, packets_, destinations_);
  destinations_.clear();
}

void ResultSender::count_dropped(wire::DropReason reason, size_t copies) {
  for (const OutgoingPacket& packet : packets_) (*drops_)[reason].add(copies, packet.trigger_bytes);
}

}  // namespace switchml::soft
