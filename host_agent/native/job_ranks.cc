#include "host_agent/native/job_ranks.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "native/channel/channel.h"
#include "native/runtime/stopwatch.h"
#include "native/wire/slot_blocks.h"
#include "native/wire/wire.h"

namespace switchml::agent {

JobRanks::JobRanks(const RankAssignment& assignment, unsigned thread, unsigned threads,
                   std::unique_ptr<JobTransport> transport, uint8_t* results,
                   std::shared_ptr<runtime::Precedence> precedence)
    : assignment_(assignment),
      thread_(thread),
      threads_(threads),
      transport_(std::move(transport)),
      switch_endpoint_(net::ipv4_endpoint(net::parse_ipv4(assignment.switch_address), assignment.switch_udp_port)),
      results_(results),
      place_(std::move(precedence), assignment.priority) {}

void JobRanks::add(const RankAssignment& assignment, RankChannel* channel) {
  ranks_.push_back(std::make_unique<RankSender>(assignment, thread_, threads_, channel));
}

void JobRanks::remove(uint16_t rank) {
  ranks_.erase(std::remove_if(ranks_.begin(), ranks_.end(), [rank](const auto& each) { return each->rank() == rank; }),
               ranks_.end());
}

RankSender& JobRanks::find(uint16_t rank) const {
  for (const auto& each : ranks_) {
    if (each->rank() == rank) {
      return *each;
    }
  }
  throw std::out_of_range("rank " + std::to_string(rank) + " of the job is not open on this host");
}

void JobRanks::add_to(uint16_t rank, RankProfile* profile) const { find(rank).add_to(profile); }

bool JobRanks::receive(net::ReceiveBatch& batch, Clock::time_point now, std::vector<StrayDatagram>* strays) {
  const runtime::Stopwatch receiving;
  bool received = false;
  for (unsigned source = 0; source < transport_->sources(); ++source) {
    received = receive_from(source, batch, now, strays) || received;
  }
  if (received && !ranks_.empty()) {
    const uint64_t each = receiving.nanoseconds() / ranks_.size();
    for (const auto& rank : ranks_) {
      rank->count_receiving(each);
    }
  }
  return received;
}

bool JobRanks::receive_from(unsigned source, net::ReceiveBatch& batch, Clock::time_point now,
                            std::vector<StrayDatagram>* strays) {
  if (!transport_->receive(source, &batch)) {
    return false;
  }
  net::Datagram datagram;
  while (transport_->next(&batch, &datagram)) {
    take(datagram, now, strays);
  }
  return true;
}

void JobRanks::take(const net::Datagram& datagram, Clock::time_point now, std::vector<StrayDatagram>* strays) {
  if (ranks_.empty()) {
    return;
  }
  if (datagram.length < wire::protocol::header_bytes ||
      datagram.source.sin_addr.s_addr != switch_endpoint_.sin_addr.s_addr ||
      datagram.source.sin_port != switch_endpoint_.sin_port) {
    return ranks_.front()->ignore_result();
  }
  const wire::Header header = wire::load_header(datagram.data);
  const uint32_t index = (header.slot >> 1) - static_cast<uint32_t>(assignment_.slot_base);
  const bool empty = (header.flags & wire::flag::without_values) != 0;
  const size_t payload = empty ? 0 : assignment_.values * sizeof(uint32_t);
  if (header.version != wire::protocol::version || header.kind != static_cast<uint8_t>(wire::Kind::result) ||
      header.job != assignment_.job || header.epoch != assignment_.epoch || header.secret != assignment_.secret ||
      index >= assignment_.slots || (header.slot & 1) != (header.phase & 1) ||
      datagram.length != wire::protocol::header_bytes + payload) {
    return ignore(header);
  }
  const unsigned thread = wire::part_of_slot(header.slot >> 1, threads_);
  if (thread != thread_) {
    strays->push_back({thread, datagram.source, {datagram.data, datagram.data + datagram.length}});
    return;
  }
  const TakenResult result{header, index, datagram.length};
  if (!std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) { return rank->awaits(result); })) {
    return ignore(header);
  }
  std::memcpy(results_ + index * channel::Channel::payload_stride(assignment_.values),
              datagram.data + wire::protocol::header_bytes, payload);
  for (const auto& rank : ranks_) {
    rank->take_result(result, now);
  }
}

void JobRanks::ignore(const wire::Header& header) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [&header](const auto& each) { return each->worker() == header.worker; });
  (found == ranks_.end() ? ranks_.front() : *found)->ignore_result();
}

bool JobRanks::take_submissions(uint64_t* others) {
  uint64_t threads = 0;
  bool any = false;
  for (const auto& rank : ranks_) {
    if (is_home(*rank)) {
      threads |= rank->channel().take_submissions();
    }
    any = rank->take_submissions() || any;
  }
  *others |= threads & ~(uint64_t{1} << thread_);
  return any;
}

void JobRanks::transmit(net::SendBatch& batch, Clock::time_point now) {
  const runtime::Stopwatch sending;
  const bool held_back = place_.held_back();
  for (const auto& rank : ranks_) {
    rank->transmit(batch, now, held_back);
  }
  place_.hold(std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->is_urgent(); }));
  if (!batch.empty()) {
    transport_->send(&batch);
    const uint64_t each = sending.nanoseconds() / ranks_.size();
    for (const auto& rank : ranks_) {
      rank->count_sending(each);
    }
  }
}

void JobRanks::publish(bool nothing_left) {
  for (const auto& rank : ranks_) {
    rank->publish(nothing_left, transport_->gso_batch_size());
  }
}

Clock::time_point JobRanks::next_deadline() const {
  auto deadline = Clock::time_point::max();
  for (const auto& rank : ranks_) {
    deadline = std::min(deadline, rank->next_deadline());
  }
  return deadline;
}

void JobRanks::set_sleeping(bool sleeping) {
  for (const auto& rank : ranks_) {
    if (is_home(*rank)) {
      rank->channel().set_sleeping(sleeping);
    }
  }
}

bool JobRanks::submissions_wait() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [this](const auto& rank) {
    return (is_home(*rank) && rank->channel().submissions_wait()) || rank->channel().has_slots_for(thread_);
  });
}

}  // namespace switchml::agent
