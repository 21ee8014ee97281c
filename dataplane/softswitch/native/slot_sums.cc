#include "dataplane/softswitch/native/slot_sums.h"

#include <array>
#include <cstring>

#include "dataplane/softswitch/native/accumulate.h"

namespace switchml {
namespace {

// Calls act(rank) for each rank in a bitmap.
template <class Act>
void for_each_rank(uint64_t ranks, Act&& act) {
  for (; ranks != 0; ranks &= ranks - 1) act(static_cast<uint8_t>(__builtin_ctzll(ranks)));
}

}  // namespace

void SlotSums::begin(size_t half) {
  HalfState& state = slots_->state(half);
  state.in_place = 0;
  state.job = nullptr;
  state.has_sum = true;  // whatever it holds: as in a register, values that come later are added to it
  state.is_shared = false;
}

void SlotSums::begin(size_t half, const Values& values) {
  begin(half);
  slots_->state(half).has_sum = false;
  add(half, values);
}

void SlotSums::add(size_t half, const Values& values) {
  HalfState& state = slots_->state(half);
  if (state.is_shared) {  // complete for another rank, by an entry with another mask
    state.is_shared = false;
    add_words(half, state.job->result(half / 2));
  }
  if (values.job == nullptr) {
    add_words(half, values.words);
  } else if (state.job != nullptr && state.job != values.job) {  // two generations of a job in one phase
    add_words(half, values.job->contribution(values.rank, half / 2));
  } else {
    state.job = values.job;
    state.in_place |= uint64_t{1} << values.rank;
  }
}

void SlotSums::add_words(size_t half, const uint8_t* words) {
  HalfState& state = slots_->state(half);
  if (state.has_sum) {
    add_big_endian(slots_->values(half), words, slots_->values_per_packet());
  } else {
    std::memcpy(slots_->values(half), words, slots_->values_per_packet() * sizeof(uint32_t));
    state.has_sum = true;
  }
}

const uint8_t* SlotSums::finish(size_t half, ShmJob* job) {
  HalfState& state = slots_->state(half);
  if (state.in_place != 0) job = state.job;
  if (job == nullptr || !job->covers(half / 2) || job->key().values != slots_->values_per_packet()) {
    take_over(half, state.in_place);
    return slots_->values(half);
  }
  std::array<const uint8_t*, protocol::max_workers + 1> sources;
  size_t count = 0;
  if (state.has_sum) sources[count++] = slots_->values(half);
  for_each_rank(state.in_place, [&](uint8_t rank) { sources[count++] = job->contribution(rank, half / 2); });
  sum_big_endian(sources.data(), count, job->result(half / 2), slots_->values_per_packet(), job->streaming());
  state.in_place = 0;
  state.has_sum = false;
  state.job = job;
  state.is_shared = true;
  return job->result(half / 2);
}

const uint8_t* SlotSums::result(size_t half) {
  const HalfState& state = slots_->state(half);
  return state.is_shared ? state.job->result(half / 2) : slots_->values(half);
}

void SlotSums::take_over(size_t half, uint64_t ranks) {
  HalfState& state = slots_->state(half);
  for_each_rank(state.in_place & ranks,
                [&](uint8_t rank) { add_words(half, state.job->contribution(rank, half / 2)); });
  state.in_place &= ~ranks;
}

void SlotSums::take_over(const ShmJob& job, uint8_t rank) {
  const size_t first = size_t{job.key().slot_base} * 2;
  for (size_t half = first; half < first + size_t{job.key().slots} * 2 && half < slots_->halves(); ++half) {
    if (slots_->state(half).job == &job) take_over(half, uint64_t{1} << rank);
  }
}

void SlotSums::take_over(const ShmJob& job) {
  const size_t first = size_t{job.key().slot_base} * 2;
  for (size_t half = first; half < first + size_t{job.key().slots} * 2 && half < slots_->halves(); ++half) {
    HalfState& state = slots_->state(half);
    if (state.job != &job) continue;
    if (state.is_shared) {
      std::memcpy(slots_->values(half), job.result(half / 2), slots_->values_per_packet() * sizeof(uint32_t));
    }
    state.has_sum = true;
    state.is_shared = false;
    state.job = nullptr;
  }
}

}  // namespace switchml
