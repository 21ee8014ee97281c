// The part of a rank inside the training process: any thread may make calls. One thread at a time moves the values: the
// progress thread, or the one that waits for a short call, which is faster because no thread has to be woken for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "native/channel/shared_memory.h"
#include "switchml/native/call.h"
#include "switchml/native/codecs/make_codec.h"
#include "switchml/native/direct_calls.h"
#include "switchml/native/stream.h"

namespace switchml::client {

class Communicator {
 public:
  // Duplicates the descriptors. `shared_fd` is the memory that the job's ranks on this host share, or -1: the results
  // that come from an agent, or with a switch on this machine the memory for direct calls, which the ranks make unless
  // one of them is not `direct`. `check_key` is the epoch's, which only its ranks and their agents know. Throws
  // std::invalid_argument if the memory does not hold a channel, and std::system_error.
  Communicator(int memory_fd, int doorbell_fd, int shared_fd, const SipKey& check_key, bool direct = true);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Geometry& geometry() const { return geometry_; }

  // Returns the call's sequence number; the one in its lanes is not used. The arrays belong to the communicator until
  // the call has ended. `awaited` tells that this thread calls wait() next: a short call may begin only there. Throws
  // std::invalid_argument for memory that no array can have and for parts that the kind does not allow, and
  // std::logic_error after abandon().
  uint64_t submit(CallDescription description, bool awaited);
  // Waits at most `seconds` and returns whether the call has ended. Throws std::out_of_range for an unknown call.
  bool wait(uint64_t sequence, double seconds);
  // Throws std::out_of_range for an unknown call.
  CallStatus status(uint64_t sequence);
  struct Outcome {
    CallStatus status;
    NonFinite non_finite;
    uint64_t wire_bytes;  // of the values that this rank has put into packets, without retransmissions
    Blocks blocks;
    bool sparse;  // whether the call was made as one
  };
  // Forgets a call and returns its outcome. Throws std::invalid_argument if it has not ended.
  Outcome release(uint64_t sequence);

  // Makes every unfinished call fail, and returns when user memory is no longer touched.
  void abandon();
  // Does the same after taking the results that have arrived. For a rank that gets no more results in this epoch,
  // because its job changes to another one.
  void settle();
  // Makes the call with this sequence number and all later ones fail, once the earlier ones have ended, because not all
  // ranks take part in them.
  void fail_from(uint64_t sequence);
  // An eventfd, readable once a check failed.
  int attention_fd() const { return attention_; }
  // Returns position and sequence number of the call whose check failed.
  std::optional<std::pair<uint64_t, uint64_t>> check_failure();
  // Returns the times that the threads that move the values have spent in each state.
  const channel::ProcessCounters& spent() const { return channel_.control().process; }
  const channel::CallLog& calls() const { return channel_.control().calls; }
  uint64_t position() const { return position_.load(std::memory_order_relaxed); }
  // Returns the nanoseconds of all round trips that the agent has measured, and the bytes that came during them.
  std::pair<uint64_t, uint64_t> round_trips() const {
    const channel::ServerCounters& server = channel_.control().server;
    return {server.round_trips_ns.load(std::memory_order_relaxed),
            server.round_trips_bytes.load(std::memory_order_relaxed)};
  }

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  bool has_results_to_settle() const;
  // Returns whether the thread that waits for a call should move its values: if it is a direct one, or all its chunks
  // fit the pool at once. Any other call is left to the progress thread, which runs near the switch.
  bool is_short(const Call& call) const {
    return call.codec->positions() <= geometry_.slots || (direct_ != nullptr && direct_->takes(call));
  }
  // Lets this thread move values until `call` has ended or, if it is null, all calls have, but no longer than until
  // `end`. `lock` holds the mutex before and after it.
  void drive(std::unique_lock<std::mutex>& lock, const Call* call, Clock::time_point end);
  void move_values(const Call* call, Clock::time_point end);
  void take_inbox();
  // Begins the queued calls, in order. Those in a row that are of one kind, direct or not, go on at the same time.
  void begin_calls();
  // Does what is possible now. Returns whether that was anything, and appends the calls that have ended to `ended`.
  bool advance(std::vector<std::shared_ptr<Call>>* ended);
  bool waits_for_ranks() const { return direct_ != nullptr && !direct_->idle(); }
  // Wakes the thread that moves the values.
  void wake() const;
  // Spins for a short time until results come; returns false if none came.
  bool spin();
  // Sleeps until there is something to do, or until `end`.
  void sleep(Clock::time_point end);
  // Sleeps until another rank has moved on a direct call, or there is something else to do, or until `end`.
  void sleep_among_ranks(Clock::time_point end);
  // Notes that these calls have ended; returns whether that was all to wait for: `call` or, if it is null, every call.
  bool end(const std::vector<std::shared_ptr<Call>>& ended, const Call* call);
  std::shared_ptr<Call>& find(uint64_t sequence);
  // Abandons the calls if all that are unfinished must fail.
  void abandon_late_calls();

  channel::SharedMemory memory_;
  Geometry geometry_;
  const Check check_;
  channel::SharedMemory results_;
  channel::Channel channel_;
  int doorbell_ = -1;
  int attention_ = -1;
  const bool spins_;
  std::unique_ptr<Stream> stream_;           // used by the thread that moves the values, like the next two members
  std::unique_ptr<DirectCalls> direct_;      // null if all calls go over the switch
  std::deque<std::shared_ptr<Call>> queue_;  // calls that neither of them has yet

  std::mutex mutex_;  // guards all members below except the atomics
  std::condition_variable ended_;
  std::condition_variable unattended_;               // there are calls, and no thread moves their values
  std::map<uint64_t, std::shared_ptr<Call>> calls_;  // until released
  std::vector<std::shared_ptr<Call>> inbox_;         // submitted, but not seen by the stream yet
  uint64_t next_sequence_ = 0;
  uint64_t unfinished_ = 0;              // calls
  uint64_t first_to_fail_ = UINT64_MAX;  // sequence number
  bool attended_ = false;                // a thread moves the values
  bool abandoned_ = false;               // no thread uses any call any more
  std::optional<std::pair<uint64_t, uint64_t>> check_failure_;

  std::atomic<bool> has_inbox_{false};
  std::atomic<bool> abandoning_{false};
  std::atomic<bool> settling_{false};
  std::atomic<uint64_t> position_{0};
  std::thread thread_;
};

}  // namespace switchml::client
