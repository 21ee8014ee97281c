// The stream of one rank's values (docs/understand/protocol.md): its calls are cut into chunks, or sparse ones into
// columns of blocks, which go through the slots that it shares with the agent. One thread at a time, which Communicator
// chooses, uses it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "native/channel/channel.h"
#include "switchml/native/call.h"
#include "switchml/native/check.h"
#include "switchml/native/sparse_history.h"
#include "switchml/native/thread_time.h"

namespace switchml::client {

// With a pool of P slots, position s of the stream uses slot s mod P, in as many phases as its codec needs. Each RESULT
// carries the largest exponent, known so far, of what will have the slot next.
class Stream {
 public:
  // `doorbell` is the eventfd that wakes the agent. `check` outlives the stream.
  Stream(const channel::Channel& channel, const channel::Geometry& geometry, int doorbell, const Check& check);

  // Returns whether all calls have ended.
  bool idle() const { return calls_.empty() && later_.empty(); }
  // Queues a call; its chunks follow those of the earlier calls.
  void add(std::shared_ptr<Call> call);

  // Takes results and submits the chunks that have a free slot. Returns whether it did any of this, and appends the
  // calls whose last chunk arrived to `ended`. After a failed check nothing more is done.
  bool advance(std::vector<std::shared_ptr<Call>>* ended);
  uint32_t results_that_wait() const;
  // Returns the number of results that were taken. The next function returns how many more are worth a wake-up.
  uint32_t taken() const { return taken_; }
  uint32_t results_wanted() const;
  bool waits_for_results() const { return submitted_ != taken_; }
  ThreadTime& time() { return time_; }

  bool check_failed() const { return failed_call_ != nullptr; }
  uint64_t failed_position() const { return failed_position_; }
  uint64_t failed_sequence() const { return failed_call_->sequence; }
  uint64_t position() const { return finished_; }

 private:
  struct Slot {
    std::shared_ptr<Call> call;  // null if the slot is free
    uint64_t position = 0;
    uint16_t exponent_ahead = 0;  // of this rank, for the slot's next position; unknown if that has no call yet
    Chunk chunk;
    uint32_t round = 0;  // of the phases of this position, from 1
    Contribution sent;
    bool keeps_words = false;  // of what was encoded: they did not travel
  };

  // Returns whether the call must wait before it gets positions: for the number of an earlier call's, or for results
  // on which its form depends.
  bool must_wait(const Call& call) const;
  // Adds the calls that had to wait, as far as possible.
  void add_later();
  void choose_form(Call* call);
  // Gives the call the next positions.
  void append(std::shared_ptr<Call> call);
  // Replaces the codec of a call whose first part has ended.
  void begin_second_part(const std::shared_ptr<Call>& call);
  // Returns whether there is a next chunk, and its slot is free.
  bool may_begin() const;
  void begin(uint64_t position);
  // Submits the contribution to the current phase of the slot's chunk.
  void submit(uint32_t index);
  // Takes the RESULT of a slot, and puts the slot into next_phases_ if its chunk has another phase.
  void take_result(uint32_t index, std::vector<std::shared_ptr<Call>>* ended);
  // Submits after all results were taken, because a change of the thread's state is noted once for all of them.
  void submit_next_phases();
  // Returns whether `result` can be that of the slot's contribution: its chunk, format and whether it has values fit.
  bool may_answer(const Slot& slot, const channel::Ticket& result) const;
  // Returns the header's `owner` of a contribution.
  uint8_t owner_of(const Contribution& sent) const;
  // Returns whether the words need not travel: this rank alone reads their sum, and can add them to the RESULT's.
  bool may_keep_words(const Contribution& made) const;
  // Returns the words of a RESULT, to which it adds those that did not travel; null if this rank gets none.
  const uint8_t* words_of(const Slot& slot, uint32_t index, bool has_values) const;
  // Returns whether `result`, whose words have the weighed sum `weighed`, is the sum of the contributions of all ranks
  // to the phase: if values are scaled, the exponent of at least one rank has scaled them.
  bool check_holds(const Slot& slot, const channel::Ticket& result, uint64_t weighed) const;
  void finish(Slot& slot, std::vector<std::shared_ptr<Call>>* ended);
  void fail(const Slot& slot);
  // Lets the server see the submissions. `all` is true if no more can be made for now, false if more will follow at
  // once.
  void publish(bool all);

  // Returns the call that a position belongs to, or null if no such call is queued.
  const std::shared_ptr<Call>* call_at(uint64_t position) const;
  uint16_t exponent_at(uint64_t position) const;
  static Phase phase_of(const Slot& slot);

  channel::Channel channel_;
  channel::Geometry geometry_;
  ThreadTime time_;
  int doorbell_;
  const Check& check_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> next_phases_;         // slots whose chunks have another phase
  std::deque<std::shared_ptr<Call>> calls_;   // unfinished calls, in stream order
  bool open_ended_ = false;                   // the last of them has a second part, of a length that is not known yet
  std::vector<std::shared_ptr<Call>> later_;  // calls that must wait, in order
  SparseHistory sparse_history_;
  uint64_t next_position_ = 0;
  uint64_t end_position_ = 0;  // after the last queued call
  uint64_t finished_ = 0;      // positions
  uint32_t submitted_ = 0;
  uint32_t unpublished_ = 0;
  uint32_t rung_ = 0;   // number of submissions at the last ring of the doorbell
  uint32_t taken_ = 0;  // number of results
  std::shared_ptr<Call> failed_call_;
  uint64_t failed_position_ = 0;
};

}  // namespace switchml::client
