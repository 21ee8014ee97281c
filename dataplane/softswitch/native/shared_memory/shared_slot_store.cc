#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"

#include <atomic>
#include <utility>

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

void SharedSlotStore::begin_values(size_t half) {
  apply(half, SlotEvent::begin);
  cancel(half);
  Buffers& buffers = buffers_[half];
  buffers.sources = 0;
  buffers.lent = 0;
  buffers.closed = false;
  buffers.job = nullptr;
}

bool SharedSlotStore::borrow(size_t half, const SharedValues& shared) {
  Buffers& buffers = buffers_[half];
  if (buffers.closed || (buffers.job != nullptr && buffers.job != shared.job)) return false;
  buffers.job = shared.job;
  buffers.lent |= uint64_t{1} << shared.rank;
  return true;
}

void SharedSlotStore::add(size_t half, const Values& values) {
  if (is_summing(state(half).values) || state(half).values == SlotValues::in_results) reopen(half);
  if (values.shared != nullptr && borrow(half, *values.shared)) {
    buffers_[half].sources |= uint64_t{1} << values.shared->rank;
    apply(half, SlotEvent::add_buffer);
    return;
  }
  merge(half,
        values.shared == nullptr ? values.words : values.shared->job->contribution(values.shared->rank, half / 2));
  apply(half, SlotEvent::add_words);
}

// A rank whose buffer is not borrowed gets the sum from the slot's memory, as ranks that send packets do.
void SharedSlotStore::lend(size_t half, const Values& values) {
  if (values.shared != nullptr) borrow(half, *values.shared);
}

// The values come after the sum was complete for another rank, whose entry in worker_table has another mask, and
// nothing can be added to that sum any more. The changed check makes every rank reject the result.
void SharedSlotStore::reopen(size_t half) {
  cancel(half);
  state(half).check += 1;
  if (!is_summing(state(half).values)) return settle(half);
  buffers_[half].lent = 0;
  apply(half, SlotEvent::reopen);
}

bool SharedSlotStore::complete(size_t half, const Values& last, const Completion& completion, uint64_t everyone) {
  const SlotValues values = state(half).values;
  if (is_summing(values)) return false;  // already started for another rank, whose entry has another mask
  Buffers& buffers = buffers_[half];
  buffers.closed = true;
  if (last.shared == nullptr || !state(half).filled() || buffers.lent == 0) {
    settle(half);
    return true;
  }
  const uint64_t readers = wire::readers_of(completion.answer.owner);
  buffers.lent &= readers;
  const bool in_buffers_only =
      values == SlotValues::in_buffers && buffers.lent != 0 && buffers.lent == (everyone & readers);
  SumTask task;
  task.half = half;
  task.id = buffers.sum_id;
  task.job = buffers.job;
  task.sources = std::exchange(buffers.sources, 0);
  task.ranks = buffers.lent;
  if (!in_buffers_only) task.memory = memory().values(half);
  task.adds_memory = uses_memory(values);
  if (state(half).format == wire::Format::float32) {
    if (task.adds_memory) resume(half);
    task.floats = memory().floats(half);
    state(half).rounded = true;  // where the memory gets the sum
  }
  task.values = values_per_packet();
  apply(half, in_buffers_only ? SlotEvent::hand_over : SlotEvent::hand_over_both);
  buffers.job->result(half) = {completion, 0};
  last.shared->sums->add(task);
  return false;
}

// A rank whose buffer does not hold the sum gets it from the slot's memory. No buffer is written to after that: entries
// of worker_table that disagree about the job's ranks can make a phase complete that was not before.
void SharedSlotStore::resend(size_t half, uint64_t rank_bit, bool reads) {
  if (!reads) return give_back(half, rank_bit);
  const bool has_sum = state(half).values == SlotValues::in_results && (ranks_with_sum(half) & rank_bit) != 0;
  if (!has_sum) settle(half);
}

const Completion* SharedSlotStore::finish(const SumTask& task) {
  Buffers& buffers = buffers_[task.half];
  if (buffers.sum_id != task.id) return nullptr;
  apply(task.half, SlotEvent::finish);
  ShmJob::Result& result = task.job->result(task.half);
  result.ranks = std::exchange(buffers.lent, 0);
  const uint64_t readers = state(task.half).bitmap & wire::readers_of(result.completion.answer.owner);
  if ((readers & ~result.ranks) != 0) settle(task.half);  // for those who came too late
  return &result.completion;
}

uint64_t SharedSlotStore::ranks_with_sum(size_t half) const {
  const Buffers& buffers = buffers_[half];
  if (is_summing(state(half).values)) return buffers.lent;
  return state(half).values == SlotValues::in_results ? buffers.job->result(half).ranks : 0;
}

uint32_t SharedSlotStore::word(size_t half, size_t lane) const {
  const Buffers& buffers = buffers_[half];
  const auto load = [lane](const uint8_t* words) { return wire::load32(words + lane * sizeof(uint32_t)); };
  if (const uint64_t ranks = ranks_with_sum(half); ranks != 0) {
    return load(buffers.job->contribution(first_rank(ranks), half / 2));
  }
  const bool in_memory = state(half).values != SlotValues::in_buffers;
  if (state(half).format == wire::Format::float32 && state(half).filled()) {
    kernels::FloatSum sum = in_memory ? float_sum(half, lane) : kernels::FloatSum{};
    for_each_rank(buffers.sources,
                  [&](uint8_t rank) { kernels::add_float(load(buffers.job->contribution(rank, half / 2)), &sum); });
    return kernels::rounded_float(sum);
  }
  uint32_t sum = in_memory ? load(memory().values(half)) : 0;
  for_each_rank(buffers.sources, [&](uint8_t rank) { sum += load(buffers.job->contribution(rank, half / 2)); });
  return sum;
}

void SharedSlotStore::gather(size_t half) {
  if (state(half).values != SlotValues::in_results) return give_back(half, ~uint64_t{0});
  if (const uint64_t ranks = ranks_with_sum(half); ranks != 0) {
    copy_sum(half, first_rank(ranks));
  } else {
    apply(half, SlotEvent::forget);  // a rank that still needs the sum rejects the slot's contents by their check
  }
}

void SharedSlotStore::copy_sum(size_t half, uint8_t rank) {
  store_sum(half, buffers_[half].job->contribution(rank, half / 2));
  apply(half, SlotEvent::copy_sum);
}

void SharedSlotStore::give_back(size_t half, uint64_t ranks) {
  Buffers& buffers = buffers_[half];
  for_each_rank(buffers.sources & ranks, [&](uint8_t rank) {
    merge(half, buffers.job->contribution(rank, half / 2));
    buffers.sources &= ~(uint64_t{1} << rank);
    apply(half, buffers.sources == 0 ? SlotEvent::take_last : SlotEvent::take_some);
  });
  const uint64_t last = buffers.lent;
  buffers.lent &= ~ranks;
  // The sum is made but not finished, and no buffer is left that holds it.
  if (state(half).values == SlotValues::summing && buffers.lent == 0) copy_sum(half, first_rank(last));
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
    give_back(half, leaves);
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
