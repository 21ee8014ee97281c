#include "dataplane/softswitch/native/pipeline/slot_sums.h"

#include <array>
#include <atomic>
#include <cstring>

#include "native/kernels/accumulate.h"
#include "native/wire/wire.h"

namespace switchml::soft {
namespace {

// Calls act(rank) for each rank in a bitmap.
template <class Act>
void for_each_rank(uint64_t ranks, Act&& act) {
  for (; ranks != 0; ranks &= ranks - 1) act(static_cast<uint8_t>(__builtin_ctzll(ranks)));
}

}  // namespace

void SumTask::run() const {
  std::array<uint8_t*, wire::protocol::max_workers> buffers;
  size_t count = 0;
  for_each_rank(ranks, [&](uint8_t rank) { buffers[count++] = job->contribution(rank, half / 2); });
  kernels::sum_in_place(buffers.data(), count, kept, values, job->streaming());
}

uint64_t SlotSums::first_id() {
  static std::atomic<uint64_t> objects{0};
  return ++objects << 40U;
}

void SlotSums::cancel(HalfState* state) {
  state->sum_id = ++next_id_;
  state->completes = false;
}

void SlotSums::begin(size_t half) {
  HalfState& state = slots_->state(half);
  cancel(&state);
  state.in_place = 0;
  state.job = nullptr;
  state.filled = false;
  state.has_sum = false;
  state.is_apart = false;
}

void SlotSums::add(size_t half, const Values& values) {
  HalfState& state = slots_->state(half);
  if (state.completes || state.is_apart) {
    // It is complete for another rank, by an entry with another mask, and its sum is no longer here to be added to:
    // whatever comes of it, no rank must take it for right.
    cancel(&state);
    state.check += 1;
  }
  state.filled = true;
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
    kernels::add_big_endian(slots_->values(half), words, slots_->values_per_packet());
  } else {
    std::memcpy(slots_->values(half), words, slots_->values_per_packet() * sizeof(uint32_t));
    state.has_sum = true;
  }
}

bool SlotSums::finish_later(size_t half, const ShmJob::Completion& completion, uint64_t everyone,
                            std::deque<SumTask>* tasks) {
  HalfState& state = slots_->state(half);
  if (state.in_place == 0) return false;
  state.completes = true;
  if (!state.has_sum && state.in_place != everyone) {
    // A rank without values gets its result from the slot's memory, which takes part as a buffer of zeros.
    std::memset(slots_->values(half), 0, slots_->values_per_packet() * sizeof(uint32_t));
    state.has_sum = true;
  }
  ShmJob& job = *state.job;
  job.completion(half) = completion;
  job.completion(half).ranks = 0;
  SumTask task;
  task.half = half;
  task.id = state.sum_id;
  task.job = &job;
  task.values = slots_->values_per_packet();
  if (state.has_sum) task.kept = slots_->values(half);
  task.ranks = state.in_place;
  tasks->push_back(task);
  return true;
}

const ShmJob::Completion* SlotSums::finished(const SumTask& task) {
  HalfState& state = slots_->state(task.half);
  if (state.sum_id != task.id) return nullptr;
  ShmJob::Completion& completion = task.job->completion(task.half);
  completion.ranks = state.in_place;
  state.completes = false;
  state.is_apart = !state.has_sum;
  state.in_place = 0;
  return &completion;
}

uint32_t SlotSums::word(size_t half, size_t lane) const {
  const HalfState& state = slots_->state(half);
  uint32_t sum = 0;
  const uint64_t have_sum = state.completes ? state.in_place : state.is_apart ? state.job->completion(half).ranks : 0;
  if (have_sum != 0) {
    const auto rank = static_cast<uint8_t>(__builtin_ctzll(have_sum));
    return wire::load32(state.job->contribution(rank, half / 2) + lane * sizeof sum);
  }
  if (state.has_sum || state.in_place == 0) sum = wire::load32(slots_->values(half) + lane * sizeof sum);
  for_each_rank(state.in_place, [&](uint8_t rank) {
    sum += wire::load32(state.job->contribution(rank, half / 2) + lane * sizeof sum);
  });
  return sum;
}

void SlotSums::settle(size_t half) {
  HalfState& state = slots_->state(half);
  const uint64_t have_sum = state.is_apart ? state.job->completion(half).ranks : 0;
  if (have_sum != 0) {
    add_words(half, state.job->contribution(static_cast<uint8_t>(__builtin_ctzll(have_sum)), half / 2));
    state.is_apart = false;
  }
  take_over(half, ~uint64_t{0});
}

void SlotSums::take_over(size_t half, uint64_t ranks) {
  HalfState& state = slots_->state(half);
  if (state.completes) return take_over_sum(half, ranks);
  for_each_rank(state.in_place & ranks,
                [&](uint8_t rank) { add_words(half, state.job->contribution(rank, half / 2)); });
  state.in_place &= ~ranks;
}

void SlotSums::take_over_sum(size_t half, uint64_t ranks) {
  HalfState& state = slots_->state(half);
  if (state.in_place != 0 && (state.in_place & ~ranks) == 0 && !state.has_sum) {
    const auto last = static_cast<uint8_t>(__builtin_ctzll(state.in_place));
    add_words(half, state.job->contribution(last, half / 2));
  }
  state.in_place &= ~ranks;
}

template <class Act>
void SlotSums::for_each_half(const ShmJob& job, Act&& act) {
  const size_t first = size_t{job.key().slot_base} * 2;
  for (size_t half = first; half < first + size_t{job.key().slots} * 2 && half < slots_->halves(); ++half) {
    if (slots_->state(half).job == &job) act(half);
  }
}

void SlotSums::take_over(const ShmJob& job, uint8_t rank) {
  const uint64_t leaves = uint64_t{1} << rank;
  for_each_half(job, [&](size_t half) {
    take_over(half, leaves);
    slots_->state(half).job->completion(half).ranks &= ~leaves;
  });
}

void SlotSums::forget(const ShmJob& job) {
  for_each_half(job, [&](size_t half) {
    HalfState& state = slots_->state(half);
    cancel(&state);
    state.in_place = 0;
    state.job = nullptr;
    state.is_apart = false;
  });
}

}  // namespace switchml::soft
