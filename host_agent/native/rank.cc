#include "host_agent/native/rank.h"

#include <stdexcept>

#include "native/wire/slot_blocks.h"

namespace switchml::agent {

namespace {

// Results of so many later contributions, and still none of this one: the packet was lost. Less would take the
// reordering of a burst for a loss; half the window, where that is less, can still happen. Where results come in
// another order by nature, as from a switch with several shards, it grows.
constexpr uint32_t kOvertakenBy = 64;
constexpr uint32_t kPoolsUntilTrust = 16;  // of results in order, until it shrinks again
// A timeout repeats only so many packets: silence is mostly a straggler's, and then all of them are
// duplicates. Each result that a repetition brought lets us repeat two more, so that a lost window is back in a few
// rounds.
constexpr uint32_t kRepeatedByTimeout = 2;
constexpr uint32_t kRepeatedByResult = 2;

// Chunk numbers wrap around; those of one pool are close together.
bool is_before(uint32_t chunk, uint32_t other) { return static_cast<int32_t>(chunk - other) < 0; }
uint32_t earlier(uint32_t chunk, uint32_t other) { return is_before(chunk, other) ? chunk : other; }
uint32_t later(uint32_t chunk, uint32_t other) { return is_before(chunk, other) ? other : chunk; }

Clock::duration ticks(RoundTrip::Duration seconds) { return std::chrono::duration_cast<Clock::duration>(seconds); }

}  // namespace

Rank::Rank(const RankAssignment& assignment, unsigned thread, RankChannel* channel)
    : assignment_(checked(assignment)),
      thread_(thread),
      channel_(channel),
      slots_(assignment.slots),
      headers_(assignment.slots * kHeaderStride),
      overtaken_by_(kOvertakenBy),
      window_(assignment.slots) {
  for (uint32_t index = 0; index < assignment.slots; ++index) {
    slots_[index].chunk = index;
  }
}

// A slot serves one chunk in one or several phases, then the chunk one pool further on. No chunk is more than a pool
// behind the furthest: its slot would not have been free for that one.
bool Rank::in_stream_order(uint32_t chunk, uint16_t index) const {
  const uint32_t before = slots_[index].chunk;
  return (chunk == before || chunk == before + assignment_.slots) &&
         !is_before(chunk, submitted_end_ - assignment_.slots);
}

bool Rank::take_submissions() {
  submitted_.clear();
  if (channel_->broken() || !channel_->take(thread_, &submitted_)) {
    return false;
  }
  for (const uint16_t index : submitted_) {
    const wire::Header header = header_of(index);
    if (slots_[index].state != SlotState::with_process || slots_[index].phase >= assignment_.slot_uses ||
        !in_stream_order(header.chunk, index)) {
      channel_->fail();
      return false;
    }
    wire::store_header(&headers_[index * kHeaderStride], header);
    Slot& slot = slots_[index];
    slot.state = SlotState::queued;
    slot.chunk = header.chunk;
    slot.flags = header.flags;
    slot.transmissions = 0;
    slot.timed_out = false;
    slot.repeated_early = false;
    send_from_ = earlier(send_from_, slot.chunk);
    window_begin_ = earlier(window_begin_, slot.chunk);
    submitted_end_ = later(submitted_end_, slot.chunk + 1);
  }
  return true;
}

wire::Header Rank::header_of(uint16_t slot) const {
  // One read: the process can change it at any time.
  const channel::Ticket ticket = channel_->channel().contribution_tickets()[slot];
  wire::Header header;
  header.kind = static_cast<uint8_t>(wire::Kind::contribution);
  header.job = assignment_.job;
  header.worker = assignment_.rank;
  header.format = static_cast<uint8_t>(ticket.format);
  header.exponent = ticket.exponent;
  header.slot = static_cast<uint16_t>((assignment_.slot_base + slot) << 1 | (slots_[slot].phase & 1));
  header.count = ticket.count;
  header.epoch = assignment_.epoch;
  header.flags = static_cast<uint16_t>(ticket.flags & ~wire::flag::retransmission);
  header.phase = slots_[slot].phase;
  header.chunk = ticket.chunk;
  header.check = ticket.check;
  header.secret = assignment_.secret;
  return header;
}

void Rank::send(uint16_t index, net::SendBatch& batch, Clock::time_point now) {
  Slot& slot = slots_[index];
  uint8_t* header = &headers_[index * kHeaderStride];
  if (slot.transmissions == 1) {
    wire::Header again = wire::load_header(header);
    again.flags |= wire::flag::retransmission;
    wire::store_header(header, again);
  }
  slot.transmissions = static_cast<uint8_t>(std::min(slot.transmissions + 1, UINT8_MAX));
  slot.sent = now;
  slot.order = ++next_order_;
  in_order_.push_back({slot.order, index});
  if (next_deadline_ == Clock::time_point::max()) {
    next_deadline_ = now + ticks(round_trip_.timeout(timeouts_));
  }
  if (!wire::in_same_block(assignment_.slot_base + index, assignment_.slot_base + last_sent_)) {
    batch.end_run();
  }
  last_sent_ = index;
  const bool empty = (slot.flags & wire::flag::without_values) != 0;
  batch.add(header, wire::protocol::header_bytes, channel_->channel().contribution(index),
            empty ? 0 : assignment_.values * sizeof(uint32_t));
  status_.sent += 1;
  status_.sent_bytes += wire::protocol::header_bytes + (empty ? 0 : assignment_.values * sizeof(uint32_t));
}

void Rank::transmit(net::SendBatch& batch, Clock::time_point now) {
  if (frozen()) {
    return retransmit_frozen(batch, now);
  }
  retransmit_overtaken(batch, now);
  retransmit_after_timeout(batch, now);
  send_window(batch, now);
}

Rank::Slot* Rank::slot_of(uint32_t chunk) {
  Slot& slot = slots_[chunk % assignment_.slots];
  return slot.state != SlotState::with_process && slot.chunk == chunk ? &slot : nullptr;
}

void Rank::send_window(net::SendBatch& batch, Clock::time_point now) {
  while (window_begin_ != submitted_end_ && slot_of(window_begin_) == nullptr) {
    window_begin_ += 1;
  }
  send_from_ = later(send_from_, window_begin_);
  const uint32_t end = earlier(submitted_end_, window_begin_ + window_.size());
  for (; is_before(send_from_, end); ++send_from_) {
    Slot* slot = slot_of(send_from_);
    if (slot != nullptr && slot->state == SlotState::queued) {
      slot->state = SlotState::in_flight;
      in_flight_ += 1;
      status_.position += 1;
      send(static_cast<uint16_t>(slot - slots_.data()), batch, now);
    }
  }
}

const Rank::Transmission* Rank::oldest_unfinished() {
  while (!in_order_.empty()) {
    const Transmission& oldest = in_order_.front();
    const Slot& slot = slots_[oldest.slot];
    if (slot.state == SlotState::in_flight && slot.order == oldest.order) {
      return &oldest;
    }
    in_order_.pop_front();
  }
  return nullptr;
}

void Rank::retransmit_overtaken(net::SendBatch& batch, Clock::time_point now) {
  const uint64_t behind = std::min(overtaken_by_, window_.size() / 2 + 1);
  for (const Transmission* oldest = oldest_unfinished();
       oldest != nullptr && oldest->order + behind <= newest_finished_; oldest = oldest_unfinished()) {
    slots_[oldest->slot].repeated_early = true;
    send(oldest->slot, batch, now);
    status_.early_retransmissions += 1;
  }
}

void Rank::retransmit_after_timeout(net::SendBatch& batch, Clock::time_point now) {
  if (now >= next_deadline_) {
    if (in_flight_ == 0) {
      next_deadline_ = Clock::time_point::max();
      return;
    }
    timeouts_ += 1;
    timed_out_ = now;
    may_repeat_ = kRepeatedByTimeout;
    repeat_from_ = window_begin_;
    next_deadline_ = now + ticks(round_trip_.timeout(timeouts_));
  }
  // The lowest chunks first: they are what the other ranks' windows wait for.
  for (repeat_from_ = later(repeat_from_, window_begin_); may_repeat_ > 0 && is_before(repeat_from_, send_from_);
       ++repeat_from_) {
    Slot* slot = slot_of(repeat_from_);
    if (slot != nullptr && slot->state == SlotState::in_flight && slot->sent < timed_out_) {
      slot->timed_out = true;
      send(static_cast<uint16_t>(slot - slots_.data()), batch, now);
      status_.retransmissions += 1;
      may_repeat_ -= 1;
    }
  }
}

bool Rank::awaits(const TakenResult& result) const {
  const Slot& slot = slots_[result.index];
  return slot.state == SlotState::in_flight && slot.phase == result.header.phase &&
         (!frozen() || slot.phase < limits_[result.index]);
}

// A slot was repeated early, and its result is of the original packets: nothing was missing. That happens for a while
// when ranks send in different orders, and all the time when a switch has several shards.
void Rank::judge_reordering(const Slot& slot, bool answers_repetition) {
  if (slot.repeated_early && !answers_repetition && slot.order > judged_until_) {
    overtaken_by_ = std::min(overtaken_by_ * 2, std::max(kOvertakenBy, assignment_.slots / 2));
    judged_until_ = next_order_;  // what was repeated together is judged once
    results_in_order_ = 0;
  } else if (++results_in_order_ == kPoolsUntilTrust * assignment_.slots) {
    overtaken_by_ = std::max(overtaken_by_ / 2, kOvertakenBy);
    results_in_order_ = 0;
  }
}

void Rank::take_result(const TakenResult& result, Clock::time_point now) {
  const wire::Header& header = result.header;
  const bool answers_repetition = (header.flags & wire::flag::retransmission) != 0;  // this rank's or another one's
  Slot& slot = slots_[result.index];
  if (header.worker == assignment_.rank && slot.transmissions == 1) {
    round_trip_.sample(now - slot.sent);
  }
  window_.result(header.worker == assignment_.rank && answers_repetition);
  if (slot.transmissions == 1) {
    newest_finished_ = std::max(newest_finished_, slot.order);
  } else if (answers_repetition) {
    may_repeat_ += kRepeatedByResult;
  } else {
    may_repeat_ = 0;  // the silence was a straggler's: nothing else need be missing
  }
  judge_reordering(slot, answers_repetition);
  if (slot.timed_out) {
    round_trip_.judge_timeout(header.worker == assignment_.rank);
  }
  timeouts_ = 0;
  next_deadline_ = now + ticks(round_trip_.timeout(timeouts_));
  slot.state = SlotState::with_process;
  slot.phase += 1;
  status_.uses = std::max<uint64_t>(status_.uses, slot.phase);
  in_flight_ -= 1;
  status_.received += 1;
  status_.received_bytes += result.bytes;
  channel_->channel().result_tickets()[result.index] = {
      header.chunk,
      header.check,
      header.exponent,
      header.count,
      static_cast<uint16_t>(header.flags & ~wire::flag::retransmission),
      header.format};
  finished_.push_back(static_cast<uint16_t>(result.index));
}

std::vector<uint32_t> Rank::held() const {
  std::vector<uint32_t> phases;
  phases.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    phases.push_back(slot.phase);
  }
  return phases;
}

