#include "switchml/native/stream.h"

#include <algorithm>
#include <utility>

#include "native/kernels/accumulate.h"
#include "native/wire/wire.h"
#include "switchml/native/codecs/mix.h"

namespace switchml::client {

namespace {

// The agent sends these submissions while the next ones are being quantized.
constexpr uint32_t kSubmissionsPerPublication = 16;
// This thread is woken when results for 1/kShareOfPool of the pool have come; fewer are not worth a wake-up.
constexpr uint32_t kShareOfPool = 2;

// Calls are alike if kind and size are.
SparseHistory::Size size_of(const Call& call) { return {call.times.kind, call.times.bytes}; }

}  // namespace

Stream::Stream(const channel::Channel& channel, const channel::Geometry& geometry, int doorbell, const Check& check)
    : channel_(channel),
      geometry_(geometry),
      time_(&channel.control()),
      doorbell_(doorbell),
      check_(check),
      slots_(geometry.slots) {}

void Stream::add(std::shared_ptr<Call> call) {
  if (must_wait(*call)) {
    later_.push_back(std::move(call));
    return;
  }
  if (call->sparse_codec != nullptr) {
    choose_form(call.get());
  }
  append(std::move(call));
}

bool Stream::must_wait(const Call& call) const {
  return open_ended_ || !later_.empty() || (call.sparse_codec != nullptr && !sparse_history_.may_choose(size_of(call)));
}

void Stream::add_later() {
  for (auto& later : std::exchange(later_, {})) {
    add(std::move(later));
  }
}

void Stream::choose_form(Call* call) {
  call->trial = sparse_history_.choose(size_of(*call));
  if (call->trial->sparse) {
    call->codec = std::move(call->sparse_codec);
    call->fingerprint += 1;  // a rank that chose otherwise would notice
  }
  call->sparse_codec.reset();
}

void Stream::append(std::shared_ptr<Call> call) {
  open_ended_ = call->codec->has_second_part();
  call->first_position = end_position_;
  call->positions_left = call->codec->positions();
  end_position_ += call->codec->positions();
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
  if (!check_failed() && (!next_phases_.empty() || may_begin())) {
    time_.restart(ThreadTime::State::quantize);
    any = true;
  }
  submit_next_phases();
  while (may_begin()) {
    begin(next_position_++);
  }
  publish(true);
  return any;
}

void Stream::submit_next_phases() {
  for (const uint32_t index : next_phases_) {
    if (!check_failed()) {
      submit(index);
    }
  }
  next_phases_.clear();
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
  slot.exponent_ahead = wire::exponent::unknown;
  slot.chunk.number = position - slot.call->first_position;
  slot.round = 0;
  if (slot.call->times.begun == 0) {
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
  slot.round += 1;
  slot.sent = codec.encode(slot.chunk, channel_.contribution(index));
  slot.keeps_words = may_keep_words(slot.sent);
  const uint16_t count = slot.keeps_words ? 0 : slot.sent.count;
  slot.call->wire_bytes += count * wire::value_bytes(static_cast<uint32_t>(slot.sent.format));
  if (slot.sent.tells_next && slot.exponent_ahead == wire::exponent::unknown) {
    slot.exponent_ahead = exponent_at(slot.position + geometry_.slots);
  }
  slot.chunk.told.own = slot.sent.tells_next ? slot.exponent_ahead : slot.sent.exponent;
  slot.chunk.next.own = slot.sent.next.value_or(wire::next::none);

  channel::Ticket ticket{};
  ticket.format = static_cast<uint16_t>(slot.sent.format);
  ticket.position = static_cast<uint32_t>(slot.position);
  ticket.chunk = slot.sent.next.value_or(ticket.position);
  ticket.exponent = slot.chunk.told.own;
  ticket.count = count;
  const bool last = slot.position + 1 == slot.call->first_position + codec.positions();
  ticket.owner = owner_of(slot.sent);
  ticket.flags = (last ? wire::flag::last_chunk : 0) | (count == 0 ? wire::flag::without_values : 0);
  ticket.check = check_.of(phase_of(slot), {slot.keeps_words ? 0 : slot.sent.weighed, codec.sums_fit_words()},
                           {slot.sent.scale == Contribution::Scale::own, slot.chunk.next.own != wire::next::none});
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
  if (!may_answer(slot, result)) {
    return fail(slot);
  }
  const bool has_values = (result.flags & wire::flag::without_values) == 0;
  Codec& codec = *slot.call->codec;
  const uint8_t* const words = words_of(slot, index, has_values);
  // Only the reader of words that are missing here can verify the check.
  const bool verifiable = words != nullptr || !slot.sent.expects_words;
  const uint64_t kept = slot.keeps_words ? slot.sent.weighed : 0;
  if (verifiable && !check_holds(slot, result, words != nullptr ? codec.decode(slot.chunk, words) - kept : 0)) {
    return fail(slot);
  }
  slot.chunk.told.all = result.exponent;
  slot.chunk.next.all = result.chunk;
  switch (codec.advance(&slot.chunk, words)) {
    case Step::next_phase:
      return next_phases_.push_back(index);
    case Step::end:
      return finish(slot, ended);
    case Step::contradiction:
      return fail(slot);
  }
}

bool Stream::may_answer(const Slot& slot, const channel::Ticket& result) const {
  const bool right_chunk =
      slot.sent.next ? result.chunk <= *slot.sent.next : result.chunk == static_cast<uint32_t>(slot.position);
  if ((result.flags & wire::flag::without_values) != 0) {
    return right_chunk && (!wire::reads(owner_of(slot.sent), geometry_.rank) || !slot.sent.expects_words);
  }
  const wire::Format format = wire::format_of_sums(static_cast<uint32_t>(slot.sent.format));
  return right_chunk && slot.sent.expects_words && result.format == static_cast<uint16_t>(format);
}

uint8_t Stream::owner_of(const Contribution& sent) const {
  if (geometry_.owned_results == 0) return wire::owner::everyone;
  if (sent.reader) return static_cast<uint8_t>(wire::owner::first + *sent.reader);
  if (sent.giver) return static_cast<uint8_t>(wire::owner::except + wire::owner::first + *sent.giver);
  return wire::owner::everyone;
}

// In the memory of a switch on this machine, the RESULT would overwrite the words. Only sums of integers have the same
// bits in any order.
bool Stream::may_keep_words(const Contribution& made) const {
  return made.reader == geometry_.rank && made.count > 0 && made.format == wire::Format::int32 &&
         geometry_.optional_values != 0 && geometry_.results_apart != channel::Geometry::kInPlace &&
         geometry_.world_size > 1;
}

const uint8_t* Stream::words_of(const Slot& slot, uint32_t index, bool has_values) const {
  uint8_t* const own = channel_.contribution(index);
  if (!has_values) return slot.sent.giver == geometry_.rank ? own : nullptr;
  if (!slot.keeps_words) return channel_.result(index);
  kernels::add_big_endian(own, channel_.result(index), geometry_.values);
  return own;
}

bool Stream::check_holds(const Slot& slot, const channel::Ticket& result, uint64_t weighed) const {
  const bool named = slot.sent.next && result.chunk != wire::next::none;
  return check_.holds(result.check, phase_of(slot), {weighed, slot.call->codec->sums_fit_words()},
                      {slot.sent.scale != Contribution::Scale::none, named});
}

void Stream::finish(Slot& slot, std::vector<std::shared_ptr<Call>>* ended) {
  finished_ += 1;
  const std::shared_ptr<Call> call = std::move(slot.call);
  if (--call->positions_left == 0) {
    if (call->codec->has_second_part()) {
      begin_second_part(call);
      return add_later();
    }
    if (call->trial != nullptr) {
      call->trial->blocks = call->codec->blocks();
      call->trial->ended = true;
    }
    time_.answered(call.get());
    ended->push_back(call);
    while (!calls_.empty() && calls_.front()->positions_left == 0) {
      calls_.pop_front();
    }
    add_later();
  }
}

void Stream::begin_second_part(const std::shared_ptr<Call>& call) {
  SecondPart second = call->codec->second_part();
  open_ended_ = false;
  calls_.erase(std::find(calls_.begin(), calls_.end(), call));
  call->codec = std::move(second.codec);
  call->fingerprint = mix(call->fingerprint ^ second.agreed);
  append(call);
}

void Stream::fail(const Slot& slot) {
  failed_call_ = slot.call;
  failed_position_ = slot.position;
}

void Stream::publish(bool all) {
  channel::ChannelControl& control = channel_.control();
  if (unpublished_ > 0) {
    unpublished_ = 0;
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

uint16_t Stream::exponent_at(uint64_t position) const {
  const std::shared_ptr<Call>* call = call_at(position);
  if (call == nullptr) {
    return wire::exponent::unknown;
  }
  return (*call)->codec->exponent_of(position - (*call)->first_position);
}

Phase Stream::phase_of(const Slot& slot) {
  return {slot.position, slot.round, slot.call->fingerprint, slot.sent.next ? slot.chunk.ordinal : 0,
          slot.chunk.scaled_by};
}

}  // namespace switchml::client
