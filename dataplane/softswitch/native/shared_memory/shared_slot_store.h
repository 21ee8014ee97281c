// Slots whose values may lie in memory that ranks share with the switch: added up all at once, when the last of them
// have come, where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/pipeline/slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_job.h"
#include "dataplane/softswitch/native/shared_memory/sum_queue.h"

namespace switchml::soft {

// The values that a rank has written into its own buffer of a slot. The buffer belongs to the switch until the rank has
// its result.
struct SharedValues {
  ShmJob* job = nullptr;
  uint8_t rank = 0;
  SumQueue* sums = nullptr;  // takes the sum that becomes possible with them
};

// Reading values and bringing them together (word(), settle(), take_over()) takes that no sum waits or is being made:
// SumQueue::run_all() and runtime::Turns::Control see to it.
class SharedSlotStore final : public SlotStore {
 public:
  // Throws what SlotMemory throws.
  SharedSlotStore(size_t slots, size_t values);

  void begin(size_t half) override;
  void add(size_t half, const Values& values) override;
  // Leaves the sum to the queue of `last` where values are in ranks' buffers: it replaces them there, and in the slot's
  // memory if not all of the job's ranks have such a buffer.
  bool complete(size_t half, const Values& last, const Completion& completion, uint64_t everyone) override;
  void settle(size_t half) override;
  uint32_t word(size_t half, size_t lane) const override;

  // `task` was run. Returns what is left to do, or null when the sum does not count any more.
  const Completion* finish(const SumTask& task);
  // A rank goes away: brings what it has contributed to unfinished sums into the slot's memory.
  void take_over(const ShmJob& job, uint8_t rank);
  // The job's last rank has gone, and so has the job.
  void forget(const ShmJob& job);
  // Ranks whose buffers hold values, or are being added up, as a bitmap.
  uint64_t ranks_with_values(size_t half) const { return buffers_[half].ranks; }

 private:
  struct Buffers {
    uint64_t ranks = 0;     // whose buffers hold values that are not in the slot's memory
    uint64_t sum_id = 0;    // changes when a sum that is being made no longer counts
    ShmJob* job = nullptr;  // whose buffers and results these are
  };

  // Adds values of one rank's buffer to the slot's memory.
  void take(size_t half, uint8_t rank);
  void take_over(size_t half, uint64_t ranks);
  // A sum that is being made will not count.
  void cancel(size_t half) { buffers_[half].sum_id = ++next_id_; }
  // Makes room for values after those of the last rank, as when a job's entries disagree about its ranks.
  void reopen(size_t half);
  // Ranks whose buffers hold the sum, once it is made.
  uint64_t ranks_with_sum(size_t half) const;
  // Calls act(half) for all halves of a job.
  template <class Act>
  void for_each_half(const ShmJob& job, Act&& act);

  std::vector<Buffers> buffers_;
  uint64_t next_id_;
};

}  // namespace switchml::soft
