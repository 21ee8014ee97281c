#include "dataplane/softswitch/native/result_sender.h"

#include <algorithm>

namespace switchml {

bool ResultSender::Receivers::operator==(const Receivers& other) const {
  return multicast == other.multicast && job == other.job && group_or_port == other.group_or_port &&
         worker == other.worker && payload_bytes == other.payload_bytes;
}

ResultSender::ResultSender(Tables* tables, const Ports* ports, DropCounters* drops)
    : tables_(tables), ports_(ports), drops_(drops) {
  packets_.reserve(kMostPackets);
}

void ResultSender::multicast(uint16_t group, const Header& header, size_t payload_bytes, HalfState* half,
                             const uint8_t* values) {
  queue({true, header.job, group, 0, payload_bytes}, header, half, values);
}

void ResultSender::resend(uint16_t port, const Header& header, size_t payload_bytes, HalfState* half,
                          const uint8_t* values) {
  queue({false, header.job, port, header.worker, payload_bytes}, header, half, values);
}

void ResultSender::queue(const Receivers& receivers, const Header& header, HalfState* half, const uint8_t* values) {
  if (packets_.empty() || !(receivers == receivers_)) {
    flush();
    receivers_ = receivers;
    const size_t bytes = protocol::header_bytes + receivers.payload_bytes;
    most_packets_ = std::min(kMostPackets, SendBatch::packets_per_message(bytes));
  }
  uint8_t* stored = headers_[packets_.size()].data();
  wire::store_header(stored, header);
  packets_.push_back({stored, protocol::header_bytes, values, receivers.payload_bytes});
  if (receivers.payload_bytes > 0) half->result_burst = burst_;
  if (packets_.size() == most_packets_) flush();
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
  if (replicas == nullptr) {
    count_dropped(DropReason::no_route, 1);
    return;
  }
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
    count_dropped(DropReason::no_rank_address, 1);
  } else {
    destinations_.push_back(ipv4_endpoint(address->ipv4_dst, address->udp_dst));
  }
}

void ResultSender::send_out_of(uint16_t port) {
  if (!destinations_.empty()) {
    if (UdpPort* out = port < ports_->size() ? (*ports_)[port].get() : nullptr; out != nullptr) {
      out->send(packets_, destinations_, &(*drops_)[DropReason::injected_loss]);
    } else {
      count_dropped(DropReason::no_route, destinations_.size());
    }
  }
  destinations_.clear();
}

void ResultSender::count_dropped(DropReason reason, size_t copies) {
  const size_t bytes = protocol::header_bytes + receivers_.payload_bytes + kHeadersBeforeUdpPayload;
  (*drops_)[reason].add(copies * packets_.size(), bytes);
}

}  // namespace switchml
