// The memory that one rank shares with its process, divided into parts: the slots that one of the agent's data threads
// sends to one of the job's switches.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "host_agent/native/assignment.h"
#include "native/channel/channel.h"
#include "native/channel/shared_memory.h"

namespace switchml::agent {

// One thread, the rank's home, takes slots out of the submission ring and passes them to the threads that they belong
// to; every thread puts results into the completion ring.
class RankChannel {
 public:
  // `results` is the memory of the job, with one buffer per slot for all its ranks on this host. Throws
  // std::system_error.
  RankChannel(const RankAssignment& assignment, uint8_t* results, unsigned threads);
  ~RankChannel();
  RankChannel(const RankChannel&) = delete;
  RankChannel& operator=(const RankChannel&) = delete;

  // The eventfd that the process rings when the home sleeps.
  int doorbell() const { return doorbell_; }

  // Makes the memory and returns a new descriptor of it for the process, which the caller must close. Throws
  // std::logic_error if it was made already, and std::system_error.
  int open();
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  // Precondition of both: is_open().
  const channel::Channel& channel() const { return channel_; }
  const std::shared_ptr<channel::SharedMemory>& memory() const { return memory_; }

  // For the home alone: returns whether take_submissions() would find something.
  bool submissions_wait() const;
  // Takes the submissions. Returns the threads that got some of them, as bits.
  uint64_t take_submissions();
  // Tells the process whether it must ring the doorbell.
  void set_sleeping(bool sleeping);

  // Returns the number of the part that a thread sends to a switch.
  unsigned part_of(unsigned thread, unsigned number_of_switch) const { return number_of_switch * threads_ + thread; }
  unsigned parts() const { return threads_ * assignment_.switches(); }
  // For every thread. Moves the slots submitted for `part` to the end of `slots`. Returns whether there were any.
  bool take(unsigned part, std::vector<uint16_t>* slots);
  bool has_slots_for(unsigned part);
  // For every thread. Adds round trips of a part to those that the process sees. `bytes` came to this part during them,
  // and as many to each other one, as they have equal shares of the slots.
  void count_round_trips(uint64_t nanoseconds, uint64_t bytes);
  // Lets the process see that these slots have their results, and empties `slots`. Wakes the process if it waits for no
  // more than these, or, if there is `nothing_left` to do here, for any. `status` is the part's share of the rank's
  // status.
  void complete(unsigned part, const RankStatus& status, std::vector<uint16_t>* slots, bool nothing_left);
  // Returns the rank's status as the threads last published it. Any thread may call it, and does not wait for a data
  // thread's round.
  RankStatus status() const;
  // Stops serving the process, which has written invalid data.
  void fail() { broken_ = true; }
  bool broken() const { return broken_; }

 private:
  RankAssignment assignment_;
  unsigned threads_;
  uint8_t* results_;
  int doorbell_ = -1;
  std::shared_ptr<channel::SharedMemory> memory_;  // a device may still read it for a short time
  channel::Channel channel_;
  std::atomic<bool> open_{false};
  std::atomic<bool> broken_{false};
  uint32_t submitted_ = 0;  // entries taken from the submission ring

  mutable std::mutex mutex_;  // guards the members below; held for a few slots at a time
  std::vector<std::vector<uint16_t>> slots_of_part_;
  uint32_t completed_ = 0;  // entries put into the completion ring
  std::vector<RankStatus> status_of_part_;
};

}  // namespace switchml::agent
