#include "dataplane/softswitch/native/pipeline/result_sender.h"

#include <algorithm>

#include "native/wire/slot_blocks.h"

namespace switchml::soft {

namespace {

bool is_owned(const ResultSender::Result& result) {
  return result.payload_bytes > 0 && result.header.owner != wire::owner::everyone;
}

bool has_reader(const RankAddress& address, uint8_t owner) { return (address.ranks & wire::readers_of(owner)) != 0; }

}  // namespace

bool ResultSender::Receivers::operator==(const Receivers& other) const {
  return multicast == other.multicast && job == other.job && group_or_port == other.group_or_port &&
         worker == other.worker && owned == other.owned && payload_bytes == other.payload_bytes;
}

ResultSender::ResultSender(const Tables* tables, Egress* egress, DropCounters* drops)
    : tables_(tables), egress_(egress), drops_(drops) {
  packets_.reserve(kMostPackets);
  owners_.reserve(kMostPackets);
  copies_.reserve(kMostPackets);
}

void ResultSender::multicast(uint16_t group, const PacketView& trigger, const Result& result) {
  queue({true, result.header.job, group, 0, is_owned(result), result.payload_bytes}, trigger, result);
}

void ResultSender::resend(uint16_t port, const PacketView& trigger, const Result& result) {
  queue({false, result.header.job, port, result.header.worker, is_owned(result), result.payload_bytes}, trigger,
        result);
}

void ResultSender::queue(const Receivers& receivers, const PacketView& trigger, const Result& result) {
  // A GSO batch holds packets of one block of slots only, because one thread at the other end gets all of it.
  const bool same_block = packets_.empty() || wire::in_same_block(block_slot_, result.header.slot >> 1U);
  if (packets_.empty() || !same_block || !(receivers == receivers_)) {
    flush();
    receivers_ = receivers;
    block_slot_ = result.header.slot >> 1U;
    const size_t bytes = wire::protocol::header_bytes + receivers.payload_bytes;
    // Most copies of owned results are small, so a burst of them may be longer than a GSO batch of full ones.
    most_packets_ = receivers.owned ? kMostPackets : std::min(kMostPackets, net::SendBatch::largest_gso_batch(bytes));
  }
  uint8_t* stored = headers_[packets_.size()].data();
  wire::store_header(stored, result.header);
  if (receivers.owned) {
    wire::store_header(headers_without_values_[packets_.size()].data(), wire::without_values(result.header));
  }
  owners_.push_back(result.header.owner);
  // The datagram of the trigger may be longer or shorter than that of the result.
  const size_t read_bytes = trigger.udp_length - wire::udp::bytes + trigger.icrc_bytes;
  const size_t trailer_bytes = trigger.payload_bytes - read_bytes;
  packets_.push_back({stored, wire::protocol::header_bytes, result.values, result.payload_bytes, trigger.traffic_class,
                      trailer_bytes > 0 ? trigger.payload + read_bytes : nullptr, trailer_bytes, trigger.frame_bytes});
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
  owners_.clear();
  if (++burst_ == 0) burst_ = 1;
}

void ResultSender::send_to_group() {
  const std::vector<Replica>* replicas = tables_->find_group(receivers_.group_or_port);
  if (replicas == nullptr) return;
  for (size_t i = 0; i < replicas->size(); ++i) {
    const Replica& replica = (*replicas)[i];
    add_destination(replica.instance);
    const bool last_of_port = i + 1 == replicas->size() || (*replicas)[i + 1].port != replica.port;
    if (last_of_port || receivers_.owned) send_out_of(replica.port);
  }
}

void ResultSender::send_owned(uint16_t port) {
  copies_.clear();
  for (size_t i = 0; i < packets_.size(); ++i) {
    if (has_reader(destinations_.front(), owners_[i])) copies_.push_back(packets_[i]);
  }
  for (size_t i = 0; i < packets_.size(); ++i) {
    if (has_reader(destinations_.front(), owners_[i])) continue;
    copies_.push_back(packets_[i]);
    copies_.back().header = headers_without_values_[i].data();
    copies_.back().payload_bytes = 0;
  }
  egress_->send_results(port, copies_, destinations_);
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
  if (destinations_.empty()) return;
  if (receivers_.owned) {
    send_owned(port);
  } else {
    egress_->send_results(port, packets_, destinations_);
  }
  destinations_.clear();
}

void ResultSender::count_dropped(wire::DropReason reason, size_t copies) {
  for (const OutgoingPacket& packet : packets_) (*drops_)[reason].add(copies, packet.trigger_bytes);
}

}  // namespace switchml::soft