void Rank::freeze() {
  limits_ = held();
  next_deadline_ = Clock::time_point::max();
}

void Rank::fetch(const std::vector<uint32_t>& targets) {
  if (!frozen() || targets.size() != slots_.size()) {
    throw std::invalid_argument("the rank is not frozen, or the targets are not one for each of its slots");
  }
  if (limits_ != targets) {
    limits_ = targets;
    next_deadline_ = Clock::now();
  }
}

// What another survivor holds is full in the switch, which sends it again to who asks.
void Rank::retransmit_frozen(net::SendBatch& batch, Clock::time_point now) {
  if (now < next_deadline_) {
    return;
  }
  next_deadline_ = Clock::time_point::max();
  for (size_t index = 0; index < slots_.size(); ++index) {
    if (slots_[index].state == SlotState::in_flight && slots_[index].phase < limits_[index]) {
      send(static_cast<uint16_t>(index), batch, now);
      status_.retransmissions += 1;
    }
  }
}

void Rank::publish(bool nothing_left, uint64_t packets_together) {
  status_.packets_together = packets_together;
  status_.round_trip_seconds = round_trip_.smoothed().count();
  channel_->complete(thread_, status_, &finished_, nothing_left);
}

void Rank::add_to(RankProfile* profile) const {
  profile->sending += status_.sending;
  profile->receiving += status_.receiving;
  profile->sent_bytes += status_.sent_bytes;
  profile->received_bytes += status_.received_bytes;
  profile->round_trip_time += round_trip_.nanoseconds();
  for (size_t bucket = 0; bucket < runtime::kDurationBuckets; ++bucket) {
    profile->round_trips[bucket] += round_trip_.histogram()[bucket];
  }
}

}  // namespace switchml::agent
