// The memory that one rank shares with its process, divided among the agent's data threads.
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

// One thread, the rank's home, takes slots out of the submission ring and sorts them by the threads that they belong
// to; every thread puts results into the completion ring.
class RankChannel {
 public:
  // `results` is the job's memory, one buffer a slot, for all its ranks here. Throws std::system_error.
  RankChannel(const RankAssignment& assignment, uint8_t* results, unsigned threads);
  ~RankChannel();
  RankChannel(const RankChannel&) = delete;
  RankChannel& operator=(const RankChannel&) = delete;

  // The eventfd that the process rings when the home sleeps.
  int doorbell() const { return doorbell_; }

  // Makes the memory and returns a new descriptor of it, for the process; the caller closes it.
  // Throws std::logic_error when it was made already and std::system_error.
  int open();
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  // Precondition of both: is_open().
  const channel::Channel& channel() const { return channel_; }
  const std::shared_ptr<channel::SharedMemory>& memory() const { return memory_; }

  // For the home alone: returns whether take_submissions() would find something.
  bool submissions_wait() const;
  // Takes what was submitted. Returns the threads that got some of it, as bits.
  uint64_t take_submissions();
  // Tells the process whether it must ring the doorbell.
  void set_sleeping(bool sleeping);

  // For every thread. Moves the slots submitted for `thread` to the end of `slots`. Returns whether there were any.
  bool take(unsigned thread, std::vector<uint16_t>* slots);
  bool has_slots_for(unsigned thread);
  // Lets the process see that these slots have their results. Wakes it if it waits for no more than those, or for any
  // when there is nothing left to do here. Empties `slots`. `status` is the thread's part of the rank's.
  void complete(unsigned thread, const RankStatus& status, std::vector<uint16_t>* slots, bool nothing_left);
  // Returns the rank's status as the threads last published it. Any thread may call it, and does not wait for a data
  // thread's round.
  RankStatus status() const;
  // Ends the service of the process, which wrote what no process of this release writes.
  void fail() { broken_ = true; }
  bool broken() const { return broken_; }

 private:
  RankAssignment assignment_;
  uint8_t* results_;
  int doorbell_ = -1;
  std::shared_ptr<channel::SharedMemory> memory_;  // a device may read it a little longer
  channel::Channel channel_;
  std::atomic<bool> open_{false};
  std::atomic<bool> broken_{false};
  uint32_t submitted_ = 0;  // entries taken from the submission ring

  mutable std::mutex mutex_;  // guards what follows, for a few slots at a time
  std::vector<std::vector<uint16_t>> slots_of_thread_;
  uint32_t completed_ = 0;  // entries put into the completion ring
  std::vector<RankStatus> status_of_thread_;
};

}  // namespace switchml::agent
