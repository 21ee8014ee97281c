#include "switchml/native/stream.h"

#include <algorithm>

#include "native/kernels/kernels.h"
#include "native/wire/wire.h"

namespace switchml::client {

namespace {

// The agent sends these submissions while the next ones are being quantized.
constexpr uint32_t kSubmissionsPerPublication = 16;
// This thread is woken when results for 1/kShareOfPool of the pool have come; fewer are not worth a wake-up.
constexpr uint32_t kShareOfPool = 2;

// Returns the inverse of an odd number modulo 2^32 (Newton's method).
constexpr uint32_t inverse_of_odd(uint32_t number) {
  uint32_t inverse = number;  // correct in its three lowest bits
  for (int bits = 3; bits < 32; bits *= 2) {
    inverse *= 2 - number * inverse;
  }
  return inverse;
}

constexpr uint32_t kInverseOfLargestFactor = inverse_of_odd(wire::check::largest_factor);
static_assert(kInverseOfLargestFactor * wire::check::largest_factor == 1);

uint32_t rank_term(uint32_t rank) { return wire::check::rank_factor * rank * rank; }

uint32_t sum_of_rank_terms(uint32_t world_size) {
  uint32_t sum = 0;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    sum += rank_term(rank);
  }
  return sum;
}

}  // namespace

Stream::Stream(const channel::Channel& channel, const channel::Geometry& geometry, int doorbell)
    : channel_(channel),
      geometry_(geometry),
      time_(&channel.control()),
      doorbell_(doorbell),
      own_rank_term_(rank_term(geometry.rank)),
      all_rank_terms_(sum_of_rank_terms(geometry.world_size)),
      slots_(geometry.slots) {}

void Stream::add(std::shared_ptr<Call> call) {
  call->first_position = end_position_;
  call->chunks_left = call->codec->chunks();
  end_position_ += call->codec->chunks();
  calls_.push_back(std::move(call));
}

uint32_t Stream::results_that_wait() const {
  return channel_.control().completed.load(std::memory_order_acquire) - taken_;
}

bool Stream::advance(std::vector<std::shared_ptr<Call>>* ended) {
  bool any = false;
  const uint32_t completed = channel_.control().completed.load(std::memory_order_acquire);
  if (!check_failed() && taken_ != completed) {
    time_.restart(ThreadTime::State::dequantize);
    any = true;
  }
  while (!check_failed() && taken_ != completed) {
    const uint32_t index = channel_.completion_ring()[taken_++ % geometry_.slots];
    take_result(index % geometry_.slots, ended);
  }
  if (!ended->empty()) {
    time_.ended(*ended);
  }
  if (may_begin()) {
    time_.restart(ThreadTime::State::quantize);
    any = true;
  }
  while (may_begin()) {
    begin(next_position_++);
  }
  publish(true);
  return any;
}

bool Stream::may_begin() const {
  return !check_failed() && next_position_ < end_position_ && slots_[next_position_ % geometry_.slots].call == nullptr;
}

uint32_t Stream::results_wanted() const {
  const uint32_t in_flight = submitted_ - taken_;
  return std::max(1U, std::min(in_flight, geometry_.slots / kShareOfPool));
}

void Stream::begin(uint64_t position) {
  const auto index = static_cast<uint32_t>(position % geometry_.slots);
  Slot& slot = slots_[index];
  slot.position = position;
  slot.call = *call_at(position);
  slot.chunk.number = position - slot.call->first_position;
  if (slot.chunk.number == 0) {
    time_.begun(slot.call.get());
  }
  if (!slot.call->codec->begin(&slot.chunk)) {
    return fail(slot);
  }
  submit(index);
}

void Stream::submit(uint32_t index) {
  Slot& slot = slots_[index];
  const Codec& codec = *slot.call->codec;
  time_.enter(ThreadTime::State::quantize);
  slot.sent = codec.encode(slot.chunk, channel_.contribution(index));
  slot.call->words += slot.sent.count;
  slot.chunk.told.own = slot.sent.last ? exponent_ahead(slot.position + geometry_.slots) : slot.sent.exponent;

  channel::Ticket ticket{};
  ticket.format = static_cast<uint16_t>(wire::Format::int32);
  ticket.chunk = static_cast<uint32_t>(slot.position);
  ticket.exponent = slot.chunk.told.own;
  ticket.count = slot.sent.count;
  ticket.flags = (slot.chunk.number + 1 == codec.chunks() ? wire::flag::last_chunk : 0) |
                 (slot.sent.count == 0 ? wire::flag::without_values : 0);
  ticket.check = slot.sent.weighed + common_terms(slot) + own_rank_term_;
  if (slot.sent.scale == Contribution::Scale::own) {
    ticket.check += wire::check::largest_factor;
  }
  channel_.contribution_tickets()[index] = ticket;
  channel_.submission_ring()[submitted_++ % geometry_.slots] = static_cast<uint16_t>(index);
  if (++unpublished_ >= kSubmissionsPerPublication) {
    publish(false);
  }
}

