// The value side of one rank (docs/protocol.md): its calls, cut into chunks, through the slots that it shares with the
// agent. One thread, the progress thread of Communicator, uses it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "native/channel/channel.h"
#include "switchml/native/call.h"
#include "switchml/native/thread_time.h"

namespace switchml::client {

// Position s of the stream uses slot s mod P, in as many phases as its codec needs. Each RESULT says what all ranks
// know of the exponent of the chunk that has the slot next.
class Stream {
 public:
  // `doorbell` is the eventfd that wakes the agent.
  Stream(const channel::Channel& channel, const channel::Geometry& geometry, int doorbell);

  // Queues a call; its chunks follow those of the calls before.
  void add(std::shared_ptr<Call> call);

  // Takes results and submits what can be submitted. Returns whether anything happened. `ended` gets the calls whose
  // last chunk arrived. After a failed check nothing is done any more.
  bool advance(std::vector<std::shared_ptr<Call>>* ended);
  uint32_t results_that_wait() const;
  // How many results were taken, and how many more are worth being woken for.
  uint32_t taken() const { return taken_; }
  uint32_t results_wanted() const;
  bool waits_for_results() const { return submitted_ != taken_; }
  ThreadTime& time() { return time_; }

  bool check_failed() const { return failed_call_ != nullptr; }
  uint64_t failed_position() const { return failed_position_; }
  uint64_t failed_sequence() const { return failed_call_->sequence; }
  uint64_t position() const { return finished_chunks_; }

 private:
  struct Slot {
    std::shared_ptr<Call> call;  // null: the slot is free
    uint64_t position = 0;
    Chunk chunk;
    Contribution sent;
  };

  // Whether the next chunk has a slot.
  bool may_begin() const;
  void begin(uint64_t position);
  // Contributes to the phase of the slot's chunk.
  void submit(uint32_t index);
  void take_result(uint32_t index, std::vector<std::shared_ptr<Call>>* ended);
  // False where `result`, whose words weigh so much, is not the sum of what all ranks contributed to the phase.
  bool check_holds(const Slot& slot, const channel::Ticket& result, uint32_t weighed) const;
  void finish(Slot& slot, std::vector<std::shared_ptr<Call>>* ended);
  void fail(const Slot& slot);
  // Lets the server see what was submitted; `all` that can be for now, or else there is more to come.
  void publish(bool all);

  // The call that owns a position, or null when no such call is queued.
  const std::shared_ptr<Call>* call_at(uint64_t position) const;
  uint16_t exponent_ahead(uint64_t position) const;
  // What all ranks add to the check of a chunk, beside values.
  uint32_t common_terms(const Slot& slot) const;

  channel::Channel channel_;
  channel::Geometry geometry_;
  ThreadTime time_;
  int doorbell_;
  uint32_t own_rank_term_;   // of the check
  uint32_t all_rank_terms_;  // of all ranks together
  std::vector<Slot> slots_;
  std::deque<std::shared_ptr<Call>> calls_;  // not ended, in stream order
  uint64_t next_position_ = 0;
  uint64_t end_position_ = 0;  // of all queued calls
  uint64_t finished_chunks_ = 0;
  uint32_t submitted_ = 0;
  uint32_t unpublished_ = 0;
  uint32_t rung_ = 0;   // what had been submitted at the last ring of the doorbell
  uint32_t taken_ = 0;  // results
  std::shared_ptr<Call> failed_call_;
  uint64_t failed_position_ = 0;
};

}  // namespace switchml::client
