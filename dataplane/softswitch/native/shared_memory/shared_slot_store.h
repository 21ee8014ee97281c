// Slots whose values may be in memory that ranks share with the switch. They are added up there, in one pass, after the
// last rank has contributed. A rank that brings no values lends its buffer for the sum all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/pipeline/slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_job.h"
#include "dataplane/softswitch/native/shared_memory/sum_queue.h"

namespace switchml::soft {

// A rank's own buffer of a slot. It belongs to the switch from the rank's contribution, with which the rank may have
// written values into it, until the rank has its result.
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

  void add(size_t half, const Values& values) override;
  void lend(size_t half, const Values& values) override;
  // If ranks have lent buffers, queues the sum in the queue of `last`. It is then written to the buffers of those that
  // read it, and also to the slot's memory if not all readers among the job's ranks have lent one.
  bool complete(size_t half, const Values& last, const Completion& completion, uint64_t everyone) override;
  void resend(size_t half, uint64_t rank_bit, bool reads) override;
  uint32_t word(size_t half, size_t lane) const override;

  // Called after `task` was run. Returns the data needed to send its result, or null if the sum no longer counts.
  const Completion* finish(const SumTask& task);
  // Called when a rank leaves: moves its contributions to unfinished sums into the slot's memory, and gives its buffers
  // back.
  void take_over(const ShmJob& job, uint8_t rank);
  // Called when the job's last rank has left: the job has ended.
  void forget(const ShmJob& job);
  // Returns the ranks, as a bitmap, whose buffers hold values that are not in the slot's memory.
  uint64_t sources(size_t half) const { return buffers_[half].sources; }
  // Returns the ranks whose buffers the switch may write to: they have contributed and have no result yet.
  uint64_t lent(size_t half) const { return buffers_[half].lent; }

 private:
  void begin_values(size_t half) override;
  void gather(size_t half) override;

  // Bitmaps of ranks; all of `sources` are in `lent`. While a sum is being made, `lent` are the ranks whose buffers get
  // it.
  struct Buffers {
    uint64_t sources = 0;
    uint64_t lent = 0;
    bool closed = false;    // no more are lent: all ranks may get a result of the phase at any time
    uint64_t sum_id = 0;    // changes when a sum that is being made no longer counts
    ShmJob* job = nullptr;  // the owner of the buffers and results
  };

  // Makes the rank's buffer one of those lent. Returns false if those are of another generation of the job, or the
  // phase was complete before.
  bool borrow(size_t half, const SharedValues& shared);
  // Gives the buffers of some ranks back, after adding their values to the slot's memory.
  void give_back(size_t half, uint64_t ranks);
  // Copies the sum to the slot's memory from a rank's buffer.
  void copy_sum(size_t half, uint8_t rank);
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
