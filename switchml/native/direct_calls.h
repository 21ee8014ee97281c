// The calls of one rank whose values the ranks of a machine add up themselves, in memory that they share
// (native/channel/direct_memory.h), with the bits that they would have over the switch.
//
// All ranks make the same calls, so each of them knows from the row's counters which step of a piece is next. A call is
// complete for a rank once all ranks have added up their shares of all its pieces. A rank that is lost after that does
// not matter; before that no rank completes the call.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "native/channel/direct_memory.h"
#include "native/channel/shared_memory.h"
#include "switchml/native/call.h"
#include "switchml/native/codecs/geometry.h"
#include "switchml/native/thread_time.h"

namespace switchml::client {

// One thread at a time uses an object, except for freeze(), wake() and leave().
class DirectCalls {
 public:
  // Maps the memory that `fd` stands for. `control` and `time` are those of the rank's process, and outlive this
  // object. Throws std::invalid_argument if it is not the memory of such a job, and std::system_error.
  DirectCalls(int fd, const Geometry& geometry, channel::ChannelControl* control, ThreadTime* time);

  // Returns whether the ranks add up the values of this call themselves. The answer may change to false until they
  // have.
  bool takes(const Call& call) const;
  void add(std::shared_ptr<Call> call) { waiting_.push_back(std::move(call)); }
  // Returns whether all calls have ended.
  bool idle() const { return waiting_.empty(); }
  // Tells the other ranks that this one makes a call over the switch.
  void begins_over_switch(const Call& call) const;

  // Returns the number of chunks whose sums this rank has.
  uint64_t position() const { return position_; }

  // Does all steps that are possible. Returns whether there were any, and appends the calls that have ended to `ended`.
  bool advance(std::vector<std::shared_ptr<Call>>* ended);
  // If the next call must go over the switch, returns it and all later ones, and forgets them.
  std::vector<std::shared_ptr<Call>> leaving();
  // Spins for a short time, and returns whether there is something to do.
  bool spin() const;
  // Announces that the thread will sleep(), unless there is something to do.
  uint32_t announce_sleep() const { return memory_.announce_sleep(rank_); }
  bool has_work() const { return may_put() || may_sum() || may_take() || must_leave(); }
  void sleep(uint32_t event, const timespec* timeout) const {
    channel::futex_wait(memory_.control().rank[rank_].event, event, timeout);
  }
  // Wakes this rank's thread.
  void wake() const { memory_.wake(uint64_t{1} << rank_); }

  // Makes all ranks use the switch from now on. Before the first call.
  void leave() const { memory_.leave_from(0); }
  // Lets no rank do further steps, so that the same calls are complete at all of them.
  void freeze() const { memory_.freeze(); }
  // Returns whether advance() would still complete a piece.
  bool has_results() const { return may_take() || (may_sum() && !at(summed_).shared); }

 private:
  // A part of a call that takes a row.
  struct Piece {
    std::shared_ptr<Call> call;
    uint64_t first_chunk = 0;
    uint64_t chunks = 0;
    bool shared = false;  // the ranks share the work: each adds up some chunks for all
    bool last = false;
  };
  using Parts = std::vector<const uint8_t*>;

  static size_t row_of(uint64_t piece) { return piece % channel::DirectControl::kRows; }
  static uint64_t round_of(uint64_t piece) { return piece / channel::DirectControl::kRows; }
  channel::DirectControl::Row& row(uint64_t piece) const { return memory_.control().rows[row_of(piece)]; }
  const Piece& at(uint64_t piece) const { return in_flight_[row_of(piece)]; }

  bool may_put() const;
  bool may_sum() const;
  bool may_take() const;
  bool must_leave() const;
  bool put();
  bool sum(std::vector<std::shared_ptr<Call>>* ended);
  bool take(std::vector<std::shared_ptr<Call>>* ended);
  Piece next_piece() const;
  void begin(Call* call);
  // Copies this rank's elements of a piece into the row. Returns their bytes.
  uint64_t copy_elements(const Piece& piece) const;
  // Returns whether all ranks have put the same piece into the row.
  bool agree(uint64_t piece) const;
  // Returns where the elements of a chunk are, counted from the first of the piece; null for ranks that have none.
  Parts parts_of(uint64_t piece, uint64_t chunk) const;
  // Adds up the chunks from `first` to before `end`, for all ranks or for this one. Returns false if an element is not
  // finite.
  bool sum_chunks(uint64_t piece, uint64_t first, uint64_t end) const;
  // Notes the elements that are not finite, and gives the row to the next round.
  void finish(uint64_t piece, bool finite, std::vector<std::shared_ptr<Call>>* ended);
  void wake_others() const { memory_.wake(~(uint64_t{1} << rank_)); }

  channel::SharedMemory mapped_;
  channel::DirectMemory memory_;
  uint32_t rank_;
  uint32_t ranks_;
  channel::ChannelControl* control_;
  ThreadTime* time_;
  std::deque<std::shared_ptr<Call>> waiting_;  // calls that have not ended
  size_t put_calls_ = 0;                       // of these, how many are in rows completely
  uint64_t next_chunk_ = 0;                    // of the call after them
  std::array<Piece, channel::DirectControl::kRows> in_flight_;
  std::array<uint64_t, channel::DirectControl::kRows> shared_rounds_{};  // of each row, so far
  // The numbers of the next pieces.
  uint64_t put_ = 0;
  uint64_t summed_ = 0;
  uint64_t taken_ = 0;
  uint64_t position_ = 0;  // chunks whose sums were taken
  bool frozen_ = false;    // seen
};

}  // namespace switchml::client
