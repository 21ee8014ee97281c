#include "switchml/native/stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "native/kernels/kernels.h"
#include "native/wire/wire.h"

namespace switchml::client {

namespace {

// The agent sends these while the next ones are being quantized.
constexpr uint32_t kSubmissionsPerPublication = 16;
// What part of a pool of results must be there before it is worth waking this thread.
constexpr uint32_t kShareOfPool = 2;

int bits_for(uint32_t world_size) {
  int bits = 0;
  while ((uint64_t{1} << bits) < world_size) {
    ++bits;
  }
  return bits;
}

// The number by which largest_factor is to be multiplied to become 1, modulo 2^32 (Newton's method, for odd numbers).
constexpr uint32_t inverse_of_odd(uint32_t number) {
  uint32_t inverse = number;  // right in its three lowest bits
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
      headroom_(bits_for(geometry.world_size)),
      own_rank_term_(rank_term(geometry.rank)),
      all_rank_terms_(sum_of_rank_terms(geometry.world_size)),
      slots_(geometry.slots) {}

void Stream::add(std::shared_ptr<Call> call) {
  const uint64_t words = call->kind == CallKind::bytes ? (call->size + 3) / 4 : call->size;
  call->first_position = end_position_;
  // A call without values is one empty packet, so that the ranks still agree that it was made.
  call->chunks = std::max<uint64_t>(1, (words + geometry_.values - 1) / geometry_.values);
  call->chunks_left = call->chunks;
  end_position_ += call->chunks;
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
  return !check_failed() && next_position_ < end_position_ &&
         slots_[next_position_ % geometry_.slots].stage == Stage::idle;
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
  slot.named.clear();
  if (position == slot.call->first_position) {
    time_.begun(slot.call.get());
  }
  if (!slot.call->has_values()) {
    submit(index, Stage::empty);
  } else if (!slot.call->is_float()) {
    slot.scaled_by = 0;
    submit(index, Stage::values);
  } else {
    submit_float(index, slot.next_exponent);
  }
}

void Stream::submit_float(uint32_t index, uint16_t known) {
  Slot& slot = slots_[index];
  if (known < slot.own_exponent) {
    return fail(slot);  // it is the largest of all ranks', so it was changed: our values do not fit
  }
  slot.scaled_by = known == wire::exponent::unknown ? 0 : known;
  submit(index, known == wire::exponent::unknown     ? Stage::exponent
                : known > wire::exponent::max_finite ? Stage::flags
                                                     : Stage::values);
}

void Stream::submit(uint32_t index, Stage stage) {
  Slot& slot = slots_[index];
  const Call& call = *slot.call;
  const uint64_t chunk = chunk_in_call(slot);
  const uint32_t count = values_of(call, chunk);
  slot.stage = stage;
  time_.enter(ThreadTime::State::quantize);

  channel::Ticket ticket{};
  ticket.format = static_cast<uint16_t>(wire::Format::int32);
  ticket.chunk = static_cast<uint32_t>(slot.position);
  ticket.flags = chunk + 1 == call.chunks ? wire::flag::last_chunk : 0;
  uint32_t weighed = 0;
  switch (stage) {
    case Stage::exponent:
      ticket.exponent = exponent_of(call, chunk);
      slot.own_exponent = ticket.exponent;
      break;
    case Stage::flags:
      weighed = write_flags(index);
      ticket.exponent = 0;
      with_floats_of(call, chunk, [&](const auto* values) {
        for (uint32_t i = 0; i < count; ++i) {  // of what remains when the flagged lanes are zeros
          if (kernels::is_finite(values[i])) {
            ticket.exponent = std::max(ticket.exponent, kernels::block_exponent(values + i, 1));
          }
        }
      });
      slot.own_exponent = ticket.exponent;
      break;
    case Stage::values:
      weighed = write_values(index);
      if (call.is_float() && slot.own_exponent == slot.scaled_by) {
        weighed += wire::check::largest_factor;
      }
      ticket.exponent = exponent_ahead(slot.position + geometry_.slots);
      slot.own_exponent = ticket.exponent;
      break;
    case Stage::empty:
      ticket.exponent = exponent_ahead(slot.position + geometry_.slots);
      slot.own_exponent = ticket.exponent;
      slot.scaled_by = 0;
      break;
    case Stage::idle:
      break;
  }
  if (stage == Stage::exponent || stage == Stage::empty) {
    ticket.flags |= wire::flag::without_values;
  } else {
    ticket.count = static_cast<uint16_t>(count);
  }
  ticket.check = weighed + common_terms(slot) + own_rank_term_;
  channel_.contribution_tickets()[index] = ticket;
  channel_.submission_ring()[submitted_++ % geometry_.slots] = static_cast<uint16_t>(index);
  if (++unpublished_ >= kSubmissionsPerPublication) {
    publish(false);
  }
}

uint32_t Stream::write_flags(uint32_t index) {
  const Slot& slot = slots_[index];
  const uint64_t chunk = chunk_in_call(slot);
  const uint32_t count = values_of(*slot.call, chunk);
  uint8_t* words = channel_.contribution(index);
  with_floats_of(*slot.call, chunk, [&](const auto* values) {
    for (uint32_t i = 0; i < geometry_.values; ++i) {
      wire::store32(words + 4 * i, i < count && !kernels::is_finite(values[i]) ? 1 : 0);
    }
  });
  return kernels::weigh(words, 0, geometry_.values);
}

uint32_t Stream::write_values(uint32_t index) {
  const Slot& slot = slots_[index];
  const Call& call = *slot.call;
  const uint64_t chunk = chunk_in_call(slot);
  const uint32_t count = values_of(call, chunk);
  uint8_t* words = channel_.contribution(index);
  uint32_t written = count;
  uint32_t weighed = 0;
  if (call.is_float() && !slot.named.empty()) {
    weighed = with_floats_of(call, chunk, [&](const auto* values) {
      std::vector finite(values, values + count);
      std::replace_if(
          finite.begin(), finite.end(), [](auto value) { return !kernels::is_finite(value); }, decltype(*values){});
      return kernels::quantize(finite.data(), count, shift_of(slot.scaled_by), words, streams());
    });
  } else if (call.is_float()) {
    weighed = with_floats_of(call, chunk, [&](const auto* values) {
      const uint64_t ahead = geometry_.slots + 1;  // chunks: a later one, if it is a whole one of the same call
      const auto* next = chunk + ahead + 1 < call.chunks ? values + ahead * geometry_.values : nullptr;
      return kernels::quantize(values, count, shift_of(slot.scaled_by), words, streams(), next);
    });
  } else if (!call.contributes) {
    written = 0;
  } else {
    const uint64_t offset = chunk * geometry_.values * sizeof(uint32_t);
    const uint64_t bytes = call.kind == CallKind::bytes ? call.size - offset : count * sizeof(uint32_t);
    const auto whole = static_cast<uint32_t>(std::min<uint64_t>(count, bytes / sizeof(uint32_t)));
    weighed = kernels::pack(call.memory + offset, whole, words, streams());
    if (whole < count) {  // the last bytes of a broadcast are no whole word
      uint32_t rest = 0;
      std::memcpy(&rest, call.memory + offset + whole * sizeof rest, bytes % sizeof rest);
      wire::store32(words + whole * sizeof rest, rest);
      weighed += kernels::weigh(words + whole * sizeof rest, whole, 1);
    }
  }
  if (written < geometry_.values) {
    std::memset(words + written * sizeof(uint32_t), 0, (geometry_.values - written) * sizeof(uint32_t));
  }
  return weighed;
}

void Stream::take_result(uint32_t index, std::vector<std::shared_ptr<Call>>* ended) {
  Slot& slot = slots_[index];
  const channel::Ticket result = channel_.result_tickets()[index];
  const bool expects_values = slot.stage == Stage::values || slot.stage == Stage::flags;
  const bool has_values = (result.flags & wire::flag::without_values) == 0;
  if (slot.stage == Stage::idle) {
    return;  // nothing of ours: only a faulty agent completes it
  }
  if (expects_values) {
    time_.enter(ThreadTime::State::dequantize);
  }
  if (has_values != expects_values || result.chunk != static_cast<uint32_t>(slot.position)) {
    return fail(slot);
  }
  uint32_t weighed = 0;
  if (slot.stage == Stage::values) {
    weighed = read_values(index);
  } else if (slot.stage == Stage::flags) {
    weighed = kernels::weigh(channel_.result(index), 0, geometry_.values);
  }
  if (!check_holds(slot, result, weighed)) {
    return fail(slot);
  }
  switch (slot.stage) {
    case Stage::exponent:
      if (result.exponent > wire::exponent::non_finite) {  // every rank sent one that it knew
        return fail(slot);
      }
      return submit_float(index, result.exponent);
    case Stage::flags:
      if (result.exponent > wire::exponent::max_finite) {
        return fail(slot);
      }
      read_flags(index);
      return submit_float(index, result.exponent);
    default:
      slot.next_exponent = result.exponent;
      finish(slot, ended);
  }
}

bool Stream::check_holds(const Slot& slot, const channel::Ticket& result, uint32_t weighed) const {
  const uint32_t rest = result.check - weighed - geometry_.world_size * common_terms(slot) - all_rank_terms_;
  if (slot.stage != Stage::values || !slot.call->is_float()) {
    return rest == 0;
  }
  // How many ranks have values as large as the exponent says: one at least, else it was changed.
  const uint32_t ranks = rest * kInverseOfLargestFactor;
  return 1 <= ranks && ranks <= geometry_.world_size;
}

uint32_t Stream::read_values(uint32_t index) {
  const Slot& slot = slots_[index];
  const Call& call = *slot.call;
  const uint64_t chunk = chunk_in_call(slot);
  const uint32_t count = values_of(call, chunk);
  const uint8_t* words = channel_.result(index);
  uint32_t weighed = 0;
  if (call.is_float()) {
    const float divisor = call.is_average() ? static_cast<float>(geometry_.world_size) : 1.0F;
    weighed = with_floats_of(call, chunk, [&](auto* values) {
      const uint32_t sum = kernels::dequantize(words, count, shift_of(slot.scaled_by), divisor, values);
      for (const uint16_t lane : slot.named) {
        kernels::narrow(std::numeric_limits<float>::quiet_NaN(), values + lane);
      }
      return sum;
    });
  } else {
    const uint64_t offset = chunk * geometry_.values * sizeof(uint32_t);
    uint8_t* memory = call.memory + offset;
    const uint64_t bytes = call.kind == CallKind::bytes ? call.size - offset : count * sizeof(uint32_t);
    const auto whole = static_cast<uint32_t>(std::min<uint64_t>(count, bytes / sizeof(uint32_t)));
    weighed = kernels::unpack(words, whole, memory);
    if (whole < count) {
      const uint32_t rest = wire::load32(words + whole * sizeof rest);
      std::memcpy(memory + whole * sizeof rest, &rest, bytes % sizeof rest);
      weighed += kernels::weigh(words + whole * sizeof rest, whole, 1);
    }
  }
  return weighed + kernels::weigh(words + count * sizeof(uint32_t), count, geometry_.values - count);
}

void Stream::read_flags(uint32_t index) {
  Slot& slot = slots_[index];
  Call& call = *slot.call;
  const uint64_t chunk = chunk_in_call(slot);
  const uint32_t count = values_of(call, chunk);
  for (uint32_t i = 0; i < count; ++i) {
    if (wire::load32(channel_.result(index) + 4 * i) != 0) {
      slot.named.push_back(static_cast<uint16_t>(i));
      call.non_finite_count += 1;
      call.non_finite_indices.push_back(chunk * geometry_.values + i);
    }
  }
  // Chunks end out of order, so only the end of the call knows which are the lowest; keep the list short meanwhile.
  std::sort(call.non_finite_indices.begin(), call.non_finite_indices.end());
  call.non_finite_indices.resize(std::min(call.non_finite_indices.size(), Call::kIndicesKept));
}

void Stream::finish(Slot& slot, std::vector<std::shared_ptr<Call>>* ended) {
  slot.stage = Stage::idle;
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
  if (!(*call)->is_float() || !(*call)->has_values()) {
    return 0;
  }
  return exponent_of(**call, position - (*call)->first_position);
}

uint16_t Stream::exponent_of(const Call& call, uint64_t chunk) const {
  return with_floats_of(call, chunk,
                        [&](const auto* values) { return kernels::block_exponent(values, values_of(call, chunk)); });
}

uint32_t Stream::values_of(const Call& call, uint64_t chunk) const {
  const uint64_t words = call.kind == CallKind::bytes ? (call.size + 3) / 4 : call.size;
  return static_cast<uint32_t>(std::min<uint64_t>(geometry_.values, words - chunk * geometry_.values));
}

// |value| < 2^(exponent - 126), so that world_size of the scaled values fit 31 bits and a sign.
int Stream::shift_of(uint16_t exponent) const { return 31 - headroom_ - (exponent - 126); }

uint32_t Stream::common_terms(const Slot& slot) const {
  return wire::check::exponent_factor * slot.scaled_by +
         wire::check::chunk_factor * static_cast<uint32_t>(slot.position) +
         wire::check::call_factor * slot.call->fingerprint;
}

}  // namespace switchml::client
