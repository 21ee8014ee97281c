#include "dataplane/softswitch/native/shm_port.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dataplane/softswitch/native/pipeline.h"

namespace switchml {
namespace {

// What part of a pool must be there before a sleeping switch is woken for it: a wake-up costs as much as a few slots.
constexpr uint32_t kShareOfPool = 2;
// Ranks go on with what is complete while the rest is being added up.
constexpr unsigned kTakenPerPublication = 32;
// A rank with few results is woken for them when the switch goes to sleep, or, where it never does, after so many
// passes over all ranks.
constexpr unsigned kPassesPerWake = 4;

}  // namespace

ShmPort::ShmPort(uint16_t number) : Port(number, false), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_ < 0) throw std::system_error(errno, std::generic_category(), "epoll of a shm port");
}

ShmPort::~ShmPort() { close(epoll_); }

uint16_t ShmPort::attach(std::unique_ptr<ShmConnection> connection) {
  for (unsigned tried = 0; tried < UINT16_MAX; ++tried) {
    last_number_ = last_number_ == UINT16_MAX ? 1 : static_cast<uint16_t>(last_number_ + 1);
    if (connections_.count(last_number_) != 0) continue;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;  // so that nobody need empty the eventfd
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connection->doorbell(), &event) < 0) {
      throw std::system_error(errno, std::generic_category(), "epoll of a doorbell");
    }
    connections_.emplace(last_number_, std::move(connection));
    return last_number_;
  }
  throw std::runtime_error("all connection numbers are in use");
}

std::unique_ptr<ShmConnection> ShmPort::detach(uint16_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return nullptr;
  std::unique_ptr<ShmConnection> detached = std::move(found->second);
  connections_.erase(found);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, detached->doorbell(), nullptr);
  return detached;
}

bool ShmPort::has_rank(const ShmRank& rank) const {
  return std::any_of(connections_.begin(), connections_.end(), [&](const auto& each) {
    return each.second->rank().job == rank.job && each.second->rank().rank == rank.rank;
  });
}

ShmConnection* ShmPort::find(uint16_t number) const {
  const auto found = connections_.find(number);
  return found == connections_.end() ? nullptr : found->second.get();
}

bool ShmPort::serve(Pipeline* pipeline) {
  now_ = Clock::now();
  loses_ = loses_ || has_faults() || pipeline->tables.loss_ingress.covers(number()) ||
           pipeline->tables.loss_egress.covers(number());
  bool any = false;
  unsigned taken = 0;
  for (auto& [connection_number, connection] : connections_) {
    Header header;
    const bool submitted = connection->submissions_wait();
    const auto begin = submitted ? Clock::now() : now_;
    while (connection->take(&header)) {
      any = true;
      contribute(pipeline, connection_number, connection.get(), header);
      if (++taken % kTakenPerPublication == 0) {
        pipeline->flush();
        publish();
      }
    }
    if (submitted) connection->count_summing(Clock::now() - begin);
    if (connection->overdue_at() <= now_) {
      any = true;
      const uint16_t again = connection_number;
      connection->repeat(
          now_, [&, &one = *connection](const Header& repeated) { contribute(pipeline, again, &one, repeated); });
    }
  }
  if (any) pipeline->flush();
  publish();
  if (any && ++passes_ % kPassesPerWake == 0) wake_all();
  return any;
}

void ShmPort::wake_all() {
  for (auto& [connection_number, connection] : connections_) connection->publish(true);
}

void ShmPort::publish() {
  for (auto& [connection_number, connection] : connections_) connection->publish(false);
}

void ShmPort::contribute(Pipeline* pipeline, uint16_t number, ShmConnection* connection, const Header& header) {
  if (loses_) {
    connection->arm(now_);
    contribute_as_packet(pipeline, number, *connection, header);
    return;
  }
  count_received();
  const auto verdict =
      pipeline->contribute_in_place(*this, {header, connection->rank().ipv4, number, &connection->job()});
  if (!verdict || *verdict == Verdict::wrong_epoch) connection->arm(now_);
}

void ShmPort::contribute_as_packet(Pipeline* pipeline, uint16_t number, const ShmConnection& connection,
                                   const Header& header) {
  const ShmJobKey& job = connection.rank().job;
  const bool empty = (header.flags & flag::exponent_only) != 0;
  packet_.resize(protocol::header_bytes);
  wire::store_header(packet_.data(), header);
  if (!empty) {
    const uint8_t* words = connection.job().contribution(header.worker, header.slot / 2);
    packet_.insert(packet_.end(), words, words + job.values * sizeof(uint32_t));
  }
  pipeline->receive(this, {packet_.data(), packet_.size(), ipv4_endpoint(connection.rank().ipv4, number)});
}

// A slot's result cannot come before every rank has contributed to it. So where a rank has nothing in flight, no
// result of its job can come before that rank has submitted something, and no other need ring.
bool ShmPort::prepare_sleep() {
  wake_all();
  const auto last_of = [this](const ShmJob& job) {
    ShmConnection* last = nullptr;
    for (auto& [connection_number, connection] : connections_) {
      if (&connection->job() == &job && connection->has_nothing_in_flight()) last = connection.get();
    }
    return last;
  };
  for (auto& [connection_number, connection] : connections_) {
    const ShmConnection* awaited = last_of(connection->job());
    if (awaited == nullptr || awaited == connection.get()) {
      connection->expect_ring(std::max(1U, connection->rank().job.slots / kShareOfPool));
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return std::none_of(connections_.begin(), connections_.end(),
                      [](const auto& each) { return each.second->expects_ring() && each.second->submissions_wait(); });
}

void ShmPort::end_sleep() {
  for (auto& [connection_number, connection] : connections_) connection->expect_no_ring();
}

std::optional<Port::Clock::time_point> ShmPort::next_deadline() const {
  std::optional<Clock::time_point> earliest = Port::next_deadline();
  for (const auto& [connection_number, connection] : connections_) {
    const auto overdue = connection->overdue_at();
    if (overdue != Clock::time_point::max()) earliest = std::min(earliest.value_or(overdue), overdue);
  }
  return earliest;
}

bool ShmPort::receive(ReceiveBuffers* /*buffers*/) const {
  std::array<epoll_event, 64> events;
  while (epoll_wait(epoll_, events.data(), events.size(), 0) == static_cast<int>(events.size())) {
  }
  return false;
}

PortCounters ShmPort::counters() const {
  PortCounters counters = common_counters();
  counters.sending.sent = sent_;
  return counters;
}

void ShmPort::send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                           const SwitchAddress& /*own: a rank knows its switch*/, Counter* injected_loss) {
  for (const RankAddress& rank : ranks) {
    for (const OutgoingPacket& packet : packets) {
      int copies = 1;
      if (has_egress_faults()) {
        copies = copies_to_send(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes,
                                ipv4_endpoint(rank.ipv4_dst, rank.udp_dst), injected_loss);
      }
      for (; copies > 0; --copies) complete(rank.udp_dst, packet.header);
    }
  }
  if (has_egress_faults()) send_due();
}

void ShmPort::send_due() {
  // The values of a result that somebody still waits for are where they were: nobody has gone on.
  for (const HeldPacket& packet : egress_due()) complete(ntohs(packet.peer.sin_port), packet.bytes.data());
  egress_due().clear();
}

void ShmPort::complete(uint16_t number, const uint8_t* header) {
  ShmConnection* connection = find(number);
  if (connection == nullptr) return;
  sent_ += 1;
  connection->complete(wire::load_header(header));
}

}  // namespace switchml
