#include "dataplane/softswitch/native/shared_memory/shm_port.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "native/runtime/cpus.h"

namespace switchml::soft {

ShmPort::ShmPort(uint16_t number, SharedMemoryService* service, size_t workers) : PipelinePort(number, false) {
  for (size_t worker = 0; worker < workers; ++worker) {
    workers_.push_back(std::make_unique<ShmWorker>(this, service, runtime::cpus_of(worker, workers)));
  }
}

void ShmPort::start() {
  for (const auto& worker : workers_) worker->start();
}

void ShmPort::stop() {
  for (const auto& worker : workers_) worker->stop();
}

ShmWorker& ShmPort::worker_of(const RankBinding& rank) const {
  return *workers_[rank.worker * workers_.size() / rank.workers];
}

uint16_t ShmPort::attach(std::unique_ptr<ShmConnection> connection) {
  for (unsigned tried = 0; tried < UINT16_MAX; ++tried) {
    last_number_ = last_number_ == UINT16_MAX ? 1 : static_cast<uint16_t>(last_number_ + 1);
    if (connections_.count(last_number_) != 0) continue;
    ShmWorker& worker = worker_of(connection->rank());
    worker.attach(last_number_, connection.get());
    connections_.emplace(last_number_, std::move(connection));
    worker.wake();  // the new rank does not know yet that it must ring
    return last_number_;
  }
  throw std::runtime_error("all connection numbers are in use");
}

std::unique_ptr<ShmConnection> ShmPort::detach(uint16_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return nullptr;
  make_sums();  // waiting sums may use its memory
  std::unique_ptr<ShmConnection> detached = std::move(found->second);
  connections_.erase(found);
  worker_of(detached->rank()).detach(number, *detached);
  return detached;
}

void ShmPort::make_sums() { workers_.front()->run_all(); }

void ShmPort::forget_sums() {
  sums_.clear();
  for (const auto& worker : workers_) worker->forget_sums();
}

ShmConnection* ShmPort::find(uint16_t number) const {
  const auto found = connections_.find(number);
  return found == connections_.end() ? nullptr : found->second.get();
}

std::vector<uint32_t> ShmPort::quiesce(uint16_t number, const std::vector<uint32_t>& targets) {
  ShmConnection* connection = find(number);
  if (connection == nullptr) throw std::invalid_argument("the rank has no connection any more");
  if (targets.empty()) {
    connection->freeze();
    connection->job().uplink().stop();
  } else {
    connection->fetch(targets);
    worker_of(connection->rank()).wake();
  }
  if (connection->publish(true))
    channel::wake_process(connection->control());  // the process must see the results that were held
  return connection->held();
}

void ShmPort::publish(bool nothing_left, std::vector<channel::ChannelControl*>* sleepers) {
  has_results_ = false;
  for (auto& [number, connection] : connections_) {
    if (connection->publish(nothing_left)) sleepers->push_back(&connection->control());
  }
}

void ShmPort::wake_for_sums() {
  if (!sums_.any_wait()) return;
  const auto idle = std::find_if(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->asleep(); });
  if (idle != workers_.end()) (*idle)->wake_asleep();
}

bool ShmPort::is_faulty(const Pipeline& pipeline) const {
  return has_faults() || pipeline.tables.loss_ingress.covers(number()) || pipeline.tables.loss_egress.covers(number());
}

void ShmPort::begin_turn(Pipeline* pipeline, Clock::time_point now) {
  loses_ = loses_ || is_faulty(*pipeline);
  const auto deadline = next_deadline();
  if (deadline && *deadline <= now) pipeline->release_expired(this, now);
}

void ShmPort::contribute(Pipeline* pipeline, uint16_t number, ShmConnection* connection, const wire::Header& header,
                         Clock::time_point now) {
  if (loses_) {
    connection->arm(now);
    contribute_as_packet(pipeline, number, *connection, header);
    return;
  }
  count_received();
  const bool empty = (header.flags & wire::flag::without_values) != 0;
  const size_t payload_bytes = empty ? 0 : connection->rank().job.values * sizeof(uint32_t);
  const SharedValues values{&connection->job(), header.worker, &sums_};
  const auto verdict =
      pipeline->contribute(*this, {header, connection->rank().ipv4, number, payload_bytes, {nullptr, &values}});
  if (!verdict || *verdict == wire::Verdict::wrong_epoch) connection->arm(now);
  const bool first = (header.flags & wire::flag::retransmission) == 0;
  if (verdict == wire::Verdict::forwarded && first) {
    connection->job().uplink().sent((header.slot >> 1U) - connection->rank().job.slot_base, now);
  }
}

void ShmPort::contribute_as_packet(Pipeline* pipeline, uint16_t number, const ShmConnection& connection,
                                   const wire::Header& header) {
  const ShmJobKey& job = connection.rank().job;
  const bool empty = (header.flags & wire::flag::without_values) != 0;
  packet_.resize(wire::protocol::header_bytes);
  wire::store_header(packet_.data(), header);
  if (!empty) {
    const uint8_t* words = connection.job().contribution(header.worker, header.slot / 2);
    packet_.insert(packet_.end(), words, words + job.values * sizeof(uint32_t));
  }
  pipeline->receive(this, {packet_.data(), packet_.size(), net::ipv4_endpoint(connection.rank().ipv4, number)});
}

PortCounters ShmPort::counters() const {
  PortCounters counters = common_counters();
  counters.sent = sent_;
  return counters;
}

void ShmPort::send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                           const SwitchAddress& /*own: a rank knows its switch*/, Counter* injected_loss) {
  for (const RankAddress& rank : ranks) {
    ShmConnection* connection = find(rank.udp_dst);
    for (const OutgoingPacket& packet : packets) {
      int copies = 1;
      if (has_egress_faults()) {
        copies = copies_to_send(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes,
                                net::ipv4_endpoint(rank.ipv4_dst, rank.udp_dst), injected_loss);
      }
      for (; copies > 0; --copies) complete(connection, packet.header, packet.payload);
    }
  }
  if (has_egress_faults()) send_due();
}

void ShmPort::send_due() {
  for (const HeldPacket& packet : egress_due()) {
    const uint8_t* header = packet.bytes.data();
    complete(find(ntohs(packet.peer.sin_port)), header, header + wire::protocol::header_bytes);
  }
  egress_due().clear();
}

void ShmPort::complete(ShmConnection* connection, const uint8_t* header, const uint8_t* words) {
  if (connection == nullptr) return;
  sent_ += 1;
  has_results_ = true;
  const Uplink& uplink = connection->job().uplink();
  const Clock::time_point deadline = uplink.next_deadline();
  connection->complete(wire::load_header(header), words);
  ShmWorker& worker = worker_of(connection->rank());
  if (uplink.next_deadline() < deadline) worker.wake();                   // it may sleep until the later one
  if (worker.asleep() && connection->holds_back()) worker.wake_asleep();  // the window may have moved on
}

}  // namespace switchml::soft
