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
      results_(results),
      switch_endpoints_(switch_endpoints(assignment)),
      place_(std::move(precedence), assignment.priority),
      senders_(switch_endpoints_.size()) {}

void JobRanks::add(const RankAssignment& assignment, RankChannel* channel) {
  for (unsigned number = 0; number < senders_.size(); ++number) {
    const unsigned part = channel->part_of(thread_, number);
    senders_[number].push_back(std::make_unique<RankSender>(assignment, part, channel));
  }
}

void JobRanks::remove(uint16_t rank) {
  for (Senders& senders : senders_) {
    senders.erase(
        std::remove_if(senders.begin(), senders.end(), [rank](const auto& each) { return each->rank() == rank; }),
        senders.end());
  }
}

template <class Act>
void JobRanks::for_senders_of(uint16_t rank, Act&& act) const {
  bool found = false;
  for (const Senders& senders : senders_) {
    for (const auto& sender : senders) {
      if (sender->rank() == rank) {
        act(*sender);
        found = true;
      }
    }
  }
  if (!found) {
    throw std::out_of_range("rank " + std::to_string(rank) + " of the job is not open on this host");
  }
}

void JobRanks::freeze(uint16_t rank) {
  for_senders_of(rank, [](RankSender& sender) { sender.freeze(); });
}

void JobRanks::fetch(uint16_t rank, const std::vector<uint32_t>& targets) {
  for_senders_of(rank, [&targets](RankSender& sender) { sender.fetch(targets); });
}

std::vector<uint32_t> JobRanks::held(uint16_t rank) const {
  std::vector<uint32_t> held(assignment_.slots);
  for_senders_of(rank, [&held](const RankSender& sender) {
    const std::vector<uint32_t> part = sender.held();
    std::transform(part.begin(), part.end(), held.begin(), held.begin(),
                   [](uint32_t own, uint32_t others) { return std::max(own, others); });
  });
  return held;
}

void JobRanks::add_to(uint16_t rank, RankProfile* profile) const {
  for_senders_of(rank, [profile](const RankSender& sender) { sender.add_to(profile); });
}

bool JobRanks::receive(net::ReceiveBatch& batch, Clock::time_point now, std::vector<StrayDatagram>* strays) {
  const runtime::Stopwatch receiving;
  bool received = false;
  for (unsigned source = 0; source < transport_->sources(); ++source) {
    received = receive_from(source, batch, now, strays) || received;
  }
  if (received && !empty()) {
    const uint64_t each = receiving.nanoseconds() / ranks().size();
    for (const auto& rank : ranks()) {
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
  if (empty()) {
    return;
  }
  if (paused_ || datagram.length < wire::protocol::header_bytes) {
    return ranks().front()->ignore_result();
  }
  const wire::Header header = wire::load_header(datagram.data);
  const uint32_t index = (header.slot >> 1) - static_cast<uint32_t>(assignment_.slot_base);
  const unsigned number = wire::switch_of_slot(index, assignment_.switches());
  const sockaddr_in& source = switch_endpoints_[number];
  if (datagram.source.sin_addr.s_addr != source.sin_addr.s_addr || datagram.source.sin_port != source.sin_port) {
    return ranks().front()->ignore_result();
  }
  const Senders& senders = senders_[number];
  const bool has_values = (header.flags & wire::flag::without_values) == 0;
  const size_t payload = has_values ? assignment_.values * sizeof(uint32_t) : 0;
  if (header.version != wire::protocol::version || header.kind != static_cast<uint8_t>(wire::Kind::result) ||
      header.job != assignment_.job || header.epoch != assignment_.epoch || header.secret != assignment_.secret ||
      index >= assignment_.slots || (header.slot & 1) != (header.phase & 1) ||
      datagram.length != wire::protocol::header_bytes + payload) {
    return ignore(header, senders);
  }
  const unsigned thread = wire::part_of_slot(header.slot >> 1, threads_);
  if (thread != thread_) {
    strays->push_back({thread, datagram.source, {datagram.data, datagram.data + datagram.length}});
    return;
  }
  const TakenResult result{header, index, datagram.length};
  if (!std::all_of(senders.begin(), senders.end(), [&](const auto& sender) { return sender->awaits(result); })) {
    return ignore(header, senders);
  }
  std::memcpy(results_ + index * channel::Channel::payload_stride(assignment_.values),
              datagram.data + wire::protocol::header_bytes, payload);
  for (const auto& sender : senders) {
    sender->take_result(result, now);
  }
}

void JobRanks::ignore(const wire::Header& header, const Senders& senders) {
  const auto found = std::find_if(senders.begin(), senders.end(),
                                  [&header](const auto& each) { return each->worker() == header.worker; });
  (found == senders.end() ? senders.front() : *found)->ignore_result();
}

bool JobRanks::take_submissions(uint64_t* others) {
  uint64_t threads = 0;
  bool any = false;
  for (const auto& rank : ranks()) {
    if (is_home(*rank)) {
      threads |= rank->channel().take_submissions();
    }
  }
  for (const Senders& senders : senders_) {
    for (const auto& sender : senders) {
      any = sender->take_submissions() || any;
    }
  }
  *others |= threads & ~(uint64_t{1} << thread_);
  return any;
}

void JobRanks::transmit(net::SendBatch& batch, Clock::time_point now) {
  if (paused_) {
    return;
  }
  const bool held_back = place_.held_back();
  const Clock::time_point others_drained = place_.others_drained();
  uint32_t backlog = 0;
  bool urgent = false;
  bool silent = false;
  for (size_t number = 0; number < senders_.size(); ++number) {
    const runtime::Stopwatch sending;
    for (const auto& sender : senders_[number]) {
      backlog += sender->backlog();
      sender->transmit(batch, now, place_);
      urgent = urgent || sender->is_urgent(now, others_drained);
      silent = silent || sender->finds_switch_silent(now);
    }
    if (!batch.empty()) {
      transport_->send(&batch, switch_endpoints_[number]);
      const uint64_t each = sending.nanoseconds() / senders_[number].size();
      for (const auto& sender : senders_[number]) {
        sender->count_sending(each);
      }
    }
  }
  if (silent) transport_->find_switches_again();
  place_.hold(urgent);
  if (held_back && backlog < backlog_) place_.drained(now);
  backlog_ = backlog;
}

void JobRanks::publish(bool nothing_left) {
  for (const Senders& senders : senders_) {
    for (const auto& sender : senders) {
      sender->publish(nothing_left, transport_->gso_batch_size());
    }
  }
}

Clock::time_point JobRanks::next_deadline() const {
  auto deadline = Clock::time_point::max();
  if (paused_) {
    return deadline;
  }
  for (const Senders& senders : senders_) {
    for (const auto& sender : senders) {
      deadline = std::min(deadline, sender->next_deadline());
    }
  }
  return deadline;
}

void JobRanks::set_sleeping(bool sleeping) {
  for (const auto& rank : ranks()) {
    if (is_home(*rank)) {
      rank->channel().set_sleeping(sleeping);
    }
  }
}

bool JobRanks::submissions_wait() const {
  const bool rings = std::any_of(ranks().begin(), ranks().end(), [this](const auto& rank) {
    return is_home(*rank) && rank->channel().submissions_wait();
  });
  return rings || std::any_of(senders_.begin(), senders_.end(), [](const Senders& senders) {
           return std::any_of(senders.begin(), senders.end(),
                              [](const auto& sender) { return sender->submissions_wait(); });
         });
}

}  // namespace switchml::agent