void Stream::take_result(uint32_t index, std::vector<std::shared_ptr<Call>>* ended) {
  Slot& slot = slots_[index];
  const channel::Ticket result = channel_.result_tickets()[index];
  if (slot.call == nullptr) {
    return;  // the slot has no chunk of this rank: only a faulty agent completes it
  }
  const bool expects_values = slot.sent.count != 0;
  const bool has_values = (result.flags & wire::flag::without_values) == 0;
  if (expects_values) {
    time_.enter(ThreadTime::State::dequantize);
  }
  if (has_values != expects_values || result.chunk != static_cast<uint32_t>(slot.position)) {
    return fail(slot);
  }
  Codec& codec = *slot.call->codec;
  const uint8_t* words = channel_.result(index);
  const uint32_t weighed = expects_values ? codec.decode(slot.chunk, words) : 0;
  if (!check_holds(slot, result, weighed)) {
    return fail(slot);
  }
  slot.chunk.told.all = result.exponent;
  if (slot.sent.last) {
    return finish(slot, ended);
  }
  if (!codec.agree(&slot.chunk, words)) {
    return fail(slot);
  }
  submit(index);
}

bool Stream::check_holds(const Slot& slot, const channel::Ticket& result, uint32_t weighed) const {
  const uint32_t rest = result.check - weighed - geometry_.world_size * common_terms(slot) - all_rank_terms_;
  if (slot.sent.scale == Contribution::Scale::none) {
    return rest == 0;
  }
  // The number of ranks whose exponent scaled the values; if it is not at least 1, the exponent was corrupted.
  const uint32_t ranks = rest * kInverseOfLargestFactor;
  return 1 <= ranks && ranks <= geometry_.world_size;
}

void Stream::finish(Slot& slot, std::vector<std::shared_ptr<Call>>* ended) {
  finished_chunks_ += 1;
  const std::shared_ptr<Call> call = std::move(slot.call);
  if (--call->chunks_left == 0) {
    time_.answered(call.get());
    ended->push_back(call);
    while (!calls_.empty() && calls_.front()->chunks_left == 0) {
      calls_.pop_front();
    }
  }
}

void Stream::fail(const Slot& slot) {
  failed_call_ = slot.call;
  failed_position_ = slot.position;
}

void Stream::publish(bool all) {
  channel::ChannelControl& control = channel_.control();
  if (unpublished_ > 0) {
    unpublished_ = 0;
    kernels::fence_streaming_stores();
    control.submitted.store(submitted_, std::memory_order_seq_cst);
  }
  if (rung_ != submitted_ && control.server_sleeps.load(std::memory_order_seq_cst) != 0 &&
      (all || channel::has_reached(submitted_, control.server_wakes_at.load(std::memory_order_relaxed))) &&
      control.server_sleeps.exchange(0) != 0) {
    rung_ = submitted_;
    channel::ring(doorbell_);
  }
}

const std::shared_ptr<Call>* Stream::call_at(uint64_t position) const {
  if (position >= end_position_) {
    return nullptr;
  }
  const auto after = std::upper_bound(calls_.begin(), calls_.end(), position,
                                      [](uint64_t at, const auto& call) { return at < call->first_position; });
  return &*std::prev(after);
}

uint16_t Stream::exponent_ahead(uint64_t position) const {
  const std::shared_ptr<Call>* call = call_at(position);
  if (call == nullptr) {
    return wire::exponent::unknown;
  }
  return (*call)->codec->exponent_of(position - (*call)->first_position);
}

uint32_t Stream::common_terms(const Slot& slot) const {
  return wire::check::exponent_factor * slot.chunk.scaled_by +
         wire::check::chunk_factor * static_cast<uint32_t>(slot.position) +
         wire::check::call_factor * slot.call->fingerprint;
}

}  // namespace switchml::client
