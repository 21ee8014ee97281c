// Slots whose values may be in memory that ranks share with the switch. They are added up there, in one pass, after the
// last rank has contributed.
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

// Precondition of word(), settle() and take_over(): no sum is waiting or being made. SumQueue::run_all() and
// runtime::Turns::Control ensure this.
class SharedSlotStore final : public SlotStore {
 public:
  // Throws what SlotMemory throws.
  SharedSlotStore(size_t slots, size_t values);

  void begin(size_t half) override;
  void add(size_t half, const Values& values) override;
  // If values are in ranks' buffers, queues the sum in the queue of `last`. The sum then replaces the values in these
  // buffers, and also in the slot's memory if not all of the job's ranks have such a buffer.
  bool complete(size_t half, const Values& last, const Completion& completion, uint64_t everyone) override;
  void settle(size_t half) override;
  uint32_t word(size_t half, size_t lane) const override;

  // Called after `task` was run. Returns the data needed to send its result, or null if the sum no longer counts.
  const Completion* finish(const SumTask& task);
  // Called when a rank leaves: moves its contributions to unfinished sums into the slot's memory.
  void take_over(const ShmJob& job, uint8_t rank);
  // Called when the job's last rank has left: the job has ended.
  void forget(const ShmJob& job);
  // Returns the ranks whose buffers hold values, or are being added up, as a bitmap.
  uint64_t ranks_with_values(size_t half) const { return buffers_[half].ranks; }

 private:
  struct Buffers {
    uint64_t ranks = 0;     // those whose buffers hold values that are not in the slot's memory
    uint64_t sum_id = 0;    // changes when a sum that is being made no longer counts
    ShmJob* job = nullptr;  // the owner of the buffers and results
  };

  // Adds values of one rank's buffer to the slot's memory.
  void take(size_t half, uint8_t rank);
  void take_over(size_t half, uint64_t ranks);
  // Makes a sum that is being made not count.
  void cancel(size_t half) { buffers_[half].sum_id = ++next_id_; }
  // Accepts values after those of the last rank, which happens while a job's entries disagree about its ranks.
  void reopen(size_t half);
  // Returns the ranks whose buffers hold the sum, once it is made.
  uint64_t ranks_with_sum(size_t half) const;
  // Calls act(half) for all halves of a job.
  template <class Act>
  void for_each_half(const ShmJob& job, Act&& act);

  std::vector<Buffers> buffers_;
  uint64_t next_id_;
};

}  // namespace switchml::soft
