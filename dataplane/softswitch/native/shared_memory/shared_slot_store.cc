#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"

#include <atomic>
#include <cstring>

#include "native/wire/wire.h"

namespace switchml::soft {
namespace {

uint8_t first_rank(uint64_t ranks) { return static_cast<uint8_t>(__builtin_ctzll(ranks)); }

// Calls act(rank) for each rank in a bitmap.
template <class Act>
void for_each_rank(uint64_t ranks, Act&& act) {
  for (; ranks != 0; ranks &= ranks - 1) act(first_rank(ranks));
}

// Returns a number that no other store of this process uses.
uint64_t first_id() {
  static std::atomic<uint64_t> stores{0};
  return ++stores << 40U;
}

}  // namespace

SharedSlotStore::SharedSlotStore(size_t slots, size_t values)
    : SlotStore(slots, values), buffers_(halves()), next_id_(first_id()) {}

void SharedSlotStore::begin(size_t half) {
  apply(half, SlotEvent::begin);
  Buffers& buffers = buffers_[half];
  cancel(half);
  buffers.ranks = 0;
  buffers.job = nullptr;
}

void SharedSlotStore::add(size_t half, const Values& values) {
  if (is_summing(state(half).values) || state(half).values == SlotValues::in_results) reopen(half);
  Buffers& buffers = buffers_[half];
  if (values.shared == nullptr) {
    merge(half, values.words);
    apply(half, SlotEvent::add_words);
    return;
  }
  ShmJob* job = values.shared->job;
  if (buffers.job != nullptr && buffers.job != job) {  // two generations of a job in one phase
    merge(half, job->contribution(values.shared->rank, half / 2));
    apply(half, SlotEvent::add_words);
    return;
  }
  buffers.job = job;
  buffers.ranks |= uint64_t{1} << values.shared->rank;
  apply(half, SlotEvent::add_buffer);
}

// The values come after the sum was complete for another rank, whose entry in worker_table has another mask, and
// nothing can be added to that sum any more. The changed check makes every rank reject the result.
void SharedSlotStore::reopen(size_t half) {
  cancel(half);
  state(half).check += 1;
  if (is_summing(state(half).values)) {
    apply(half, SlotEvent::reopen);
  } else {
    settle(half);
  }
}

bool SharedSlotStore::complete(size_t half, const Values& last, const Completion& completion, uint64_t everyone) {
  HalfState& slot = state(half);
  if (is_summing(slot.values)) return false;  // already started for another rank, whose entry has another mask
  Buffers& buffers = buffers_[half];
  if (last.shared == nullptr || buffers.ranks == 0) {
    settle(half);
    return true;
  }
  if (slot.values == SlotValues::in_buffers && buffers.ranks != everyone) {
    // A rank that brought no values gets its result from the slot's memory, which joins the sum as a buffer of zeros.
    std::memset(memory().values(half), 0, values_per_packet() * sizeof(uint32_t));
    apply(half, SlotEvent::add_words);
  }
  SumTask task;
  task.half = half;
  task.id = buffers.sum_id;
  task.job = buffers.job;
  task.ranks = buffers.ranks;
  if (uses_memory(slot.values)) task.memory = memory().values(half);
  task.values = values_per_packet();
  apply(half, SlotEvent::hand_over);
  buffers.job->result(half) = {completion, 0};
  last.shared->sums->add(task);
  return false;
}

const Completion* SharedSlotStore::finish(const SumTask& task) {
  Buffers& buffers = buffers_[task.half];
  if (buffers.sum_id != task.id) return nullptr;
  apply(task.half, SlotEvent::finish);
  ShmJob::Result& result = task.job->result(task.half);
  result.ranks = buffers.ranks;
  buffers.ranks = 0;
  return &result.completion;
}

uint64_t SharedSlotStore::ranks_with_sum(size_t half) const {
  const Buffers& buffers = buffers_[half];
  if (is_summing(state(half).values)) return buffers.ranks;
  return state(half).values == SlotValues::in_results ? buffers.job->result(half).ranks : 0;
}

uint32_t SharedSlotStore::word(size_t half, size_t lane) const {
  const Buffers& buffers = buffers_[half];
  const auto load = [lane](const uint8_t* words) { return wire::load32(words + lane * sizeof(uint32_t)); };
  if (const uint64_t ranks = ranks_with_sum(half); ranks != 0) {
    return load(buffers.job->contribution(first_rank(ranks), half / 2));
  }
  uint32_t sum = state(half).values == SlotValues::in_buffers ? 0 : load(memory().values(half));
  for_each_rank(buffers.ranks, [&](uint8_t rank) { sum += load(buffers.job->contribution(rank, half / 2)); });
  return sum;
}

void SharedSlotStore::settle(size_t half) {
  if (state(half).values != SlotValues::in_results) return take_over(half, ~uint64_t{0});
  if (const uint64_t ranks = ranks_with_sum(half); ranks != 0) {
    merge(half, buffers_[half].job->contribution(first_rank(ranks), half / 2));
    apply(half, SlotEvent::copy_sum);
  } else {
    apply(half, SlotEvent::forget);  // a rank that still needs the sum rejects the slot's contents by their check
  }
}

// If the sum is made already, it is copied to the slot's memory from the last buffer that is taken over.
void SharedSlotStore::take_over(size_t half, uint64_t ranks) {
  Buffers& buffers = buffers_[half];
  for_each_rank(buffers.ranks & ranks, [&](uint8_t rank) {
    buffers.ranks &= ~(uint64_t{1} << rank);
    const bool is_last = buffers.ranks == 0;
    const SlotValues values = state(half).values;
    if (!is_summing(values) || (is_last && values == SlotValues::summing)) {
      merge(half, buffers.job->contribution(rank, half / 2));
    }
    apply(half, is_last ? SlotEvent::take_last : SlotEvent::take_some);
  });
}

template <class Act>
void SharedSlotStore::for_each_half(const ShmJob& job, Act&& act) {
  const size_t first = size_t{job.key().slot_base} * 2;
  for (size_t half = first; half < first + size_t{job.key().slots} * 2 && half < halves(); ++half) {
    if (buffers_[half].job == &job) act(half);
  }
}

void SharedSlotStore::take_over(const ShmJob& job, uint8_t rank) {
  const uint64_t leaves = uint64_t{1} << rank;
  for_each_half(job, [&](size_t half) {
    take_over(half, leaves);
    buffers_[half].job->result(half).ranks &= ~leaves;
  });
}

void SharedSlotStore::forget(const ShmJob& job) {
  for_each_half(job, [&](size_t half) {
    apply(half, SlotEvent::forget);
    cancel(half);
    buffers_[half].job = nullptr;
  });
}

}  // namespace switchml::soft
