#include "dataplane/softswitch/native/shared_memory/uplink.h"

#include <algorithm>

namespace switchml::soft {
namespace {

// The rules are those of an agent's sender (docs/understand/protocol.md). The reordering threshold is that of RFC 6675,
// but larger, because other switches may send in another order; it is doubled by each spurious retransmission.
constexpr uint64_t kReorderingThreshold = 64;
// A timeout is mostly caused by a straggler, so it repeats only a few contributions. Each answer to one of those allows
// two more, so that a lost pool is repeated in a few rounds.
constexpr uint32_t kAgainPerTimeout = 2;
constexpr uint32_t kAgainPerAnswer = 2;
// The losses of all links of a tree, up and down, add up: with an agent's tolerance a few percent on each would keep
// the window at its smallest, in which each lost retransmission waits for a timeout. A queue that overflows before the
// delay is known loses more than this.
constexpr uint32_t kAnswersPerLoss = 4;

}  // namespace

Uplink::Uplink(uint32_t slots, uint64_t packet_bytes)
    : flights_(slots),
      threshold_(std::min<uint64_t>(kReorderingThreshold, slots / 2 + 1)),
      lowest_threshold_(threshold_),
      window_(slots, static_cast<double>(packet_bytes), static_cast<double>(packet_bytes), kAnswersPerLoss) {}

Uplink::Clock::time_point Uplink::deadline_after(Clock::time_point now) const {
  return now + std::chrono::duration_cast<Clock::duration>(round_trip_.timeout(timeouts_));
}

void Uplink::transmit(uint32_t slot, Clock::time_point now) {
  Flight& flight = flights_[slot];
  flight.number = ++last_number_;
  flight.departure = window_.departure(now, next_deadline_ == Clock::time_point::max());
  order_.push_back({flight.number, slot});
}

void Uplink::sent(uint32_t slot, Clock::time_point now) {
  if (flights_[slot].number == 0) count_ += 1;
  flights_[slot] = {};
  transmit(slot, now);
  if (next_deadline_ == Clock::time_point::max()) next_deadline_ = deadline_after(now);
}

void Uplink::answered(uint32_t slot, const Answer& answer, Clock::time_point now) {
  Flight& flight = flights_[slot];
  const bool sent_once = !flight.timed_out && !flight.fast_retransmitted;
  window_.take({answer.bytes, flight.departure, sent_once, answer.completed_here, answer.retransmission}, now);
  if (sent_once) {
    if (answer.completed_here) round_trip_.sample(now - flight.departure.time);
    highest_answered_ = std::max(highest_answered_, flight.number);
  } else if (answer.retransmission) {
    credit_ += kAgainPerAnswer;
  } else {
    credit_ = 0;  // a straggler caused the timeout, so nothing else need be lost
  }
  adapt_threshold(flight, answer);
  if (flight.timed_out) round_trip_.adapt_margin(!answer.completed_here);
  flight = {};
  count_ -= 1;
  timeouts_ = 0;
  next_deadline_ = count_ == 0 ? Clock::time_point::max() : deadline_after(now);
}

// An answer to the first transmission shows that a fast retransmission was spurious (RFC 3522).
void Uplink::adapt_threshold(const Flight& flight, const Answer& answer) {
  if (!flight.fast_retransmitted) return;
  if (answer.retransmission) {
    threshold_ = std::max(threshold_ / 2, lowest_threshold_);
  } else if (flight.number > threshold_raised_at_) {
    threshold_ = std::min(threshold_ * 2, std::max<uint64_t>(2 * lowest_threshold_, flights_.size()));
    threshold_raised_at_ = last_number_;
  }
}

const std::vector<uint32_t>& Uplink::due(Clock::time_point now) {
  due_.clear();
  find_overtaken(now);
  find_timed_out(now);
  return due_;
}

void Uplink::send_again(uint32_t slot, Clock::time_point now) {
  transmit(slot, now);
  due_.push_back(slot);
}

void Uplink::find_overtaken(Clock::time_point now) {
  const uint64_t raised = threshold_ / lowest_threshold_;
  const uint64_t threshold = std::min(threshold_, raised * (window_.size() / 2 + 1));
  for (; !order_.empty(); order_.pop_front()) {
    const Transmission oldest = order_.front();
    if (!in_flight(oldest)) continue;
    if (oldest.number + threshold > highest_answered_) return;
    flights_[oldest.slot].fast_retransmitted = true;
    send_again(oldest.slot, now);
  }
}

void Uplink::find_timed_out(Clock::time_point now) {
  if (now >= next_deadline_) {
    timeouts_ += 1;
    last_timeout_ = now;
    credit_ = kAgainPerTimeout;
    next_deadline_ = deadline_after(now);
  }
  for (; credit_ > 0 && !order_.empty(); order_.pop_front()) {
    const Transmission oldest = order_.front();
    if (!in_flight(oldest)) continue;
    if (flights_[oldest.slot].departure.time >= last_timeout_) return;
    flights_[oldest.slot].timed_out = true;
    send_again(oldest.slot, now);
    credit_ -= 1;
  }
}

void Uplink::stop() {
  std::fill(flights_.begin(), flights_.end(), Flight{});
  order_.clear();
  count_ = 0;
  credit_ = 0;
  next_deadline_ = Clock::time_point::max();
}

}  // namespace switchml::soft
