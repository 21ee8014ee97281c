#include "host_agent/native/rank_sender.h"

#include <algorithm>
#include <utility>

#include "native/runtime/precedence.h"
#include "native/wire/slot_blocks.h"

namespace switchml::agent {

namespace {

// The reordering threshold (RFC 6675): a contribution counts as lost if the results of this number of later ones have
// come before its own. A lower one would treat the reordering within a GSO batch as a loss. If half the window is less,
// that is used. The threshold grows if results normally come in another order, as from a switch with several shards.
constexpr uint32_t kReorderingThreshold = 64;
// Among this many positions those with values are sent first, because packets of a GSO batch have one size. With more,
// ranks that have different blocks would send in orders so different that results look like losses.
constexpr uint32_t kSortedTogether = 64;
constexpr uint32_t kPoolsUntilLower = 16;  // of results without a spurious fast retransmission, until it is halved
// A timeout retransmits only a few contributions, because it is mostly caused by a straggler, and then all of them are
// duplicates. Each result of a retransmission allows two more, so that a lost window is retransmitted in a few rounds.
constexpr uint32_t kRetransmitsPerTimeout = 2;
constexpr uint32_t kRetransmitsPerResult = 2;

// The bytes of a packet with values.
double packet_bytes(const RankAssignment& assignment) {
  return static_cast<double>(wire::protocol::header_bytes + assignment.values * sizeof(uint32_t));
}

Clock::duration ticks(runtime::RoundTrip::Duration seconds) {
  return std::chrono::duration_cast<Clock::duration>(seconds);
}

}  // namespace

RankSender::RankSender(const RankAssignment& assignment, unsigned part, RankChannel* channel)
    : assignment_(checked(assignment)),
      part_(part),
      channel_(channel),
      slots_({assignment.job, assignment.worker, assignment.epoch, assignment.secret, assignment.slot_base,
              assignment.slots, assignment.slot_uses, owner_numbers(assignment)}),
      flights_(assignment.slots),
      headers_(assignment.slots * kHeaderStride),
      reordering_threshold_(kReorderingThreshold),
      window_(assignment.slots, packet_bytes(assignment), packet_bytes(assignment) / channel->parts()) {}

bool RankSender::take_submissions() {
  submitted_.clear();
  if (channel_->broken() || !channel_->take(part_, &submitted_)) {
    return false;
  }
  for (const uint16_t slot : submitted_) {
    if (!slots_.submit(slot, channel_->channel().contribution_ticket(slot))) {
      channel_->fail();
      return false;
    }
    wire::store_header(&headers_[slot * kHeaderStride], slots_.header(slot));
    flights_[slot] = {};
  }
  return true;
}

void RankSender::send(uint16_t slot, net::SendBatch& batch, Clock::time_point now) {
  Flight& flight = flights_[slot];
  uint8_t* header = &headers_[slot * kHeaderStride];
  if (flight.transmissions == 1) {
    wire::Header again = wire::load_header(header);
    again.flags |= wire::flag::retransmission;
    wire::store_header(header, again);
  }
  flight.transmissions = static_cast<uint8_t>(std::min(flight.transmissions + 1, UINT8_MAX));
  const bool alone = next_deadline_ == Clock::time_point::max();
  flight.departure = window_.departure(now, alone);
  flight.number = ++last_number_;
  sent_.push_back({flight.number, slot});
  if (alone) {
    next_deadline_ = now + ticks(round_trip_.timeout(timeouts_));
  }
  if (!wire::in_same_block(assignment_.slot_base + slot, assignment_.slot_base + last_sent_)) {
    batch.end_run();
  }
  last_sent_ = slot;
  const size_t bytes = bytes_of(slot);
  batch.add(header, wire::protocol::header_bytes, channel_->channel().contribution(slot),
            bytes - wire::protocol::header_bytes);
  status_.sent += 1;
  status_.sent_without_values += has_values(slot) ? 0 : 1;
  path_.sent_bytes += bytes;
}

void RankSender::transmit(net::SendBatch& batch, Clock::time_point now, const runtime::Precedence::Place& place) {
  if (slots_.frozen()) {
    return retransmit_frozen(batch, now);
  }
  window_.end_batch(now, place.yields());
  fast_retransmit(batch, now);
  retransmit_after_timeout(batch, now);
  send_window(batch, now, place.window(window_.size()));
}

void RankSender::send_window(net::SendBatch& batch, Clock::time_point now, uint32_t window) {
  uint32_t group = 0;
  while (const auto next = slots_.send_next(window)) {
    const auto slot = static_cast<uint16_t>(*next);
    const uint32_t group_of_slot = slots_.ticket(slot).position / kSortedTogether;
    if (std::exchange(group, group_of_slot) != group_of_slot) {
      send_without_values(batch, now);
    }
    if (has_values(slot)) {
      send_first(slot, batch, now);
    } else {
      without_values_.push_back(slot);
    }
  }
  send_without_values(batch, now);
}

void RankSender::send_without_values(net::SendBatch& batch, Clock::time_point now) {
  for (const uint16_t slot : without_values_) {
    send_first(slot, batch, now);
  }
  without_values_.clear();
}

const RankSender::Transmission* RankSender::oldest_unfinished() {
  while (!sent_.empty()) {
    const Transmission& oldest = sent_.front();
    if (slots_.state(oldest.slot) == SlotState::in_flight && flights_[oldest.slot].number == oldest.number) {
      return &oldest;
    }
    sent_.pop_front();
  }
  return nullptr;
}

void RankSender::fast_retransmit(net::SendBatch& batch, Clock::time_point now) {
  // In the phases without values, a rank with a smaller window answers after results of a whole window of this one.
  const uint32_t raised = reordering_threshold_ / kReorderingThreshold;
  const uint64_t threshold = std::min(reordering_threshold_, raised * (window_.size() / 2 + 1));
  for (const Transmission* oldest = oldest_unfinished();
       oldest != nullptr && oldest->number + threshold <= highest_answered_; oldest = oldest_unfinished()) {
    flights_[oldest->slot].fast_retransmitted = true;
    send(oldest->slot, batch, now);
    status_.fast_retransmissions += 1;
  }
}

void RankSender::retransmit_after_timeout(net::SendBatch& batch, Clock::time_point now) {
  if (now >= next_deadline_) {
    timeouts_ += 1;
    last_timeout_ = now;
    retransmit_credit_ = kRetransmitsPerTimeout;
    retransmit_from_ = slots_.first();
    next_deadline_ = now + ticks(round_trip_.timeout(timeouts_));
  }
  // The lowest positions come first, because the windows of other ranks wait for these.
  for (retransmit_from_ = channel::later(retransmit_from_, slots_.first());
       retransmit_credit_ > 0 && channel::is_before(retransmit_from_, slots_.stream_end()); ++retransmit_from_) {
    const uint16_t slot = slot_of(retransmit_from_);
    if (slots_.state_of(retransmit_from_) == SlotState::in_flight && flights_[slot].departure.time < last_timeout_) {
      flights_[slot].timed_out = true;
      send(slot, batch, now);
      status_.retransmissions += 1;
      retransmit_credit_ -= 1;
    }
  }
}

// A result of the original transmission shows that a fast retransmission was spurious (RFC 3522). That happens
// temporarily if ranks send in different orders, and permanently if a switch has several shards.
void RankSender::adapt_reordering_threshold(const Flight& flight, bool answers_retransmission) {
  const bool spurious = flight.fast_retransmitted && !answers_retransmission;
  if (spurious && flight.number > threshold_raised_at_) {
    reordering_threshold_ =
        std::min(reordering_threshold_ * 2, std::max<uint32_t>(kReorderingThreshold * 2, assignment_.slots));
    threshold_raised_at_ = last_number_;  // several retransmissions of the same time raise it only once
    results_since_spurious_ = 0;
  } else if (++results_since_spurious_ == kPoolsUntilLower * assignment_.slots) {
    reordering_threshold_ = std::max(reordering_threshold_ / 2, kReorderingThreshold);
    results_since_spurious_ = 0;
  }
}

void RankSender::take_result(const TakenResult& result, Clock::time_point now) {
  const wire::Header& header = result.header;
  const bool answers_retransmission = (header.flags & wire::flag::retransmission) != 0;  // of this rank or another one
  const Flight& flight = flights_[result.slot];
  // Where the values come only to their owner, the rate is that of the contributions that got there.
  const size_t bytes = std::max(result.bytes, bytes_of(result.slot));
  const bool sent_once = flight.transmissions == 1;
  const bool completed_here = header.worker == assignment_.worker;
  window_.take({bytes, flight.departure, sent_once, completed_here, answers_retransmission}, now);
  if (sent_once && completed_here) {
    round_trip_.sample(now - flight.departure.time);
    round_trips_bytes_ += window_.delivered() - flight.departure.delivered;
  }
  if (sent_once) {
    highest_answered_ = std::max(highest_answered_, flight.number);
  } else if (answers_retransmission) {
    retransmit_credit_ += kRetransmitsPerResult;
  } else {
    retransmit_credit_ = 0;  // a straggler caused the timeout, so nothing else need be lost
  }
  adapt_reordering_threshold(flight, answers_retransmission);
  if (flight.timed_out) {
    round_trip_.adapt_margin(!completed_here);
  }
  timeouts_ = 0;
  channel_->channel().result_tickets()[result.slot] = slots_.complete(result.slot, header);
  // The next contribution after a pause begins a new timeout.
  next_deadline_ = slots_.in_flight() == 0 ? Clock::time_point::max() : now + ticks(round_trip_.timeout(timeouts_));
  status_.uses = slots_.uses();
  status_.received += 1;
  path_.received_bytes += result.bytes;
  finished_.push_back(static_cast<uint16_t>(result.slot));
}

void RankSender::freeze() {
  slots_.freeze();
  next_deadline_ = Clock::time_point::max();
}

void RankSender::fetch(const std::vector<uint32_t>& targets) {
  if (slots_.fetch(targets)) {
    next_deadline_ = {};  // at once
  }
}

// If another remaining rank holds a phase, the switch has its complete sum, and sends the result again on request.
void RankSender::retransmit_frozen(net::SendBatch& batch, Clock::time_point now) {
  if (now < next_deadline_) {
    return;
  }
  next_deadline_ = Clock::time_point::max();
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_.may_complete(slot)) {
      send(static_cast<uint16_t>(slot), batch, now);
      status_.retransmissions += 1;
    }
  }
}

void RankSender::publish(bool nothing_left, uint64_t gso_batch_size) {
  status_.gso_batch_size = gso_batch_size;
  status_.window = window_.size();
  status_.round_trip_seconds = round_trip_.smoothed().count();
  channel_->count_round_trips(
      round_trip_.nanoseconds() - std::exchange(published_round_trips_ns_, round_trip_.nanoseconds()),
      std::exchange(round_trips_bytes_, 0));
  channel_->complete(part_, status_, &finished_, nothing_left);
}

void RankSender::add_to(RankProfile* profile) const {
  profile->counters::Path::add(path_);
  profile->round_trip_time_ns += round_trip_.nanoseconds();
  runtime::add_counts(&profile->round_trips_by_duration, round_trip_.histogram());
}

}  // namespace switchml::agent
